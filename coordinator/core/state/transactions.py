"""Offsets that are committed in transactions, until these end (KIP-447, KIP-890).

A transaction belongs to a producer, and may have offsets of several groups; they count once it is
committed. The records here are those of a partition of Kafka's topic of groups, whose log has them
as batches of a producer, and markers: the tables of a store have no rows for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from coordinator.core.state.records import OffsetCommitted, Record

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
NO_EPOCH = -1


class Producer(NamedTuple):
    """Who writes in a transaction; of two with the same id, the later epoch counts."""

    producer_id: int
    epoch: int


class OffsetPending(Record, frozen=True, gc=False):
    """An offset that counts once its transaction is committed."""

    kind: ClassVar[str] = "offset_pending"
    producer: Producer
    offset: OffsetCommitted

    @property
    def group_id(self) -> str:
        """The group."""
        return self.offset.group_id


class TransactionEnded(Record, frozen=True, gc=False):
    """A transaction was committed or aborted, by a marker of its coordinator."""

    kind: ClassVar[str] = "transaction_ended"
    producer: Producer
    coordinator_epoch: int
    committed: bool
    timestamp: int


class ProducerForgotten(Record, frozen=True, gc=False):
    """A producer has not been heard of for so long that its epochs are forgotten."""

    kind: ClassVar[str] = "producer_forgotten"
    producer_id: int


@dataclass(slots=True, eq=False)
class ProducerState:
    """What is known of a producer.

    Attributes
    ----------
    epoch, coordinator_epoch
        The last ones: of itself, and of the coordinator of its transactions.
    is_open
        Whether it has a transaction here that has not ended.
    ended
        How many of its transactions have ended since the log was loaded.
    seen_ms
        When it was heard of last.
    offsets
        Those of its open transaction: groups, topics and partitions.
    """

    epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    is_open: bool = False
    ended: int = 0
    seen_ms: int = 0
    offsets: dict[tuple[str, Place], None] = field(default_factory=dict)


class Transactions:
    """All producers, and the offsets of their open transactions.

    Of several offsets for a partition, the one that was written last counts, not the one whose
    transaction ended last: so each place keeps the order of its offsets, and one that something
    later has overtaken has no value left. It still keeps its place unstable.
    """

    def __init__(self) -> None:
        self.producers: dict[int, ProducerState] = {}
        self._pending: dict[str, dict[Place, dict[int, OffsetCommitted | None]]] = {}

    def put(self, record: OffsetPending) -> None:
        """Keep an offset until its transaction ends."""
        producer_id, epoch = record.producer
        offset = record.offset
        place = offset.topic, offset.partition
        known = self.producers.setdefault(producer_id, ProducerState())
        known.epoch, known.is_open = max(known.epoch, epoch), True
        known.seen_ms = max(known.seen_ms, offset.commit_timestamp)
        known.offsets[offset.group_id, place] = None
        waiting = self._pending.setdefault(offset.group_id, {}).setdefault(place, {})
        waiting.pop(producer_id, None)  # in its new place in the order
        waiting[producer_id] = offset

    def end(self, record: TransactionEnded) -> list[OffsetCommitted]:
        """End a producer's transaction; return the offsets that count by that."""
        producer_id, epoch = record.producer
        known = self.producers.setdefault(producer_id, ProducerState())
        known.epoch, known.coordinator_epoch = epoch, record.coordinator_epoch
        known.is_open, known.ended = False, known.ended + 1
        known.seen_ms = max(known.seen_ms, record.timestamp)
        found: list[OffsetCommitted] = []
        for group_id, place in known.offsets:
            waiting = self._pending[group_id][place]
            offset = waiting[producer_id]
            if record.committed and offset is not None:
                found.append(offset)
                for other in waiting:
                    if other == producer_id:
                        break
                    waiting[other] = None  # was written earlier
            del waiting[producer_id]
            self._sweep(group_id, place)
        known.offsets.clear()
        return found

    def overtake(self, group_id: str, place: Place) -> None:
        """Note that an offset was committed that is later than all that wait at its place."""
        waiting = self._pending.get(group_id, {}).get(place)
        if waiting:
            waiting.update(dict.fromkeys(waiting))

    def drop(self, group_id: str, place: Place) -> None:
        """Forget what waits at a place: its offset was deleted."""
        waiting = self._pending.get(group_id, {}).get(place)
        if waiting is None:
            return
        for producer_id in waiting:
            del self.producers[producer_id].offsets[group_id, place]
        waiting.clear()
        self._sweep(group_id, place)

    def _sweep(self, group_id: str, place: Place) -> None:
        of_group = self._pending[group_id]
        if not of_group[place]:
            del of_group[place]
        if not of_group:
            del self._pending[group_id]

    def forget(self, producer_id: int) -> None:
        """Forget a producer that has no open transaction."""
        self.producers.pop(producer_id, None)

    # Reading -------------------------------------------------------------------------------------

    def places(self, group_id: str) -> Collection[Place]:
        """Return where a group has offsets in open transactions; nothing for most groups."""
        return self._pending.get(group_id, {}).keys()

    @property
    def groups(self) -> Collection[str]:
        """The groups that have some."""
        return self._pending.keys()

    def records_before(self) -> Iterator[Record]:
        """Yield what a copy is given before it has the offsets that count."""
        for producer_id, one in self.producers.items():
            if one.ended:
                producer = Producer(producer_id, one.epoch)
                yield TransactionEnded(
                    producer, one.coordinator_epoch, committed=False, timestamp=one.seen_ms
                )
        for producer_id, group_id, place, offset in self.waiting():
            if offset is None:
                held = OffsetCommitted(group_id, place[0], "", place[1], 0)
                yield OffsetPending(self._producer(producer_id), held)

    def records_after(self) -> Iterator[Record]:
        """Yield what it is given after them."""
        for producer_id, _, _, offset in self.waiting():
            if offset is not None:
                yield OffsetPending(self._producer(producer_id), offset)

    def _producer(self, producer_id: int) -> Producer:
        return Producer(producer_id, self.producers[producer_id].epoch)

    def waiting(self) -> Iterator[tuple[int, str, Place, OffsetCommitted | None]]:
        """Yield all that waits: producer, group, place, and the offset if nothing overtook it."""
        for group_id, places in self._pending.items():
            for place, waiting in places.items():
                for producer_id, offset in waiting.items():
                    yield producer_id, group_id, place, offset
