"""The log that a simulated coordinator writes, and how it fails.

A commit fails before it landed, fails though it landed, or its process ends on either side of it;
another coordinator may claim the log between the moment it landed and its acknowledgement, and
may do its maintenance before and after it lands.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coordinator.storage.record_log import Batch, CorruptLog, MemoryLog, MemoryRecords

if TYPE_CHECKING:
    from .node import Node


OPERATOR_MS = 4_000
"""How long until a disk that could not sync is repaired, and the coordinator restarted."""


class Crash(BaseException):
    """The process of a coordinator ends here; nothing below the simulation may catch it."""


class LogFaults:
    """What goes wrong with one coordinator's log."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = 0

    def commit(self, when: str) -> None:
        """Be called before and after each commit."""
        node = self._node
        if when == "before":
            self._count += 1
            if node.starting and self._happens("commit within a claim"):
                self._within(lambda: node.world.writes(besides=node))
            if self._happens("maintenance within a commit"):
                self._within(lambda: node.world.maintain(besides=node))
        else:
            self.take_over()
            if self._happens("maintenance after a commit"):
                self._within(lambda: node.world.maintain(besides=node))
            self._power()
        self._crash(f"crash {when} a commit")
        if self._happens(f"commit fails {when}"):
            node.world.tell(f"{node.name}: commit fails {when} it landed")
            code = errno.ENOSPC if self._count % 2 else errno.ETIMEDOUT
            raise OSError(code, f"fails {when} it landed (simulated)")

    def write(self) -> None:
        """Be called at each data file; a claim's is made for what it has seen by then."""
        self._count += 1
        if self._node.starting and self._happens("a claim sleeps"):
            self._within(lambda: self._node.world.goes_on(besides=self._node))

    def take_over(self) -> None:
        """Be called around a commit, where another coordinator may claim the log, and go on."""
        if self._happens("take-over within a commit"):
            self._within(lambda: self._node.world.take_over(besides=self._node))
            if self._happens("a commit sleeps"):
                self._within(lambda: self._node.world.goes_on(besides=self._node))

    def disk(self, fault: str, code: int) -> None:
        """Be called at whatever is done to a disk."""
        self._count += 1
        if fault != "disk cannot be read":
            self._power()
            self._crash("crash at the disk")
        if self._happens(fault):
            self._node.world.tell(f"{self._node.name}: {fault}")
            if fault == "disk cannot sync":
                self._node.world.schedule.after(OPERATOR_MS, self._node.restart, self._node.life)
            raise OSError(code, f"{fault} (simulated)")

    def happens(self, fault: str) -> bool:
        """Be called where something may go wrong in a way of its own."""
        self._count += 1
        return self._happens(fault)

    def between(self, low: int, high: int, what: str) -> int:
        """Return a whole number that belongs to the last call."""
        return self._node.world.chance.between(low, high, what, self._node.name, self._count)

    def look(self) -> None:
        """Be called at each look at the log."""
        self._count += 1
        if self._happens("look fails"):
            raise OSError(errno.EIO, "the log cannot be looked at (simulated)")

    def replay(self) -> None:
        """Be called at each replay."""
        self._count += 1
        if self._happens("replay fails"):
            raise CorruptLog("the log cannot be read (simulated)")

    def _within(self, happening: Callable[[], None]) -> None:
        """Let others act in the middle of what this coordinator does; it may die of it."""
        life = self._node.life
        happening()
        if self._node.life != life:
            raise Crash("it died within a commit")

    def _power(self) -> None:
        if self._happens("power fails"):
            self._node.world.power_fails()
            raise Crash("the power fails")

    def _crash(self, fault: str) -> None:
        if self._happens(fault):
            self._node.world.tell(f"{self._node.name}: {fault}")
            raise Crash(fault)

    def _happens(self, fault: str) -> bool:
        happened = self._node.world.chance.happens(fault, self._node.name, self._count)
        if happened:
            self._node.world.story.cannot_tell(fault)
        return happened


class FaultyLog(MemoryLog):
    """A log in memory that fails as its faults say."""

    def __init__(self, storage: MemoryRecords, faults: LogFaults) -> None:
        super().__init__(storage, faults.commit)
        self._faults = faults

    def look(self) -> None:
        """Look whether the log is still ours."""
        super().look()
        self._faults.look()

    def replay(self) -> Iterator[Batch]:
        """Replay the log."""
        self._faults.replay()
        yield from super().replay()


class MemoryStore:
    """A store in memory: what survives every crash."""

    def __init__(self) -> None:
        self._storage = MemoryRecords()

    def open(self, node: Node) -> FaultyLog:
        """Return the log of a coordinator that starts."""
        return FaultyLog(self._storage, node.faults)

    def batches(self, after: int) -> list[Batch]:
        """Return what was committed after a position."""
        found = self._storage.batches
        return found[bisect_right(found, after, key=lambda batch: batch.position) :]

    def power_fails(self) -> None:
        """Lose nothing: what was committed is durable."""

    def plain(self, text: str) -> str:
        """Return a text without what differs from run to run: all of it."""
        return text

    def close(self) -> None:
        """Do nothing."""
