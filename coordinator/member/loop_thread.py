"""The thread of this process in which its members send their heartbeats: one for all of them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from coordinator.member.application import ExitError

T = TypeVar("T")
_shared = threading.Lock()
_current: LoopThread | None = None


class LoopThread:
    """An event loop in a thread, which lives for as long as somebody uses it."""

    def __init__(self) -> None:
        self.users = 0
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="muster members", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from its own: then nothing runs in it."""
        return os.getpid() != self.process

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop and wait for it; who is interrupted waits no longer."""
        if self.is_foreign:
            work.close()
            raise RuntimeError(
                f"this member belongs to process {self.process}, from which this one was forked: "
                "create another member here"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the thread of the members cannot wait for itself")
        found = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return found.result()
        except ExitError as error:
            raise error.carried from None
        finally:
            found.cancel()

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def acquire() -> LoopThread:
    """Return the thread of this process; give it back with `release`."""
    global _current  # noqa: PLW0603 - one a process
    with _shared:
        if _current is None or _current.is_foreign:
            _current = LoopThread()
        _current.users += 1
        return _current


def release(thread: LoopThread) -> None:
    """Give a thread back; without users it ends."""
    global _current  # noqa: PLW0603 - one a process
    with _shared:
        thread.users -= 1
        if thread.users or thread.is_foreign:
            return
        if _current is thread:
            _current = None
    thread.stop()
