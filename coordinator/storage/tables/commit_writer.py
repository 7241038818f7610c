"""Writes commits of a Delta table: the actions as JSON lines, put where no file is yet.

An append adds files and needs nothing of the table but its version (Delta's protocol, "Delta Log
Entries"), so nothing is read. Columns are added by delta-rs, which writes the table's metadata.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from coordinator.clock import wall_ms
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import ACTIONS, commit_file
from coordinator.storage.tables.store_files import open_delta

APP = "coordinator"
"""The Delta application whose transaction number is the coordinator epoch."""
COMMIT_ID = "muster.commit_id"
ENGINE = "muster"
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made off the answer path."""
NO_MORE: Mapping[str, Any] = MappingProxyType({})
SAFE = "/=@:,;!~*'()+$&"
"""What a URI's path may have as it is (RFC 3986); Delta keeps paths percent-encoded."""

TableAction: TypeAlias = AddAction | RemoveAction | Field
"""What a commit does: a data file that the table gets or loses; or, alone, columns that it gets."""
WriteCommit: TypeAlias = Callable[[Files, str, int, Sequence[TableAction], int, str], None]


def write_commit(
    disk: Files,
    path: str,
    version: int,
    actions: Sequence[TableAction],
    epoch: int,
    commit_id: str,
) -> None:
    """Commit actions at this version, or fail; a simulator wraps this one.

    Parameters
    ----------
    path
        The table's folder.
    version
        One more than the newest that the writer has seen.

    Raises
    ------
    FileExistsError, DeltaError
        The version is taken.
    OSError
        The disk failed; the commit may be there or not.
    """
    columns = [action for action in actions if isinstance(action, Field)]
    if columns:
        assert len(columns) == len(actions), "columns are added in a commit of their own"
        _add_columns(open_delta(path, version - 1), columns, epoch, commit_id)
        return
    lines = [describe_commit(len(actions) + 1, commit_id=commit_id), *describe_actions(actions)]
    lines.append({"txn": {"appId": APP, "version": epoch}})
    put_entry(disk, path, version, lines)


def put_entry(disk: Files, path: str, version: int, lines: Sequence[Mapping[str, Any]]) -> None:
    """Put the entry of a version, if nobody has put one.

    Raises
    ------
    FileExistsError
        The version is taken.
    OSError
        The disk failed; the entry may be there or not.
    """
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    disk.create(commit_file(path, version), f"{text}\n".encode())


def _add_columns(table: DeltaTable, columns: Sequence[Field], epoch: int, commit_id: str) -> None:
    table.alter.add_columns(
        list(columns),
        commit_properties=CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(APP, epoch)],
            # One line, the table's new metadata, however many columns; and one with the epoch.
            custom_metadata={COMMIT_ID: commit_id, ACTIONS: 2},
        ),
        post_commithook_properties=NO_HOOKS,
    )


def describe_commit(
    lines_after: int, more: Mapping[str, Any] = NO_MORE, commit_id: str = ""
) -> dict[str, Any]:
    """Return the first line of an entry: who wrote it, which no other entry has.

    Parameters
    ----------
    more
        What else it says, in Delta's words.
    commit_id
        By which its writer finds it; by default a new one.
    """
    return {
        "commitInfo": {
            "timestamp": wall_ms(),
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            **more,
            "engineInfo": ENGINE,
            COMMIT_ID: commit_id or uuid.uuid4().hex,
            ACTIONS: lines_after,
        }
    }


def describe_actions(actions: Sequence[TableAction]) -> Iterator[dict[str, Any]]:
    """Yield the actions as Delta's protocol writes them ("Add File and Remove File")."""
    for action in actions:
        if isinstance(action, AddAction):
            yield {
                "add": {
                    "path": quote(action.path, safe=SAFE),
                    "partitionValues": dict(action.partition_values),
                    "size": action.size,
                    "modificationTime": action.modification_time,
                    "dataChange": action.data_change,
                    "stats": action.stats,
                }
            }
        elif isinstance(action, RemoveAction):
            yield {
                "remove": {
                    "path": quote(action.path, safe=SAFE),
                    "deletionTimestamp": action.deletion_timestamp,
                    "dataChange": action.data_change,
                    "extendedFileMetadata": False,
                    "size": action.size,
                }
            }
