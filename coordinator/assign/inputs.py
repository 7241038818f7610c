"""Inputs of a job: paths, names in Spark's catalog, and URLs.

A path is checked when it is named. Names and URLs are resolved later, by a Spark session
(spark_jobs/jobs/spark_tables.py).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from assignors import SpecError
from coordinator.storage.tables.object_store import check_url, is_url, split_version
from coordinator.storage.tables.table_io import TableRef

_PART = r"(?:[A-Za-z0-9_]+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"({_PART}(?:\.{_PART})*)(?:@(\d+))?")
_FILES = (".parquet", ".json", ".csv")
"""File suffixes. A missing file with one of them is refused without starting Spark."""


@dataclass(frozen=True, slots=True)
class SparkName:
    """A table named on the command line that Spark must find.

    Attributes
    ----------
    option
        The option that named it.
    name
        `table`, `schema.table` or `catalog.schema.table`, parts in backquotes where Spark needs
        them; or a URL.
    version
        None for the newest.
    """

    option: str
    name: str
    version: int | None


class FoundTable(Protocol):
    """A table that Spark found, pinned to a version or read once. Only Spark reads its rows."""

    @property
    def path(self) -> str | None:
        """Its path; None for a view."""

    def columns(self) -> list[str]:
        """Return the names of its columns."""

    @property
    def identity(self) -> dict[str, Any]:
        """What `runs.identify` returns for it."""


Input: TypeAlias = TableRef | SparkName | FoundTable


def find_input(text: str, option: str, engine: str) -> TableRef | SparkName:
    """Find the table that an option names. A path that exists wins over a name in the catalog.

    Raises
    ------
    SpecError
        The engine can read no such table.
    """
    if engine == "spark" and is_url(text) and not text.startswith("file:"):
        url, version = split_version(text)
        check_url(url, option)
        return SparkName(option, url, version)
    if (named := _NAME.fullmatch(text)) is None or _is_path(text, named[1]):
        return TableRef.of(text, option)
    if engine == "spark":
        return SparkName(option, named[1], int(named[2]) if named[2] else None)
    if "." in named[1] or "`" in named[1]:
        raise SpecError(
            f"{option} {named[1]!r} not found: give a Delta table or Parquet; for a table of "
            "Spark's catalog, use --engine spark"
        )
    return TableRef.of(text, option)


def schema_of_name(output: str) -> str | None:
    """Return the schema if an output looks like a catalog name and is not an existing path."""
    named = _NAME.fullmatch(output)
    parts = re.findall(_PART, output)
    if named is None or named[2] or len(parts) == 1 or os.path.exists(output):
        return None
    return ".".join(parts[:-1])


def local_table(table: Input, what: str) -> TableRef:
    """Return a table that can be read without Spark.

    Raises
    ------
    SpecError
        Only Spark can read it.
    """
    if not isinstance(table, TableRef):
        raise SpecError(f"{what} is a table that only Spark can read: use --engine spark")
    return table


def _is_path(text: str, without_version: str) -> bool:
    there = os.path.exists(text) or os.path.exists(without_version)
    return there or without_version.lower().endswith(_FILES)
