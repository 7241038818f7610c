"""clock: the time of the machine, for those who may know it."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000
