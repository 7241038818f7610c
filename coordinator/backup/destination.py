"""The folder or URL of a copy: new or empty at first, marked incomplete until the copy is done."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coordinator.config import ConfigError
from coordinator.storage.record_log import CommitFailed, CorruptLog, Unreachable
from coordinator.storage.store_marks import INCOMPLETE, FileSum, sum_bytes
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.store_files import files_at, is_remote
from coordinator.storage.tables.store_root import find_root

CHUNK = 1 << 20


@contextmanager
def create_destination(path: str, source: str, what: str) -> Iterator[str]:
    """Yield the folder of a copy: complete after the block, or empty again if it fails.

    Parameters
    ----------
    source
        The store that is copied. The copy's folders and files get its file modes.
    what
        What is being made, for the error that an incomplete copy causes.

    Raises
    ------
    ConfigError
        The destination is not a folder, is not empty, or is inside the source.
    CommitFailed
        The disk is full, read-only or broken.
    """
    root = _check_destination(path, source)
    if is_remote(root):
        with _create_below_url(root, what):
            yield root
        return
    made = not os.path.isdir(root)
    disk = files_at(root) if is_remote(source) else filesystem_of(source)
    mark = os.path.join(root, INCOMPLETE)
    try:
        disk.make_folder(root)
        disk.permit(root)  # first, so that no other user can reach what is written in it
        open(mark, "x").close()  # fails if another copy is being made here, and leaves it alone
    except OSError as error:
        if made:
            with suppress(OSError):  # another copy may be made in it by now
                os.rmdir(root)
        raise _explain_failure(what, root, error) from None
    try:
        _fill_mark(mark, what)
        disk.sync(root)
        yield root
        disk.permit_all(root)
        _sync_all(root)
        disk.remove(mark)
        disk.sync(root)
    except BaseException as error:
        _empty(root, mark, remove=made)
        if isinstance(error, OSError):
            raise _explain_failure(what, root, error) from None
        raise


@contextmanager
def _create_below_url(root: str, what: str) -> Iterator[None]:
    """The same below a URL: its objects have no modes, and need no sync."""
    disk, mark = files_at(root), f"{root}/{INCOMPLETE}"
    try:
        disk.check_conditions(root)
        disk.create(mark, f"{what} (process {os.getpid()}, {uuid.uuid4().hex})\n".encode())
    except OSError as error:
        raise _explain_failure(what, root, error) from None
    try:
        yield
        disk.remove(mark)
    except BaseException as error:
        with suppress(OSError):  # the store may be what went wrong: the mark stays
            left = [f"{root}/{name}" for name in disk.names_below(root)]
            disk.remove_all(path for path in left if path != mark)
            disk.remove(mark)
        if isinstance(error, OSError):
            raise _explain_failure(what, root, error) from None
        raise


def copy_file(source: str, to: str, size: int, wanted: FileSum | None) -> FileSum:
    """Copy a file, and return its size and checksum.

    Parameters
    ----------
    size
        The size that the commit says, in bytes.
    wanted
        The size and checksum that a backup lists, if any.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    CorruptLog
        The file differs from what the commit or the backup says.
    """
    if is_remote(source) or is_remote(to):
        found = _copy_object(source, to)
    else:
        found = _copy_in_chunks(source, to)
    if found.bytes != size:
        raise CorruptLog(
            f"{source} is damaged: it has {found.bytes} bytes, but its commit says {size}; use "
            f"another copy"
        )
    if wanted is not None and found != wanted:
        raise CorruptLog(
            f"{source} is damaged: its checksum differs from the backup's list; use another backup"
        )
    return found


def _copy_object(source: str, to: str) -> FileSum:
    """Copy what is in memory meanwhile, as an object is put whole."""
    content, disk = files_at(source).read(source), files_at(to)
    disk.make_folder(os.path.dirname(to))
    disk.replace(to, content)
    return sum_bytes(content)


def _copy_in_chunks(source: str, to: str) -> FileSum:
    digest, count = hashlib.sha256(), 0
    with open(source, "rb") as file:
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "wb") as copy:
            while chunk := file.read(CHUNK):
                copy.write(chunk)
                digest.update(chunk)
                count += len(chunk)
    return FileSum(count, digest.hexdigest())


def _check_destination(path: str, source: str) -> str:
    text = str(path)
    if not text or "\0" in text:
        raise ConfigError(f"the destination {text!r} is not a folder: name a folder or a URL")
    root = find_root(text)
    if is_remote(root):
        return _check_url(root, source)
    root, inside = os.path.realpath(root), source if is_remote(source) else os.path.realpath(source)
    if root == inside or root.startswith(inside + os.sep):
        raise ConfigError(f"the destination {text} is inside {source}: name a folder elsewhere")
    if os.path.lexists(root) and not os.path.isdir(root):
        raise ConfigError(f"the destination {text} is a file: name a new or empty folder")
    if os.path.isdir(root) and (names := sorted(os.listdir(root))):
        half = INCOMPLETE in names
        why = (
            "has an incomplete copy: remove it" if half else f"is not empty ({names[0]}): empty it"
        )
        raise ConfigError(f"the destination {text} {why}, or name a new or empty folder")
    return root


def _check_url(root: str, source: str) -> str:
    if root == source or root.startswith(f"{source}/"):
        raise ConfigError(f"the destination {root} is inside {source}: name another URL")
    disk = files_at(root)
    try:
        if not disk.is_folder(root):
            return root
        half = disk.exists(f"{root}/{INCOMPLETE}")
    except StoreRefusedError as error:
        raise ConfigError(f"the destination {root} cannot be read: {error}") from None
    except OSError as error:
        raise Unreachable(f"the destination {root} cannot be read now: {error.strerror}") from None
    why = "has an incomplete copy: remove it" if half else "is not empty: empty it"
    raise ConfigError(f"the destination {root} {why}, or name another URL")


def _explain_failure(what: str, root: str, error: OSError) -> Exception:
    """Return the error for a disk that is full, read-only or broken, or a store that refuses us."""
    if isinstance(error, StoreRefusedError):
        return ConfigError(f"{what} could not be created in {root}: {error}")
    if is_remote(str(error.filename)):  # to be read or to be written
        return Unreachable(
            f"{what} was not created in {root}: {error.filename} cannot be reached now: "
            f"{error.strerror}"
        )
    return CommitFailed(
        f"{what} could not be written to {root}: {error}; check that the disk has room and is "
        f"writable"
    )


def _fill_mark(path: str, what: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{what} (process {os.getpid()})\n")
        file.flush()
        os.fsync(file.fileno())


def _sync_all(root: str) -> None:
    disk = Filesystem()
    for at, _, names in os.walk(root, topdown=False):
        for name in names:
            disk.sync(os.path.join(at, name))
        disk.sync(at)


def _empty(root: str, mark: str, *, remove: bool) -> None:
    """Remove the unfinished copy, its mark last."""
    for name in os.listdir(root):
        path = os.path.join(root, name)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif path != mark:
            os.unlink(path)
    with suppress(FileNotFoundError):  # it was whole, and the disk did not confirm it
        os.unlink(mark)
    if remove:
        os.rmdir(root)
