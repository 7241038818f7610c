"""`Member`: a member of a group, for programs with threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self

from coordinator.member import loop_thread
from coordinator.member.application import Stop, ThreadApplication
from coordinator.member.driver import Change, Driver
from coordinator.member.options import (
    PATIENCE_S,
    MemberOptions,
    Place,
    check_timeout,
    place_of,
    read_offsets,
    subscription,
)
from coordinator.member.transport import TopicPartition


class Member(MemberOptions):
    """A member of a group: it joins, and has work done on the partitions that it owns.

    >>> from coordinator import Coordinator, Member
    >>> with Coordinator.open(None, topics={"clicks": 2}) as coordinator:
    ...     with Member(coordinator, group_id="billing", topics=["clicks"]) as member:
    ...         member.wait_for_change(timeout=10).added == member.owned
    True

    Heartbeats are sent in a thread of their own, which all members of the process share. Callbacks
    and work run in other threads. All methods may be called from any thread.
    """

    _driver: Driver | None = None
    _thread: loop_thread.LoopThread

    def open(self) -> Self:
        """Begin to join; the `with` block does so.

        Returns
        -------
        Member
            It sends heartbeats until it leaves.
        """
        if self._driver is None:
            self._thread = loop_thread.acquire()

            async def begin() -> Driver:
                return self._make_driver(ThreadApplication)

            self._driver = self._thread.ask(begin())
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_error: object) -> None:
        self.leave()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it may use now; none in a process that was forked."""
        driver = self._driver
        if driver is None or self._thread.is_foreign:
            return frozenset()
        return driver.owned()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of its own on which no work is done for now."""
        return frozenset() if self._driver is None else self._driver.paused()

    def run(
        self, work: Callable[[TopicPartition, Stop], object], timeout: float | None = None
    ) -> None:
        """Have work done on every partition that it owns, until it leaves.

        Parameters
        ----------
        work
            Called as work(partition, stop), once a partition, in a thread of its own. It returns
            soon after `stop.is_set()`: the partition is given up when it has returned. Where the
            partition lands, work on it begins again. What it raises ends the member, but for
            Fenced, which ends the call.
        timeout
            Seconds after which all work is stopped; None: never.

        Raises
        ------
        Exception
            What work or a callback raised: the member left then.
        GroupError
            It was refused for good.
        """
        driver = self._opened()
        self._thread.ask(driver.run(work, check_timeout(timeout)))

    def wait_for_change(self, timeout: float | None = None) -> Change | None:
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
        driver = self._opened()
        return self._thread.ask(driver.wait_for_change(check_timeout(timeout)))

    def commit(
        self, offsets: Mapping[Place, int | tuple[int, str]], timeout: float = PATIENCE_S
    ) -> None:
        """Commit offsets; when it returns, they are durable.

        Parameters
        ----------
        offsets
            {partition: offset, or (offset, metadata)}; a partition may be (topic, number).
        timeout
            Seconds in which to try again what may be tried again.

        Raises
        ------
        Fenced
            The member no longer owns a partition: stop its work.
        GroupError
            Refused, or not answered in time.
        """
        driver = self._opened()
        self._thread.ask(driver.commit(read_offsets(offsets), timeout))

    def commit_later(self, offsets: Mapping[Place, int | tuple[int, str]]) -> None:
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
        driver = self._opened()
        found = read_offsets(offsets)

        async def store() -> None:
            driver.commit_later(found)

        self._thread.ask(store())

    def committed(self, partition: Place, timeout: float = PATIENCE_S) -> int | None:
        """Return the offset that was committed last for a partition; None where there is none.

        Parameters
        ----------
        partition
            A TopicPartition, or (topic, number).
        timeout
            Seconds in which to try again what may be tried again.

        Raises
        ------
        GroupError
            Refused, or not answered in time.
        """
        driver = self._opened()
        return self._thread.ask(driver.committed(place_of(partition), timeout))

    def subscribe(self, topics: Sequence[str] | str = (), pattern: str = "") -> None:
        """Subscribe to something else; the coordinator hears of it at once.

        Parameters
        ----------
        topics, pattern
            In place of those before.
        """
        driver = self._opened()
        wanted = subscription(topics, pattern, self._subscription.server_assignor)

        async def change() -> None:
            driver.subscribe(wanted)

        self._thread.ask(change())

    def pause(self, *partitions: Place) -> None:
        """Have the work on partitions stop; they stay the member's own, and heartbeats go on.

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
        driver = self._opened()
        found = [place_of(place) for place in partitions]

        async def pause() -> None:
            driver.pause(found)

        self._thread.ask(pause())

    def resume(self, *partitions: Place) -> None:
        """Resume work: the function is called again for each paused partition.

        Parameters
        ----------
        partitions
            TopicPartition, or (topic, number); none: all that are paused. One that moved meanwhile
            is passed over.
        """
        driver = self._opened()
        found = [place_of(place) for place in partitions]

        async def resume() -> None:
            driver.resume(found)

        self._thread.ask(resume())

    def leave(self, *, for_a_while: bool = False) -> None:
        """Stop all work, commit, revoke, and leave the group; a second call does nothing.

        In a callback and in work it returns at once: the member leaves when they have ended. In a
        process that was forked it does nothing: the member is its parent's.

        Parameters
        ----------
        for_a_while
            Of a static member: its partitions stay its own until its session ends.
        """
        driver = self._driver
        if driver is None or self._thread.is_foreign:
            return
        if driver.is_within():

            async def begin() -> None:
                driver.begin_to_leave(for_a_while=for_a_while)

            self._thread.ask(begin())
            return
        try:
            self._thread.ask(driver.close(for_a_while=for_a_while))
        finally:
            if self._driver is driver:  # else another thread was faster
                self._driver = None
                loop_thread.release(self._thread)

    def _opened(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the member is not open: use it in a `with` block, or call open()")
        return self._driver
