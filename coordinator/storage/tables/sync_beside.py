"""Wait for a file and for its name side by side: a commit waits for the disk half as often.

What a disk does for both is mostly one thing, and each wait may cost its thread its turn.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeAlias

from coordinator.storage.tables.files import Files

Wanted: TypeAlias = "tuple[Files, str, Future[None]]"


class SyncThread:
    """A thread that syncs what others ask for, if it comes to it before they do themselves.

    It is the interpreter's to end: a disk that hangs must not keep a process.
    """

    def __init__(self) -> None:
        self._wanted: SimpleQueue[Wanted] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, disk: Files, path: str) -> Future[None]:
        """Ask for a sync; one that is cancelled has not begun."""
        if self._thread is None:
            self._start()
        future: Future[None] = Future()
        self._wanted.put((disk, path, future))
        return future

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="muster-sync", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            _sync(*self._wanted.get())


def sync_named(disk: Files, path: str) -> None:
    """Wait until a file and its name would survive a power cut.

    Raises
    ------
    OSError
        One of them may not.
    """
    folder = os.path.dirname(path)
    if not disk.syncs_beside:
        disk.sync(path)
        disk.sync(folder)
        return
    name = _threads[-1].ask(disk, folder)
    try:
        disk.sync(path)
    finally:
        if name.cancel():  # the thread is busy with what others asked for, or was not forked
            disk.sync(folder)
        else:
            name.exception()  # no sync is under way once this has returned
    if not name.cancelled():
        name.result()


def _sync(disk: Files, path: str, future: Future[None]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        disk.sync(path)
    except BaseException as error:  # noqa: BLE001 - handed to who asked
        future.set_exception(error)
    else:
        future.set_result(None)


def _start_again() -> None:
    _threads[:] = [SyncThread()]  # a child that is forked has no thread, and perhaps held locks


_threads = [SyncThread()]
os.register_at_fork(after_in_child=_start_again)
