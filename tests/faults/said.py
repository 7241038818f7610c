"""Hand the log messages of coordinators to a watcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Said(logging.Handler):
    """Hands each message on."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a message on, with the traceback of its error."""
        self._tell(self.format(record))


@contextmanager
def said() -> Iterator[list[str]]:
    """Yield what coordinators in this process say meanwhile; it is not printed."""
    heard: list[str] = []
    handler, logger = Said(heard.append), logging.getLogger("muster")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
