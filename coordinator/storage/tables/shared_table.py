"""A Delta table that several processes write, without locks.

A commit is one put of the log's next entry, which fails if another process was faster. Readers see
data files only after it. It carries the run's id as its Delta application, so a run is in a table
once, however often any process repeats it.

Each run writes its data files under names of its own. What a killed run left is named by no
version, and goes when the table is vacuumed.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.storage.record_log import CommitFailed
from coordinator.storage.tables.commit_reader import LoggedAction, read_commit
from coordinator.storage.tables.commit_writer import (
    NO_MORE,
    describe_actions,
    describe_commit,
    put_entry,
)
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.protocol import READER_VERSION, WRITER_VERSION, find_unwritten
from coordinator.storage.tables.recovery import LAST_CHECKPOINT, commit_file, log_folder
from coordinator.storage.tables.store_files import explain, files_at, open_delta
from coordinator.storage.tables.sync_beside import sync_named
from coordinator.storage.tables.table_io import RUN_VERSION, BusyError

NONE = -1
"""The version of a table that is not there yet."""
APPEND_TRIES = 50
"""How many entries of others an append gets out of the way of."""
CHECKPOINT_EVERY = 10
"""After so many versions a checkpoint is written, as Spark does."""
logger = logging.getLogger("muster.coordinator")


def find_version(path: str) -> int:
    """Return the newest version of a table, `NONE` without a table.

    Raises
    ------
    OSError, DeltaError
        It cannot be read.
    """
    try:
        return int(open_delta(path).version())
    except TableNotFoundError:
        return NONE


def write_data_file(path: str, rows: pa.Table) -> AddAction:
    """Write rows as a data file of a table, which no version names yet."""
    name = f"part-{uuid.uuid4().hex}.parquet"
    size = files_at(path).write_rows(f"{path}/{name}", rows)
    return _add(name, size, len(rows), {})


def find_data_files(
    path: str, folder: str, partition: Mapping[str, str] | None = None
) -> list[AddAction]:
    """Return what a commit says of the Parquet files that a job wrote below a folder of a table.

    Parameters
    ----------
    folder
        Its path in the table's folder.
    partition
        Values of the columns by which the table is partitioned; the files lack these columns.
    """
    disk, found = files_at(path), []
    for name in disk.names_below(f"{path}/{folder}"):
        hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
        if hidden or not name.endswith(".parquet"):
            continue
        inside = f"{folder}/{name}"
        at = f"{path}/{inside}"
        rows = pq.read_metadata(disk.source(at)).num_rows
        found.append(_add(inside, disk.size(at), rows, partition or {}))
    return found


def append_files(
    path: str,
    added: Sequence[AddAction],
    run_id: str,
    disk: Files | None = None,
    notes: Mapping[str, Any] = NO_MORE,
    *,
    sync: bool = False,
) -> int:
    """Add the data files of a run to a table that is there; return a version that has its rows.

    If the run is in the table already, these files are removed instead.

    Parameters
    ----------
    disk
        What writes there, if not `files_at`.
    notes
        What else the first line of the entry says.
    sync
        Whether the entry is to survive a power cut, on a disk.

    Raises
    ------
    SpecError
        The table asks its writers for what Muster does not know.
    BusyError
        Other writers took every version that was tried.
    CommitFailed
        It is not known whether the entry landed: a repeated run sees it.
    """
    disk = disk or files_at(path)
    table = open_delta(path)
    newest = int(table.version())
    _refuse_unknown(path, table)
    if table.transaction_version(run_id) is not None:
        remove_files(path, added)
        return newest
    lines = [*describe_actions(added), _transaction(run_id)]
    for version in range(newest + 1, newest + 1 + APPEND_TRIES):
        try:
            first = describe_commit(len(lines), _parameters("Append") | dict(notes))
            _put(disk, path, version, [first, *lines], sync=sync)
        except FileExistsError:
            if _is_of(there := list(read_commit(commit_file(path, version), newest=False)), run_id):
                remove_files(path, added)
                return version
            if any("protocol" in action for action in there):
                _refuse_unknown(path, open_delta(path, version))
            continue
        _checkpoint(disk, path, version, sync=sync)
        return version
    raise BusyError(f"{path} was written by others {APPEND_TRIES} times in a row: try again")


def replace_files(
    path: str,
    seen: int,
    added: Sequence[AddAction],
    schema: pa.Schema,
    run_id: str,
    user_metadata: str,
) -> int:
    """Replace all rows of a table by those of a run, in one commit, and return its version.

    Parameters
    ----------
    seen
        The version that the run has seen and replaces; `NONE` makes the table.
    user_metadata
        Text that the commit keeps, where Spark keeps it too.

    Raises
    ------
    BusyError
        Another process has committed since: nothing is replaced.
    SpecError
        The table asks its writers for what Muster does not know.
    CommitFailed
        It is not known whether the entry landed: a repeated run sees it.
    """
    disk = files_at(path)
    lines = list(_describe_table(path, seen, schema))
    lines += [*describe_actions(added), _transaction(run_id)]
    notes = _parameters("Overwrite") | {"userMetadata": user_metadata}
    try:
        _put(disk, path, seen + 1, [describe_commit(len(lines), notes), *lines])
    except FileExistsError:
        remove_files(path, added)
        raise BusyError(
            f"{path} was written by another run since this one began: nothing was replaced; "
            "try again"
        ) from None
    _checkpoint(disk, path, seen + 1)
    return seen + 1


def remove_files(path: str, added: Iterable[AddAction]) -> None:
    """Remove data files that no version will name; those that stay are vacuumed some day."""
    try:
        files_at(path).remove_all(f"{path}/{action.path}" for action in added)
    except OSError as error:
        logger.warning("files of a run are left in %s, until it is vacuumed: %s", path, error)


def check_replaceable_by_url(path: str) -> None:
    """Check that a table, if one is there, can be replaced.

    Raises
    ------
    SpecError
        It asks its writers for what Muster does not know, or is partitioned.
    """
    if find_version(path) == NONE:
        return
    table = open_delta(path)
    _refuse_unknown(path, table)
    if columns := table.metadata().partition_columns:
        raise SpecError(
            f"{path} is partitioned by {', '.join(columns)}, which a run on object storage would "
            "not keep: name another"
        )


def _describe_table(path: str, seen: int, schema: pa.Schema) -> Iterable[LoggedAction]:
    """Yield what the entry says of the table, and of the files that it loses."""
    text = Schema.from_arrow(schema).to_json()
    if seen == NONE:
        yield {"protocol": {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}}
        yield _metadata(str(uuid.uuid4()), wall_ms(), text, {})
        return
    table = open_delta(path, seen)
    _refuse_unknown(path, table)
    known = table.metadata()
    if table.schema().to_json() != text or known.partition_columns:
        yield _metadata(str(known.id), known.created_time, text, known.configuration, known)
    for name, size in _list_files(table):
        yield {
            "remove": {
                "path": name,  # as the log has it
                "deletionTimestamp": wall_ms(),
                "dataChange": True,
                "extendedFileMetadata": False,
                "size": size,
            }
        }


def _metadata(
    table_id: str,
    created_ms: int | None,
    schema: str,
    properties: Mapping[str, str],
    known: Any = None,  # noqa: ANN401 - delta-rs's
) -> LoggedAction:
    return {
        "metaData": {
            "id": table_id,
            "name": known and known.name,
            "description": known and known.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": dict(properties),
            "createdTime": created_ms,
        }
    }


def _list_files(table: DeltaTable) -> list[tuple[str, int]]:
    found = pa.table(table.get_add_actions(flatten=True))
    if not len(found):
        return []
    return list(zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True))


def _put(
    disk: Files, path: str, version: int, lines: Sequence[LoggedAction], *, sync: bool = False
) -> None:
    try:
        put_entry(disk, path, version, lines)
        if sync and disk.needs_sync:
            sync_named(disk, commit_file(path, version))
    except FileExistsError:
        raise
    except OSError as error:
        raise CommitFailed(
            f"version {version} of {path} was not acknowledged ({explain(path, error)}), and may "
            "have landed: run it again with the same run id, which finds out"
        ) from None


def _is_of(actions: Sequence[LoggedAction], run_id: str) -> bool:
    return any(action.get("txn", {}).get("appId") == run_id for action in actions)


def _refuse_unknown(path: str, table: DeltaTable) -> None:
    if unknown := find_unwritten(table):
        raise SpecError(
            f"{path} asks its writers for {unknown} of Delta, which Muster does not know: drop it "
            "from the table, or name another"
        )


def _checkpoint(disk: Files, path: str, version: int, *, sync: bool = False) -> None:
    """Write a checkpoint now and then; the commit counts without it."""
    if version % CHECKPOINT_EVERY:
        return
    try:
        open_delta(path, version).create_checkpoint()
        for name in (f"{version:020}.checkpoint.parquet", LAST_CHECKPOINT):
            made = os.path.join(log_folder(path), name)
            disk.permit(made)  # delta-rs writes as the umask says
            if sync and disk.needs_sync:
                disk.sync(made)
    except (DeltaError, OSError) as error:
        why = explain(path, error)
        logger.warning("%s has no checkpoint at version %d: %s", path, version, why)


def _add(name: str, size: int, rows: int, partition: Mapping[str, str]) -> AddAction:
    stats = json.dumps({"numRecords": rows})
    return AddAction(name, size, dict(partition), wall_ms(), data_change=True, stats=stats)


def _transaction(run_id: str) -> LoggedAction:
    return {"txn": {"appId": run_id, "version": RUN_VERSION, "lastUpdated": wall_ms()}}


def _parameters(mode: str) -> dict[str, Any]:
    return {"operationParameters": {"mode": mode}}
