"""Batches of a stream, written exactly once by the owner of their partitions."""

from __future__ import annotations

import threading

import pytest
from deltalake import DeltaTable

import spark_jobs
from coordinator import ExactlyOnceTable, Fenced, TopicPartition
from tests.member.test_exactly_once import Holder

pytestmark = pytest.mark.spark
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(spark, *rows):
    return spark.createDataFrame(rows, "topic string, partition int, offset long, value string")


def kept(path):
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_a_repeated_batch_is_written_once(spark, tmp_path):
    member, out = Holder(P0, P1), tmp_path / "out"
    write = spark_jobs.foreach_partition_owner(member, out)
    first = batch(spark, ("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 1, 5, "c"))
    write(first, 0)
    version = DeltaTable(str(out)).version()
    write(first, 0)
    write(batch(spark), 1)
    assert DeltaTable(str(out)).version() == version
    write(batch(spark, ("t", 0, 1, "b"), ("t", 0, 2, "d"), ("t", 1, 5, "c")), 2)
    assert kept(out) == [(0, 0), (0, 1), (0, 2), (1, 5)]
    assert member.offsets == {P0: 3, P1: 6}
    assert spark.read.format("delta").load(str(out)).count() == 4


def test_partitions_of_others_are_refused_with_all_the_batch(spark, tmp_path):
    write = spark_jobs.foreach_partition_owner(Holder(P0), tmp_path / "out")
    with pytest.raises(Fenced, match="t-1: not, or no longer, owned"):
        write(batch(spark, ("t", 0, 0, "a"), ("t", 1, 0, "b")), 0)
    assert kept(tmp_path / "out") == []


def test_a_driver_that_was_overtaken_while_it_wrote(spark, tmp_path):
    """Its files are written when the next owner commits: they are left out, and rewritten."""
    out = tmp_path / "out"
    spark_jobs.foreach_partition_owner(Holder(P0), out)(batch(spark, ("t", 0, 0, "a")), 0)

    class Overtaken(Holder):
        looks = 0

        @property
        def owned(self):
            self.looks += 1
            if self.looks == 2:  # in commit_files
                table = ExactlyOnceTable(Holder(P0), out)
                table.write(P0, 1, batch(spark, ("t", 0, 1, "b")).toArrow())
            return frozenset([P0])

        @owned.setter
        def owned(self, _):
            pass

    late = batch(spark, ("t", 0, 1, "b"), ("t", 0, 2, "c"))
    spark_jobs.foreach_partition_owner(Overtaken(), out)(late, 1)
    assert kept(out) == [(0, 0), (0, 1), (0, 2)]
    files = DeltaTable(str(out)).file_uris()
    assert {str(file) for file in out.glob("*/*.parquet")} <= set(files)  # nothing is left beside


def test_in_a_stream_with_columns_of_its_own(spark, tmp_path):
    source = spark.range(6).selectExpr("'t' topic", "cast(id % 2 as int) p", "id div 2 as n", "id")
    source.write.parquet(str(tmp_path / "rows"))
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/out` (id INT) USING delta")
    write = spark_jobs.foreach_partition_owner(
        Holder(P0, P1), tmp_path / "out", partition="p", offset="n"
    )
    for checkpoint in ("one", "two"):  # a second stream reads everything again
        stream = spark.readStream.schema(source.schema).parquet(str(tmp_path / "rows"))
        query = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
    found = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == list(range(6))


def test_what_cannot_be_written_once_is_refused(spark, tmp_path):
    write = spark_jobs.foreach_partition_owner(Holder(P0), tmp_path / "out")
    with pytest.raises(ValueError, match="no column offset"):
        write(batch(spark, ("t", 0, 0, "a")).drop("offset"), 0)
    with pytest.raises(ValueError, match="1 rows of t-0 have no topic, partition, offset"):
        write(batch(spark, ("t", 0, None, "a")), 0)
    with pytest.raises(ValueError, match=r"s3://bucket/out.*give a folder"):
        spark_jobs.foreach_partition_owner(Holder(P0), "s3://bucket/out")
    parted = tmp_path / "parted"
    spark.sql(f"CREATE TABLE delta.`{parted}` (p INT, v INT) USING delta PARTITIONED BY (p)")
    with pytest.raises(ValueError, match=r"partition columns \(p\)"):
        spark_jobs.foreach_partition_owner(Holder(P0), parted)(batch(spark, ("t", 0, 0, "a")), 0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "kind", "values", "said"),
    [
        ("offset", "string", ["99", "100"], "column offset of the batch is string.*cast it to big"),
        ("offset", "double", [1.5, 1.9], "column offset of the batch is double"),
        ("offset", "double", [float("nan")], "column offset of the batch is double"),
        ("offset", "decimal(3,1)", [None], r"column offset of the batch is decimal\(3,1\)"),
        ("offset", "long", [3, -1], "t-0 has -1 in column offset: offsets begin at 0"),
        ("partition", "double", [0.0, 0.5], "column partition of the batch is double"),
        ("partition", "string", ["0", "00"], "column partition of the batch is string"),
        ("topic", "int", [1], "column topic of the batch is int.*cast it to string"),
    ],
)
def test_places_without_one_order_are_refused(spark, tmp_path, column, kind, values, said):
    rows = [{"topic": "t", "partition": 0, "offset": 0} | {column: value} for value in values]
    kinds = {"topic": "string", "partition": "int", "offset": "long"} | {column: kind}
    given = spark.createDataFrame(rows, ", ".join(f"{name} {kinds[name]}" for name in kinds))
    with pytest.raises(ValueError, match=said):
        spark_jobs.foreach_partition_owner(Holder(P0), tmp_path / "out")(given, 0)
    assert not (tmp_path / "out").exists()


@pytest.fixture(params=["true", "false"])
def ansi(spark, request):
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("has", "gets", "value", "said"),
    [
        ("int", "long", "1099511627776", "column value .* has '1099511627776'.* has it as int"),
        ("int", "string", "'abc'", "has 'abc'"),
        ("int", "double", "1.75", r"has '1\.75'"),
        ("float", "double", "0.1", r"has '0\.1'"),
        ("int", "date", "'2026-01-01'", "is date.* has it as int"),
        ("struct<a:string,b:string>", "struct<b:string,a:string>", "struct('B', 'A')", "is struct"),
        ("array<int>", "array<bigint>", "array(1)", "is array<bigint>"),
    ],
)
def test_values_that_a_table_would_change_are_refused(
    spark, tmp_path, ansi, has, gets, value, said
):
    out = tmp_path / "out"
    spark.sql(f"CREATE TABLE delta.`{out}` (value {has}) USING delta")
    given = batch(spark, ("t", 0, 0, None), ("t", 0, 1, ""))
    given = given.selectExpr("topic", "partition", "offset", f"cast({value} as {gets}) value")
    before = sorted(out.rglob("*"))
    with pytest.raises(ValueError, match=said):
        spark_jobs.foreach_partition_owner(Holder(P0), out)(given, 0)
    assert sorted(out.rglob("*")) == before


def test_values_that_a_table_can_have_are_cast(spark, tmp_path, ansi):
    out = tmp_path / "out"
    spark.sql(f"CREATE TABLE delta.`{out}` (a INT, b DOUBLE, c STRING, d INT) USING delta")
    given = batch(spark, ("t", 0, 0, "7"), ("t", 0, 1, None)).selectExpr(
        "topic", "partition", "offset", "value a", "cast(value as float) b", "offset c", "NULL d"
    )
    spark_jobs.foreach_partition_owner(Holder(P0), out)(given, 0)
    rows = DeltaTable(str(out)).to_pyarrow_table().to_pylist()
    assert sorted(map(tuple, map(dict.values, rows)), key=lambda row: row[2]) == [
        (7, 7.0, "0", None),
        (None, None, "1", None),
    ]


def test_columns_that_a_table_lacks_are_refused(spark, tmp_path):
    out, rows = tmp_path / "out", batch(spark, ("t", 0, 0, "a"))
    write = spark_jobs.foreach_partition_owner(Holder(P0), out)
    with pytest.raises(ValueError, match=r"column extra of the batch has no type \(void\)"):
        write(rows.selectExpr("*", "NULL extra"), 0)
    assert not out.exists()
    write(rows, 0)
    with pytest.raises(ValueError, match="has no column extra, which the batch has: drop it"):
        write(batch(spark, ("t", 0, 1, "b")).selectExpr("*", "1 extra"), 1)
    assert kept(out) == [(0, 0)]


def test_a_driver_that_was_fenced_while_it_wrote_leaves_no_files(spark, tmp_path):
    out = tmp_path / "out"
    spark_jobs.foreach_partition_owner(Holder(P0), out)(batch(spark, ("t", 0, 0, "a")), 0)
    before = sorted(out.rglob("*"))

    class Fencing(Holder):
        looks = 0

        @property
        def owned(self):
            self.looks += 1
            return frozenset([P0] if self.looks < 2 else [])

        @owned.setter
        def owned(self, _):
            pass

    with pytest.raises(Fenced):
        spark_jobs.foreach_partition_owner(Fencing(), out)(batch(spark, ("t", 0, 1, "b")), 1)
    assert sorted(out.rglob("*")) == before


def test_folders_that_delta_would_look_for_elsewhere(spark, tmp_path):
    with pytest.raises(ValueError, match=r"'%20' in its path.*give another folder"):
        spark_jobs.foreach_partition_owner(Holder(P0), tmp_path / "d%20x")
    out = tmp_path / "d #é [x]"
    spark_jobs.foreach_partition_owner(Holder(P0), out)(batch(spark, ("t", 0, 0, "a")), 0)
    assert kept(out) == [(0, 0)]


def test_rows_that_restore_took_away_are_written_again(spark, tmp_path, caplog):
    out = tmp_path / "out"
    write = spark_jobs.foreach_partition_owner(Holder(P0, P1), out)
    batches = [batch(spark, ("t", 0, n, "a"), ("t", 1, n, "b")) for n in range(3)]
    for number, rows in enumerate(batches[:2]):
        write(rows, number)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{out}`").collect()
    (at,) = [row.timestamp for row in history if row.version == 1]
    spark.sql(f"RESTORE TABLE delta.`{out}` TO TIMESTAMP AS OF '{at}'")
    assert kept(out) == [(0, 0), (1, 0)]
    for number, rows in enumerate([*batches[:2], batches[1]]):
        write(rows, number)
    assert kept(out) == [(p, n) for p in (0, 1) for n in range(2)]
    spark.sql(f"RESTORE TABLE delta.`{out}` TO VERSION AS OF 1")
    write(batches[2], 3)
    assert "missing unless they are written again from these offsets on: {'t-0': 1, 't-1': 1}" in (
        caplog.text
    )


@pytest.fixture
def defaults(spark):
    """What a session has as defaults of the tables that it makes."""
    names = ("enableDeletionVectors", "enableRowTracking", "enableChangeDataFeed")
    given = dict.fromkeys(names, "true") | {"columnMapping.mode": "name"}
    given = {f"spark.databricks.delta.properties.defaults.{k}": v for k, v in given.items()}
    for key, value in given.items():
        spark.conf.set(key, value)
    yield
    for key in given:
        spark.conf.unset(key)


def test_a_table_is_made_as_it_can_be_written_whatever_a_session_defaults_to(
    spark, tmp_path, defaults
):
    out = tmp_path / "out"
    given = batch(spark, ("t", 0, 0, "a")).selectExpr(
        "topic", "partition", "offset", "array(value) a", "named_struct('x', 1) s",
        "map(value, 1) m", "cast(1 as decimal(5,2)) d", "current_timestamp() t",
    )  # fmt: skip
    spark_jobs.foreach_partition_owner(Holder(P0), out)(given, 0)
    assert kept(out) == [(0, 0)]
    made = spark.read.format("delta").load(str(out)).schema
    assert made.simpleString() == given.schema.simpleString()
    assert all(field.nullable for field in made)


@pytest.mark.parametrize(
    "asked",
    ["delta.enableChangeDataFeed = true", "delta.enableDeletionVectors = true",
     "delta.appendOnly = true"],
)  # fmt: skip
def test_rows_are_added_to_tables_that_ask_something_of_who_removes_rows(spark, tmp_path, asked):
    out = tmp_path / "out"
    spark.sql(f"CREATE TABLE delta.`{out}` (value STRING) USING delta TBLPROPERTIES ({asked})")
    write = spark_jobs.foreach_partition_owner(Holder(P0), out)
    write(batch(spark, ("t", 0, 0, "a"), ("t", 0, 1, "b")), 0)
    if "appendOnly" not in asked:
        spark.sql(f"DELETE FROM delta.`{out}` WHERE value = 'a'")
    write(batch(spark, ("t", 0, 1, "b"), ("t", 0, 2, "c")), 1)
    found = spark.read.format("delta").load(str(out)).collect()
    assert sorted(row.value for row in found)[-2:] == ["b", "c"]
    if "ChangeData" in asked:
        rows = spark.read.format("delta").option("readChangeFeed", True)
        changes = rows.option("startingVersion", 0).load(str(out))
        assert changes.where("_change_type = 'insert'").count() == 3


def test_drivers_that_start_together_make_one_table(spark, tmp_path):
    out, failed = tmp_path / "out", []

    def work(number):
        place = TopicPartition("t", number)
        try:
            write = spark_jobs.foreach_partition_owner(Holder(place), out)
            write(batch(spark, ("t", number, 0, "a")), 0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert kept(out) == [(number, 0) for number in range(3)]


def test_columns_that_delta_cannot_name(spark, tmp_path):
    given = batch(spark, ("t", 0, 0, "a")).withColumnRenamed("value", "a value")
    with pytest.raises(ValueError, match="column 'a value' of the batch has a character"):
        spark_jobs.foreach_partition_owner(Holder(P0), tmp_path / "out")(given, 0)
    assert not (tmp_path / "out").exists()
