"""Inputs of a job: paths, names of Spark's catalog, and URLs.

A path is looked at when it is named. A name or a URL waits for the session, in `spark_tables`.
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
"""Endings of files: without Spark a user learns sooner that one is not there."""


@dataclass(frozen=True, slots=True)
class SparkName:
    """A table as named on the command line that Spark has to find.

    Attributes
    ----------
    option
        Which named it.
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
    """A table that Spark found, at one version or read once; Spark alone reads its rows."""

    @property
    def path(self) -> str | None:
        """Where it is; None for a view."""

    @property
    def identity(self) -> dict[str, Any]:
        """What tells it from others: `runs.identify`."""


Input: TypeAlias = TableRef | SparkName | FoundTable


def find_input(text: str, option: str, engine: str) -> TableRef | SparkName:
    """Look at what an option names; a path that is there wins over a name of the catalog.

    Raises
    ------
    SpecError
        Nothing that the engine can read is there.
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
            f"{option} {named[1]!r} not found: give a Delta table or Parquet; a table of "
            "Spark's catalog is found with --engine spark"
        )
    return TableRef.of(text, option)


def schema_of_name(output: str) -> str | None:
    """Return the schema when an output is written like a name of a catalog, and is no path yet."""
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
        It is one that only Spark finds.
    """
    if not isinstance(table, TableRef):
        raise SpecError(f"{what} is a table that only Spark finds: use --engine spark")
    return table


def _is_path(text: str, without_version: str) -> bool:
    there = os.path.exists(text) or os.path.exists(without_version)
    return there or without_version.lower().endswith(_FILES)
