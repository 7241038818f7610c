"""Read a store as of now, a position or a time, without a coordinator or a JVM.

This room never writes, claims or locks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.history.frames import VIEWS, frame

__all__ = ["VIEWS", "frame"]


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for: opening a log needs no view."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("coordinator.history.frames"), name)
