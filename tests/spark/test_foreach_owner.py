"""Batches of a stream, written exactly once by the owner of their partitions."""

from __future__ import annotations

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
    with pytest.raises(Fenced, match="t-1: not owned"):
        write(batch(spark, ("t", 0, 0, "a"), ("t", 1, 0, "b")), 0)
    assert kept(tmp_path / "out") == []


def test_a_driver_that_was_overtaken_while_it_wrote(spark, tmp_path):
    """Its files are written when the next owner commits: they are left out, and written anew."""
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
