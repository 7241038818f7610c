"""The assignor range as DataFrame operations: the same rows as `assignors.range`."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.assignors.blocks import read_blocks
from spark_jobs.assignors.frame_assignment import FrameAssignment
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.assignors.twin import Twin
from spark_jobs.session.work_session import WorkSession


def assign(
    spark: SparkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None = None,
) -> DataFrame:
    """Divide every topic among its subscribers, in member order.

    Parameters
    ----------
    members, topics, previous
        As for `spark_jobs.assignors.uniform.assign`. `previous` is checked, but changes no row.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row per range, in no order. A member has at most one range per topic, so
        there may be as many rows as partitions.

    Raises
    ------
    SpecError
        Bad input. Nothing was computed.
    """
    return TWIN.assign(spark, members, topics, previous).rows


def _assign_large(work_session: WorkSession, given: GivenTables) -> FrameAssignment:
    return FrameAssignment.of(read_blocks(work_session, given).divide())


TWIN = Twin("range", _assign_large, owners_of_each_topic=True)
