"""uniform as DataFrame operations: the rows of `assignors.uniform`, for any size of group."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from assignors.plan import EXACT_EDGES
from spark_jobs.assignors.balanced import assign_balanced
from spark_jobs.assignors.materialize import FrameAssignment, assign_in_work_session
from spark_jobs.session.work_session import WorkSession


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
        member_id, subscribed (array of topics); optional instance_id.
    topics
        topic, partitions.
    previous
        member_id, topic, first_partition, partition_count; in any order, split anyhow. None for a
        fresh group. Owners that are not members have left.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row a range, touching ranges merged, in no order.

    Raises
    ------
    SpecError
        Bad input; nothing was computed.
    """
    return assign_in_work_session(
        spark, lambda work_session: assign_with_totals(work_session, members, topics, previous)
    ).rows


def assign_with_totals(
    work_session: WorkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None = None,
    *,
    exact_edges: int = EXACT_EDGES,
) -> FrameAssignment:
    """Assign, and say what was proved on the way."""
    return assign_balanced(work_session, members, topics, previous, exact_edges=exact_edges)
