"""The assignor weighted on DataFrames: in one task with NumPy, or in many for a large group.

The search of `assignors.weighted` looks at all units again and again, level by level, so it is
quickest where they all are: in one task, which needs memory for the whole group. A group that is
too large for that is cut (`weighted_large.py`). The rows are those of the local engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.groups.task_rows import GROUP_ID, TABLES
from assignors.parse_tables import refuse_unknown_columns
from spark_jobs.assignors.groups import FrameGroups, assign_groups
from spark_jobs.assignors.weighted_large import assign_large
from spark_jobs.session.schemas import ASSIGNMENT, select_known
from spark_jobs.session.work_session import BUCKET_ROWS, WorkSession, release_with

TASK_PARTITIONS = 20_000_000
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
    return assign_group(spark, "weighted", tables, options, as_of_ms=as_of_ms).rows


def assign_group(
    spark: SparkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    *,
    as_of_ms: int | None = None,
    task_partitions: int = TASK_PARTITIONS,
    bucket_rows: int = BUCKET_ROWS,
) -> FrameGroups:
    """Assign one group, by any assignor: in one task, or cut into many if it is too large for that.

    Parameters
    ----------
    tables
        As for `assign_groups`, without group ids.
    task_partitions
        One task assigns groups of up to so many partitions.
    bucket_rows
        About how many rows one task sorts at once, in a larger group.

    Raises
    ------
    SpecError
        Bad input, or constraints that cannot hold.
    """
    for name, frame in tables.items():
        if GROUP_ID in frame.columns:
            known = [column for column in frame.columns if column != GROUP_ID]
            refuse_unknown_columns(frame.columns, known, name)
    large = _assign_large(spark, assignor, tables, options, as_of_ms, task_partitions, bucket_rows)
    if large is not None:
        return large
    named = {name: frame.withColumn(GROUP_ID, F.lit(_GROUP)) for name, frame in tables.items()}
    try:
        return assign_groups(
            spark, assignor, named, options, as_of_ms=as_of_ms, columns=ASSIGNMENT.names
        )
    except SpecError as error:
        raise SpecError(str(error).removeprefix(f"group {_GROUP!r}: ")) from None


def _assign_large(
    spark: SparkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    as_of_ms: int | None,
    task_partitions: int,
    bucket_rows: int,
) -> FrameGroups | None:
    chosen = {name: select_known(frame, name, TABLES[name]) for name, frame in tables.items()}
    work_session = WorkSession(spark, bucket_rows)
    try:
        found = assign_large(
            work_session, assignor,
            {name: work_session.adopt(frame) for name, frame in chosen.items()},
            options, as_of_ms, task_partitions,
        )  # fmt: skip
    except BaseException:
        work_session.release()
        raise
    if found is None:
        work_session.release()
        return None
    rows = work_session.give_back(found[0])
    release_with(rows, work_session)
    return FrameGroups(rows, found[1])
