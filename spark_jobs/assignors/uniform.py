"""The assignor uniform as DataFrame operations: the same rows as `assignors.uniform`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from assignors.plan import EXACT_EDGES
from spark_jobs.assignors.balanced import assign_balanced
from spark_jobs.assignors.group import LabelledMembers
from spark_jobs.assignors.materialize import FrameAssignment, assign_in_work_session
from spark_jobs.assignors.small_group import assign_small_group
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
    return assign_in_work_session(
        spark, lambda work_session: assign_with_totals(work_session, members, topics, previous)
    ).rows


def assign_with_totals(
    work_session: WorkSession,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None = None,
    *,
    exact_edges: int = EXACT_EDGES,
) -> FrameAssignment:
    """Assign, and return the rows with their totals and the plan's verdict."""
    options = {"exact_edges": exact_edges}
    small = assign_small_group(work_session, "uniform", members, topics, previous, options)
    if small is not None:
        return small
    return assign_balanced(work_session, members, topics, previous, exact_edges=exact_edges)
