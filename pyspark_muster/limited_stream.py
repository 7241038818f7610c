"""The stream of events in batches of a limited size, and up to where a run is to end.

Spark asks for that from 4.2 on; before, a batch has all that is new.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from assignors import SpecError
from pyspark_muster.event_stream import EventStream, Offset, Part
from pyspark_muster.options import LIMIT, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

try:
    LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:
    LIMITS = None
SupportsLimits: Any = LIMITS.SupportsTriggerAvailableNow if LIMITS else object


def open_stream(asked: ReadOptions) -> EventStream:
    """Return what reads events, with limits where Spark has them.

    Raises
    ------
    SpecError
        A limit is given, and Spark has none.
    """
    if LIMITS is not None:
        return LimitedEventStream(asked)
    if asked.limit is not None:
        raise SpecError(
            f"{LIMIT} needs Spark 4.2 or newer: give the query a trigger with an interval, and "
            "omit it"
        )
    return EventStream(asked)


class LimitedEventStream(EventStream, SupportsLimits):  # type: ignore[misc]
    """Reads the events of a store in batches of so many positions of its logs."""

    def __init__(self, asked: ReadOptions) -> None:
        super().__init__(asked)
        self._until: Offset | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the query asks for."""
        limit = self._asked.limit
        found: ReadLimit = LIMITS.ReadAllAvailable() if limit is None else LIMITS.ReadMaxRows(limit)
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where this run of the query ends, even if more is written meanwhile."""
        self._until = super().latestOffset()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset | None = None, limit: object = None
    ) -> Offset:
        """Return up to where the next batch reads."""
        ends = super().latestOffset() if self._until is None else self._until
        if start is None or not isinstance(limit, LIMITS.ReadMaxRows):
            return ends
        each = -(-limit.max_rows // max(len(ends), 1))
        return {name: self._bound(name, start, end, each) for name, end in ends.items()}

    def _bound(self, name: str, start: Offset, end: Part, count: int) -> Part:
        """Return an earlier end of a log, but not one within a moment: no decision is cut."""
        log, before = self._begin(name, start, end)
        last = before["position"] + count
        return end if last >= end["position"] else end | {"position": log.moment_of(last)[1]}
