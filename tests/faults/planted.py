"""A coordinator with a defect, which the checker of histories must find."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from coordinator import Coordinator
from coordinator.config import Config

from . import node


def serve_hasty(pipe: Connection, store: str, config: Config, takeover: str) -> None:
    """Acknowledge offsets before they are durable."""
    setattr(Coordinator, "offset_commit", _at_once(Coordinator.offset_commit))  # noqa: B010
    node.serve(pipe, store, config, takeover)


def _at_once(commit: Callable[..., None]) -> Callable[..., None]:
    def hasty(coordinator: Coordinator, **fields: Any) -> None:
        threading.Thread(target=commit, args=(coordinator,), kwargs=fields, daemon=True).start()

    return hasty
