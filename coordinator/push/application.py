"""What a member has done by a worker that listens: fetchers stopped and started, and pings.

Its driver says what to work on. One task brings the worker there, with one request at a
time: stops first, then starts, and pings when there is nothing else to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from coordinator.clock import monotonic_ms
from coordinator.member.application import Application, Stop
from coordinator.member.membership import NEVER_MS
from coordinator.member.transport import TopicPartition
from coordinator.push.channel import WorkerChannel
from coordinator.push.messages import Kind, read_report

PINGS = 3
"""How many pings a session timeout has."""
PARTITIONS_MAX = 10_000
"""How many partitions a request names; the next one names more."""


class PushApplication(Application):
    """The fetchers of a worker, as a member's driver sees them.

    Parameters
    ----------
    channel
        The worker, registered.
    find_committed
        Returns the committed offsets of partitions, of those that have one.
    take_offsets
        Called with how far the worker came, and how many offsets of its answer do not count.
    find_end_ms
        Returns when the worker must have stopped, unless its member hears of its coordinator.
    is_over, on_failure
        As for `Application`.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        find_committed: Callable[
            [Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]
        ],
        take_offsets: Callable[[Mapping[TopicPartition, int], int], None],
        find_end_ms: Callable[[], int],
        is_over: Callable[[], bool],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__(None, None, None, is_over, on_failure)
        self._channel = channel
        self._find_committed = find_committed
        self._take_offsets = take_offsets
        self._find_end_ms = find_end_ms
        self._wanted: set[TopicPartition] = set()
        self._started: dict[TopicPartition, int | None] = {}
        """What the worker may be working on, with the last offset that is known of it."""
        self._has_work = asyncio.Event()
        self._freed = asyncio.Event()

    # What its driver asks ------------------------------------------------------------------------

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the worker start fetchers."""
        self._wanted.update(partitions)
        self._has_work.set()

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the worker stop fetchers."""
        self._wanted.difference_update(partitions)
        self._has_work.set()

    def stop_all(self) -> None:
        """Have the worker stop all fetchers."""
        self.stop(self.working())

    async def stopped(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until the worker reports that it stopped, or must have stopped by itself."""
        wanted = set(partitions)
        while wanted & self._started.keys():
            await self._freed.wait()

    def working(self) -> list[TopicPartition]:
        """Return the partitions that the worker may be working on, or will be."""
        return sorted(self._wanted | self._started.keys())

    async def work_no_more(self) -> None:
        """Stop all fetchers."""
        self.stop_all()
        await self.stopped(self.working())

    def silent_ms(self) -> int:
        """Return 0: pings look after the worker."""
        return 0

    # What the worker is asked --------------------------------------------------------------------

    async def serve(self) -> None:
        """Bring the worker to what is wanted, again and again.

        Raises
        ------
        LostError
            The worker is lost.
        """
        while True:
            self._has_work.clear()
            if stops := sorted(self._started.keys() - self._wanted)[:PARTITIONS_MAX]:
                await self._ask("stop", dict.fromkeys(stops))
                self._free(stops)
            elif not self._is_over() and (starts := self._to_start()):
                await self._start_fetchers(starts)
            elif not await self._is_asked() and not (self._started and self._is_over()):
                await self._ask("ping", {})

    def _to_start(self) -> list[TopicPartition]:
        return sorted(self._wanted - self._started.keys())[:PARTITIONS_MAX]

    async def _is_asked(self) -> bool:
        """Wait until there is something to do, or a ping is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._channel.find_session_ms() / 1_000 / PINGS):
                return await self._has_work.wait()
        return False

    async def _start_fetchers(self, partitions: Sequence[TopicPartition]) -> None:
        offsets = await self._find_committed(partitions)
        still = {place: offsets.get(place) for place in partitions if place in self._wanted}
        if still:
            self._started.update(still)
            await self._ask("start", still)

    async def _ask(self, kind: Kind, partitions: Mapping[TopicPartition, int | None]) -> None:
        end_ms = self._find_end_ms() if self._started else NEVER_MS
        answer = await self._channel.ask(kind, partitions, end_ms, len(self._started))
        report = read_report(kind, answer, self._started)
        self._started.update(report.offsets)
        self._take_offsets(report.offsets, report.refused)

    # When the worker is lost ---------------------------------------------------------------------

    async def expire(self) -> None:
        """Wait until the worker must have stopped by itself."""
        await asyncio.sleep(max(0, self._channel.stops_by_ms - monotonic_ms()) / 1_000)
        self.release()

    def release(self) -> None:
        """Assume that the worker works on nothing: its time is over, or it reported so."""
        self._wanted.clear()
        self._free(list(self._started))

    def _free(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self._started.pop(place, None)
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    def _call(self, function: Callable[..., Any], *args: object) -> Awaitable[Any]:
        raise NotImplementedError("a push worker has no callbacks here")

    def _make_stop(self) -> Stop:
        raise NotImplementedError("a push worker is stopped by requests")
