"""Copy a live store, and list its files with their checksums."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from coordinator.backup.copying import StoreCopy
from coordinator.backup.destination import create_destination
from coordinator.clock import wall_ms
from coordinator.config import ConfigError
from coordinator.display.progress import task
from coordinator.display.times import format_time
from coordinator.storage.store_marks import (
    BACKUP,
    INCOMPLETE,
    Backup,
    FileSum,
    refuse_copy,
    sum_file,
)
from coordinator.storage.tables.store_files import files_at
from coordinator.verify.store import open_store, verify_tables


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A finished backup.

    Attributes
    ----------
    position, at
        Of the last row in the backup.
    verified
        Whether the whole backup was read again and found sound.
    """

    backup: str
    position: int
    at: str
    coordinator_epoch: int
    files: int
    bytes: int
    verified: bool


def backup(
    store: str | os.PathLike[str], into: str | os.PathLike[str], *, check: bool = True
) -> BackupResult:
    """Copy a store, live or closed, into a new or empty folder, or below a URL with nothing there.

    Parameters
    ----------
    check
        Whether to verify the copy before it is marked complete.

    Raises
    ------
    ConfigError, NoLog, NewerLog
        The store is missing, or the folder cannot be used. Nothing was changed.
    CorruptLog
        The store is damaged. Nothing is left behind.
    CommitFailed
        Files were replaced faster than they could be copied, or the disk is full, read-only or
        broken. Nothing is left behind.
    """
    source = open_store(store)
    refuse_copy(source)
    with create_destination(str(into), source, f"a backup of {source}") as root:
        copy = StoreCopy(source, root)
        copy.make()
        if not copy.position:
            raise ConfigError(f"the log of {store} is empty: no coordinator has claimed it yet")
        if check:
            verify_tables(root)
        at = format_time(copy.at_ms)
        write_mark(root, copy.position, at, copy.coordinator_epoch, _sum_files(root))
    return BackupResult(
        root, copy.position, at, copy.coordinator_epoch, copy.files, copy.bytes, check
    )


def write_mark(root: str, position: int, at: str, epoch: int, sums: dict[str, FileSum]) -> None:
    """Write what makes a folder a backup, as of now.

    Parameters
    ----------
    position, at, epoch
        Of the last row of its log.
    sums
        Of its files.
    """
    now = datetime.fromtimestamp(wall_ms() // 1000, UTC).isoformat().replace("+00:00", "Z")
    content = msgspec.json.encode(Backup(position, at, now, epoch, sums))
    path = os.path.join(root, BACKUP)
    files_at(root).replace(path, msgspec.json.format(content) + b"\n", sync=True)


def _sum_files(root: str) -> dict[str, FileSum]:
    """Return the checksums of all files, read again from the copy."""
    names = files_at(root).names_below(root)
    found = {}
    with task("checksums", len(names)) as progress:
        for name in names:
            if name != INCOMPLETE:
                found[name] = sum_file(os.path.join(root, name))
            progress.advance()
    return found
