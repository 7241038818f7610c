"""history: what a store says, now or as of a position or a time, without a coordinator or a JVM."""

from coordinator.history.frames import VIEWS, frame

__all__ = ["VIEWS", "frame"]
