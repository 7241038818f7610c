"""What `Member` has that `AsyncMember` has not: the thread in which its driver runs."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from coordinator.clock import monotonic_ms
from coordinator.member import loop_thread
from coordinator.member.application import Held, ThreadApplication
from coordinator.member.driver import Driver
from coordinator.member.options import MemberOptions
from coordinator.member.transport import TopicPartition

T = TypeVar("T")


class ThreadMember(MemberOptions):
    """A member whose driver runs in a thread that all members of the process share."""

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
    def waits_ms(self) -> int:
        """For how long its heartbeats have not been answered; refusals are no answers."""
        driver = self._driver
        since = None if driver is None else driver.membership.waits_since_ms
        return 0 if since is None else monotonic_ms() - since

    @contextmanager
    def holding(self) -> Iterator[Held]:
        """Keep what it owns from being given up until the block ends: a batch of many partitions.

        >>> with member.holding() as held:  # doctest: +SKIP
        ...     member.commit(process(held.partitions))

        Heartbeats continue meanwhile, and a partition that must go waits for the end of the block,
        as it waits for the end of a call of `run`'s function. It can still be lost: after the
        member's `rebalance_timeout_ms`, or when the coordinator hears nothing from the member.
        Writes must then be refused, as `commit` and `ExactlyOnceTable` do. In the block, `leave`
        begins to leave and does not wait.

        Returns
        -------
        Held
            `partitions`, those that it owns; and `changes`: while that is the same as in an earlier
            block, no partition of both was another member's in between.

        Raises
        ------
        GroupError
            It was refused for good.
        """
        driver, thread = self._opened(), self._thread
        held = thread.ask(driver.hold())
        try:
            with driver.within():
                yield held
        finally:
            with suppress(RuntimeError):  # the thread has ended: no caller waits
                thread.loop.call_soon_threadsafe(driver.release, held)

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
            with suppress(loop_thread.EndedError):  # another thread has left with it
                self._thread.ask(driver.close(for_a_while=for_a_while))
        finally:
            if self._driver is driver:  # else another thread was faster
                self._driver = None
                loop_thread.release(self._thread)

    def _opened(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the member is not open: use it in a `with` block, or call open()")
        return self._driver

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the thread and wait for it."""
        return self._thread.ask(work)
