"""Where the transactions of a log are, for those who read only what is committed. No I/O.

As Kafka's `ProducerStateManager`: the last stable offset is the first offset of what is not ended,
or whose end does not count yet; a reader hears which transactions before it were aborted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from coordinator.watcher.record_batches import (
    ABORT,
    CONTROL,
    HEAD,
    TRANSACTIONAL,
    read_batches,
)

ATTRIBUTES_AT = 22
"""Of a batch, the byte that has all that is known of them."""


class TransactionSpans:
    """The transactions of one log, in the order of its batches.

    Of each that has ended, the columns have the offset of its marker, its first offset, its
    producer, and whether it was aborted.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ends, self._starts = array("q"), array("q")
        self._producers, self._aborted = array("q"), array("b")

    def note(self, raw: bytes) -> None:
        """Note a batch that is at the end of the log now."""
        attributes = raw[ATTRIBUTES_AT]
        if not attributes & TRANSACTIONAL:
            return
        if attributes & CONTROL:
            for one in read_batches(raw):
                self._end(one.base_offset, one.producer_id, one.marker)
            return
        head = HEAD.unpack_from(raw)
        base_offset, producer_id, count = head[0], head[9], head[-1]
        if count:  # the cleaner leaves empty ones of transactions that ended long ago
            self._open.setdefault(producer_id, base_offset)

    def _end(self, offset: int, producer_id: int, marker: int | None) -> None:
        start = None if marker is None else self._open.pop(producer_id, None)
        if start is not None:
            self._ends.append(offset)
            self._starts.append(start)
            self._producers.append(producer_id)
            self._aborted.append(marker == ABORT)

    def cut(self, end: int) -> None:
        """Note that the log ends at an offset."""
        self._open = {key: start for key, start in self._open.items() if start < end}
        kept = bisect_left(self._ends, end)
        for at in range(kept, len(self._ends)):
            if self._starts[at] < end:
                self._open[self._producers[at]] = self._starts[at]
        for column in (self._ends, self._starts, self._producers, self._aborted):
            del column[kept:]

    def stable_end(self, high_watermark: int) -> int:
        """Return the last stable offset: what is before it is decided, for good."""
        counted = bisect_left(self._ends, high_watermark)
        return min([high_watermark, *self._open.values(), *self._starts[counted:]])

    def aborted(self, offset: int, end: int) -> list[dict[str, object]]:
        """Return the aborted transactions that have something from one offset to another."""
        return [
            {"producer_id": self._producers[at], "first_offset": self._starts[at]}
            for at in range(bisect_left(self._ends, offset), len(self._ends))
            if self._aborted[at] and self._starts[at] < end
        ]
