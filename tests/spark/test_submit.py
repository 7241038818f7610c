"""The job as people submit it: a process of spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from assignors import GroupSpec, get_assignor
from coordinator.storage.tables.table_io import read_delta
from spark_jobs.jars import spark_jars
from spark_jobs.session.package_files import PACKAGE
from tests.conftest import ROOT
from tests.support.longer import longer
from tests.support.spark.groups import ORDER, crowd, tables

CONF = ROOT / "conf"
UNACTIVATED = (str(spark_jars().parent / "bin"), "/usr/bin", "/bin")
FEW_LINES = 15
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def given(tmp_path):
    members, topics, owned = tables(crowd(4, members=300, classes=2), seed=4)
    for name, table in (("members", members), ("topics", topics), ("owned", owned)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return members, topics, owned


def submit(folder, *words, settings=("--properties-file", CONF / "spark-defaults.conf"), **env):
    """README's command, from another folder."""
    paths = [os.path.join(sys.prefix, "bin"), *UNACTIVATED]
    command = ["spark-submit", *settings, PACKAGE / "assign.py", *words]
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | {"PATH": os.pathsep.join(paths)} | env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@longer("starts two JVMs, where test_readme.py has one: make test-spark")
def test_spark_submit_runs_a_job(given, tmp_path):
    words = ["--members", tmp_path / "members.parquet", "--topics", tmp_path / "topics.parquet"]
    words += ["--owned", tmp_path / "owned.parquet", "--output", tmp_path / "out"]
    words += ["--assignor", "sticky", "--run-id", "monday"]
    done = submit(tmp_path, *words, settings=(), SPARK_CONF_DIR=str(CONF))
    assert done.returncode == 0, done.stderr
    assert " INFO " not in done.stderr
    assert " WARN " not in done.stderr
    first = json.loads(done.stdout)
    assert (first["engine"], first["version"], first["already_written"]) == ("spark", 0, False)
    expected = get_assignor("sticky").assign(GroupSpec.from_arrow(*given)).to_arrow()
    written = read_delta(DeltaTable(tmp_path / "out")).sort_by(ORDER)
    assert written.to_pylist() == expected.sort_by(ORDER).to_pylist()
    done = submit(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) < FEW_LINES  # Spark says its version before it reads them
    again = json.loads(done.stdout)
    assert (again["version"], again["already_written"]) == (0, True)
    assert DeltaTable(tmp_path / "out").version() == 0


@pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="finds the project's own .venv")
def test_spark_submit_refuses_bad_input(given, tmp_path):
    """spark-submit starts the first python3 on the path; the job finds its own interpreter."""
    words = ["--members", tmp_path / "none", "--topics", tmp_path / "none"]
    done = submit(tmp_path, *words, PATH=os.pathsep.join(UNACTIVATED))
    assert done.returncode == 2, done.stderr
    assert f"muster: --members '{tmp_path}/none' not found" in done.stdout + done.stderr
