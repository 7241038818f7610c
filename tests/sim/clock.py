"""True time, what is to happen when, and the clocks of coordinators that go wrong."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

EPOCH_MS = 1_700_000_000_000
"""What coordinators' clocks show when a simulation begins."""


class Schedule:
    """True time, in ms since the simulation began; things of one instant happen in order."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: int, what: Callable[..., None], *args: object) -> None:
        """Let something happen at an instant."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, what, args))

    def after(self, ms: int, what: Callable[..., None], *args: object) -> None:
        """Let something happen after a while."""
        self.at(self.now + ms, what, *args)

    def run(self, until: int) -> None:
        """Let everything happen that is due until then."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, what, args = heapq.heappop(self._heap)
            what(*args)
        self.now = until


class WallClock:
    """A coordinator's wall clock: true time with an offset that jumps."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.offset = EPOCH_MS

    def __call__(self) -> int:
        """Return what the clock shows."""
        return self._schedule.now + self.offset

    def monotonic(self) -> int:
        """Return what the machine's other clock shows, which does not jump."""
        return self._schedule.now
