"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "kafka-4.4.0"

settings.register_profile(
    "muster",
    deadline=None,  # machines are shared and noisy
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("muster")
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture(scope="session")
def spark():
    """One session for the whole run: two cores, two shuffle partitions, 2 GiB of heap."""
    from spark_jobs.session import spark_session

    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    session = spark_session("muster-tests", "local[2]", conf)
    yield session
    session.stop()


@pytest.fixture
def muster():
    """Run the command as a user would: in a process of its own."""

    def run(*words: str, stdin: str | bytes = "", cwd: Path | None = None, env=None, timeout=300):
        return subprocess.run(
            [sys.executable, "-m", "coordinator", *map(str, words)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=cwd,
            env=os.environ | (env or {}),
            timeout=timeout,
            check=False,
        )

    return run
