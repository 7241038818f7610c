"""A folder of a store in which other processes leave small files for its coordinator.

Anybody who may write to the store may put anything there. What is no message, or one that cannot be
dealt with, is set aside with the reason, so that it holds up nobody else's.
"""

from __future__ import annotations

import logging
import os
import uuid

from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.store_files import root_of

BYTES_MAX = 1 << 16
NAME_BYTES_KEPT = 150
"""Of a file that is set aside: its new name is longer than the old one."""
logger = logging.getLogger("muster.coordinator")


class MessageError(ValueError):
    """A file is too large to be a message."""


class FileQueue:
    """Named messages; each is one file, there whole or not at all.

    Parameters
    ----------
    ending
        Of the files' names. What has another one is being written, or not a message.
    bytes_max
        How long a message may be.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        folder: str,
        ending: str,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._folder = os.path.join(root_of(store), folder)
        self._aside = os.path.join(root_of(store), "_set_aside")
        self._ending = ending
        self._bytes_max = bytes_max
        self._disk = filesystem_of(root_of(store))

    def put(self, name: str, content: bytes) -> None:
        """Leave a message; it is durable when this returns."""
        self._disk.make_folder(self._folder)
        self._disk.replace(self._path(name), content, sync=True)

    def waiting(self) -> list[str]:
        """Return the names of the messages that nobody has taken away, in order."""
        return [file.removesuffix(self._ending) for file in self._files() if self._is_one(file)]

    def read(self, name: str) -> bytes:
        """Return what a message says.

        Raises
        ------
        MessageError
            It is too large to be one.
        """
        path = self._path(name)
        if (size := self._disk.size(path)) > self._bytes_max:
            raise MessageError(f"it has {size:,} bytes, a message has at most {self._bytes_max:,}")
        return self._disk.read(path)

    def take_away(self, name: str) -> None:
        """End a message; one that is gone is no error."""
        self._disk.remove(self._path(name))

    def set_aside(self, name: str, reason: str) -> None:
        """Move a message to `_set_aside`, with the reason in a file beside it."""
        self._move(name + self._ending, reason)

    def set_strangers_aside(self) -> None:
        """Quarantine entries with the suffix that are not regular files; objects always are."""
        if self._disk.poll_s:
            return
        for file in self._files():
            if not self._is_one(file):
                self._move(file, "it is not a regular file, or its name is not text")

    def _move(self, file: str, reason: str) -> None:
        """Move a file; one that cannot be moved stays, and holds up nobody."""
        kept = os.fsdecode(os.fsencode(file)[:NAME_BYTES_KEPT])
        folder = os.path.basename(self._folder)
        aside = os.path.join(self._aside, f"{folder}-{uuid.uuid4().hex[:8]}-{kept}")
        try:
            self._disk.move(os.path.join(self._folder, file), aside)
            self._disk.replace(f"{aside}.reason", reason.encode(errors="replace") + b"\n")
        except FileNotFoundError:
            return  # taken away meanwhile
        except OSError as error:
            logger.warning("%a in %s cannot be set aside: %s", file, self._folder, error)
        else:
            logger.warning("%a in %s is set aside as %a: %s", file, self._folder, aside, reason)

    def _files(self) -> list[str]:
        return [file for file in self._disk.names(self._folder) if file.endswith(self._ending)]

    def _is_one(self, file: str) -> bool:
        return file.isprintable() and self._disk.is_file(os.path.join(self._folder, file))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + self._ending)
