"""What uniform and sticky share: read, settle, plan on the driver, expand as DataFrames."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from fractions import Fraction

from pyspark.sql import DataFrame, SparkSession

from assignors.plan import EXACT_EDGES, sticky_plan
from spark_jobs.claims import check_previous, settle
from spark_jobs.expand import Assigned, expand
from spark_jobs.frames import ASSIGNMENT
from spark_jobs.group import FrameGroup
from spark_jobs.owned import FrameOwned
from spark_jobs.prefix import Scratch


def assign_balanced(
    spark: SparkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None,
    *,
    imbalance: int | Fraction = 0,
    max_moves: int | None = None,
    exact_edges: int = EXACT_EDGES,
) -> Assigned:
    """Assign with the fewest moves within an imbalance; 0 is uniform.

    What the rows need stays kept by Spark until the result is no longer referenced.
    """
    scratch = Scratch()
    try:
        if previous is None:
            previous = spark.createDataFrame([], ASSIGNMENT)
        claims, rows = check_previous(previous)
        group = FrameGroup.of(spark, scratch, members, topics, rows)
        owned = FrameOwned(group, settle(group, claims, rows))
        plan = sticky_plan(group.problem, imbalance, owned, exact_edges)
        assigned = expand(plan, owned, max_moves)
    except BaseException:
        scratch.release()
        raise
    release_with(assigned.rows, scratch)
    return assigned


def release_with(rows: DataFrame, scratch: Scratch) -> None:
    """Let go of what is kept when nobody holds the rows any more."""
    weakref.finalize(rows, _release, scratch.release)


def _release(release: Callable[[], None]) -> None:
    try:
        release()
    except Exception:  # noqa: BLE001, S110 - the session may be gone: then so is what it kept
        pass
