"""What uniform and sticky share: read, settle, plan on the driver, expand as DataFrames."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from pyspark.sql import DataFrame, SparkSession

from assignors.partition_ranges import ARROW_SCHEMA
from assignors.plan import EXACT_EDGES, solve_sticky_plan
from spark_jobs.assignors.group import FrameGroup
from spark_jobs.assignors.materialize import Assigned, expand
from spark_jobs.assignors.ownership import FrameOwned
from spark_jobs.assignors.prior_ownership import check_previous, settle
from spark_jobs.session.work_session import Scratch, release_with


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
    scratch = Scratch(spark)
    try:
        if previous is None:
            previous = spark.createDataFrame(ARROW_SCHEMA.empty_table())
        claims, rows = check_previous(scratch.adopt(previous))
        group = FrameGroup.of(scratch, scratch.adopt(members), scratch.adopt(topics), rows)
        owned = FrameOwned(group, settle(group, claims))
        plan = solve_sticky_plan(group.problem, imbalance, owned, exact_edges)
        assigned = expand(plan, owned, max_moves)
    except BaseException:
        scratch.release()
        raise
    rows_of_user = scratch.give_back(assigned.rows)
    release_with(rows_of_user, scratch)
    return replace(assigned, rows=rows_of_user)
