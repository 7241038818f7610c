"""The DataFrame twins by name."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import spark_jobs.assignors.range as range_
from spark_jobs.assignors import sticky, uniform
from spark_jobs.assignors.materialize import Assigned

_RUN = {"range": range_.run, "uniform": uniform.run, "sticky": sticky.run}


def assign_frames(
    spark: SparkSession,
    assignor: str,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None,
    **options: object,
) -> Assigned:
    """Assign with DataFrame operations, by the assignor's name and its own options."""
    return _RUN[assignor](spark, members, topics, previous, **options)
