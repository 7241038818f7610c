"""Files that come with Muster beside its code, in a wheel and in a clone."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
IN_CLONE = {"conf": "conf", "demo_data": "tests/golden/kafka-4.4.0/assignments"}
"""Where a clone has the folders that a wheel has here; pyproject.toml says the same."""
CONF = ("muster.toml", "spark-defaults.conf", "log4j2.properties")
"""Settings with their defaults: Muster's, Spark's, and Spark's logging."""


def conf_file(name: str) -> Path:
    """Return where one of `CONF` is."""
    return _find_file("conf", name)


def demo_cases() -> Path:
    """Return where the groups with Kafka's answers are that `muster demo` shows."""
    return _find_file("demo_data", "cases.jsonl")


def _find_file(folder: str, name: str) -> Path:
    inside = PACKAGE / folder / name
    return inside if inside.exists() else PACKAGE.parent / IN_CLONE[folder] / name
