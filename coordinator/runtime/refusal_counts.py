"""Counts how often messages of other processes are refused before the log has a verdict."""

from __future__ import annotations

from coordinator.runtime.event_processor import EventProcessor
from coordinator.status import Status

TRIES = 3


class RefusalCounts:
    """How often in a row each message was refused without a verdict.

    Parameters
    ----------
    processor
        What refuses. While it serves nobody, its refusals do not count.
    """

    def __init__(self, processor: EventProcessor) -> None:
        self._processor = processor
        self._counts: dict[str, int] = {}

    def add(self, message_id: str) -> bool:
        """Count a refusal; whether the message has had its last try."""
        if self._processor.status is not Status.ACTIVE:
            return False
        count = self._counts.pop(message_id, 0) + 1
        if count < TRIES:
            self._counts[message_id] = count
        return count == TRIES

    def forget(self, message_id: str) -> None:
        """Forget a message that was decided."""
        self._counts.pop(message_id, None)
