"""Cut what a partition of Kafka's topic says into changes, each to be kept whole.

A batch of Kafka's is one change. Two kinds of batches are not: offsets, of which
only the last of each partition counts, wait to be written together; and batches of a transaction,
which count once its marker says that it was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.clock import wall_ms
from coordinator.watcher.kafka_records import OFFSET_TYPES
from coordinator.watcher.record_batches import COMMIT, KafkaRecord, RecordBatch, keep_last

OFFSET_KEYS = tuple(kind.to_bytes(2) for kind in sorted(OFFSET_TYPES))
"""How the keys of offsets begin."""
NONE_OPEN = -1


class Change(NamedTuple):
    """What is kept at once.

    Attributes
    ----------
    offsets
        The last offset commits of each key since the change before, in Kafka's order.
    records
        Of one batch; empty where only offsets are written.
    next_offset
        Behind all of it.
    open_offset
        Where a reading must begin again to see transactions that are open; -1 for none.
    follows
        Up to where the change before was read.
    """

    offsets: tuple[KafkaRecord, ...]
    records: tuple[KafkaRecord, ...]
    next_offset: int
    open_offset: int
    follows: int

    @property
    def at_ms(self) -> int:
        """When Kafka wrote the last of it."""
        last = self.records or self.offsets
        return last[-1].timestamp_ms if last else 0


class PartitionChanges:
    """The changes of one partition.

    Parameters
    ----------
    next_offset, open_offset
        How far it was read before, as the store says.

    Attributes
    ----------
    next_offset
        Behind the last batch that was taken.
    pending
        How many offsets wait to be written.
    """

    def __init__(self, next_offset: int = 0, open_offset: int = NONE_OPEN) -> None:
        self.next_offset = next_offset
        self._kept_until = next_offset
        """What is before it was kept: of it, only batches of transactions that end behind count."""
        self._written = next_offset
        self._open: dict[int, list[RecordBatch]] = {}
        self._latest: dict[bytes, int] = {}
        """While transactions are open: by key, the offset of the last record that counts."""
        self._offsets: dict[bytes, KafkaRecord] = {}
        if open_offset != NONE_OPEN:
            self.next_offset = open_offset

    @property
    def pending(self) -> int:
        """How many offsets wait to be written."""
        return len(self._offsets)

    @property
    def open_offset(self) -> int:
        """Where the oldest transaction that is open begins; -1 for none."""
        return min((batches[0].base_offset for batches in self._open.values()), default=NONE_OPEN)

    def take(self, batches: Iterable[RecordBatch]) -> Iterator[Change]:
        """Take batches in order, and yield the changes that are whole by them."""
        for batch in batches:
            if batch.last_offset < self.next_offset:
                continue  # a fetch begins with the whole batch that has the offset
            self.next_offset = batch.last_offset + 1
            for whole in self._find_whole(batch):
                if _is_of_offsets(whole):
                    keep_last(self._offsets, whole.records)
                elif whole.records:
                    yield self._make(whole.records)

    def flush(self) -> Change | None:
        """Return the offsets that wait; None where nothing was read since the last change."""
        if self.next_offset <= self._written and not self._offsets:
            return None  # it may be behind: what transactions wrote is read again
        return self._make(())

    def _find_whole(self, batch: RecordBatch) -> list[RecordBatch]:
        """Return the batches that count now: this one, or those of a transaction that it ends."""
        if batch.marker is not None:
            ended = self._open.pop(batch.producer_id, [])
            committed = ended if batch.marker == COMMIT else []
            whole = [self._without_overtaken(one) for one in committed]
            if not self._open:
                self._latest.clear()
        elif batch.is_transactional:
            if batch.records:  # the cleaner leaves empty ones of transactions that ended long ago
                self._open.setdefault(batch.producer_id, []).append(batch)
            return []
        else:
            whole = [self._without_overtaken(batch) if self._open else batch]
        return whole if batch.base_offset >= self._kept_until else []

    def _without_overtaken(self, batch: RecordBatch) -> RecordBatch:
        """Leave out what was written again, and counted, before its transaction ended.

        Of several records of a key the one that was written last counts, as in Kafka.
        """
        kept = [
            one
            for one in batch.records
            if one.key is not None and self._latest.get(one.key, -1) < one.offset
        ]
        self._latest.update((one.key, one.offset) for one in kept if one.key is not None)
        return batch._replace(records=kept)

    @property
    def open_batches(self) -> Mapping[int, Sequence[RecordBatch]]:
        """By producer, what was written in transactions that are open."""
        return self._open

    def _make(self, records: Iterable[KafkaRecord]) -> Change:
        offsets, self._offsets = tuple(self._offsets.values()), {}
        follows, self._written = self._written, self.next_offset
        return Change(offsets, tuple(records), self.next_offset, self.open_offset, follows)


def _is_of_offsets(batch: RecordBatch) -> bool:
    return all(
        record.key is not None and record.key.startswith(OFFSET_KEYS) for record in batch.records
    )


@dataclass
class PartitionLoad:
    """All of a partition: read for the first time, or again, up to where it ended then."""

    changes: PartitionChanges = field(default_factory=PartitionChanges)
    last: dict[bytes, KafkaRecord] = field(default_factory=dict)
    end: int | None = None
    began_ms: int = field(default_factory=wall_ms)

    def take(self, batches: list[RecordBatch]) -> None:
        """Keep the last record of each key."""
        before = batches if self.end is None else [b for b in batches if b.base_offset < self.end]
        for change in self.changes.take(before):
            keep_last(self.last, (*change.offsets, *change.records))

    def finish(self) -> list[KafkaRecord]:
        """Return what is kept, in Kafka's order."""
        change = self.changes.flush()
        if change is not None:
            keep_last(self.last, change.offsets)
        return list(self.last.values())
