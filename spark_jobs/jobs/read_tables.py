"""Read the tables of a job with Spark: the same files and rows that the local engine reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from assignors import SpecError
from coordinator.storage.tables.store_files import root_of
from coordinator.storage.tables.table_io import TableRef
from coordinator.table_jobs.inputs import Input, RulesFile, local_table
from coordinator.table_jobs.parquet_files import is_untyped, read_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNSEEN = re.compile(r"[_.]|.*:")
"""Names of files that Spark passes over, or Hadoop takes for URLs."""
_UNREADABLE = re.compile(
    r"\[(?:COLUMN_ALREADY_EXISTS|DELTA_\w+|FAILED_READ_FILE|PARQUET_TYPE_\w+)[.\w]*\] (.+)"
)
"""What Spark says about a table, not about itself."""
_FILE = re.compile(r"\[FAILED_READ_FILE[.\w]*\] \w+ error while reading file (.+?)\. ([A-Z][^.]+)")
_INT64_MAX = 2**63 - 1
_COUNTS = ("partitions", "partition", "first_partition", "partition_count")
_DIGITS_MAX = 38
"""Of Spark's decimals."""
_SCHEME = re.compile(r"file:/*(?=/)|\w+://")


def read_frame(spark: SparkSession, table: Input, what: str) -> DataFrame:
    """Return the rows of a table that was found and pinned.

    Parameters
    ----------
    what
        The option that names it.

    Raises
    ------
    SpecError
        It cannot be read.
    """
    from spark_jobs.jobs.spark_tables import SparkTable  # noqa: PLC0415 - imports pyspark
    from spark_jobs.session.schemas import frame_of  # noqa: PLC0415 - as above

    if isinstance(table, SparkTable):
        return table.frame
    if isinstance(table, RulesFile):
        return frame_of(spark, table.rows)
    ref = local_table(table, "the table")
    try:
        frame = _read_delta(spark, ref) if ref.delta else _read_parquet(spark, ref, what)
        _ = frame.schema  # Spark Connect looks at the table only now
    except Exception as error:
        match = _UNREADABLE.search(str(error))
        if match is None:
            raise
        raise SpecError(f"{what} {ref}: cannot be read: {match[1]}: write it again") from None
    return frame


@contextmanager
def unreadable_named(tables: Mapping[str, Any]) -> Iterator[None]:
    """Say whose a file is that tasks find missing or damaged.

    Parameters
    ----------
    tables
        The tables by the options that name them.

    Raises
    ------
    SpecError
        A file of one of them cannot be read.
    """
    try:
        yield
    except Exception as error:
        found = _FILE.search(str(error))
        if found is None:
            raise
        for what, table in tables.items():
            if isinstance(table, TableRef) and _has(table, found[1]):
                raise SpecError(
                    f"{what} {table}: cannot be read: {found[1]}: {found[2]}: write it again, or "
                    "name another version"
                ) from None
        raise


def _has(table: TableRef, file: str) -> bool:
    """Whether a file, as Spark's errors name it, is below a table."""
    root = _SCHEME.sub("", root_of(table.path)).rstrip("/") + "/"
    at = _SCHEME.sub("", file) + "/"
    return at.startswith(root) or unquote(at).startswith(root)


def _read_delta(spark: SparkSession, table: TableRef) -> DataFrame:
    from spark_jobs.session.object_store import reach_store, spark_path  # noqa: PLC0415 - as above

    path = root_of(table.path)  # the JVM may have another working directory
    reach_store(spark, path)
    return spark.read.format("delta").option("versionAsOf", table.version).load(spark_path(path))


def _read_parquet(spark: SparkSession, table: TableRef, what: str) -> DataFrame:
    """Read the files of a Parquet table, those of each schema by themselves.

    Spark reads all files of one call by the schema of one of them, and fails where another has
    wider integers. In a union they are widened, as pyarrow does.
    """
    alike: dict[tuple[tuple[str, pa.DataType], ...], list[str]] = {}
    for file, schema in read_schemas(table, what).items():
        _refuse_unseen(file, schema, what)
        alike.setdefault(tuple((field.name, field.type) for field in schema), []).append(file)
    frames = [_read_alike(spark, table, files, dict(kinds)) for kinds, files in alike.items()]
    return reduce(lambda one, more: one.unionByName(more, allowMissingColumns=True), frames)


def _read_alike(
    spark: SparkSession, table: TableRef, files: list[str], kinds: dict[str, pa.DataType]
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: PLC0415 - as above

    from spark_jobs.session.object_store import spark_path, spark_pattern  # noqa: PLC0415 - the same

    reader = spark.read
    if os.path.isdir(table.path):  # below it, folders `topic=clicks` are columns
        reader = reader.option("basePath", spark_path(table.path))
    frame = reader.parquet(*map(spark_pattern, files))
    # Spark before 4.1.1 reads Parquet's columns of type null as integers
    other = {name: F.lit(None) for name, kind in kinds.items() if pa.types.is_null(kind)}
    for name, kind in kinds.items():
        if is_untyped(kind) and name not in other:
            other[name] = F.col(f"`{name}`").cast("array<string>")
    # and any Spark those of type uint64 as decimals; a number beyond int64 is not a count anyway
    for name in _COUNTS:
        if kinds.get(name) == pa.uint64():
            other[name] = F.least(name, F.lit(_INT64_MAX)).cast("long")
    return frame.withColumns(other) if other else frame


def _refuse_unseen(file: str, schema: pa.Schema, what: str) -> None:
    if _UNSEEN.match(os.path.basename(file)):
        raise SpecError(
            f"{what} {file!r}: Spark reads no file whose name has a colon, or begins with _ or a "
            "dot: rename it, or use --engine local"
        )
    for field in schema:
        if (instead := _find_illegal(field.type)) is not None:
            raise SpecError(
                f"{what} {file!r}: column {field.name!r} is {field.type}, which Spark cannot read: "
                f"write it with {instead}, or use --engine local"
            )


def _find_illegal(kind: pa.DataType) -> str | None:
    """Return what to write for a type that Spark does not read from Parquet; None for others."""
    if pt.is_float16(kind):
        return "float32 for halffloat"
    if pt.is_timestamp(kind) and kind.unit == "ns":
        return "microseconds for nanoseconds"
    if pt.is_time(kind):
        return f"text for {kind}"
    if pt.is_decimal(kind) and kind.precision > _DIGITS_MAX:
        return f"at most {_DIGITS_MAX} digits"
    if isinstance(kind, pa.UuidType):
        return "text for UUIDs"
    inside = map(_find_illegal, _list_inside(kind))
    return next((found for found in inside if found is not None), None)


def _list_inside(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of what is in lists, maps and structs."""
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    return [kind.field(at).type for at in range(kind.num_fields)]
