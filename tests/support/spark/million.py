"""Assign very many members, 100 partitions each, on Spark; print what the driver needed.

A program of its own, because a peak of memory belongs to a process: `tests/spark/test_large.py`.
"""

from __future__ import annotations

import json
import resource
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, floor, format_string, lit, sequence, transform

from spark_jobs.assignors.dispatch import assign_frames
from spark_jobs.session.session import spark_session
from tests.support.spark.watch import watch

TOPICS, CLASSES, EACH = 100, 10, 100
OF_CLASS = TOPICS // CLASSES


def group(spark: SparkSession, owners: int) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Ten classes of ten topics; all owned 100 partitions in one range; 1 % left, 1.1 % joined."""
    left, joined, per_topic = owners // 100, owners * 11 // 1000, owners * EACH // TOPICS
    name, class_ = format_string("m%07d", "id").alias("member_id"), col("id") % CLASSES
    own = transform(
        sequence(lit(0), lit(OF_CLASS - 1)),
        lambda nth: format_string("t%02d", class_ * OF_CLASS + nth),
    )
    members = spark.range(left, owners + joined).select(name, own.alias("subscribed"))
    topics = spark.range(TOPICS).select(
        format_string("t%02d", "id").alias("topic"), lit(per_topic).alias("partitions")
    )
    at = floor(col("id") / CLASSES) * EACH  # on the line of the class's topics
    previous = spark.range(owners).select(
        name,
        format_string("t%02d", class_ * OF_CLASS + floor(at / per_topic)).alias("topic"),
        (at % per_topic).alias("first_partition"),
        lit(EACH).alias("partition_count"),
    )
    return members, topics, previous


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    owners, heap = int(sys.argv[1]), sys.argv[2]
    conf = {"spark.driver.memory": heap, "spark.sql.ui.explainMode": "simple"}
    spark = spark_session("million", "local[2]", conf)
    frames, before = group(spark, owners), peak_mb()
    with watch(spark) as seen:
        assigned = assign_frames(spark, "sticky", *frames, driver_rows=0)
        written = assigned.rows.selectExpr("sum(partition_count)").collect()[0][0]
    needed = {
        "written": written,
        "rows_collected": max(seen.collected),
        "python_mb": peak_mb() - before,
        "whole_windows": seen.whole_windows(),
    }
    print(json.dumps(assigned.totals() | needed))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
