"""Find the data files that come with Muster, in a wheel and in a clone."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
IN_CLONE = {
    "conf": "conf",
    "demo_data": "tests/golden/kafka-4.4.0/assignments",
    "demo_topic": "tests/golden/kafka_topic",
}
"""Where a clone has the folders that a wheel has in this package, as in pyproject.toml."""
CONF = ("muster.toml", "spark-defaults.conf", "log4j2.properties")
"""Settings with their defaults: Muster's, Spark's, and Spark's logging."""


def conf_file(name: str) -> Path:
    """Return the path of a file in `CONF`."""
    return _find_file("conf", name)


def demo_cases() -> Path:
    """Return the folder of the groups with Kafka's answers, which `muster demo` shows."""
    return _find_file("demo_data", "cases.jsonl")


def demo_topic() -> Path:
    """Return what a Kafka cluster wrote of its groups, which `muster demo` watches."""
    return _find_file("demo_topic", "wide-00.jsonl")


def _find_file(folder: str, name: str) -> Path:
    inside = PACKAGE / folder / name
    return inside if inside.exists() else PACKAGE.parent / IN_CLONE[folder] / name
