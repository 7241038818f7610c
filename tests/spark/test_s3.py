"""Spark and a store on S3: reads what the coordinator wrote, writes targets and nightly outputs.

It needs Hadoop's file system for S3 (`muster setup --s3`), so it is run by `make test-s3`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator import Coordinator
from coordinator.history import frame
from coordinator.storage.tables.store_files import open_delta
from coordinator.storage.tables.table_io import read_delta
from coordinator.storage.target_table import targets_path
from tests.conftest import ROOT
from tests.spark.test_target_job import SPARK, Compared
from tests.support.members import Members
from tests.support.s3.client import KEYS
from tests.support.table_engine import TableEngine

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not os.environ.get("MUSTER_S3"), reason="needs hadoop-aws, 10 MB: make test-s3"
    ),
]
MEMBERS = pa.table({"member_id": [f"m{at}" for at in range(9)], "subscribed": [["a", "b"]] * 9})
TOPICS = pa.table({"topic": ["a", "b"], "partitions": [40, 7]})


@pytest.fixture
def reached(spark, s3):
    """The session, with the keys that a JVM takes from the environment when it starts."""
    hadoop = spark._jsc.hadoopConfiguration()
    for name, value in zip(("access.key", "secret.key"), KEYS, strict=True):
        hadoop.set(f"fs.s3a.{name}", value)
    return spark


@pytest.fixture
def store(s3):
    return s3.new_store()


@pytest.fixture
def engine(reached):
    engine = Compared(reached, SPARK)
    yield engine
    engine.close()


def opened(store, engine):
    return Coordinator.open(store, topics={"a": 7, "b": 12}, config=SPARK, engine=engine)


def rows_in(path):
    return sorted(map(str, read_delta(open_delta(str(path))).to_pylist()))


def test_targets_of_spark_are_in_the_store_and_outlive_their_coordinator(store, engine, reached):
    from spark_jobs.sql.views import register

    with opened(store, engine) as coordinator:
        members = Members(coordinator, 0.1)
        members.join("m1", topics=["a", "b"])
        members.settle()
        members.join("m2", topics=["b"])  # computed from the first one
        owned = members.settle()
    assert len(engine.pairs) >= 2
    for ours, numpys, _ in engine.pairs:
        assert ours == numpys
    files = open_delta(targets_path(store)).file_uris()
    assert all("/targets/run-" in file for file in files)
    with opened(store, engine) as coordinator:
        members.coordinator = coordinator
        assert members.settle() == owned
    register(reached, store, only=["partition_owners", "targets", "log"], engine="spark")
    for view in ("partition_owners", "targets", "log"):
        assert reached.table(view).count() == frame(store, view).num_rows > 0


def test_a_job_of_its_own_plans_and_applies(store, reached):
    from spark_jobs.jobs.assign_store import StoreJob, assign_store

    idle = TableEngine()
    idle.let.clear()
    with opened(store, idle) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        done = assign_store(StoreJob(store, "g", run_id="monday"), SPARK)
        assert (done["verdict"], done["members"], done["placed"]) == ("accepted", 2, 7)
        assert sorted(map(len, members.settle().values())) == [3, 4]
        again = assign_store(StoreJob(store, "g", run_id="monday"), SPARK)
        assert again["already_judged"]
    idle.close()


def test_nights_on_spark_replace_an_output_on_s3(store, reached, tmp_path, muster_here):
    write_deltalake(str(tmp_path / "members"), MEMBERS)
    write_deltalake(str(tmp_path / "topics"), TOPICS)
    words = ["--members", "members", "--topics", "topics", "--assignor", "sticky"]
    for night in ("monday", "tuesday", "tuesday"):
        said = muster_here(
            "assign", *words, "--engine", "spark", "--output", store, "--run-id", night,
            cwd=tmp_path,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr.decode()
    done = json.loads(said.stdout)
    assert (done["version"], done["already_written"]) == (1, True)
    here = muster_here("assign", *words, "--engine", "local", "--output", "here", cwd=tmp_path)
    assert here.returncode == 0
    assert rows_in(store) == rows_in(tmp_path / "here")
    assert "/run-" in open_delta(store).file_uris()[0]


def run_whole(command, s3, cwd, timeout):
    """Run a program as on another machine: by the bucket alone, with nothing of this process."""
    keep = ("PATH", "HOME", "JAVA_HOME", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS")
    bare = {name: os.environ[name] for name in keep if name in os.environ}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=bare | s3.environment(),
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def test_a_killed_driver_is_taken_over_by_one_that_shares_the_bucket_alone(s3, tmp_path):
    store = s3.new_store()
    done = run_whole([ROOT / "examples/streaming", tmp_path, "--store", store], s3, tmp_path, 600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert frame(store, "groups").num_rows == 1
    assert not (tmp_path / "store").exists()


def test_the_demo_runs_on_a_bucket(s3, tmp_path):
    store = s3.new_store()
    words = ["demo", "--members", "2000", "--partitions", "20000", "--store", store]
    done = run_whole(["-m", "coordinator", *words], s3, tmp_path, 600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert frame(store, "targets").num_rows
    again = run_whole(["-m", "coordinator", *words], s3, tmp_path, 60)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1), again.stderr
