"""The assignor sticky as DataFrame operations: the same rows as `assignors.sticky`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from assignors import get_assignor
from assignors.plan import EXACT_EDGES
from assignors.sticky import parse_imbalance
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
    *,
    imbalance: int | str = 0,
    max_moves: int | None = None,
) -> DataFrame:
    """Assign every partition of every subscribed topic, moving as few as the imbalance allows.

    Parameters
    ----------
    members, topics, previous
        As for `spark_jobs.assignors.uniform.assign`.
    imbalance, max_moves
        As for `assignors.sticky.StickyAssignor`.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row per range, touching ranges merged, in no order.

    Raises
    ------
    SpecError
        Bad input or a bad option. Nothing was computed.
    """
    return assign_in_work_session(
        spark,
        lambda work_session: assign_with_totals(
            work_session, members, topics, previous, imbalance=imbalance, max_moves=max_moves
        ),
    ).rows


def assign_with_totals(
    work_session: WorkSession,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None = None,
    *,
    imbalance: int | str = 0,
    max_moves: int | None = None,
    exact_edges: int = EXACT_EDGES,
) -> FrameAssignment:
    """Assign, and return the rows with their totals and the plan's verdict."""
    options = {"imbalance": imbalance, "max_moves": max_moves, "exact_edges": exact_edges}
    get_assignor("sticky", **options)  # refuses bad options
    small = assign_small_group(work_session, "sticky", members, topics, previous, options)
    if small is not None:
        return small
    return assign_balanced(
        work_session,
        members,
        topics,
        previous,
        imbalance=parse_imbalance(imbalance),
        max_moves=max_moves,
        exact_edges=exact_edges,
    )
