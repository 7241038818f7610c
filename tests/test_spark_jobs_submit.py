"""The job as people submit it: a process of spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from deltalake import DeltaTable
from spark_groups import ORDER, crowd, tables

from assignors import GroupSpec, get_assignor
from coordinator.tables import read_delta
from spark_jobs.jars import spark_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def given(tmp_path):
    members, topics, owned = tables(crowd(4, members=300, classes=2), seed=4)
    for name, table in (("members", members), ("topics", topics), ("owned", owned)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return members, topics, owned


def submit(*words, activated=True):
    """README's command, in the folder it is given for."""
    paths = [os.path.join(sys.prefix, "bin")] if activated else []
    paths += [str(spark_jars().parent / "bin"), "/usr/bin", "/bin"]
    return subprocess.run(
        ["spark-submit", "--properties-file", "conf/spark-defaults.conf", "spark_jobs/assign.py"]
        + [str(word) for word in words],
        cwd=ROOT,
        env=os.environ | {"PATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_submitted_job(given, tmp_path):
    words = ["--members", tmp_path / "members.parquet", "--topics", tmp_path / "topics.parquet"]
    words += ["--owned", tmp_path / "owned.parquet", "--output", tmp_path / "out"]
    words += ["--assignor", "sticky", "--run-id", "monday"]
    done = submit(*words)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert (first["engine"], first["version"], first["already_written"]) == ("spark", 0, False)
    expected = get_assignor("sticky").assign(GroupSpec.from_arrow(*given)).to_arrow()
    written = read_delta(DeltaTable(tmp_path / "out")).sort_by(ORDER)
    assert written.to_pylist() == expected.sort_by(ORDER).to_pylist()
    done = submit(*words)
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)
    assert (again["version"], again["already_written"]) == (0, True)
    assert DeltaTable(tmp_path / "out").version() == 0


@pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="finds the project's own .venv")
def test_bad_input_without_an_environment_activated(given, tmp_path):
    """spark-submit starts the first python3 on the path; the job finds its own interpreter."""
    done = submit("--members", tmp_path / "none", "--topics", tmp_path / "none", activated=False)
    assert done.returncode == 2, done.stderr
    assert f"muster: --members '{tmp_path}/none' is not there" in done.stdout + done.stderr
