"""Call the DataFrame twin of an assignor by name."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import spark_jobs.assignors.range as range_
from spark_jobs.assignors import sticky, uniform
from spark_jobs.assignors.group import LabelledMembers
from spark_jobs.assignors.materialize import FrameAssignment, assign_in_work_session
from spark_jobs.session.work_session import BUCKET_ROWS, DRIVER_ROWS

_RUN = {
    "range": range_.assign_with_totals,
    "uniform": uniform.assign_with_totals,
    "sticky": sticky.assign_with_totals,
}


def assign_frames(
    spark: SparkSession,
    assignor: str,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None,
    *,
    bucket_rows: int = BUCKET_ROWS,
    driver_rows: int = DRIVER_ROWS,
    **options: object,
) -> FrameAssignment:
    """Assign with DataFrame operations, by the assignor's name and its own options.

    Parameters
    ----------
    bucket_rows
        About how many rows one task sorts at once. The result does not depend on it.
    driver_rows
        Up to how many rows a group is assigned on the driver. The result does not depend on it,
        either.
    """
    return assign_in_work_session(
        spark,
        lambda work_session: _RUN[assignor](work_session, members, topics, previous, **options),
        bucket_rows,
        driver_rows,
    )
