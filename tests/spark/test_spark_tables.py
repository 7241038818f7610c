"""Tables named as Spark's catalog has them, or by URLs: found once the session is there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions

from coordinator.storage.tables.table_io import table_lock
from spark_jobs.jobs.spark_tables import _digest
from tests.spark.test_command import content, ok, refused
from tests.spark.test_tables import MAPPED, VECTORS
from tests.support.longer import longer

pytestmark = pytest.mark.spark

RENAME = "RENAME COLUMN label TO instance_id"


@pytest.fixture(scope="module")
def schema(spark, tmp_path_factory):
    """A schema with members (Delta, mapped, with deletion vectors), topics (Parquet) and a view."""
    folder = tmp_path_factory.mktemp("catalog")
    spark.sql(f"CREATE SCHEMA inputs LOCATION '{folder}'")
    columns = "member_id STRING, label STRING, subscribed ARRAY<STRING>"
    properties = f"{MAPPED.format('name')}, {VECTORS}"
    spark.sql(f"CREATE TABLE inputs.members ({columns}) USING delta TBLPROPERTIES ({properties})")
    rows = "SELECT concat('m', id), concat('i', id), array('a', 'b') FROM range(0, 5, 1, 1)"
    spark.sql(f"INSERT INTO inputs.members {rows}")
    spark.sql(f"ALTER TABLE inputs.members {RENAME}")
    spark.sql("DELETE FROM inputs.members WHERE member_id = 'm3'")
    spark.sql("CREATE TABLE inputs.sizes (topic STRING, partitions INT) USING parquet")
    spark.sql("INSERT INTO inputs.sizes VALUES ('a', 40), ('b', 9), ('c', 3)")
    spark.sql("CREATE VIEW inputs.`topics` AS SELECT * FROM inputs.sizes WHERE topic != 'c'")
    yield folder
    spark.sql("DROP SCHEMA inputs CASCADE")


def assign(run, folder, members, topics, *words, engine="spark"):
    words = ["--members", members, "--topics", topics, "--engine", engine, *words]
    return run("assign", *words, cwd=folder)


def test_catalog_names_read_like_paths_and_pin_the_run(spark, schema, muster_here, tmp_path):
    view, words = "spark_catalog.inputs.`topics`", ["--output", "out", "--run-id", "monday"]
    (done,) = ok(assign(muster_here, tmp_path, "inputs.members", view, *words))
    assert (done["engine"], done["members"], done["partitions"]) == ("spark", 4, 49)
    pq.write_table(
        pa.table({"topic": ["a", "b"], "partitions": [40, 9]}), tmp_path / "sizes.parquet"
    )
    by_path = [schema / "members", "sizes.parquet", "--output", "local"]
    ok(assign(muster_here, tmp_path, *by_path, engine="local"))
    assert content(tmp_path / "out") == content(tmp_path / "local")

    spark.sql("INSERT INTO inputs.members VALUES ('later', 'i', array('b'))")
    version = spark.sql("DESCRIBE HISTORY inputs.members LIMIT 1").first().version
    now = f"with members {schema}/members@{version - 1}, not {schema}/members@{version}: "
    refused(assign(muster_here, tmp_path, "inputs.members", view, *words), now)
    for members in (f"inputs.members@{version - 1}", f"{schema}/members@{version - 1}"):
        (again,) = ok(assign(muster_here, tmp_path, members, view, *words))
        assert again["already_written"]
    spark.sql("INSERT INTO inputs.sizes VALUES ('d', 1)")
    said = refused(assign(muster_here, tmp_path, members, view, *words))
    assert f"with topics {view} (digest " in said
    assert len(content(tmp_path / "out")) == len(content(tmp_path / "local"))


@pytest.mark.parametrize(
    ("members", "words", "said"),
    [
        ("nope.m", [], "--members 'nope.m' not found, neither as a path nor in Spark's catalog (its current schema is spark_catalog.default)"),
        ("nobody@3", [], "--members 'nobody' not found, neither"),
        ("main.inputs.members", [], "--members 'main.inputs.members' not found, neither"),
        ("a.b.c.d", [], "--members 'a.b.c.d' not found, neither"),
        ("inputs.members@99", [], "Cannot time travel Delta table to version 99"),
        ("inputs.sizes@0", [], "--members 'inputs.sizes' is not a Delta table, so it has no version 0"),
        ("inputs.topics", [], "members: column 'member_id' is missing (found topic, partitions)"),
        ("members.parquet", [], "'members.parquet' not found: give a Delta table or Parquet"),
        ("inputs.members", ["--output", "inputs.sizes"], "--output 'inputs.sizes' is not a Delta table: name another"),
        ("inputs.members", ["--output", "inputs.topics"], "--output 'inputs.topics' is not a Delta table: name another"),
        ("inputs.members", ["--output", "inputs.members"], "is a table of something else, which would be lost"),
        ("inputs.members", ["--output", "nope.out"], "which has no schema `spark_catalog`.`nope`: create it, or give ./nope.out for a folder"),
        ("inputs.members", ["--output", "no-catalog.s.out"], "need backquotes, as in '`no-catalog`.s.out'"),
        ("inputs.members", ["--output", "no_catalog.s.out"], "has no schema `no_catalog`.`s`"),
        ("inputs.members", ["--output", "inputs.`aus-gabe ß`"], "its catalog makes no Delta table of this name: [INVALID_SCHEMA_OR_RELATION_NAME]"),
        ("inputs.members", ["--output", "inputs.`a/b`"], "its catalog makes no Delta table of this name"),
        ("inputs.members", ["--output", "inputs.```x`"], "has a backquote within a part: name another"),
        ("inputs.members", ["--output", "{}/members/out"], "overlap: name another output"),
        ("inputs.members", ["--output", "{}/members"], "is a table of something else, which would be lost"),
        ("s3://bucket/x", [], "for s3:// URLs: run `muster setup --s3`, or submit with --packages org.apache.hadoop:hadoop-aws:3."),
        ("abfss://c@a/x@1", [], "--members 'abfss://c@a/x' cannot be read: this Spark has no file system for abfss:// URLs: submit with --packages org.apache.hadoop:hadoop-azure:3."),
        ("wrong://x/y", [], "this Spark has no file system for wrong:// URLs"),
        ("hdfs://127.0.0.1:1/x", [], "Connection refused"),
        ("s3a://key:secret@bucket/x", [], "'s3a://bucket/x': its URL has a password"),
    ],
)  # fmt: skip
def test_missing_tables_are_a_one_line_error(schema, muster_here, tmp_path, members, words, said):
    given = [word.format(schema) for word in words]
    words = given or ["--output", "out"]
    refused(assign(muster_here, tmp_path, members, "inputs.topics", *words), said)
    assert [path for path in tmp_path.rglob("*") if "_locks" not in path.parts] == []


def test_an_output_may_be_a_table_of_the_catalog(spark, schema, muster_here, tmp_path):
    """By its name alone: made, replaced, found again, and done again where it was undone."""

    def night(run_id, *words, output="inputs.out", code=0):
        words = ["--output", output, "--run-id", run_id, "--assignor", "sticky", *words]
        done = assign(muster_here, tmp_path, members, "inputs.topics", *words)
        return ok(done)[0] if code == 0 else refused(done, code=code)

    version = spark.sql("DESCRIBE HISTORY inputs.members LIMIT 1").first().version
    members = f"inputs.members@{version}"
    first = night("monday")
    assert (first["output"], first["version"]) == ("inputs.out", 1)
    assert night("monday") == first | {"already_written": True}
    assert night("monday", "--previous", "inputs.out") == first | {"already_written": True}
    found = spark.table("inputs.out").collect()
    assert sum(row.partition_count for row in found) == 49
    with table_lock(str(schema / "out")):
        assert "is being written by process" in night("tuesday", code=3)

    spark.sql("INSERT INTO inputs.members VALUES ('more', 'i', array('a', 'b'))")
    members = f"inputs.members@{version + 1}"
    second = night("tuesday")
    assert (second["version"], second["orphans"]) == (2, 0)  # it continues what is there
    assert night("tuesday")["already_written"]
    assert "give another --run-id" in night("monday", code=2)
    spark.sql("DELETE FROM inputs.out WHERE topic = 'a'")  # by RESTORE: test_nightly.py
    again = night("tuesday")
    assert not again["already_written"]
    spark.sql("OPTIMIZE inputs.out ZORDER BY (topic)")
    spark.sql("RESTORE TABLE inputs.out TO VERSION AS OF {}".format(again["version"]))
    assert night("tuesday")["already_written"]
    assert not list(tmp_path.rglob("*"))
    spark.sql("DELETE FROM inputs.members WHERE member_id = 'more'")  # others read it, too


@longer("one table with a layout is in test_nightly.py: make test-spark")
def test_an_output_of_the_catalog_keeps_its_layout(spark, schema, muster_here, tmp_path):
    # Delta 4.0 refuses to replace rows of BIGINT columns by integers.
    kind = "INT" if pyspark.__version__ < "4.1" else "BIGINT"
    columns = f"member_id STRING, topic STRING, first_partition {kind}, partition_count {kind}"
    spark.sql(f"CREATE TABLE inputs.laid_out ({columns}) USING delta CLUSTER BY (topic)")
    spark.sql("ALTER TABLE inputs.laid_out ADD CONSTRAINT few CHECK (partition_count < 99)")
    words = ["--output", "inputs.`laid_out`"]
    for _ in range(2):
        ok(assign(muster_here, tmp_path, "inputs.members", "inputs.topics", *words))
        (found,) = spark.sql("DESCRIBE DETAIL inputs.laid_out").collect()
        assert found["clusteringColumns"] == ["topic"]
        assert dict(spark.table("inputs.laid_out").dtypes)["partition_count"] == kind.lower()
    spark.sql("DELETE FROM inputs.laid_out")
    spark.sql("ALTER TABLE inputs.laid_out DROP CONSTRAINT few")
    spark.sql("ALTER TABLE inputs.laid_out ADD CONSTRAINT few CHECK (partition_count < 3)")
    done = assign(muster_here, tmp_path, "inputs.members", "inputs.topics", *words)
    refused(done, "nothing was replaced: a CHECK or NOT NULL of the table refuses rows of the ")


def test_a_view_whose_function_fails_says_how(spark, schema, muster_here, tmp_path):
    @functions.udf("string")
    def broken(member_id):
        raise ValueError(f"{member_id} is no member")

    rows = spark.sql("SELECT 'm' member_id, array('a') subscribed")
    failing = "global_temp.failing"  # of all sessions: the command's may be another one
    rows.withColumn("member_id", broken("member_id")).createOrReplaceGlobalTempView("failing")
    said = refused(assign(muster_here, tmp_path, failing, "inputs.topics", "--output", "out"))
    assert said == f"muster: --members '{failing}' cannot be read: ValueError: m is no member\n"


def test_existing_path_wins_over_a_catalog_name(schema, muster_here, tmp_path):
    """Said by what is wrong with it."""
    write_deltalake(tmp_path / "inputs.members", pa.table({"odd": [1]}))
    done = assign(muster_here, tmp_path, "inputs.members", "inputs.topics")
    refused(done, "members: column 'member_id' is missing (found odd)")


def test_an_output_that_would_end_with_the_command_is_refused(muster, tmp_path):
    """The catalog of a session that the command begins is in its memory, and the table went."""
    pq.write_table(pa.table({"topic": ["a"], "partitions": [4]}), tmp_path / "topics.parquet")
    members = pa.table({"member_id": ["m"], "subscribed": [["a"]]})
    pq.write_table(members, tmp_path / "members.parquet")
    done = assign(
        muster, tmp_path, "members.parquet", "topics.parquet",
        "--output", "spark_catalog.default.owners",
    )  # fmt: skip
    said = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    wanted = "muster: --output 'spark_catalog.default.owners' would be gone with this command: "
    assert said.startswith(wanted)
    assert said.endswith("with spark-submit and settings of a catalog that lasts, or give a path")


@pytest.mark.parametrize("engine", ["local", "auto"])
@pytest.mark.parametrize("name", ["main.default.members", "`my db`.members@2"])
def test_catalog_name_without_spark_is_refused(muster_here, tmp_path, engine, name):
    bare = name.removesuffix("@2")
    refused(
        assign(muster_here, tmp_path, name, "t", engine=engine),
        f"--members {bare!r} not found: give a Delta table or Parquet; for a table of Spark's "
        "catalog, use --engine spark",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("'a' x, 'i' rack, null instance_id", "'a' x, null rack, 'i' instance_id"),
        ("array('y') x", "array('y', null) x"),
        ("array(null, 'y') x", "array('y', null) x"),
        ("array() x", "array(null) x"),
        ("named_struct('p', 1, 'q', null) x", "named_struct('p', null, 'q', 1) x"),
        ("timestamp_micros(1) x, null y", "timestamp_micros(2) x, null y"),
        ("timestamp_ntz'2026-01-01 00:00:00.000001' x", "timestamp_ntz'2026-01-01 00:00:00' x"),
        ("map('a', 1) x", "map('a', null) x"),
        ("1 `a.b`, null `b``c`", "null `a.b`, 1 `b``c`"),
    ],
)
def test_a_run_id_knows_the_rows_of_a_view_with_nulls(spark, before, after):
    columns = spark.sql(f"SELECT {before} UNION ALL SELECT {after}")
    schema = columns.where("false")  # of both, so that the digests differ by rows alone
    frames = [schema.unionByName(spark.sql(f"SELECT {given}")) for given in (before, after)]
    assert _digest(frames[0]) != _digest(frames[1])
    both = [frames[0].unionByName(frames[1]), frames[1].unionByName(frames[0])]
    assert _digest(both[0]) == _digest(both[1])
