"""Call the DataFrame twin of an assignor by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.assignors import TWINS
from spark_jobs.assignors.group import LabelledMembers
from spark_jobs.assignors.materialize import FrameAssignment
from spark_jobs.assignors.twin import Twin


def assign_frames(
    spark: SparkSession,
    assignor: str,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None,
    **options: Any,  # noqa: ANN401 - of `Twin.assign`, and the assignor's own
) -> FrameAssignment:
    """Assign with DataFrame operations, by the assignor's name: what its twin's `assign` does."""
    assert assignor in TWINS, assignor
    twin: Twin = import_module(f"spark_jobs.assignors.{assignor}").TWIN
    return twin.assign(spark, members, topics, previous, **options)
