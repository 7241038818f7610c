"""Find tables with Spark: by name in its catalog, or by URL.

A Delta table is pinned to a version. Everything else (views, Parquet, other formats) has no
version: it is read once, kept until the job ends, and identified by a digest of its rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from coordinator.errors.texts import gist
from coordinator.storage.tables.table_io import TableRef
from coordinator.storage.tables.urls import is_url, path_of
from coordinator.table_jobs.inputs import SparkName
from spark_jobs.session.object_store import add_file_system, spark_pattern
from spark_jobs.session.work_session import WorkSession

_VIEW = "EXPECT_TABLE_NOT_VIEW"
_NOTHING = (
    "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE",
    "DELTA_PARSING_ILLEGAL_TABLE_NAME",
)  # fmt: skip
"""Spark's error conditions for a missing table, schema and catalog."""
_WHOLE = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How rows are written as JSON without loss."""
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache")


@dataclass(frozen=True, slots=True, eq=False)
class SparkTable:
    """A table that Spark found, pinned to a version or read once.

    Attributes
    ----------
    path
        Its path; None for a view.
    version
        Of a Delta table.
    identity
        What `runs.identify` returns for it.
    frame
        Its rows.
    """

    path: str | None
    version: int | None
    identity: dict[str, Any]
    frame: DataFrame

    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.frame.columns)


@contextmanager
def find_tables(spark: SparkSession, tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Resolve the tables that only Spark can find. Tables read once are kept for the block.

    Raises
    ------
    SpecError
        A table does not exist, or cannot be read.
    """
    work_session = WorkSession(spark)
    try:
        yield {
            field: _find(spark, work_session, table)
            for field, table in tables.items()
            if isinstance(table, SparkName)
        }
    finally:
        work_session.release()


def describe(spark: SparkSession, asked: SparkName, name: str) -> tuple[bool, Row | None]:
    """Return whether a table is there, and Delta's description of it, if it is one of Delta.

    Raises
    ------
    SpecError
        The catalog cannot be asked.
    """
    try:
        return True, _detail(spark, asked, name)
    except Exception as error:  # noqa: BLE001 - a catalog or a file system raises anything
        if _condition(error) in _NOTHING:
            return False, None
        raise SpecError(_explain_refusal(spark, asked, error)) from None


def _find(
    spark: SparkSession, work_session: WorkSession, asked: SparkName
) -> TableRef | SparkTable:
    name = asked.name
    if is_url(name):
        name = f"delta.`{name.replace('`', '``')}`"
    try:
        detail = _detail(spark, asked, name)
        if detail is not None and detail["format"] == "delta":
            return _pin_table(spark, asked, name, detail)
        return _read_once(spark, work_session, asked, detail)
    except SpecError:
        raise
    except Exception as error:  # noqa: BLE001 - a catalog or a file system raises anything
        raise SpecError(_explain_refusal(spark, asked, error)) from None


def _detail(spark: SparkSession, asked: SparkName, name: str) -> Row | None:
    """Return Delta's description of a table, or None if it exists but is not a Delta table."""
    try:
        return spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    except Exception as error:
        condition = _condition(error)
        other = condition.startswith((_VIEW, "DELTA_MISSING_DELTA_TABLE"))
        if other or (
            condition not in _NOTHING and not is_url(asked.name) and _table_exists(spark, name)
        ):
            return None
        raise


def _table_exists(spark: SparkSession, name: str) -> bool:
    return bool(spark.catalog.tableExists(name))


def _pin_table(
    spark: SparkSession, asked: SparkName, name: str, detail: Row
) -> TableRef | SparkTable:
    """Return a Delta table at a version; by its path if it is local, so that checks apply to it."""
    version = asked.version
    if version is None:
        version = int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"])
    frame = spark.read.option("versionAsOf", version).table(name)
    path = path_of(detail["location"])
    if not is_url(path) and DeltaTable.is_deltatable(path):
        return TableRef(path, version, delta=True)
    identity = {"path": asked.name, "id": detail["id"], "version": version}
    return SparkTable(path, version, identity, frame)


def _read_once(
    spark: SparkSession, work_session: WorkSession, asked: SparkName, detail: Row | None
) -> SparkTable:
    if asked.version is not None:
        raise SpecError(
            f"{asked.option} {asked.name!r} is not a Delta table, so it has no version "
            f"{asked.version}: omit @{asked.version}"
        )
    if is_url(asked.name):
        frame = work_session.keep(spark.read.parquet(spark_pattern(asked.name)))
    else:
        spark.catalog.refreshTable(
            asked.name
        )  # a session caches lists of files that others may replace
        frame = work_session.keep(spark.table(asked.name))
    identity = {"path": asked.name, "digest": _digest(frame)}
    path = path_of(detail["location"]) if detail is not None and detail["location"] else None
    return SparkTable(path, None, identity, frame)


def _digest(frame: DataFrame) -> str:
    """Return a digest of a frame's columns and rows that does not depend on the rows' order.

    A row is hashed as JSON: Spark's hashes pass over nulls, so that they do not tell `["y"]` from
    `["y", null]`, nor in which of two columns a value is.
    """
    row = F.to_json(F.struct("*"), _WHOLE)
    rows = F.sum(F.xxhash64(row).cast("decimal(38,0)"))
    found: Any = frame.agg(F.count("*"), rows).collect()[0]
    text = f"{frame.schema.simpleString()} {found[0]} {found[1]}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _condition(error: Exception) -> str:
    """Return Spark's error condition."""
    condition = getattr(error, "getCondition", lambda: None)()
    if condition is None and (match := re.search(r"\b[A-Z]+(?:_[A-Z]+){2,}\b", str(error))):
        condition = match[0]
    return str(condition or "")


def _explain_refusal(spark: SparkSession, asked: SparkName, error: Exception) -> str:
    what = f"{asked.option} {asked.name!r}"
    if not is_url(asked.name) and _condition(error) in _NOTHING:
        current = f"{spark.catalog.currentCatalog()}.{spark.catalog.currentDatabase()}"
        return (
            f"{what} not found, neither as a path nor in Spark's catalog (its current schema is "
            f"{current}): give a path, or [CATALOG.]SCHEMA.TABLE"
        )
    if _NO_FILE_SYSTEM.search(str(error)):
        return f"{what} cannot be read: {add_file_system(spark, urlsplit(asked.name).scheme)}"
    return f"{what} cannot be read: {gist(error)}"
