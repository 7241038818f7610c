"""Call the DataFrame twin of an assignor by name."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_jobs.assignors.range as range_
from spark_jobs.assignors import sticky, uniform
from spark_jobs.assignors.group import LabelledMembers
from spark_jobs.assignors.materialize import FrameAssignment

_TWINS = {twin.name: twin for twin in (range_.TWIN, uniform.TWIN, sticky.TWIN)}


def assign_frames(
    spark: SparkSession,
    assignor: str,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None,
    **options: Any,  # noqa: ANN401 - of `Twin.assign`, and the assignor's own
) -> FrameAssignment:
    """Assign with DataFrame operations, by the assignor's name: what its twin's `assign` does."""
    return _TWINS[assignor].assign(spark, members, topics, previous, **options)
