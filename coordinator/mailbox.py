"""mailbox: a folder of a store, where other processes leave small files for its coordinator."""

from __future__ import annotations

import os

from coordinator.disk import Disk


class Mailbox:
    """Named messages; each is one file, there whole or not at all.

    Parameters
    ----------
    ending
        Of the files' names. What has another one is being written, or not a message.
    """

    def __init__(self, store: str | os.PathLike[str], folder: str, ending: str) -> None:
        self._folder = os.path.join(os.path.abspath(store), folder)
        self._ending = ending
        self._disk = Disk()

    def put(self, name: str, content: bytes) -> None:
        """Leave a message; it is durable when this returns."""
        os.makedirs(self._folder, exist_ok=True)
        self._disk.replace(self._path(name), content, sync=True)

    def waiting(self) -> list[str]:
        """Return the names of the messages that nobody has taken away, in order."""
        names = self._disk.names(self._folder)
        return [name.removesuffix(self._ending) for name in names if name.endswith(self._ending)]

    def read(self, name: str) -> bytes:
        """Return what a message says."""
        return self._disk.read(self._path(name))

    def take_away(self, name: str) -> None:
        """End a message; one that is gone is no error."""
        self._disk.remove(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + self._ending)
