"""The nightly job on the Spark engine: the table, the facts and the refusals of the local one."""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator.storage.tables.table_io import read_delta, table_lock
from tests.conftest import kill_when
from tests.support.spark.groups import ORDER, crowd
from tests.support.spark.groups import tables as tables_of
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

LONG = bool(os.environ.get("MUSTER_LONG"))
CROWD = crowd(3, members=300, classes=2)


@pytest.fixture
def tables(tmp_path):
    """Members as Parquet, topics as Delta. On Tuesday, twenty members and a topic are gone."""
    members, topics, owned = tables_of(CROWD, seed=1)
    pq.write_table(members, tmp_path / "members.parquet")
    pq.write_table(owned, tmp_path / "owned.parquet")
    write_deltalake(tmp_path / "topics", topics)
    tuesday = [row for row in members.to_pylist()[20:] if row["subscribed"].remove("t03") is None]
    pq.write_table(pa.Table.from_pylist(tuesday), tmp_path / "fewer.parquet")
    return tmp_path


def drop_topic(tables, name):
    rows = DeltaTable(tables / "topics").to_pyarrow_table().to_pylist()
    rows = [row | {"partitions": row["partitions"] - 5} for row in rows if row["topic"] != name]
    write_deltalake(tables / "topics", pa.Table.from_pylist(rows), mode="overwrite")


@pytest.fixture
def nightly(muster_here, tables):
    def run(*words, engine="spark", members="members.parquet", code=0):
        given = ["--members", members, "--topics", "topics", "--assignor", "sticky"]
        done = muster_here("assign", *given, "--engine", engine, *words, cwd=tables)
        assert done.returncode == code, done.stderr.decode()
        return json.loads(done.stdout) if code == 0 else done.stderr.decode()

    return run


def content(path):
    rows = pq.read_table(path) if path.suffix else read_delta(DeltaTable(path))
    return rows.sort_by(ORDER).to_pylist()


def same_night(tables, on_spark, locally):
    """Both engines wrote the same rows and say the same."""
    assert (on_spark["engine"], locally["engine"]) == ("spark", "local")
    assert content(tables / on_spark["output"]) == content(tables / locally["output"])
    for name in on_spark.keys() - {"engine", "run_id", "output", "version"}:
        assert on_spark[name] == locally[name], name


def test_three_nightly_runs(spark, nightly, tables):
    nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday", engine="local")
    drop_topic(tables, "t03")
    night = {"members": "fewer.parquet"}
    second = nightly("--output", "out", "--run-id", "tuesday", **night)
    assert (second["version"], second["already_written"]) == (1, False)
    assert second["forgotten"] > 0
    written = content(tables / "out")
    with watch(spark) as seen:
        again = nightly("--output", "out", "--run-id", "tuesday", **night)
        assert again == second | {"already_written": True}
        assert nightly("--output", "out", "--run-id", "tuesday", engine="local", **night) == again
        said = nightly("--output", "out", "--run-id", "tuesday", code=2)
        assert "run 'tuesday' wrote 'out' with members fewer.parquet (digest " in said
    assert seen.plans == []
    assert content(tables / "out") == written

    nightly("--previous", "out@0", "--output", "local", engine="local", **night)
    assert content(tables / "local") == written
    words = ["--previous", "out@0", "--output", "third.parquet", "--max-moves", "3"]
    third = nightly(*words, "--run-id", "third", **night)
    with watch(spark) as seen:
        again = nightly(*words, "--run-id", "third", **night)
    assert (again, seen.plans) == (third | {"already_written": True}, [])
    assert "Spark cannot replace Parquet" in nightly(*words, code=2, **night)
    local = nightly(
        "--previous", "out@0", "--output", "few", "--max-moves", "3", engine="local", **night
    )
    same_night(tables, third, local)
    assert third["partial"]


def test_bad_nightly_runs_keep_the_old_content(spark, nightly, tables):
    """What is wrong is said in one line, and the old content stays."""
    nightly("--output", "out", engine="local")
    before = content(tables / "out")
    claims = pq.read_table(tables / "owned.parquet")
    pq.write_table(pa.concat_tables([claims, claims]), tables / "twice.parquet")
    negative = pa.table([["m"], ["t"], [-1], [1]], schema=claims.schema)
    pq.write_table(negative, tables / "negative.parquet")
    pq.write_table(pq.read_table(tables / "members.parquet").slice(0, 0), tables / "none.parquet")
    little = pq.read_table(tables / "owned.parquet")
    little = little.set_column(1, "topic", pa.array(["gone"] * len(little)))
    pq.write_table(little, tables / "gone.parquet")
    refusals = [
        (2, "members is empty", ["--members", "none.parquet", "--output", "out"]),
        (2, "are no longer in topics", ["--previous", "gone.parquet", "--output", "out"]),
        (
            2,
            "previous: member 'm', topic 't' has first_partition -1",
            ["--previous", "negative.parquet"],
        ),
        (2, "twice: its ranges overlap", ["--owned", "twice.parquet", "--output", "out"]),
        (2, "previous: column 'member_id' is missing", ["--previous", "topics", "--output", "out"]),
        (2, "Spark cannot replace Parquet atomically", ["--output", "owned.parquet"]),
    ]
    for code, message, words in refusals:
        said = nightly(*words, code=code)
        assert said.startswith("muster: ")
        assert said.count("\n") == 1
        assert message in said
    with table_lock(str(tables / "out")):
        assert "out is being written by process" in nightly("--output", "out", code=75)
    assert content(tables / "out") == before


@pytest.mark.skipif(not LONG, reason="starts two Spark runs of its own: make test-spark")
def test_killed_spark_run_leaves_the_old_content(nightly, tables):
    nightly("--output", "out", engine="local")
    before, files = content(tables / "out"), set((tables / "out").glob("*.parquet"))
    command = [sys.executable, "-m", "coordinator", "assign", "--members", "members.parquet"]
    command += ["--topics", "topics", "--output", "out", "--engine", "spark", "--assignor", "range"]
    assert kill_when(lambda: set((tables / "out").glob("*.parquet")) > files, command, tables)
    if DeltaTable(tables / "out").version() == 0:  # else it was done in the same moment
        assert content(tables / "out") == before
    nightly("--output", "out", engine="local")  # no lock is left


def test_a_run_that_was_undone_is_done_again_by_its_own_id(spark, nightly, tables):
    nightly("--output", "out", "--run-id", "sunday")
    for undo in ("RESTORE TABLE {} TO VERSION AS OF 0", "DELETE FROM {} WHERE topic = 't03'"):
        first = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
        monday = content(tables / "out")
        spark.sql(undo.format(f"delta.`{tables}/out`"))
        again = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
        assert (again["already_written"], again["version"]) == (False, first["version"] + 2)
        assert content(tables / "out") == monday
        again = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
        assert again["already_written"]
