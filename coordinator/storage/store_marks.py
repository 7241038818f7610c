"""Files in the root of a store that mark a backup, or an incomplete copy.

A copy that is being made has `_incomplete` until it is whole: one whose maker was killed keeps it.
A backup has `_backup.json`, which lists its files with their check sums.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec

from coordinator.config import ConfigError
from coordinator.storage.record_log import CorruptLog

INCOMPLETE = "_incomplete"
BACKUP = "_backup.json"


class FileSum(msgspec.Struct, frozen=True):
    """What a file of a backup is."""

    bytes: int
    sha256: str


class Backup(msgspec.Struct, frozen=True):
    """What a backup says of itself.

    Attributes
    ----------
    position, at
        Of the last row of its log.
    made_at
        When it was made; ISO 8601 in UTC, as `at`.
    files
        By their paths in the backup.
    """

    position: int
    at: str
    made_at: str
    coordinator_epoch: int
    files: dict[str, FileSum]
    format: int = 1


def sum_file(path: str) -> FileSum:
    """Return what a file is."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileSum(file.tell(), digest.hexdigest())


def read_backup(store: str) -> Backup | None:
    """Return what a backup says of itself, None for a store that is none.

    Raises
    ------
    CorruptLog
        It cannot be read.
    """
    path = os.path.join(store, BACKUP)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Backup)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise CorruptLog(f"{path} cannot be read: {error}: use another backup") from None


def refuse_incomplete(store: str) -> None:
    """Refuse a copy that is not whole.

    Raises
    ------
    ConfigError
        It is being made, or its maker was killed.
    """
    path = os.path.join(store, INCOMPLETE)
    if not os.path.lexists(path):
        return
    what = "a copy"
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            said: Any = file.readline().strip()
            what = said or what
    except OSError:
        pass
    raise ConfigError(
        f"{store} is not whole: {what} is being made there, or ended half-way; when nobody is at "
        f"work on it, remove the folder and begin again"
    )


def refuse_copy(store: str) -> None:
    """Refuse to write to a backup, or to a copy that is not whole.

    Raises
    ------
    ConfigError
        It is one.
    """
    refuse_incomplete(store)
    if os.path.lexists(os.path.join(store, BACKUP)):
        raise ConfigError(
            f"{store} is a backup, and stays as it is: make a store of it with "
            f"`muster restore --from {store} --store NEW`"
        )
