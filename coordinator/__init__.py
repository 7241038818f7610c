"""The group coordinator: a pure core that decides, and a shell that makes it durable and serves.

>>> from coordinator import Coordinator
>>> with Coordinator.open(None, topics={"clicks": 4}) as coordinator:
...     coordinator.status
'active'

Importing it starts nothing and needs no JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator

__all__ = ["Coordinator"]


def __getattr__(name: str) -> object:
    """Import `Coordinator` when it is asked for: `muster --help` needs none of it."""
    if name == "Coordinator":
        from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415

        return Coordinator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
