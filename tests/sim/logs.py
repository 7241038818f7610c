"""logs: the log that a simulated coordinator writes, and how it fails.

A commit fails before it landed, fails though it landed, or its process ends on either side of it;
another coordinator may claim the log between the moment it landed and its acknowledgement.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.log import Batch, CommitFailed, CorruptLog, MemoryLog, Storage

if TYPE_CHECKING:
    from .node import Node


class Crash(BaseException):
    """The process of a coordinator ends here; nothing below the simulation may catch it."""


class LogFaults:
    """What goes wrong with one coordinator's log."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._count = 0

    def commit(self, when: str) -> None:
        """Be called before and after each commit."""
        if when == "before":
            self._count += 1
            self._crash(f"crash {when} a commit")
        elif self._happens("take-over within a commit"):
            self._node.world.take_over(besides=self._node)
        if when == "after":
            self._crash(f"crash {when} a commit")
        if self._happens(f"commit fails {when}"):
            self._node.world.tell(f"{self._node.name}: commit fails {when} it landed")
            if self._count % 2:
                raise OSError(errno.ENOSPC, "no space left (simulated)")
            raise CommitFailed(f"fails {when} it landed (simulated)")

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

    def __init__(self, storage: Storage, faults: LogFaults) -> None:
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
        self._storage = Storage()

    def open(self, node: Node) -> FaultyLog:
        """Return the log of a coordinator that starts."""
        return FaultyLog(self._storage, node.faults)

    def batches(self, after: int) -> list[Batch]:
        """Return what was committed, but for the first so many batches."""
        return self._storage.batches[after:]

    def epoch(self) -> int:
        """Return the coordinator epoch of the newest claim."""
        return self._storage.epoch

    def crashed(self) -> None:
        """Lose nothing: what was committed is durable."""

    def close(self) -> None:
        """Do nothing."""
