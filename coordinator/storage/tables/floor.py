"""The floor of a table: below it, commits may have been removed; at and above it, none was.

It is raised before a commit is removed, and never lowered, so it tells what no list and no other
commit can: that a version which is not there was never there. Removals may then be partial, in any
order, and late.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import msgspec

from coordinator.storage.record_log import CommitFailed, CorruptLog
from coordinator.storage.tables.files import Files, SwapLostError, hold_to_swap
from coordinator.storage.tables.recovery import RESTORE, log_folder

FLOOR = "_muster_floor.json"
LOCK_S = 5.0


class _Floor(msgspec.Struct, frozen=True):
    version: int


def read_floor(disk: Files, table: str) -> int:
    """Return the version below which commits may be gone; 0 where none was ever removed.

    Raises
    ------
    CorruptLog
        Its file is damaged.
    OSError
        It cannot be read now.
    """
    return _read(disk, table)[0]


def raise_floor(disk: Files, table: str, version: int) -> None:
    """Raise the floor to a version, durably; a higher one stays.

    Raises
    ------
    CommitFailed
        Another process holds its lock: nothing may be removed.
    CorruptLog, OSError
        As for `read_floor`; or it cannot be written.
    """
    with _hold_lock(disk, table) as held:
        if not held:
            raise CommitFailed(
                f"another process has been at work on {_path(table)} for {LOCK_S:.0f} s: no old "
                "commit is removed meanwhile"
            )
        while True:
            known, tag = _read(disk, table)
            if known >= version:
                return
            content = msgspec.json.encode(_Floor(version)) + b"\n"
            try:
                disk.swap(_path(table), content, tag)
            except SwapLostError:
                continue  # another coordinator was faster: see how high it is
            disk.permit(_path(table))
            disk.sync(_path(table))
            disk.sync(log_folder(table))
            return


def _read(disk: Files, table: str) -> tuple[int, str | None]:
    path = _path(table)
    try:
        content, tag = disk.read_tagged(path)
    except FileNotFoundError:
        return 0, None
    try:
        return msgspec.json.decode(content, type=_Floor).version, tag
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"{path} is damaged ({error}): {RESTORE}") from None


def _path(table: str) -> str:
    return os.path.join(log_folder(table), FLOOR)


def _hold_lock(disk: Files, table: str) -> AbstractContextManager[bool]:
    root, name = os.path.split(table)
    return hold_to_swap(disk, os.path.join(root, "_locks", f"{name}.floor"), LOCK_S)
