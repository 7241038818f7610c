"""The assignor sticky as DataFrame operations: the same rows as `assignors.sticky`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.assignors.balanced import assign_balanced
from spark_jobs.assignors.twin import Twin

TWIN = Twin("sticky", assign_balanced)


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
    return TWIN.assign(
        spark, members, topics, previous, imbalance=imbalance, max_moves=max_moves
    ).rows
