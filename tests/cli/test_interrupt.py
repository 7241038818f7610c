"""Ctrl-C at a terminal while a command computes on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.session import interrupts
from tests.support.longer import longer
from tests.support.processes import running, start

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ALWAYS = "WARNING: Using incubator modules"
"""What a JVM says that starts."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """So many members that Spark is at work on them for seconds."""
    folder = tmp_path_factory.mktemp("large")
    names = [f"member-{number:07}" for number in range(1_000_000)]
    members = {"member_id": names, "subscribed": [["a", "b"]] * len(names)}
    pq.write_table(pa.table(members), folder / "members.parquet")
    sizes = {"topic": ["a", "b"], "partitions": [2_000_000, 1_000_000]}
    pq.write_table(pa.table(sizes), folder / "topics.parquet")
    return folder


def of_session(session):
    """Return the commands of processes that a terminal's signal goes to, those that ended not."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found[folder.name] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it has just ended
            continue
    return list(found.values())


def wait_until(ready, process):
    until = time.monotonic() + 120
    while not ready():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


LONG = longer("a JVM each: make test-spark")


@pytest.mark.parametrize(
    ("moment", "then_s", "times"),
    [
        ("a JVM", 0, 1),
        pytest.param("a JVM", 1, 2, marks=LONG),
        pytest.param("a context", 0, 1, marks=LONG),
        pytest.param("a context", 2, 1, marks=LONG),
        ("a context", 2, 2),
        pytest.param("a context", 5, 2, marks=LONG),
    ],
)
def test_nothing_stays_and_little_is_said(tables, tmp_path, moment, then_s, times):
    local = tmp_path / "local"
    local.mkdir()
    process = start(
        ["env", "--default-signal=INT", sys.executable, "-m", "coordinator", "assign",
         "--engine", "spark", "--members", tables / "members.parquet",
         "--topics", tables / "topics.parquet", "--output", "out"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        env=os.environ | {"SPARK_LOCAL_DIRS": str(local), "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    try:
        ready = {
            "a JVM": lambda: any("java" in one for one in of_session(process.pid)),
            "a context": lambda: list(local.glob("blockmgr-*")),
        }
        wait_until(ready[moment], process)
        time.sleep(then_s)
        for _ in range(times):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.3)
        out, said = process.communicate(timeout=60)
        lines = [line for line in said.splitlines() if not line.startswith(ALWAYS)]
        assert (process.returncode, out, len(lines) <= 1) == (130, "", True), said
        assert of_session(process.pid) == []
        assert list(local.iterdir()) == []
        assert not (tmp_path / "out").exists()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_command_without_spark_ends_too(tmp_path):
    code = """
import signal, sys
from spark_jobs.session.interrupts import interruptible
with interruptible():
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""
    command = ["env", "--default-signal=INT", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"


@pytest.fixture
def heeded():
    """SIGINT as in a terminal: what a script runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_a_jvm_is_ended_before_it_has_a_context(monkeypatch):
    """What it begins with takes seconds, and would be stopped as soon as it is there."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with running(command, stdin=subprocess.PIPE) as jvm:
        context = SimpleNamespace(_active_spark_context=None, _gateway=SimpleNamespace(proc=jvm))
        monkeypatch.setattr(interrupts, "_context_class", lambda: context)
        monkeypatch.setattr(interrupts, "_calls_jvm", lambda _frame: True)

        @interrupts.interruptible()
        def ask():
            signal.raise_signal(signal.SIGINT)
            jvm.wait(60)  # as pyspark waits for its answer

        with pytest.raises(KeyboardInterrupt):
            ask()
        assert jvm.returncode == -signal.SIGTERM


INTERRUPTED = """
import os, signal, sys
class Interrupt:
    @classmethod
    def find_spec(cls, name, *_):
        if name == "spark_jobs.cli.assign":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise SystemError("as of a module in C") from error
sys.meta_path.insert(0, Interrupt)
"""
"""A sitecustomize.py by which Ctrl-C comes while the command is imported."""


def test_nothing_is_said_where_imports_are_interrupted(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    command = ["env", "--default-signal=INT", sys.executable, "-m", "muster", "assign"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    done = subprocess.run(command, capture_output=True, env=environment, input=b"", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_without_a_signal_nothing_has_changed():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="of the block"), interrupts.interruptible():
        raise ValueError("of the block")
    assert signal.getsignal(signal.SIGINT) is before
