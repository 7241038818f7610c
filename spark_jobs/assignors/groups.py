"""Many groups in one Spark job: each task is given whole groups and assigns them with NumPy.

A group fits one task, so nothing is gained by cutting it. Tasks run `assignors.groups`, the code of
the local engine, so the rows are the same, for every assignor. Workers need Python with Muster's
`assignors`; this is the one place where rows pass through Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from assignors import SpecError
from assignors.groups.assign_groups import GROUPS_SCHEMA, sum_up
from assignors.groups.task_rows import (
    ANSWER_SCHEMA,
    GROUP_ID,
    PAYLOAD,
    READING,
    REFUSAL,
    TABLE,
    TABLES,
    TEXTS,
    WHEN,
    Task,
    list_columns,
    read_summary,
)
from spark_jobs.session.schemas import select_known
from spark_jobs.session.work_session import WorkSession, release_with

TASK_ROWS = 1_000_000
"""About how many rows of all tables one task gets."""


@dataclass(frozen=True, slots=True)
class FrameGroups:
    """The assignment of many groups.

    Attributes
    ----------
    rows
        A frame of `GROUPS_SCHEMA`, in no order.
    summary
        One row per group, by group.
    """

    rows: DataFrame
    summary: pa.Table

    @property
    def partitions(self) -> int:
        """Partitions assigned."""
        return int(self.totals()["partitions"])

    def totals(self) -> dict[str, Any]:
        """Return the figures of all groups together."""
        return sum_up(self.summary)


def assign_groups(
    spark: SparkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    *,
    as_of_ms: int | None = None,
    check_empty: Callable[[Sequence[str]], None] | None = None,
    columns: Sequence[str] = GROUPS_SCHEMA.names,
) -> FrameGroups:
    """Assign all groups of the tables; each gets the rows that it gets alone.

    Parameters
    ----------
    tables
        members, topics, and optional owned, partitions, constraints, by these names. Members and
        owned have group_id; without it, all groups share the others, which then go whole to every
        task.
    check_empty
        Is given the groups without members, by name, and may refuse them.
    columns
        Of the rows to return. Spark keeps them until the frame returned is no longer referenced.

    Raises
    ------
    SpecError
        Bad input: the message names the first bad group. Nothing was written.
    """
    chosen = {name: select_known(frame, name, TABLES[name]) for name, frame in tables.items()}
    if "owned" in chosen:
        refuse_one_group(chosen["owned"], "owned")
    _refuse_null_groups(chosen)
    work_session = WorkSession(spark)
    try:
        found = _assign(work_session, assignor, chosen, options, as_of_ms)
        if check_empty is not None:
            without = found.summary.filter(pc.equal(found.summary["members"], 0))
            check_empty(without[GROUP_ID].to_pylist())
    except BaseException:
        work_session.release()
        raise
    rows = work_session.give_back(found.rows.select(*columns))
    release_with(rows, work_session)
    return FrameGroups(rows, found.summary)


def _assign(
    work_session: WorkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    as_of_ms: int | None,
) -> FrameGroups:
    own = {name: frame for name, frame in tables.items() if GROUP_ID in frame.columns}
    shared = {name: frame.toArrow() for name, frame in tables.items() if name not in own}
    given = {
        name: tuple(column for column in frame.columns if column != GROUP_ID)
        for name, frame in own.items()
    }
    task = Task(assignor, dict(options), given, shared, as_of_ms)
    ruled = own.get("constraints")
    kinds = {} if ruled is None else dict(ruled.dtypes)
    columns = list_columns(given, kinds.get("until", "timestamp"))
    parts = [widen(work_session.adopt(frame), name, columns) for name, frame in own.items()]
    rows = reduce(DataFrame.unionAll, parts)
    work_session.set_shuffle_parts(max(-(-rows.count() // TASK_ROWS), work_session.tasks))
    dealt = rows.repartition(work_session.tasks, GROUP_ID)
    answer = work_session.keep(dealt.mapInArrow(task.assign_batches, _answer_type()))
    _raise_first(answer)
    payloads = answer.where(F.col(PAYLOAD).isNotNull()).select(PAYLOAD).collect()
    return FrameGroups(
        answer.where(F.col(PAYLOAD).isNull()).select(*GROUPS_SCHEMA.names),
        read_summary(bytes(row[PAYLOAD]) for row in payloads),
    )


def refuse_one_group(frame: DataFrame, where: str) -> None:
    """Refuse a table of one group beside members of many.

    Raises
    ------
    SpecError
        It has no column group_id.
    """
    if GROUP_ID not in frame.columns:
        raise SpecError(
            f"{where}: column 'group_id' is missing, but members has it: add it, so that each row "
            "names its group"
        )


def _refuse_null_groups(tables: Mapping[str, DataFrame]) -> None:
    for name, frame in tables.items():
        if GROUP_ID in frame.columns and not frame.where(F.col(GROUP_ID).isNull()).isEmpty():
            raise SpecError(f"{name}: column 'group_id' has a null: give every row a value")


def widen(frame: DataFrame, name: str, columns: Mapping[str, str]) -> DataFrame:
    """Return a table's rows with the columns of all tables.

    Lists are empty rather than null, save where a null is refused: after every row, Arrow's Java
    library writes the ends of all nulls behind the last list again.
    """
    known = {TABLE: F.lit(name)} | {column: F.col(column) for column in frame.columns}
    if "racks" in known:
        known["racks"] = F.coalesce("racks", F.array())
    nothing = {TEXTS: F.array()}
    return frame.select(
        *[
            known.get(column, nothing.get(kind, F.lit(None))).cast(kind).alias(column)
            for column, kind in columns.items()
        ]
    )


def _answer_type() -> T.StructType:
    kinds = {pa.string(): T.StringType(), pa.int32(): T.IntegerType(), pa.binary(): T.BinaryType()}
    return T.StructType([T.StructField(field.name, kinds[field.type]) for field in ANSWER_SCHEMA])


def _raise_first(answer: DataFrame) -> None:
    """Raise the first refusal: of groups that cannot be read, else of those not assigned."""
    refused = answer.where(F.col(REFUSAL).isNotNull()).select(WHEN, REFUSAL)
    found = sorted((row[WHEN] != READING, row[REFUSAL]) for row in refused.collect())
    if found:
        raise SpecError(found[0][1])
