"""`AsyncMember`: a member of a group, for programs with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from coordinator.clock import monotonic_ms
from coordinator.member.application import AsyncStop, Held, TaskApplication
from coordinator.member.driver import Change, Driver, called
from coordinator.member.options import (
    PATIENCE_S,
    MemberOptions,
    Place,
    check_timeout,
    check_times,
    place_of,
    read_offsets,
    subscription,
)
from coordinator.member.transport import TopicPartition


class AsyncMember(MemberOptions):
    """`Member` for asyncio: the same methods as coroutines, in the loop that opens it.

    >>> import asyncio
    >>> from coordinator import AsyncMember, Coordinator
    >>> async def main(coordinator):
    ...     async with AsyncMember(coordinator, group_id="g", topics=["clicks"]) as member:
    ...         async for change in member.changes():
    ...             return len(change.added)
    >>> with Coordinator.open(None, topics={"clicks": 2}) as coordinator:
    ...     asyncio.run(main(coordinator))
    2

    Callbacks are functions or coroutine functions; work is a coroutine function. The requests of
    `Member` are generated from these by tools/mirror.py.
    """

    async def open(self) -> Self:
        """Begin to join; `async with` does so."""
        if self._driver is None:
            self._driver = self._make_driver(TaskApplication)
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_error: object) -> None:
        await self.leave()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it may use now."""
        return frozenset() if self._driver is None else self._driver.owned()

    @property
    def waits_ms(self) -> int:
        """For how long its heartbeats have not been answered; refusals are no answers."""
        since = None if self._driver is None else self._driver.membership.waits_since_ms
        return 0 if since is None else monotonic_ms() - since

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Held]:
        """Keep what it owns from being given up until the block ends; see `Member.holding`."""
        driver = self._opened()
        held = await driver.hold()
        try:
            with driver.within():
                yield held
        finally:
            driver.release(held)

    async def run(
        self,
        work: Callable[[TopicPartition, AsyncStop], Awaitable[object]],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Have work done on every partition that it owns, until it leaves.

        Parameters
        ----------
        work
            Called as work(partition, stop), once per partition, in its own task. It must return
            soon after `stop.is_set()`: the partition is given up once it has returned, and its next
            owner starts work on it again. An exception ends the member; Fenced ends only the call.
        timeout
            Seconds after which all work is stopped; None: never.

        Raises
        ------
        Exception
            What work or a callback raised: the member left then.
        GroupError
            It was refused for good.
        """
        await self._opened().run(work, check_timeout(timeout))

    async def wait_for_change(self, timeout: float | None = None) -> Change | None:  # noqa: ASYNC109
        """Wait until it owns other partitions than at the last change.

        Parameters
        ----------
        timeout
            Seconds; None: as long as it takes.

        Returns
        -------
        Change or None
            What it owns, what was added and what removed; None when the time was over or it left.
        """
        return await self._opened().wait_for_change(check_timeout(timeout))

    async def changes(self) -> AsyncIterator[Change]:
        """Yield each change of what it owns, until it has left."""
        while (change := await self._opened().wait_for_change(None)) is not None:
            yield change

    async def commit(
        self,
        offsets: Mapping[Place, int | tuple[int, str]],
        timeout: float = PATIENCE_S,  # noqa: ASYNC109
    ) -> None:
        """Commit offsets; when it returns, they are durable.

        Parameters
        ----------
        offsets
            {partition: offset, or (offset, metadata)}; a partition may be (topic, number).
        timeout
            Seconds in which retriable errors are retried.

        Raises
        ------
        Fenced
            The member no longer owns a partition: stop its work.
        GroupError
            Refused, or not answered in time.
        """
        await self._opened().commit(read_offsets(offsets), timeout)

    async def commit_later(self, offsets: Mapping[Place, int | tuple[int, str]]) -> None:
        """Commit offsets within a few seconds, and before their partition is given up.

        Parameters
        ----------
        offsets
            As commit takes them.

        Raises
        ------
        Fenced
            The member no longer owns a partition: stop its work.
        """
        await called(self._opened().commit_later, read_offsets(offsets))

    async def committed(
        self,
        partition: Place,
        timeout: float = PATIENCE_S,  # noqa: ASYNC109
    ) -> int | None:
        """Return the offset that was committed last for a partition; None without one.

        Parameters
        ----------
        partition
            A TopicPartition, or (topic, number).
        timeout
            Seconds in which retriable errors are retried.

        Raises
        ------
        GroupError
            Refused, or not answered in time.
        """
        place = place_of(partition)
        return (await self._opened().committed([place], timeout)).get(place)

    async def committed_offsets(
        self,
        partitions: Iterable[Place],
        timeout: float = PATIENCE_S,  # noqa: ASYNC109
    ) -> dict[TopicPartition, int]:
        """Return the offsets that were committed last, of those partitions that have one.

        Parameters
        ----------
        partitions
            TopicPartition, or (topic, number).
        timeout
            Seconds in which retriable errors are retried.

        Raises
        ------
        GroupError
            Refused, or not answered in time.
        """
        places = [place_of(place) for place in partitions]
        return await self._opened().committed(places, timeout)

    async def subscribe(self, topics: Sequence[str] | str = (), pattern: str = "") -> None:
        """Change the subscription; the coordinator learns of it at once.

        Parameters
        ----------
        topics, pattern
            They replace the previous ones.
        """
        assignor = self._subscription.server_assignor
        await called(self._opened().subscribe, subscription(topics, pattern, assignor))

    async def hasten(self, interval_ms: int) -> None:
        """Send heartbeats at least this often from now on, unless `heartbeat_interval_ms` is given.

        For members of small groups: each gets sooner what others give up.

        Parameters
        ----------
        interval_ms
            Milliseconds.
        """
        check_times(interval_ms=interval_ms)
        await called(self._opened().hasten, interval_ms)

    async def find_coordinator(self) -> None:
        """Ask again who coordinates the group, and send it a heartbeat at once.

        For who learns that the coordinator has moved: the member itself learns it with its next
        heartbeat, or once one is not answered.
        """
        await self._opened().find_coordinator()

    async def pause(self, *partitions: Place) -> None:
        """Stop the work on partitions; the member keeps them, and heartbeats continue.

        Their calls are stopped through `stop`. A pause ends when the partition moves.

        Parameters
        ----------
        partitions
            TopicPartition, or (topic, number); none: all that it owns.

        Raises
        ------
        Fenced
            The member does not, or no longer, own a partition.
        """
        await called(self._opened().pause, [place_of(place) for place in partitions])

    async def resume(self, *partitions: Place) -> None:
        """Resume work: the function is called again for each paused partition.

        Parameters
        ----------
        partitions
            TopicPartition, or (topic, number); none: all that are paused. One that moved meanwhile
            is passed over.
        """
        await called(self._opened().resume, [place_of(place) for place in partitions])

    async def leave(self, *, for_a_while: bool = False) -> None:
        """Stop all work, commit, revoke, and leave the group; a second call does nothing.

        In a callback and in work it returns at once: the member leaves when they have ended.
        See `Member.leave`.
        """
        driver = self._driver
        if driver is None:
            return
        if driver.is_within():
            driver.begin_to_leave(for_a_while=for_a_while)
            return
        try:
            await driver.close(for_a_while=for_a_while)
        finally:
            if self._driver is driver:  # else another task was faster
                self._driver = None

    def _opened(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the member is not open: use `async with`, or await open()")
        return self._driver
