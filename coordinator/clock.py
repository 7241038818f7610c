"""The wall clock and the monotonic clock, for the rooms that may read time.

The wall clock may be set at any moment, so it is only used for times of events. Durations and
deadlines use the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
UNSETTABLE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock that also counts while the machine sleeps, where the platform has one."""


def wall_ms() -> int:
    """Return the wall clock's time, in ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return the ms since an arbitrary start. This clock cannot be set."""
    return time.clock_gettime_ns(UNSETTABLE) // 1_000_000


class SteadyClock:
    """The wall clock's time at the last `start`, plus the ms elapsed since by the monotonic clock.

    Its times can be compared with the times in the log, which earlier coordinators wrote.

    Attributes
    ----------
    is_own
        Whether it is the machine's: no caller sets it.
    """

    def __init__(self, wall: Clock, monotonic: Clock) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.is_own = monotonic is monotonic_ms
        self._began = 0
        self.start()

    def __call__(self) -> int:
        """Return the time, in ms since 1970."""
        return self._began + self._monotonic()

    def start(self) -> None:
        """Restart from the wall clock's time. Deadlines that were set before become invalid."""
        self._began = self._wall() - self._monotonic()
