"""The nightly job on the Spark engine: the table, the facts and the refusals of the local one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.table_io import TableRef, read_delta, table_lock
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.run_job import run_job
from spark_jobs.jobs.spark_assignment import SparkAssignment
from tests.conftest import kill_when
from tests.support.longer import EVERY, longer
from tests.support.spark.groups import ORDER, crowd
from tests.support.spark.groups import tables as tables_of
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

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
    assert not nightly(*words, **night)["already_written"]  # a file is replaced here, too
    local = nightly(
        "--previous", "out@0", "--output", "few", "--max-moves", "3", engine="local", **night
    )
    same_night(tables, third, local)
    assert third["partial"]


def test_a_group_that_the_driver_assigns_is_read_once(spark, nightly):
    with watch(spark) as seen:
        night = nightly("--owned", "owned.parquet", "--output", "out[1]")  # only Spark writes there
    assert seen.collected.count(night["members"]) == 1


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
    ]
    for code, message, words in refusals:
        said = nightly(*words, code=code)
        assert said.startswith("muster: ")
        assert said.count("\n") == 1
        assert message in said
    with table_lock(str(tables / "out")):
        assert "out is being written by process" in nightly("--output", "out", code=3)
    assert content(tables / "out") == before


@longer("starts two Spark runs of its own: make test-spark")
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
    """By RESTORE; by DELETE: test_an_output_may_be_a_table_of_the_catalog."""
    nightly("--output", "out", "--run-id", "sunday", engine="local")
    first = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
    monday = content(tables / "out")
    spark.sql(f"RESTORE TABLE delta.`{tables}/out` TO VERSION AS OF 0")
    again = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
    assert (again["already_written"], again["version"]) == (False, first["version"] + 2)
    assert content(tables / "out") == monday
    again = nightly("--owned", "owned.parquet", "--output", "out", "--run-id", "monday")
    assert again["already_written"]


# What is replaced, and what stays ----------------------------------------------------------------

COLUMNS = "member_id STRING COMMENT 'who', topic STRING, first_partition INT, partition_count INT"


@pytest.fixture
def night(tmp_path):
    """Run the job of a night: so many members, three topics of four partitions."""
    topics = pa.table({"topic": ["a", "b", "c"], "partitions": [4, 4, 4]})
    write_deltalake(tmp_path / "topics", topics)

    def run(count, engine="spark", output="out", **more):
        ids = [f"m{number}" for number in range(count)]
        rows = pa.table({"member_id": ids, "subscribed": [["a", "b", "c"]] * count})
        write_deltalake(tmp_path / "members", rows, mode="overwrite")
        tables = {
            name: find_input(str(tmp_path / name), f"--{name}", "auto")
            for name in ("members", "topics")
        }
        job = AssignmentJob(
            **tables, owned=None, previous=None, output=str(tmp_path / output),
            options=AssignorOptions("sticky"), engine=engine,
        )  # fmt: skip
        return run_job(replace(job, **more), Config(), SparkAssignment())

    return run


def rows_of(spark, path):
    found = spark.read.format("delta").load(str(path)).collect()
    return sorted(tuple(row) for row in found)


LAYOUTS = [
    ("PARTITIONED BY (topic)", "INT", "int"),
    ("PARTITIONED BY (topic)", "SMALLINT", "int"),
    ("CLUSTER BY (topic, member_id)", "BIGINT", "bigint"),
]


@pytest.mark.parametrize(("layout", "kind", "after"), LAYOUTS if EVERY else LAYOUTS[:1])
def test_an_output_keeps_its_layout_on_spark(spark, tmp_path, night, layout, kind, after):
    # as a user whose sessions replace single partitions by default
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        table = f"delta.`{tmp_path}/out`"
        spark.sql(f"CREATE TABLE {table} ({COLUMNS.replace('INT', kind)}) USING delta {layout}")
        spark.sql(f"INSERT INTO {table} VALUES ('m9', 'a', 0, 4), ('m9', 'b', 0, 4)")
        laid_out = layout_of(spark, table)
        assert night(3).totals["partitions"] == 12
        assert layout_of(spark, table) == laid_out
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    found = spark.table(table)
    rows = found.collect()
    assert sum(row.partition_count for row in rows) == 12
    assert {row.member_id for row in rows} == {"m0", "m1", "m2"}
    assert dict(found.dtypes)["first_partition"] == after
    if kind == after.upper():
        assert found.schema["member_id"].metadata["comment"] == "who"


def pinned(folder):
    """The members as they were before the night was repeated."""
    version = DeltaTable(str(folder / "members")).version()
    return {"members": TableRef(str(folder / "members"), version, delta=True)}


def layout_of(spark, table):
    (found,) = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    return found["partitionColumns"], found["clusteringColumns"]


def test_rows_that_a_table_refuses_are_refused_in_words(spark, tmp_path, night):
    out = tmp_path / "out"
    kinds = (pa.string(), pa.string(), pa.int32(), pa.int32())
    names = [name for name, _ in ORDER]
    write_deltalake(out, pa.schema(zip(names, kinds, strict=True)).empty_table())
    table = DeltaTable(out)
    table.alter.add_constraint({"few": "partition_count < 3"})
    said = "nothing was replaced: CHECK constraint few (partition_count < 3) violated by row"
    refuses(night, out, said)
    table.alter.drop_constraint("few")
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    refuses(night, out, "only takes appends (delta.appendOnly)")
    assert rows_of(spark, out) == []


def refuses(night, out, said):
    with pytest.raises(SpecError) as refused:
        night(3)
    assert str(refused.value).startswith(f"--output {str(out)!r}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nights_on_parquet_go_on_on_either_engine(spark, tmp_path, night):
    """The file is one, whichever engine wrote it, and so are its rows and its run."""
    file = tmp_path / "out.parquet"
    for members, engine in enumerate(["local", "spark", "spark", "local"], 2):
        run_id = f"night {members}"
        done = night(members, engine, "out.parquet", run_id=run_id)
        assert (done.engine, done.already) == (engine, False)
        same = pinned(tmp_path)
        night(members, "local", "twin", run_id=run_id)
        twin = read_delta(DeltaTable(str(tmp_path / "twin")))
        assert pq.read_table(file).sort_by(ORDER).to_pylist() == twin.sort_by(ORDER).to_pylist()
        assert pq.read_schema(file).remove_metadata() == twin.schema.remove_metadata()
        other = "spark" if engine == "local" else "local"
        assert night(members, other, "out.parquet", run_id=run_id, **same).already
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_locks", "members", "out.parquet", "topics", "twin",
    ]  # fmt: skip


def test_a_folder_of_parquet_files_is_continued_elsewhere(spark, tmp_path, night):
    """Older versions made them on Spark."""
    folder = tmp_path / "old.parquet"
    folder.mkdir()
    pq.write_table(
        pa.table([["m0"], ["a"], [0], [4]], names=[name for name, _ in ORDER]),
        folder / "part-0.parquet",
    )
    (folder / "_muster.json").write_text("{}")
    for engine in ("local", "spark"):
        with pytest.raises(SpecError, match=f"continue it by --previous {folder}"):
            night(2, engine, "old.parquet")
    previous = find_input(str(folder), "--previous", "spark")
    assert night(2, previous=previous, output=str(tmp_path / "new.parquet")).totals["moved"] == 0
