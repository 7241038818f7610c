"""The assignor uniform as DataFrame operations: the same rows as `assignors.uniform`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.assignors.balanced import assign_balanced
from spark_jobs.assignors.twin import Twin

TWIN = Twin("uniform", assign_balanced)


def assign(
    spark: SparkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None = None,
) -> DataFrame:
    """Assign every partition of every subscribed topic.

    Parameters
    ----------
    members
        member_id (string), subscribed (array of topic names), optional instance_id (string).
    topics
        topic (string), partitions (an integer type).
    previous
        member_id, topic (strings), first_partition, partition_count (integer types), in any order;
        ranges may touch. None for a new group. Owners that are not members have left.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row per range, touching ranges merged, in no order.

    Raises
    ------
    SpecError
        Bad input. Nothing was computed.
    """
    return TWIN.assign(spark, members, topics, previous).rows
