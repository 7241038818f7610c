"""Writes commits of a Delta table: the actions as JSON lines, put where no file is yet.

An append adds files and needs nothing of the table but its version (Delta's protocol, "Delta Log
Entries"), so nothing is read. Columns are added by delta-rs, which writes the table's metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from coordinator.clock import wall_ms
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import ACTIONS, PREVIOUS, commit_file
from coordinator.storage.tables.store_files import open_delta

APP = "coordinator"
"""The Delta application whose transaction number is the coordinator epoch."""
COMMIT_ID = "muster.commit_id"
STAYS = "muster.stays"
"""The same: true where the entry must never be removed, see `Commit`."""
COPY = "muster.rows"
"""The same: a copy of the rows of the data file that the entry adds, see `CopiedFile`."""
ENGINE = "muster"
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints are made off the answer path."""
NO_MORE: Mapping[str, Any] = MappingProxyType({})
SAFE = "/=@:,;!~*'()+$&"
"""What a URI's path may have as it is (RFC 3986); Delta keeps paths percent-encoded."""

TableAction: TypeAlias = AddAction | RemoveAction | Field
"""What a commit does: a data file that the table gets or loses; or, alone, columns that it gets."""


@dataclass
class CopiedFile(AddAction):
    """A small data file, and its rows as text: a reader of the entry need not read the file.

    Attributes
    ----------
    copy
        Of the rows; empty for none. What it means, and whether it is whole, it tells itself.
    """

    copy: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """What will be one version of a table.

    Attributes
    ----------
    version
        One more than the newest that the writer has seen.
    epoch
        Of the writer.
    previous
        The digest of the entry at that newest version.
    stays
        Whether the entry must never be removed: the writer of the one before does not know of it.
    notes
        Numbers that the table keeps for good, by name: Delta's transactions.
    commit_id
        By which the writer finds its own entry; no other commit has it.
    """

    version: int
    actions: Sequence[TableAction]
    epoch: int
    previous: str
    stays: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    commit_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    at_ms: int = field(default_factory=wall_ms)

    @property
    def columns(self) -> list[Field]:
        """The columns that it adds; then it does nothing else, and delta-rs writes it."""
        found = [action for action in self.actions if isinstance(action, Field)]
        assert not found or len(found) == len(self.actions), "columns are added by themselves"
        return found

    def chain(self) -> dict[str, Any]:
        """Return how the entry is bound to the one before, in its first line."""
        return {PREVIOUS: self.previous} | ({STAYS: True} if self.stays else {})

    def copies(self) -> dict[str, str]:
        """Return the rows that the entry has a copy of, in its first line."""
        first = self.actions[0] if self.actions else None
        return {COPY: first.copy} if isinstance(first, CopiedFile) and first.copy else {}

    def transactions(self) -> dict[str, int]:
        """Return the transaction numbers that the entry sets."""
        return {APP: self.epoch} | dict(self.notes)

    def encode(self) -> bytes:
        """Return the entry, where it adds no columns."""
        numbers = self.transactions()
        lines = [
            describe_commit(
                len(self.actions) + len(numbers),
                self.chain() | self.copies(),
                self.commit_id,
                self.at_ms,
            ),
            *describe_actions(self.actions),
            *({"txn": {"appId": app, "version": number}} for app, number in numbers.items()),
        ]
        return encode_lines(lines)


WriteCommit: TypeAlias = Callable[[Files, str, Commit], None]


def write_commit(disk: Files, path: str, commit: Commit) -> None:
    """Write a commit at its version, or fail; a simulator wraps this one.

    Parameters
    ----------
    path
        The table's folder.

    Raises
    ------
    FileExistsError, DeltaError
        The version is taken.
    OSError
        The disk failed; the commit may be there or not.
    """
    if commit.columns:
        _add_columns(open_delta(path, commit.version - 1), commit)
    else:
        disk.create(commit_file(path, commit.version), commit.encode())


def put_entry(disk: Files, path: str, version: int, lines: Sequence[Mapping[str, Any]]) -> None:
    """Put the entry of a version, if there is none yet.

    Raises
    ------
    FileExistsError
        The version is taken.
    OSError
        The disk failed; the entry may be there or not.
    """
    disk.create(commit_file(path, version), encode_lines(lines))


def encode_lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the lines of an entry as JSON."""
    return msgspec.json.Encoder().encode_lines(lines)


def _add_columns(table: DeltaTable, commit: Commit) -> None:
    numbers = commit.transactions()
    # One line, the table's new metadata, however many columns; and one a number.
    metadata = {COMMIT_ID: commit.commit_id, ACTIONS: 1 + len(numbers), **commit.chain()}
    table.alter.add_columns(
        commit.columns,
        commit_properties=CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(app, number) for app, number in numbers.items()],
            custom_metadata=metadata,
        ),
        post_commithook_properties=NO_HOOKS,
    )


def describe_commit(
    lines_after: int, more: Mapping[str, Any] = NO_MORE, commit_id: str = "", at_ms: int = 0
) -> dict[str, Any]:
    """Return the first line of an entry: who wrote it, which no other entry has.

    Parameters
    ----------
    more
        What else it says, in Delta's words.
    commit_id
        By which its writer finds it; by default a new one.
    at_ms
        When it is written, milliseconds since 1970; by default now.
    """
    return {
        "commitInfo": {
            "timestamp": at_ms or wall_ms(),
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
