"""What the log of a partition says of producers, and of transactions that are open at its end.

Pure. The records that count are loaded elsewhere (`partition_records.py`); those of open
transactions go before them or behind them, by which of them were written later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from coordinator.core.state.records import OffsetCommitted, Record
from coordinator.core.state.transactions import OffsetPending, Producer, TransactionEnded
from coordinator.watcher.partition_changes import PartitionLoad
from coordinator.watcher.record_batches import COMMIT, END_MARKER, KafkaRecord, RecordBatch

Make = Callable[[Iterable[KafkaRecord]], list[Record]]


class Pending(NamedTuple):
    """Records to be replayed before what counts, and behind it."""

    before: list[Record]
    after: list[Record]


class ProducersLoad:
    """Producers, as the batches of a log show them, in their order."""

    def __init__(self) -> None:
        self._ended: dict[int, TransactionEnded] = {}
        self._open: set[int] = set()
        self._deleted: dict[bytes, int] = {}
        """While transactions are open: by key, the offset of its last end."""

    def take(self, batches: Iterable[RecordBatch]) -> None:
        """Note the last transaction of each producer that has ended."""
        for one in batches:
            if one.marker is not None:
                self._ended[one.producer_id] = _end_of(one)
                self._open.discard(one.producer_id)
                if not self._open:
                    self._deleted.clear()
            elif one.is_transactional and one.records:
                self._open.add(one.producer_id)
            elif self._open:
                ends = (record for record in one.records if record.value is None)
                self._deleted.update((end.key, end.offset) for end in ends if end.key is not None)

    def finish(self, load: PartitionLoad, make: Make) -> Pending:
        """Return the records that make producers and open transactions what they were.

        Parameters
        ----------
        load
            All of the log.
        make
            Makes records of Kafka's ours.
        """
        found = Pending([*self._ended.values()], [])
        written = [
            (record, Producer(batch.producer_id, batch.producer_epoch))
            for batches in load.changes.open_batches.values()
            for batch in batches
            for record in batch.records
        ]
        for record, producer in sorted(written, key=lambda one: one[0].offset):
            place = self._place(record, load.last)
            for made in make([record] if place is not None else []):
                if isinstance(made, OffsetCommitted):
                    held = OffsetPending(producer, made)
                    (found.before if place == "before" else found.after).append(held)
        return found

    def _place(self, record: KafkaRecord, last: Mapping[bytes, KafkaRecord]) -> str | None:
        """Return whether a record was overtaken by what counts: then it is before that.

        None: its key has ended since.
        """
        if record.key is None or self._deleted.get(record.key, -1) > record.offset:
            return None
        later = last.get(record.key)
        return "before" if later is not None and later.offset > record.offset else "after"


def _end_of(batch: RecordBatch) -> TransactionEnded:
    marker = batch.records[0]
    value = marker.value or b""
    known = END_MARKER.unpack(value)[1] if len(value) == END_MARKER.size else -1
    return TransactionEnded(
        Producer(batch.producer_id, batch.producer_epoch),
        known,
        batch.marker == COMMIT,
        marker.timestamp_ms,
    )
