"""Copy a live store, with a list of its files and their check sums."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from coordinator.backup.copying import StoreCopy
from coordinator.backup.destination import create_destination
from coordinator.clock import wall_ms
from coordinator.config import ConfigError
from coordinator.history.log_reader import format_time
from coordinator.progress import task
from coordinator.storage.store_marks import (
    BACKUP,
    INCOMPLETE,
    Backup,
    FileSum,
    refuse_copy,
    sum_file,
)
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.verify.store import open_store, verify_tables


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A backup that was made.

    Attributes
    ----------
    position, at
        Of the last row that it has.
    verified
        Whether all of it was read again and found sound.
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
    """Copy a store, live or closed, into a folder that is new or empty.

    Parameters
    ----------
    check
        Whether the copy is verified before it is called whole.

    Raises
    ------
    ConfigError, NoLog, NewerLog
        There is no store, or the folder cannot be taken; nothing was changed.
    CorruptLog
        The store is damaged; nothing is left behind.
    CommitFailed
        Its files were replaced faster than they could be copied, or the disk is full, read-only or
        broken; nothing is left behind.
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
        said = Backup(copy.position, at, _now(), copy.coordinator_epoch, _sum_files(root))
        content = msgspec.json.format(msgspec.json.encode(said)) + b"\n"
        Filesystem().replace(os.path.join(root, BACKUP), content, sync=True)
    return BackupResult(
        root, copy.position, at, copy.coordinator_epoch, copy.files, copy.bytes, check
    )


def _now() -> str:
    return datetime.fromtimestamp(wall_ms() // 1000, UTC).isoformat().replace("+00:00", "Z")


def _sum_files(root: str) -> dict[str, FileSum]:
    """Return the check sums of all files, read again from the copy."""
    paths = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    found = {}
    with task("check sums", len(paths)) as progress:
        for path in sorted(paths):
            name = os.path.relpath(path, root)
            if name != INCOMPLETE:
                found[name] = sum_file(path)
            progress.advance()
    return found
