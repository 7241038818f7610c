"""How much of Kafka's topic of groups was read, for metrics and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.runtime.metrics import Metrics
from coordinator.watcher.record_batches import KafkaRecord
from coordinator.watcher.translator import Faults

TYPES = range(32)
"""Types of records that have their own name in metrics: any client may write others."""


class ReadCounts:
    """Counts what is in the store.

    Attributes
    ----------
    records
        How many records of each partition: of one that is read for the first time, those that it
        keeps.
    first_ms, last_ms
        When the oldest and the newest of them were written, ms since 1970; None before the first.
    """

    def __init__(self, metrics: Metrics, faults: Faults) -> None:
        self._metrics, self._faults = metrics, faults
        self._passed_over: Counter[int] = Counter()
        self._undecodable = 0
        self.records: Counter[int] = Counter()
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def note(self, partition: int, records: Iterable[KafkaRecord]) -> None:
        """Count records that are written, and what of them was passed over."""
        times = [record.timestamp_ms for record in records]
        if not times:
            return
        self.records[partition] += len(times)
        self._metrics.kafka_read(partition, len(times))
        first, last = min(times), max(times)
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)
        faults = self._faults
        for number, count in (faults.passed_over - self._passed_over).items():
            self._metrics.kafka_passed_over(str(number) if number in TYPES else "other", count)
        self._metrics.kafka_undecodable(faults.count - self._undecodable)
        self._passed_over, self._undecodable = Counter(faults.passed_over), faults.count

    def note_lag(self, partition: int, records: int) -> None:
        """Note how far the end of a partition is ahead of what was read."""
        self._metrics.kafka_lag(partition, max(0, records))
