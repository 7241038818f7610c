"""Spark: one weighted group that is cut into tasks, beside a sort-and-write of the same rows."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Spark: weighted, {0:,} partitions, {1:,} members"
TEXT = """\
`local[2]`, driver heap 4g, warm (a hundredth of the group was assigned first). Lognormal weights of
sigma 1, capacities 1, 2 and 4, from nothing. Both jobs read and write Parquet; `weighted` cuts the
group of any size into tasks. *Sort and write* sorts its rows by (member, topic, first
partition) and writes them. Elapsed ms.
"""
TOPICS = 10
GOAL = 5.0
SMALL, LARGE, HUGE = (1_000_000, 10_000), (10_000_000, 100_000), (100_000_000, 1_000_000)


def run(bench: Bench) -> Section:
    """Measure a million partitions."""
    return _run(bench, *SMALL)


def run_large(bench: Bench) -> Section:
    """Measure ten million partitions."""
    return _run(bench, *LARGE)


def run_huge(bench: Bench) -> Section:
    """Measure a hundred million partitions."""
    return _run(bench, *HUGE)


def _run(bench: Bench, partitions: int, members: int) -> Section:
    from spark_jobs.session.session import spark_session  # noqa: PLC0415 - others start no Spark

    if bench.smoke:
        partitions, members = 10_000, 100
    folder = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    conf = {"spark.driver.memory": "4g", "spark.local.dir": str(folder / "local")}
    spark = spark_session("muster-benchmarks", "local[2]", conf)
    try:
        bench.say("weighted on Spark: warming up")
        list(_measure(spark, folder / "warm", max(partitions // 100, 2_000), members // 100))
        figures = []
        for figure in _measure(spark, folder / "group", partitions, members):
            bench.say(f"weighted on Spark: {figure.name}: {figure.median:.4g} {figure.unit}")
            figures.append(figure)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return Section(TITLE.format(partitions, members), TEXT, figures)


def _measure(spark: SparkSession, folder: Path, partitions: int, members: int) -> Iterator[Figure]:
    from spark_jobs.assignors.weighted import assign_group  # noqa: PLC0415 - as above

    names = ("members", "topics", "partitions")
    _write_group(spark, folder, partitions, members)
    start = time.perf_counter()
    frames = {name: spark.read.parquet(str(folder / name)) for name in names}
    done = assign_group(spark, "weighted", frames, {}, task_partitions=0)
    rows = done.rows.sortWithinPartitions("member_id", "topic", "first_partition")
    rows.write.parquet(str(folder / "out"))
    taken = time.perf_counter() - start
    label = f"{partitions:,} x {members:,}"
    yield Figure.of(f"{label}, weighted", [1000 * taken])
    start = time.perf_counter()
    rows = spark.read.parquet(str(folder / "out")).sort("member_id", "topic", "first_partition")
    rows.write.parquet(str(folder / "sorted"))
    plain = time.perf_counter() - start
    yield Figure.of(f"{label}, sort and write", [1000 * plain])
    yield Figure.of(f"{label}, by sort and write", [taken / plain], unit="x", goal=GOAL)
    row = done.summary.to_pylist()[0]
    gap = 100 * (row["makespan"] / row["lower_bound"] - 1)
    yield Figure.of(f"{label}, gap", [max(gap, 1e-9)], unit="%")


def _write_group(spark: SparkSession, folder: Path, partitions: int, members: int) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as above

    size = partitions // TOPICS
    topics = F.array(*[F.lit(f"t{at}") for at in range(TOPICS)])
    spark.range(TOPICS).select(
        F.format_string("t%d", "id").alias("topic"), F.lit(size).alias("partitions")
    ).write.parquet(str(folder / "topics"))
    spark.range(max(members, 2)).select(
        F.format_string("m%07d", "id").alias("member_id"),
        topics.alias("subscribed"),
        F.expr("double(shiftleft(1, int(abs(hash(id)) % 3)))").alias("capacity"),
    ).write.parquet(str(folder / "members"))
    spark.range(size * TOPICS).select(
        F.format_string("t%d", F.expr(f"id div {size}")).alias("topic"),
        F.expr(f"id % {size}").alias("partition"),
        F.exp(F.randn(1)).alias("weight"),
    ).write.parquet(str(folder / "partitions"))
