"""Files in the root of a store that mark a backup, or an incomplete copy.

A copy has `_incomplete` until it is complete; if the process is killed, the file stays. A backup
has `_backup.json`, which lists its files with their checksums.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

import msgspec

from coordinator.config import ConfigError
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.store_files import files_at, is_remote, refuse_silence

INCOMPLETE = "_incomplete"
BACKUP = "_backup.json"


class FileSum(msgspec.Struct, frozen=True):
    """The size and checksum of a file in a backup."""

    bytes: int
    sha256: str


class Backup(msgspec.Struct, frozen=True):
    """The content of `_backup.json`.

    Attributes
    ----------
    position, at
        Of the last row of its log.
    made_at
        When it was made; ISO 8601 in UTC, as `at`.
    files
        By path, relative to the backup.
    """

    position: int
    at: str
    made_at: str
    coordinator_epoch: int
    files: dict[str, FileSum]
    format: int = 1


def sum_bytes(content: bytes) -> FileSum:
    """Return the size and checksum of a file's content."""
    return FileSum(len(content), hashlib.sha256(content).hexdigest())


def sum_file(path: str) -> FileSum:
    """Return the size and checksum of a file."""
    if is_remote(path):
        return sum_bytes(files_at(path).read(path))
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileSum(file.tell(), digest.hexdigest())


def read_backup(store: str) -> Backup | None:
    """Return the content of `_backup.json`, or None if the store is not a backup.

    Raises
    ------
    CorruptLog
        It cannot be read.
    """
    path = os.path.join(store, BACKUP)
    try:
        return msgspec.json.decode(files_at(path).read(path), type=Backup)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        refuse_silence(path, error)
        raise CorruptLog(f"{path} cannot be read: {error}: use another backup") from None


def refuse_incomplete(store: str) -> None:
    """Refuse an incomplete copy.

    Raises
    ------
    ConfigError
        The copy is still being made, or its process was killed.
    """
    path = os.path.join(store, INCOMPLETE)
    files = files_at(path)
    if not files.exists(path):
        return
    what = "a copy"
    with suppress(OSError):
        text = files.read(path).decode(errors="replace").partition("\n")[0].strip()
        what = text or what
    raise ConfigError(
        f"{store} is incomplete: {what} is still being made there, or was interrupted; if nothing "
        f"is writing it, remove the folder and start again"
    )


def refuse_copy(store: str) -> None:
    """Refuse to write to a backup or to an incomplete copy.

    Raises
    ------
    ConfigError
        The store is one of them.
    """
    refuse_incomplete(store)
    backup = os.path.join(store, BACKUP)
    if files_at(backup).exists(backup):
        raise ConfigError(
            f"{store} is a backup, which is read-only: restore a store from it with "
            f"`muster restore --from {store} --store NEW`"
        )
