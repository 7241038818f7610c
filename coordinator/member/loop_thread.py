"""The thread of this process in which its members send their heartbeats: one for all of them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from coordinator.member.application import ExitError

T = TypeVar("T")
_shared = threading.Lock()
_current: LoopThread | None = None
LAST_S = 10.0
"""How long the thread still works at what was asked of it when its last user left."""


class EndedError(RuntimeError):
    """The thread of the members has ended, since all of them have left."""


class LoopThread:
    """An event loop in a thread, which lives for as long as it is in use."""

    def __init__(self) -> None:
        self.users = 0
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._asking = threading.Lock()
        self._ended = False
        self._asked: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="muster members", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        with self._asking:
            self._ended = True
        self.loop.run_until_complete(self._answer_last())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _answer_last(self) -> None:
        """End what is under way: a thread may ask while another one is the last to leave."""
        rest = [asyncio.wrap_future(one) for one in tuple(self._asked)]
        late = (await asyncio.wait(rest, timeout=LAST_S))[1] if rest else ()
        for one in late:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked from its own: then nothing runs in it."""
        return os.getpid() != self.process

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the loop and wait for it, until the caller is interrupted."""
        if self.is_foreign:
            work.close()
            raise RuntimeError(
                f"this member belongs to process {self.process}, from which this one was forked: "
                "create another member here"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the thread of the members cannot wait for itself")
        with self._asking:
            if self._ended:
                work.close()
                raise EndedError("the member has left, and its thread has ended")
            found = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._asked.add(found)
        try:
            return found.result()
        except ExitError as error:
            raise error.carried from None
        except CancelledError:
            raise EndedError("the member has left, and this was not answered") from None
        finally:
            found.cancel()
            self._asked.discard(found)

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
