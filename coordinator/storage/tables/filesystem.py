"""All operations on files of a local disk that the log and the lease need.

What Delta does is delta-rs's. A simulator replaces this class, and its disk loses what was not
synced, or fails, when it likes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.storage.tables.files import Listed, Source

LOCK_POLL_S = 0.02
ROW_GROUP = 65_536
"""Rows that are read at once: a load holds no more of a file in memory."""
PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "store_schema": False,
    "row_group_size": ROW_GROUP,
}
"""How data files are written, wherever they are."""
FEW_ROWS = 200
"""So few rows are written as they are: compressing them and looking for what they repeat takes
longer than the rest of the writing, and makes them no smaller."""
AS_THEY_ARE: dict[str, Any] = {"compression": "none", "use_dictionary": False}
PRIVATE = 0o700
UNFINISHED = ".tmp"
"""How names of files end that their writer has not published, or was killed over."""


class Filesystem:
    """A local file system, or one mounted like it.

    On a network file system that remembers which names do not exist (NFS), mount it with
    `lookupcache=none`: what another coordinator has committed must be seen at once.

    Parameters
    ----------
    folder_mode
        Of the folders that are made here. The process's umask, which is the whole program's, does
        not change it. Files have the same mode, but for execute.
    owner
        User and group to whom root gives what it writes: a file of root's that only its owner may
        read would lock them out of their store.
    """

    folder_mode = PRIVATE
    owner: tuple[int, int] | None = None
    has_locks = needs_sync = syncs_beside = True
    lands_late = lists_late = False
    trust_s = poll_s = 0.0

    def __init__(self, folder_mode: int = PRIVATE, owner: tuple[int, int] | None = None) -> None:
        self.folder_mode = folder_mode
        self.owner = owner

    def check_conditions(self, root: str) -> None:
        """Do nothing: there are links and locks."""

    def options(self) -> dict[str, str] | None:
        """Return nothing: delta-rs needs no more than the path."""
        return None

    def pause(self, seconds: float) -> None:
        """Wait so long."""
        time.sleep(seconds)

    def make_folder(self, path: str) -> None:
        """Make a folder; one that is there stays as it is, those above have the umask's mode."""
        above = os.path.dirname(path)
        if not os.path.lexists(above):
            os.makedirs(above, exist_ok=True)
        try:
            os.mkdir(path, self.folder_mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        else:
            self.permit(path)

    def permit(self, path: str) -> None:
        """Give a file or a folder its mode, and as root its owner; a link is not followed.

        Others write files as the umask says, and a umask may keep out whom the mode lets in. Where
        it fails (another user's file, a file system without modes) that lets no one in: the
        folder above keeps them out.
        """
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                self._permit(handle)
            finally:
                os.close(handle)

    def _permit(self, handle: int) -> None:
        found = os.fstat(handle)
        special, mode = found.st_mode & 0o7000, self.folder_mode
        if not stat.S_ISDIR(found.st_mode):
            mode &= 0o666
        if self.owner is not None and os.geteuid() == 0 and found.st_uid != self.owner[0]:
            os.fchown(handle, *self.owner)
        if stat.S_IMODE(found.st_mode) != special | mode:
            os.fchmod(handle, special | mode)

    def permit_all(self, folder: str) -> None:
        """Give a folder and all that is in it their modes."""
        for at, _, names in os.walk(folder):
            self.permit(at)
            for name in names:
                self.permit(os.path.join(at, name))

    def exists(self, path: str) -> bool:
        """Whether a file is there; an error is not an absence."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_file(self, path: str) -> bool:
        """Whether a file is there, not a folder, a pipe, or a link to one."""
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Return how many bytes a file has."""
        return os.stat(path).st_size

    def names(self, folder: str) -> list[str]:
        """List a folder; a missing one is empty."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def listed(self, folder: str) -> dict[str, Listed]:
        """List the files in a folder, without pipes, links and folders; a missing one is empty."""
        found = {}
        for name in self.names(folder):
            with suppress(FileNotFoundError):
                seen = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(seen.st_mode):
                    found[name] = Listed(seen.st_size, written_ms=seen.st_mtime_ns // 1_000_000)
        return found

    def names_below(self, folder: str) -> list[str]:
        """List the files in a folder and in its folders, by their paths from there, sorted."""
        found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        return sorted(os.path.relpath(path, folder) for path in found)

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        with open(path, "rb") as file:
            return file.read()

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """Return what a file holds; it has no tag, there are locks."""
        return self.read(path), ""

    def source(self, path: str) -> Source:
        """Return the path: pyarrow opens it."""
        return path

    def sync(self, path: str) -> None:
        """Wait until a file, or the names in a folder, would survive a power cut."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # file systems that cannot sync a folder
                raise
        finally:
            os.close(handle)

    def sync_above(self, path: str) -> None:
        """Wait until a folder's own name, and those of the folders above it, would survive.

        Up to where a file system is mounted; folders that we may not read were not made by us.
        """
        while not os.path.ismount(path):
            path = os.path.dirname(os.path.abspath(path))
            with suppress(PermissionError):
                self.sync(path)

    def write_rows(self, path: str, rows: pa.Table) -> int:
        """Write a data file, with checksums, and return its size."""
        if len(rows) > FEW_ROWS:
            pq.write_table(rows, path, **PARQUET)
            self.permit(path)
            return os.path.getsize(path)
        content = make_data_file(rows)
        with open(path, "xb", opener=self._opener) as file:
            with suppress(OSError):  # as `permit`
                self._permit(file.fileno())
            file.write(content)
        return int(content.size)

    def replace(self, path: str, content: bytes, *, sync: bool = False) -> None:
        """Replace a small file whole: readers see the old or the new one.

        With `sync` also after a power cut, and the new one once this has returned.
        """
        with self._write_beside(path, content, sync=sync) as beside:
            os.replace(beside, path)
        if sync:
            self.sync(os.path.dirname(path))

    def create(self, path: str, content: bytes) -> None:
        """Write a small file whole where none is: readers see nothing, or all of it.

        Raises
        ------
        FileExistsError
            One is there.
        """
        with self._write_beside(path, content) as beside:
            os.link(beside, path)

    def swap(self, path: str, content: bytes, tag: str | None) -> str:  # noqa: ARG002 - the lock
        """Replace a small file whole; the caller holds a lock since it has read it."""
        self.replace(path, content)
        return ""

    @contextmanager
    def _write_beside(self, path: str, content: bytes, *, sync: bool = False) -> Iterator[str]:
        """Write a file under a name of its own, which its owner publishes in here, or not at all.

        It has its mode before anyone can see it. An error names the file that was wanted.
        """
        folder, name = os.path.split(path)
        beside = os.path.join(folder, f".{name}.{uuid.uuid4().hex}{UNFINISHED}")
        try:
            with open(beside, "xb", opener=self._opener) as file:
                with suppress(OSError):  # as `permit`
                    self._permit(file.fileno())
                file.write(content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            yield beside
        except OSError as error:
            if error.filename is None:  # what a write raises
                error.filename = path
            raise
        finally:
            self.remove(beside)

    def move(self, path: str, to: str) -> None:
        """Rename a file, into a folder that is made if need be."""
        self.make_folder(os.path.dirname(to))
        os.rename(path, to)

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove files; they may be gone already."""
        for path in paths:
            self.remove(path)

    def _opener(self, path: str, flags: int) -> int:
        return os.open(path, flags, self.folder_mode & 0o666)

    @contextmanager
    def lock(self, path: str, patience_s: float, *, shared: bool = False) -> Iterator[bool]:
        """Hold a lock file while in here; False if another process held it all the time.

        The system frees it when its holder dies, but not while it is stopped.

        Parameters
        ----------
        shared
            Whether others may share it meanwhile.
        """
        self.make_folder(os.path.dirname(path))
        handle = self._opener(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self.permit(path)
        try:
            yield _try_lock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, patience_s)
        finally:
            os.close(handle)


def make_data_file(rows: pa.Table) -> pa.Buffer:
    """Return what a data file holds, with checksums."""
    made = pa.BufferOutputStream()
    few = 0 < len(rows) <= FEW_ROWS  # without rows a column would be no bytes at all
    pq.write_table(rows, made, **(PARQUET | (AS_THEY_ARE if few else {})))
    return made.getvalue()


def _try_lock(handle: int, kind: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True
