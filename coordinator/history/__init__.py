"""Read a store as of now, a position or a time, without a coordinator or a JVM.

This room never writes, claims or locks.
"""

from coordinator.history.frames import VIEWS, frame

__all__ = ["VIEWS", "frame"]
