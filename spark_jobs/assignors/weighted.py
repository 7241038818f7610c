"""The assignor weighted on DataFrames: one task is given the group, and assigns it with NumPy.

The search of `assignors.weighted` looks at all units again and again, level by level, so it runs
where they all are: in one task, whose rows are those of the local engine. The driver gets only the
summary, and the task's executor needs memory for the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.groups.task_rows import GROUP_ID
from assignors.parse_tables import refuse_unknown_columns
from spark_jobs.assignors.groups import FrameGroups, assign_groups
from spark_jobs.session.schemas import ASSIGNMENT

_GROUP = "the group"


def assign(
    spark: SparkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None = None,
    *,
    partitions: DataFrame | None = None,
    constraints: DataFrame | None = None,
    as_of_ms: int | None = None,
    **options: object,
) -> DataFrame:
    """Assign every partition of every subscribed topic, by weight and capacity.

    Parameters
    ----------
    members, topics, previous, partitions, constraints, as_of_ms
        The tables of docs/reference/formats.md#tables, as for `GroupSpec.from_arrow`.
    options
        `WeightedAssignor`'s.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row per range, touching ranges merged, in no order.

    Raises
    ------
    SpecError
        Bad input, or constraints that cannot hold.
    """
    given = {
        "members": members, "topics": topics, "owned": previous,
        "partitions": partitions, "constraints": constraints,
    }  # fmt: skip
    tables = {name: frame for name, frame in given.items() if frame is not None}
    return assign_in_task(spark, "weighted", tables, options, as_of_ms=as_of_ms).rows


def assign_in_task(
    spark: SparkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    *,
    as_of_ms: int | None = None,
) -> FrameGroups:
    """Assign one group in one task, by any assignor.

    Parameters
    ----------
    tables
        As for `assign_groups`, without group ids.

    Raises
    ------
    SpecError
        Bad input, or constraints that cannot hold.
    """
    for name, frame in tables.items():
        if GROUP_ID in frame.columns:
            known = [column for column in frame.columns if column != GROUP_ID]
            refuse_unknown_columns(frame.columns, known, name)
    named = {name: frame.withColumn(GROUP_ID, F.lit(_GROUP)) for name, frame in tables.items()}
    try:
        return assign_groups(
            spark, assignor, named, options, as_of_ms=as_of_ms, columns=ASSIGNMENT.names
        )
    except SpecError as error:
        raise SpecError(str(error).removeprefix(f"group {_GROUP!r}: ")) from None
