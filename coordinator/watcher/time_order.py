"""Put what was read of several partitions in the order in which Kafka wrote it.

Rows of a log never go back in time. So of what is behind, as after a stop, a batch is handed on
only once all partitions were read up to its time, or to their ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from coordinator.watcher.record_batches import RecordBatch

BUFFERED_MAX = 8 << 20
"""Bytes that wait of one partition: then it is not read on."""


class _Waiting(NamedTuple):
    at_ms: int
    partition: int
    size: int
    batch: RecordBatch


class TimeOrder:
    """Batches that wait for those of other partitions."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._bytes: dict[int, int] = {}
        self._read_ms: dict[int, int] = {}
        """Up to which time a partition was read; it is left out once it was read to its end."""
        self._last_ms: dict[int, int] = {}
        self._absent: set[int] = set()
        """Partitions that are not waited for, as they cannot be read now."""

    def expect(self, partition: int) -> None:
        """Wait for a partition that will be read."""
        self._read_ms.setdefault(partition, -1)

    def pass_over(self, partition: int) -> None:
        """Wait no longer for a partition that cannot be read: it may be late."""
        self._read_ms.pop(partition, None)
        self._absent.add(partition)

    @property
    def awaited(self) -> list[int]:
        """The partitions that others wait for."""
        return list(self._read_ms)

    def add(
        self, partition: int, batches: Iterable[RecordBatch], size: int, *, at_end: bool
    ) -> None:
        """Take what was read of a partition, and whether that is all there is."""
        found = list(batches)
        self._absent.discard(partition)
        waiting = self._waiting.setdefault(partition, deque())
        last_ms = self._last_ms.get(partition, 0)
        for batch in found:
            last_ms = max(last_ms, max((one.timestamp_ms for one in batch.records), default=0))
            waiting.append(_Waiting(last_ms, partition, size // len(found), batch))
            self._bytes[partition] = self._bytes.get(partition, 0) + size // len(found)
        self._last_ms[partition] = last_ms
        if at_end:
            self._read_ms.pop(partition, None)
        else:
            self._read_ms[partition] = last_ms

    def drop(self, partition: int) -> None:
        """Forget a partition; it is reread."""
        self._absent.discard(partition)
        for kept in (self._waiting, self._bytes, self._read_ms, self._last_ms):
            kept.pop(partition, None)

    @property
    def is_live(self) -> bool:
        """Whether all partitions were read to their ends."""
        return not self._read_ms and not self._absent

    def has(self, partition: int) -> bool:
        """Whether something of a partition waits."""
        return bool(self._waiting.get(partition))

    def has_room(self, partition: int) -> bool:
        """Whether more of a partition may be read."""
        return self._bytes.get(partition, 0) < BUFFERED_MAX

    def take(self) -> Iterator[tuple[int, list[RecordBatch]]]:
        """Yield what may be handed on, in the order of time: neighbours of a partition together."""
        until = min(self._read_ms.values(), default=None)
        ready = [list(self._pop(p, until)) for p in sorted(self._waiting)]
        for partition, some in groupby(heapq.merge(*ready), itemgetter(1)):
            yield partition, [one.batch for one in some]

    def _pop(self, partition: int, until: int | None) -> Iterator[_Waiting]:
        waiting = self._waiting[partition]
        while waiting and (until is None or waiting[0].at_ms <= until):
            one = waiting.popleft()
            self._bytes[partition] -= one.size
            yield one
