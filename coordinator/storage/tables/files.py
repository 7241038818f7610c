"""The calls on files by which a store is read and written, wherever it is.

`Filesystem` has them for local disks (filesystem.py), `ObjectFiles` for object stores
(object_files.py). A path is a local one, or the URL of an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol, TypeAlias

import pyarrow as pa

Source: TypeAlias = "str | pa.NativeFile"
"""What pyarrow reads a file from."""


class SwapLostError(OSError):
    """A file is not the one that was read: another process has written it since."""


class StoreRefusedError(PermissionError):
    """An object store does not let us in, or has no such bucket: trying again mends nothing."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class Listed(NamedTuple):
    """What a list says of a file.

    Attributes
    ----------
    size
        In bytes.
    tag
        Another one once the file is; "" on a disk, which a file is read from as fast as listed.
    written_ms
        When it was written, by the clock of the store; 0 where that is unknown.
    """

    size: int
    tag: str = ""
    written_ms: int = 0


class Files(Protocol):
    """Where files are, and what may be done with them."""

    @property
    def has_locks(self) -> bool:
        """Whether `lock` keeps other processes out. Else `swap` compares before it replaces."""

    @property
    def needs_sync(self) -> bool:
        """Whether a crash may lose or tear what was written and not synced."""

    @property
    def syncs_beside(self) -> bool:
        """Whether two threads may sync at once."""

    @property
    def lands_late(self) -> bool:
        """Whether a write that was given up may still land."""

    @property
    def lists_late(self) -> bool:
        """Whether a list may lack what was written just before it."""

    @property
    def trust_s(self) -> float:
        """For how long a table is not looked at that was seen to be in its place; 0: not at all."""

    @property
    def poll_s(self) -> float:
        """How often at most to look for what other processes have changed; 0: at any rate."""

    def check_conditions(self, root: str) -> None:
        """See that a store can be written here without losing what others write.

        Raises
        ------
        ConfigError
            It cannot.
        """

    def options(self) -> dict[str, str] | None:
        """Return delta-rs's options for the place, beside the environment."""

    def pause(self, seconds: float) -> None:
        """Wait, for a list that lacks something to be complete."""

    def make_folder(self, path: str) -> None:
        """Make a folder; one that is there stays as it is."""

    def permit(self, path: str) -> None:
        """Give a file or a folder its mode."""

    def permit_all(self, folder: str) -> None:
        """Give a folder and all that is in it their modes."""

    def exists(self, path: str) -> bool:
        """Whether a file is there; an error is not an absence."""

    def is_file(self, path: str) -> bool:
        """Whether a file is there, not a folder, a pipe, or a link to one."""

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there; without folders, whether anything is below the path."""

    def size(self, path: str) -> int:
        """Return how many bytes a file has."""

    def names(self, folder: str) -> list[str]:
        """List a folder; a missing one is empty."""

    def listed(self, folder: str) -> dict[str, Listed]:
        """List the files in a folder, without pipes, links and folders; a missing one is empty."""

    def names_below(self, folder: str) -> list[str]:
        """List the files in a folder and in its folders, by their paths from there, sorted."""

    def read(self, path: str) -> bytes:
        """Return what a file holds."""

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """Return what a file holds, and its tag for `swap`."""

    def source(self, path: str) -> Source:
        """Return what pyarrow reads a file from.

        Raises
        ------
        FileNotFoundError
            Not found; or only once it is read.
        """

    def sync(self, path: str) -> None:
        """Wait until a file, or the names in a folder, would survive a power cut."""

    def sync_above(self, path: str) -> None:
        """Wait until a folder that was made, and those above it, would survive a power cut."""

    def write_rows(self, path: str, rows: pa.Table) -> int:
        """Write a data file, with checksums, and return its size."""

    def replace(self, path: str, content: bytes, *, sync: bool = False) -> None:
        """Replace a small file whole: readers see the old or the new one."""

    def create(self, path: str, content: bytes) -> None:
        """Write a small file whole where none is: readers see nothing, or all of it.

        No two writers may give a path the same content: by it a writer knows its own file again,
        where the answer to a write can be lost.

        Raises
        ------
        FileExistsError
            Another one is there.
        """

    def swap(self, path: str, content: bytes, tag: str | None) -> str:
        """Replace the file that has a tag, or write it where none is; return the new tag.

        Where there are locks the caller holds one, and the tag is not looked at.

        Raises
        ------
        SwapLostError
            The file has another tag, or is gone, or there is one though the tag is None.
        """

    def move(self, path: str, to: str) -> None:
        """Rename a file, into a folder that is made if need be."""

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove files; they may be gone already."""

    def lock(
        self, path: str, patience_s: float, *, shared: bool = False
    ) -> AbstractContextManager[bool]:
        """Hold a lock file while in here; False if another process held it all the time.

        Parameters
        ----------
        shared
            Whether others may share it meanwhile.
        """


def hold_to_swap(disk: Files, path: str, patience_s: float) -> AbstractContextManager[bool]:
    """Hold a lock file between reading and `Files.swap`; without locks, nothing.

    True once it is held, or not needed: an object is replaced on a condition.
    """
    return disk.lock(path, patience_s) if disk.has_locks else nullcontext(True)
