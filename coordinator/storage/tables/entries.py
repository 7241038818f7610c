"""What the entries of a table tell its writer, and when it looked at them last."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from coordinator.clock import monotonic_ms, wall_ms
from coordinator.storage.tables.commit_writer import Commit, TableAction
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import commit_file, digest_entry

Moment: TypeAlias = "tuple[int, int]"
"""Milliseconds of both clocks, the one that is never set and the wall clock."""


def read_digest(disk: Files, path: str, version: int) -> str | None:
    """Return the digest of the entry of a version; None where it is not there."""
    with suppress(FileNotFoundError):
        return digest_entry(disk.read(commit_file(path, version)))
    return None


def find_digest(disk: Files, path: str, commit: Commit) -> str | None:
    """Return the digest of an entry of ours; None where delta-rs wrote it and it is unread."""
    if not commit.columns:
        return digest_entry(commit.encode())
    with suppress(OSError):
        return read_digest(disk, path, commit.version)
    return None


def has_commit(disk: Files, path: str, commit: Commit) -> bool:
    """Whether the entry of a version is the one of a commit."""
    with suppress(FileNotFoundError):
        return commit.commit_id.encode() in disk.read(commit_file(path, commit.version))
    return False


def names_files(table: DeltaTable, actions: Sequence[TableAction]) -> bool:
    """Whether a table has a data file that the actions add."""
    added = {action.path for action in actions if isinstance(action, AddAction)}
    if not added:
        return False
    found = pa.table(table.get_add_actions(flatten=True))
    return len(found) > 0 and not added.isdisjoint(found["path"].to_pylist())


def is_fresh(seen: Moment | None, trust_s: float) -> bool:
    """Whether something was seen so short a time ago, on either clock.

    A machine that was suspended may learn of it from the wall clock alone.
    """
    if seen is None or not trust_s:
        return False
    since = [at - then for at, then in zip(now(), seen, strict=True)]
    return 0 <= min(since) <= max(since) <= trust_s * 1000


def now() -> Moment:
    """Return what both clocks show."""
    return monotonic_ms(), wall_ms()
