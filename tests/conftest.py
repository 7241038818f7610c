"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import processes
from tests.support.coordinator_core import group
from tests.support.longer import EVERY
from tests.support.processes import run_here
from tests.support.s3.client import S3Server
from tests.support.spark import class_archive
from tests.support.table_engine import engine

__all__ = ["engine", "group"]

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "kafka-4.4.0"

settings.register_profile(
    "muster",
    max_examples=100 if EVERY else 50,
    deadline=None,  # machines are shared and noisy
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("muster")
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.jvm_options())


def pytest_addoption(parser):
    said = "rewrite tests/traces/*.txt with what happens now"
    parser.addoption("--rewrite", action="store_true", help=said)


def pytest_configure(config):
    # pyspark leaves the sockets it reads results from to the garbage collector, in any later test.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
    # 4.2 says so where it is first used with pandas 3, as the locked one is.
    said = "ignore:PySpark does not yet fully support pandas:FutureWarning"
    config.addinivalue_line("filterwarnings", said)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector from what stays until the end: modules, and ten thousand tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure():
    gc.unfreeze()  # or modules in C find at the end that objects of theirs were left


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Start the longest tests first, so that no core is idle at the end.

    Each process of xdist gets a part of the tests, one after the other, and later takes from the
    end of others' parts. Those that share the Spark session are the beginning of the first part: a
    session of a second process would have to start, and to warm up, as well.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    with_spark = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    others = [item for item in items if item not in set(with_spark)]
    others.sort(key=lambda item: item.get_closest_marker("slow") is None)
    slow = sum(item.get_closest_marker("slow") is not None for item in others)
    rest = max(0, len(items) // workers - len(with_spark)) if workers > 1 else 0
    items[:] = with_spark + others[slow : slow + rest] + others[:slow] + others[slow + rest :]


@pytest.fixture(autouse=True)
def _no_process_is_left():
    """End what the test starts; what fixtures of a module or of the run started stays."""
    with processes.ended():
        yield


@pytest.fixture(autouse=True)
def _sessions_are_shared(request):
    """Refuse a test that leaves a session of Spark of its own: each costs ten seconds."""
    before = _has_spark()
    yield
    assert before or "spark" in request.fixturenames or not _has_spark(), "take the fixture `spark`"


def _has_spark() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


@pytest.fixture(scope="session")
def spark():
    """One session for the whole run: two cores, two shuffle partitions, 2 GiB of heap."""
    from spark_jobs.session.session import spark_session

    session = spark_session("muster-tests", "local[2]", class_archive.CONF)
    yield session
    session.stop()
    gc.collect()  # here pyspark's sockets are ignored as above, at the end of the run they are not


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server in a process of its own, for the whole run."""
    with S3Server.started() as server:
        yield server


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The same, as processes find it by their environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    s3_server.heal()
    s3_server.requests()
    return s3_server


@contextmanager
def once_a_run(tmp_path_factory, name):
    """Give a folder that all processes of a run share, and whether it is to be filled."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        filled = folder / "filled"
        yield folder, not filled.exists()
        filled.touch()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built offline from a copy of what it is made of."""
    with once_a_run(tmp_path_factory, "wheel") as (folder, empty):
        if empty:
            _build_wheel(folder)
    (built,) = folder.glob("muster-*.whl")
    return built


def _build_wheel(folder):
    from spark_jobs.session.package_files import IN_CLONE

    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    packages = ("assignors", "coordinator", "muster", "pyspark_muster", "spark_jobs")
    for name in (*packages, *IN_CLONE.values()):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder, source)


@pytest.fixture(scope="session")
def installed(request, tmp_path_factory):
    """The environment of a process that has Muster from the wheel and not from the sources."""
    if not (ROOT / "coordinator").exists():  # tools/matrix.py: the interpreter has the wheel
        return {}
    wheel = request.getfixturevalue("wheel")
    with once_a_run(tmp_path_factory, "site") as (site, empty):
        if empty:
            pip("install", "--target", site, wheel)
    return {"PYTHONPATH": str(site)}


def pip(*words):
    command = [sys.executable, "-m", "pip", words[0], "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, *map(str, words[1:])], check=True, timeout=120)


@pytest.fixture
def muster():
    """Run the command as a user would: in a process of its own."""

    def run(*words: str, stdin: str | bytes = "", cwd: Path | None = None, env=None, timeout=300):
        return subprocess.run(
            [sys.executable, "-m", "muster", *map(str, words)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=cwd,
            env=os.environ | (env or {}),
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def muster_here():
    """Run the command in this process, where a process of its own would test nothing more."""
    return run_here


def kill_when(ready, command, cwd, timeout=120, **kwargs):
    """Start a command and kill it with all its children as soon as `ready()`.

    Returns whether it was still at work.
    """
    with processes.running(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, **kwargs,
    ) as process:  # fmt: skip
        until = time.monotonic() + timeout
        while process.poll() is None and not ready() and time.monotonic() < until:
            time.sleep(0.002)
        return process.poll() is None
