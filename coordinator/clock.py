"""Wall clock and monotonic clock, for the rooms that may read time.

Somebody may set the wall clock at any moment, so it says only when something happened. How long
something took, or may take, the steady clock says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
UNSETTABLE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps, where there is one that does."""


def wall_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return the ms since some instant; nobody can set this clock."""
    return time.clock_gettime_ns(UNSETTABLE) // 1_000_000


class SteadyClock:
    """Ms since 1970 as the wall clock had them at the last `start`, and elapsed since.

    Its times compare with those in the log, which the steady clocks of coordinators before wrote.
    """

    def __init__(self, wall: Clock, monotonic: Clock) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._began = 0
        self.start()

    def __call__(self) -> int:
        """Return the time."""
        return self._began + self._monotonic()

    def start(self) -> None:
        """Take the wall clock's time; deadlines that were set before are worth nothing then."""
        self._began = self._wall() - self._monotonic()
