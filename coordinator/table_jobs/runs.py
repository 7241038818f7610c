"""Run ids: what a run was asked for, and its result, stored together with its rows.

They are stored in the Delta commit (userMetadata), in a Parquet file's metadata, or in a file
beside Spark's Parquet files, so they exist exactly if the rows do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError, TableNotFoundError

from assignors import SpecError
from coordinator.storage.tables.store_files import open_delta
from coordinator.storage.tables.table_history import (
    RESTORE,
    History,
    OpenHistory,
    UnknownRestoreError,
)
from coordinator.storage.tables.table_io import TableRef
from coordinator.table_jobs.inputs import Input, SparkName
from coordinator.table_jobs.outputs import BESIDE, is_delta_output
from coordinator.table_jobs.parquet_files import read_schemas

KEY = "muster"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the job on tables.

    Attributes
    ----------
    run_id
        Its id.
    asked
        The assignor and its options, and each input as `identify` returns it.
    summary
        What the command prints about the run, except for the version.
    version
        The version of the output's Delta table, once it is committed.
    """

    run_id: str
    asked: dict[str, Any]
    summary: dict[str, Any]
    version: int | None = None

    def to_json(self) -> str:
        """Return the JSON text that is stored with the rows."""
        kept = {"run_id": self.run_id, "asked": self.asked, "summary": self.summary}
        return json.dumps({KEY: kept}, ensure_ascii=False)

    @classmethod
    def of_json(cls, text: object, version: int | None = None) -> Self | None:
        """Parse the JSON text that was stored with rows; None if a run did not write it."""
        try:
            kept = json.loads(str(text))[KEY]
            return cls(kept["run_id"], kept["asked"], kept["summary"], version)
        except (ValueError, KeyError, TypeError):
            return None

    def check_asked(self, asked: dict[str, Any], output: str) -> None:
        """Refuse to reuse the id of this run for a different job.

        Raises
        ------
        SpecError
            The message names the first difference.
        """
        for name, value in self.asked.items():
            if _drop_path(asked.get(name)) != _drop_path(value):
                raise SpecError(
                    f"run {self.run_id!r} wrote {output!r} with {name} {_format_value(value)}, "
                    f"not {_format_value(asked.get(name))}: give another --run-id"
                )


def identify(table: Input | None, what: str) -> dict[str, Any] | None:
    """Return the identity of a table: its Delta id and version, or a digest of its Parquet files.

    For a table without a version that Spark found, it is a digest of the rows.

    Parameters
    ----------
    what
        The option that names it.

    Raises
    ------
    SpecError
        A file is not Parquet, or lacks columns of others.
    """
    if table is None or isinstance(table, SparkName):
        return None
    if not isinstance(table, TableRef):
        return table.identity
    if table.delta:
        pinned = table.open()
        return {"path": table.path, "id": pinned.metadata().id, "version": pinned.version()}
    files = read_schemas(table, what)
    return {"path": table.path, "digest": _digest_files(table.path, files)}


def find_run(output: str, run_id: str) -> Run | None:
    """Find what a run wrote to an output.

    Returns
    -------
    Run or None
        None if the run wrote nothing, or if its rows are not there: RESTORE has undone it, or
        others have changed them. `asked` and `summary` are missing if its commit is no longer in
        the table's log, and the rows are a later run's.
    """
    if not is_delta_output(output):
        found = _find_in_parquet(Path(output))
        return found if found is not None and found.run_id == run_id else None
    try:
        table = open_delta(output)
    except TableNotFoundError:
        return None
    if table.transaction_version(run_id) is None:
        return None
    return find_in_history(OpenHistory(lambda version: open_delta(output, version)), run_id)


def find_in_history(history: History, run_id: str) -> Run | None:
    """Find a run whose rows a table has, or had until later runs replaced them.

    A transaction stays in the table permanently, even if RESTORE has undone its run, or another
    program has changed rows since: then the run must be repeated. So it must if the log no longer
    says what became of it, unless a later run is there, whose rows it would replace.
    """
    replaced = changed = False
    at: int | None = None
    while True:
        restored = None
        for made in history.read(at):
            if made.operation == RESTORE:
                restored = made
                break
            run = Run.of_json(made.user_metadata, made.version)
            if run is not None and run.run_id == run_id:
                return run if replaced or not changed else None
            replaced = replaced or run is not None
            changed = changed or made.changes_rows
        try:
            if restored is None:
                known = replaced and history.has_run(run_id, at)
                return Run(run_id, {}, {}) if known else None
            at = history.restored(restored)
        except (DeltaError, UnknownRestoreError):  # whose rows these are is unknown
            return None


def _find_in_parquet(output: Path) -> Run | None:
    if output.is_dir():
        beside = output / BESIDE
        return Run.of_json(beside.read_text(encoding="utf-8")) if beside.is_file() else None
    if not output.is_file():
        return None
    try:
        metadata = pq.read_schema(output).metadata or {}
    except (pa.ArrowException, OSError):  # reading it as the previous assignment reports the error
        return None
    return Run.of_json(metadata.get(KEY.encode(), b"").decode(errors="replace"))


def _digest_files(path: str, files: Iterable[str]) -> str:
    """Return a digest of all bytes of files, and of their folders below the path.

    Footers are not enough: rows that change places leave all counts, sizes and bounds as they are.
    Files are hashed as a stream, about a gigabyte a second: BLAKE2 is the fastest safe hash here.
    Folders may be columns (`topic=clicks`); files may have any name.
    """
    digest = hashlib.blake2b()
    for file in files:
        folder = os.path.dirname(os.path.relpath(file, path))
        with open(file, "rb") as stream:
            content = hashlib.file_digest(stream, hashlib.blake2b)
        digest.update(hashlib.blake2b(os.fsencode(folder)).digest() + content.digest())
    return digest.hexdigest()[:16]


def _drop_path(value: object) -> object:
    """Drop a table's path, which may be written in several ways."""
    return {k: v for k, v in value.items() if k != "path"} if isinstance(value, dict) else value


def _format_value(value: object) -> str:
    """Format a value as a user would write it."""
    if not isinstance(value, dict):
        return "not given" if value is None else repr(value)
    version = value.get("version")
    if version is not None:
        return f"{value['path']}@{version}"
    return f"{value['path']} (digest {value.get('digest')})"
