"""What a member runs of the application's: its callbacks, and its work, one call a partition.

Callbacks run one after the other, never in the thread that sends heartbeats; neither does work. So
slow work does not fence its member.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

from coordinator.clock import monotonic_ms
from coordinator.errors import Fenced
from coordinator.member.transport import TopicPartition

logger = logging.getLogger("muster.member")
Callback: TypeAlias = Callable[[Sequence[TopicPartition]], object]
SLOW_S = 60.0
"""After how long without an end we say that work does not stop."""
_within: ContextVar[Application | None] = ContextVar("_within", default=None)
"""Whose callback or work this is."""


class ExitError(Exception):
    """Carries what no event loop survives, such as SystemExit, from the application's thread."""

    def __init__(self, carried: BaseException) -> None:
        super().__init__(repr(carried))
        self.carried = carried


class Stop:
    """What tells work to stop: `stop.is_set()`, or `stop.wait(seconds)` in place of a sleep.

    It is set when the partition must be given up, and by the clock alone when the member has heard
    nothing for too long. Checking it is the work's sign of life.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._event = threading.Event()
        self._is_over = is_over
        self._asked_ms = monotonic_ms()
        self._waits = False

    def is_set(self) -> bool:
        """Whether to stop now."""
        self._asked_ms = monotonic_ms()
        return self._event.is_set() or self._is_over()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most this many seconds until it is time to stop; return whether it is."""
        self._waits = True
        try:
            self._event.wait(timeout)
        finally:
            self._waits = False
        return self.is_set()

    def set(self) -> None:
        """Tell the work to stop."""
        self._event.set()

    def silent_ms(self) -> int:
        """Return how long ago the work last asked."""
        return 0 if self._waits else monotonic_ms() - self._asked_ms


class AsyncStop(Stop):
    """The same for coroutines: `await stop.wait(seconds)`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        super().__init__(is_over)
        self._awaited = asyncio.Event()

    async def wait(self, timeout: float | None = None) -> bool:  # type: ignore[override] # noqa: ASYNC109
        """Wait at most this many seconds until it is time to stop; return whether it is."""
        self._waits = True
        try:
            await asyncio.wait_for(self._awaited.wait(), timeout)
        except TimeoutError:
            pass
        finally:
            self._waits = False
        return self.is_set()

    def set(self) -> None:
        """Tell the work to stop."""
        super().set()
        self._awaited.set()


class Held(NamedTuple):
    """Partitions that are not given up before a block of the application's ends.

    Attributes
    ----------
    changes
        How often what may be worked on has changed so far: while it stays the same, no other
        member had a partition in between.
    """

    partitions: frozenset[TopicPartition]
    changes: int
    began_ms: int
    over: asyncio.Future[None]


class Application(ABC):
    """The application's side of a member, as its driver sees it; used in one event loop.

    Parameters
    ----------
    on_assigned, on_revoked, on_lost
        The callbacks; each partition that was assigned is revoked or lost once.
    is_over
        Whether the member must have stopped, by the clock.
    on_failure
        Called with what a callback or the work raised.
    """

    def __init__(
        self,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        on_lost: Callback | None,
        is_over: Callable[[], bool],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._callbacks = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}
        self._is_over = is_over
        self._on_failure = on_failure
        self.paused: set[TopicPartition] = set()
        self._work: Callable[..., Any] | None = None
        self._mine: set[TopicPartition] = set()
        """What may be worked on: assigned, and not about to go."""
        self._again: set[TopicPartition] = set()
        """What must be worked on again once the call that was asked to stop has ended."""
        self._runs: dict[TopicPartition, tuple[Stop, asyncio.Future[Any]]] = {}
        self._holds: list[Held] = []
        self._changes = 0

    async def tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Run a callback, if there is one; what it raises ends the member."""
        callback = self._callbacks[what]
        if callback is None or not partitions:
            return
        try:
            await self._call(callback, list(partitions))
        except Exception as error:
            logger.exception("on_%s of %s failed", what, ", ".join(map(str, partitions)))
            self._on_failure(error)

    def work_on(self, work: Callable[..., Any]) -> None:
        """Have work done from now on, at once on all partitions that are there."""
        self._work = work
        self._start(sorted(self._mine))

    def halt(self) -> None:
        """Tell all work to stop, and begin none."""
        self._work = None
        self._halt(self._runs)

    async def work_no_more(self) -> None:
        """Stop all work, and begin none."""
        self.halt()
        await self.stopped(self.working())

    @contextmanager
    def within(self) -> Iterator[None]:
        """Let a block count as work, as far as waiting for its end is concerned."""
        before = _within.set(self)
        try:
            yield
        finally:
            _within.reset(before)

    def is_within(self) -> bool:
        """Whether this is a callback or the work, which must not wait here for itself to end."""
        return _within.get() is self

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to work on partitions that were assigned."""
        self._mine.update(partitions)
        self._changes += 1
        self._start(partitions)

    def hold(self) -> Held:
        """Keep all that may be worked on until `let_go`, however soon it must go."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held = Held(frozenset(self._mine - self.paused), self._changes, monotonic_ms(), over)
        self._holds.append(held)
        return held

    def let_go(self, held: Held) -> None:
        """Let go of what was held."""
        self._holds = [one for one in self._holds if one.over is not held.over]
        if not held.over.done():
            held.over.set_result(None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the work on partitions to stop, and begin none, until they are resumed."""
        found = self._mine.intersection(partitions)
        self.paused |= found
        self._again -= found
        self._halt(found)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Work on partitions again, each as soon as the call that was asked to stop has ended."""
        found = sorted(self.paused.intersection(partitions))
        self.paused.difference_update(found)
        self._again.update(found)
        self._start(found)

    def _start(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            waits = partition in self._runs and not self._runs[partition][1].done()
            if self._work is None or waits or partition in self.paused:
                continue
            self._again.discard(partition)
            stop = self._make_stop()
            run = asyncio.ensure_future(self._call(self._work, partition, stop))
            self._runs[partition] = stop, run
            run.add_done_callback(self._end_of(partition))

    def _halt(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._runs:
                self._runs[partition][0].set()

    def _end_of(self, partition: TopicPartition) -> Callable[[asyncio.Future[Any]], None]:
        def ended(run: asyncio.Future[Any]) -> None:
            error = None if run.cancelled() else run.exception()
            if isinstance(error, Fenced):
                logger.info("work on %s ended: %s", partition, error)
            elif error is not None:
                logger.error("work on %s failed", partition, exc_info=error)
                self._on_failure(error)
            elif partition in self._again:
                self._start([partition])

        return ended

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask the work on partitions that must go to stop; it may take a while."""
        found = set(partitions)
        for kept in (self._mine, self.paused, self._again):
            kept.difference_update(found)
        self._changes += bool(found)
        self._halt(found)

    def stop_all(self) -> None:
        """Tell all work to stop, and forget what was assigned."""
        self.stop({*self._mine, *self._runs})

    async def stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until the work on partitions has ended, however long it takes."""
        wanted = list(partitions)
        while running := self._at_work(wanted):
            _, late = await asyncio.wait(set(running.values()), timeout=SLOW_S)
            if late:
                names = ", ".join(map(str, running))
                logger.warning(
                    "work on %s was asked to stop but is still running after a minute", names
                )
        for partition in wanted:
            self._runs.pop(partition, None)

    def _at_work(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, asyncio.Future[Any]]:
        """Return when the work on partitions will have ended, of those where it has not."""
        found = {}
        for partition in partitions:
            for held in self._holds:
                if partition in held.partitions:
                    found[partition] = held.over
            if partition in self._runs and not self._runs[partition][1].done():
                found[partition] = self._runs[partition][1]
        return found

    def working(self) -> list[TopicPartition]:
        """Return the partitions that are worked on, or were until their work ended."""
        return list({*self._runs, *(place for held in self._holds for place in held.partitions)})

    def silent_ms(self) -> int:
        """Return for how long the most silent work has shown no sign of life."""
        silent = [stop.silent_ms() for stop, run in self._runs.values() if not run.done()]
        silent += [monotonic_ms() - held.began_ms for held in self._holds]
        return max(silent, default=0)

    @abstractmethod
    def _call(self, function: Callable[..., Any], *args: object) -> Awaitable[Any]:
        """Call something of the application's."""

    @abstractmethod
    def _make_stop(self) -> Stop:
        """Return what tells a piece of work to stop."""


class ThreadApplication(Application):
    """Callbacks and work are functions, each call in a thread of its own."""

    def _call(self, function: Callable[..., Any], *args: object) -> Awaitable[Any]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def settle(value: object, error: Exception | None) -> None:
            if outcome.done():
                return
            if error is None:
                outcome.set_result(value)
            else:
                outcome.set_exception(error)

        def run() -> None:
            _within.set(self)
            value: object = None
            failed: Exception | None = None
            try:
                value = function(*args)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(f"{function} is a coroutine function: use AsyncMember")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001 - handed to the caller
                failed = error
            except BaseException as error:  # noqa: BLE001 - the same
                failed = ExitError(error)
            with suppress(RuntimeError):  # the loop has ended: no caller waits
                loop.call_soon_threadsafe(settle, value, failed)

        threading.Thread(target=run, name=f"muster {args[0]}"[:60], daemon=True).start()
        return outcome

    def _make_stop(self) -> Stop:
        return Stop(self._is_over)


class TaskApplication(Application):
    """Callbacks are functions or coroutine functions, work is coroutines of the same loop."""

    async def _call(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        before = _within.set(self)
        try:
            found = function(*args)
            if inspect.isawaitable(found):
                return await found
        finally:
            _within.reset(before)
        if function is self._work:
            raise TypeError(f"{function} is not a coroutine function: make it one, or use Member")
        return found

    def _make_stop(self) -> Stop:
        return AsyncStop(self._is_over)
