"""Find the twin of an assignor on Spark, where the assignor declares it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from assignors import SpecError
from assignors.registry import require_spark_twin
from spark_jobs.assignors.frame_assignment import FrameAssignment
from spark_jobs.assignors.groups import FrameGroups
from spark_jobs.assignors.labelled_members import LabelledMembers
from spark_jobs.assignors.twin import Twin
from spark_jobs.assignors.weighted import assign_group

GroupTwin: TypeAlias = Callable[..., FrameGroups]
"""A twin that gets the tables of a group, weights and constraints among them, as
`spark_jobs.assignors.weighted.assign_group` does: by default in one task, for any assignor."""


def load_twin(assignor: str) -> Twin | GroupTwin:
    """Import the twin that an assignor declares.

    Raises
    ------
    SpecError
        It declares none, or one that cannot be imported.
    """
    path = require_spark_twin(assignor)
    module, _, name = path.partition(":")
    try:
        twin: Twin | GroupTwin = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"assignor {assignor!r}: its twin on Spark, {path!r}, cannot be imported ({error}): "
            "install its module, or use --engine local"
        ) from None
    return twin


def load_group_twin(assignor: str) -> GroupTwin:
    """Import what assigns a group with loads: the assignor's twin if it is of that kind."""
    twin = load_twin(assignor)
    return assign_group if isinstance(twin, Twin) else twin


def assign_frames(
    spark: SparkSession,
    assignor: str,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None,
    **options: Any,  # noqa: ANN401 - of `Twin.assign`, and the assignor's own
) -> FrameAssignment:
    """Assign with DataFrame operations, by the assignor's name: what its twin's `assign` does."""
    twin = load_twin(assignor)
    assert isinstance(twin, Twin), assignor
    return twin.assign(spark, members, topics, previous, **options)
