"""Schemas of the frames that go into a job and come out of it.

Every transform begins and ends with a `select` of known columns. A frame that does not match is
refused; the error names the column, its type, and the expected type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from assignors import SpecError
from assignors.parse_tables import (
    BAD_RANGE,
    LOAD_COLUMNS,
    MEMBERS_COLUMNS,
    NULL_IN_ROW,
    OWNED_COLUMNS,
    TOPICS_COLUMNS,
    refuse_unknown_columns,
)

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.TimestampType, T.TimestampNTZType)

_FITS: Mapping[str, Callable[[T.DataType], bool]] = {
    "string": lambda kind: kind == T.StringType(),
    "array<string>": lambda kind: kind.simpleString() in ("array<string>", "array<void>"),
    "bigint": lambda kind: isinstance(kind, _INTEGERS),
    "double": lambda kind: isinstance(kind, T.NumericType),
    "boolean": lambda kind: kind == T.BooleanType(),
    "timestamp": lambda kind: isinstance(kind, (*_TIMES, *_INTEGERS)) or kind == T.StringType(),
}
_NAMES = {"bigint": "an integer type", "double": "a number", "timestamp": "a time"}

ASSIGNMENT = T.StructType(
    [
        T.StructField("member_id", T.StringType()),
        T.StructField("topic", T.StringType()),
        T.StructField("first_partition", T.IntegerType()),
        T.StructField("partition_count", T.IntegerType()),
    ]
)
"""The columns of an assignment: one row per range."""


def select_members(frame: DataFrame) -> DataFrame:
    """Select member_id, instance_id (nullable), subscribed.

    Raises
    ------
    SpecError
        A column is missing, unknown or of another type.
    """
    _check_columns(frame, "members", {"member_id": "string", "subscribed": "array<string>"})
    refuse_unknown_columns(frame.columns, (*MEMBERS_COLUMNS, *LOAD_COLUMNS), "members")
    for name in LOAD_COLUMNS:
        if name in frame.columns:
            raise SpecError(
                f"members: column {name!r} is read by weighted groups only: assign them with "
                "`spark_jobs.weighted`, or leave it out"
            )
    given = [field.name for field in frame.schema.fields if field.dataType != T.NullType()]
    optional = [name for name in ("instance_id", "rack") if name in given]
    _check_columns(frame, "members", dict.fromkeys(optional, "string"))
    # lists without any topic are of type array<void>
    instance = F.col("instance_id") if "instance_id" in optional else F.lit(None)
    return frame.select(
        "member_id",
        instance.cast("string").alias("instance_id"),
        F.col("subscribed").cast("array<string>").alias("subscribed"),
    )


def select_topics(frame: DataFrame) -> DataFrame:
    """Select topic, partitions (long).

    Raises
    ------
    SpecError
        A column is missing, unknown or of another type.
    """
    _check_columns(frame, "topics", {"topic": "string", "partitions": "integer"})
    refuse_unknown_columns(frame.columns, TOPICS_COLUMNS, "topics")
    return frame.select("topic", F.col("partitions").cast(T.LongType()))


def select_owned(frame: DataFrame, name: str = "owned") -> DataFrame:
    """Select member_id, topic, first_partition, partition_count (long).

    Raises
    ------
    SpecError
        A column is missing, unknown or of another type.
    """
    columns = {"member_id": "string", "topic": "string"}
    columns |= {"first_partition": "integer", "partition_count": "integer"}
    _check_columns(frame, name, columns)
    refuse_unknown_columns(frame.columns, OWNED_COLUMNS, name)
    return frame.select(
        "member_id",
        "topic",
        F.col("first_partition").cast(T.LongType()),
        F.col("partition_count").cast(T.LongType()),
    )


def select_known(frame: DataFrame, where: str, columns: Mapping[str, str]) -> DataFrame:
    """Select the columns that are known, and group_id; what is missing its reader refuses.

    Parameters
    ----------
    columns
        Types by name, as Spark calls them. A time without a zone is UTC; one that is text or a
        number stays so, for `parse_constraints` to read or to refuse.

    Raises
    ------
    SpecError
        A column is unknown or of another type.
    """
    ignored = TOPICS_COLUMNS if where == "topics" else ()
    refuse_unknown_columns(frame.columns, ("group_id", *dict.fromkeys((*columns, *ignored))), where)
    out = []
    for field in frame.schema.fields:
        expected = "string" if field.name == "group_id" else columns.get(field.name)
        if expected is None:
            continue
        if not _FITS[expected](field.dataType) and field.dataType != T.NullType():
            raise SpecError(
                f"{where}: column {field.name!r} is {field.dataType.simpleString()}, "
                f"expected {_NAMES.get(expected, expected)}"
            )
        column = F.col(field.name)
        if expected == "timestamp":
            out.append(_to_time(field).alias(field.name))
        else:
            out.append(column.cast(expected).alias(field.name))
    return frame.select(*out)


def _to_time(field: T.StructField) -> Column:
    """Return a column of times, or as it is where it has text or numbers."""
    column = F.col(field.name)
    if isinstance(field.dataType, _INTEGERS):
        return column.cast("bigint")
    if field.dataType == T.TimestampNTZType():
        epoch = f"timestampdiff(MILLISECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {field.name})"
        return F.timestamp_millis(F.expr(epoch))
    return column if field.dataType == T.StringType() else column.cast("timestamp")


def select_assignment(frame: DataFrame) -> DataFrame:
    """Select the columns of `ASSIGNMENT`, with its types."""
    return frame.select(*[F.col(f.name).cast(f.dataType).alias(f.name) for f in ASSIGNMENT.fields])


def check_previous(previous: DataFrame, where: str) -> DataFrame:
    """Check the columns and values of a previous assignment.

    Parameters
    ----------
    where
        The table's name in errors.

    Raises
    ------
    SpecError
        A column is missing, has another type or a null, or a range is invalid.
    """
    claims = select_owned(previous, where)
    null = F.lit(False)
    for name in claims.columns:
        null = null | F.col(name).isNull()
    most = 2**31 - 1
    first, count = F.col("first_partition"), F.col("partition_count")
    wrong = (first < 0) | (count < 1) | (first > most) | (count > most)
    found = claims.agg(
        F.max(null).alias("null"),
        F.max(F.coalesce(wrong, F.lit(False))).alias("wrong"),
    ).collect()[0]
    if found["null"]:
        raise SpecError(NULL_IN_ROW.format(where))
    if found["wrong"]:
        first_of_them = claims.where(wrong).agg(F.min(F.struct("*"))).collect()[0][0]
        raise SpecError(BAD_RANGE.format(where, *first_of_them))
    return claims


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Convert a table to a frame; one without rows, which Spark Connect refuses, by its schema."""
    if table.num_rows:
        return spark.createDataFrame(table)
    fields = from_arrow_schema(table.schema).fields
    return spark.range(0).select(*[F.lit(None).cast(at.dataType).alias(at.name) for at in fields])


def small(spark: SparkSession, columns: Mapping[str, npt.ArrayLike | pa.Array]) -> DataFrame:
    """Convert small columns on the driver to a frame for a broadcast join.

    Parameters
    ----------
    columns
        Arrays of equal length, by column name.
    """
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(np.asarray(column))
        for name, column in columns.items()
    }
    return F.broadcast(frame_of(spark, pa.table(arrays)))


def _check_columns(frame: DataFrame, where: str, columns: Mapping[str, str]) -> None:
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    for name, expected in columns.items():
        if name not in kinds:
            found = ", ".join(kinds) or "no columns"
            raise SpecError(
                f"{where}: column {name!r} is missing (found {found}): expected {name} {expected}"
            )
        kind = kinds[name]
        fits = isinstance(kind, _INTEGERS) if expected == "integer" else _FITS[expected](kind)
        if not fits:
            article = "an integer type" if expected == "integer" else expected
            raise SpecError(
                f"{where}: column {name!r} is {kind.simpleString()}, expected {article}"
            )
