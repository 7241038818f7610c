"""Inputs of a job: paths, names in Spark's catalog, and URLs.

A path is checked when it is named. Names and URLs are resolved later, by a Spark session
(spark_jobs/jobs/spark_tables.py).
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import pyarrow as pa

from assignors import GroupSpec, SpecError
from assignors.groups.group_tables import GROUP_ID
from assignors.incremental.changes import GroupChanges, change_group
from assignors.loads.constraints import parse_constraints, to_table
from assignors.parse import parse_json_rows
from coordinator.storage.tables.store_errors import check_url
from coordinator.storage.tables.table_io import TableRef
from coordinator.storage.tables.urls import is_file_url, is_url, split_version
from coordinator.table_jobs.outputs import OTHER_FORMATS, PARQUET

if TYPE_CHECKING:
    from coordinator.table_jobs.runs import Run

_PART = r"(?:[A-Za-z0-9_]+|`(?:[^`]|``)+`)"
_NAME = re.compile(rf"({_PART}(?:\.{_PART})*)(?:@(\d+))?")
RULES = (".json", ".jsonl")
"""File suffixes of constraints in JSON."""
_ANY_PART = r"(?:[^`./\\@]+|`(?:[^`]|``)+`)"
_ANY_NAME = re.compile(rf"{_ANY_PART}(?:\.{_ANY_PART})*(?:@\d+)?")
"""What a user may take for a name of the catalog: parts that Spark reads only in backquotes."""
_OUTPUTS = (PARQUET, ".delta", *OTHER_FORMATS)
"""Suffixes of outputs that are paths."""
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


@dataclass(frozen=True, slots=True)
class RulesFile:
    """Constraints in a JSON file, read when it is named.

    Attributes
    ----------
    path
        Its path.
    identity
        What `runs.identify` returns for it.
    rows
        A table of constraints.
    """

    path: str
    identity: dict[str, Any]
    rows: pa.Table

    @classmethod
    def of(cls, path: str, option: str) -> Self:
        """Read a JSON array of rules, or a rule a line; group_id says whose they are.

        Raises
        ------
        SpecError
            It cannot be read, or a rule is not of its form.
        """
        text, identity = _read_file(path, option)
        try:
            rows = parse_json_rows(text)
            groups = [row.pop(GROUP_ID, None) for row in rows]
            table = to_table(parse_constraints(rows))
        except SpecError as error:
            raise SpecError(f"{option} {path!r}: {error}") from None
        if any(group is not None for group in groups):
            if not all(isinstance(group, str) for group in groups):
                raise SpecError(f"{option} {path!r}: give every rule a group_id of text, or none")
            table = table.append_column(GROUP_ID, pa.array(groups, pa.string()))
        return cls(path, identity, table)

    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return list(self.rows.schema.names)


@dataclass(frozen=True, slots=True)
class ChangesFile:
    """Changes of a group in a JSON file, read when it is named.

    Attributes
    ----------
    path
        Its path.
    identity
        What `runs.identify` returns for it.
    changes
        What it says.
    """

    path: str
    identity: dict[str, Any]
    changes: GroupChanges

    @classmethod
    def of(cls, path: str) -> Self:
        """Read a JSON object.

        Raises
        ------
        SpecError
            It cannot be read, or is not of the form of changes.
        """
        text, identity = _read_file(path, "--changes")
        try:
            return cls(path, identity, GroupChanges.from_json(text))
        except SpecError as error:
            raise SpecError(f"--changes {path!r}: {error}") from None

    def apply(self, group: GroupSpec) -> GroupSpec:
        """Return the group after the changes, whose members own what they did.

        Raises
        ------
        SpecError
            They cannot have happened to this group.
        """
        try:
            return change_group(group, group.owned(), self.changes)
        except SpecError as error:
            raise SpecError(f"--changes {self.path!r}: {error}") from None


def _read_file(path: str, option: str) -> tuple[bytes, dict[str, Any]]:
    """Return what a file has, and what identifies it."""
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise SpecError(f"{option} {path!r}: {why or error}") from None
    return text, {"path": path, "digest": hashlib.sha256(text).hexdigest()[:16]}


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


class FoundOutput(Protocol):
    """A table of a catalog that a run replaces. Only Spark finds, reads and writes it."""

    @property
    def location(self) -> str | None:
        """Where its files are; None if it is not there yet, or has none."""

    def hold(self) -> AbstractContextManager[int]:
        """Keep other runs of this machine from it; yield its version, `NONE` if it is not there."""

    def find_run(self, run_id: str) -> Run | None:
        """Find what a run wrote to it, as `runs.find_run` does."""

    def content(self, version: int) -> FoundTable:
        """Return its rows as of a version."""


Input: TypeAlias = TableRef | SparkName | RulesFile | FoundTable


def find_input(text: str, option: str, engine: str) -> TableRef | SparkName | RulesFile:
    """Find the table that an option names. A path that exists wins over a name in the catalog.

    Raises
    ------
    SpecError
        The engine can read no such table.
    """
    if option == "--constraints" and text.endswith(RULES) and not is_url(text):
        return RulesFile.of(text, option)
    if engine == "spark" and is_url(text) and not is_file_url(text):
        url, version = split_version(text)
        check_url(url, option)
        return SparkName(option, url, version)
    if _is_path(text, text.rpartition("@")[0] or text):
        return TableRef.of(text, option)
    refuse_bare(text, option)
    if (named := _NAME.fullmatch(text)) is None:
        return TableRef.of(text, option)
    if engine == "spark":
        return SparkName(option, named[1], int(named[2]) if named[2] else None)
    if "." in named[1] or "`" in named[1]:
        raise SpecError(
            f"{option} {named[1]!r} not found: give a Delta table or Parquet; for a table of "
            "Spark's catalog, use --engine spark"
        )
    return TableRef.of(text, option)


def name_of_table(output: str) -> str | None:
    """Return an output that is named like a table of Spark's catalog; None for a path.

    It has a dot or backquotes: one word is a folder, and so is what is there, or ends like a file.

    Raises
    ------
    SpecError
        It has parts that need backquotes, an empty part, or a version.
    """
    if os.path.exists(output) or output.lower().endswith(_OUTPUTS):
        return None
    if _ANY_NAME.fullmatch(output) is None:
        _refuse_broken(output)
        return None
    if "." not in output and "`" not in output:
        return None
    refuse_bare(output, "--output")
    if "@" in output:
        raise SpecError(
            f"--output {output!r}: an output has no version: omit @, or give ./{output} for a "
            "folder of that name"
        )
    return output


def _refuse_broken(output: str) -> None:
    """Refuse what looks like a catalog name and is invalid: it would become a folder."""
    if os.path.basename(output) == output and re.search(r"`|\.\.|.\.$", output):
        raise SpecError(
            f"--output {output!r} is not a table name: each part is a word, or any text in "
            f"backquotes; give [CATALOG.]SCHEMA.TABLE, or ./{output} for a folder of that name"
        )


def refuse_bare(name: str, option: str) -> None:
    """Refuse a name of the catalog with parts that Spark reads only in backquotes.

    Raises
    ------
    SpecError
        The message says how it is written.
    """
    if _NAME.fullmatch(name) or "." not in name or not _ANY_NAME.fullmatch(name):
        return
    bare, at, version = name.partition("@")
    quoted = ".".join(
        part if re.fullmatch(_PART, part) else f"`{part}`" for part in re.findall(_ANY_PART, bare)
    )
    raise SpecError(
        f"{option} {name!r} not found as a path; in a name of Spark's catalog, parts with other "
        f"characters than A-Z, a-z, 0-9 and _ need backquotes, as in '{quoted}{at}{version}' "
        "(in quotes for the shell)"
    )


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
