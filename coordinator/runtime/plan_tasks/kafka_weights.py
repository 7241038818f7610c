"""Weights from a Kafka cluster: how far groups are behind, or how fast their topics grow.

Growth is counted in records, or in bytes by the size of a few records of each partition.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

import pyarrow as pa

from coordinator.config import KAFKA, WeightsConfig
from coordinator.runtime.kafka.cluster import KafkaCluster
from coordinator.runtime.kafka.offsets import GONE
from coordinator.runtime.plan_tasks.record_sizes import (
    KafkaRecordSizes,
    Place,
    RecordSizes,
    choose_places,
)
from coordinator.runtime.plan_tasks.weight_source import (
    WeightSource,
    WeightTables,
    open_weight_source,
)

LAG, RATE, BYTE_RATE = "lag", "rate", "byte_rate"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Which partitions a group may have, and where it is in them.

    Attributes
    ----------
    topics
        Partitions by topic.
    committed
        Offsets that it committed.
    """

    topics: Mapping[str, int]
    committed: Mapping[Place, int] = field(default_factory=dict)

    def places(self) -> Iterable[Place]:
        """Yield all partitions."""
        return ((topic, at) for topic, count in self.topics.items() for at in range(count))


class ClusterOffsets(Protocol):
    """What is asked of a cluster."""

    def find(self, places: Iterable[Place], *, first: bool) -> dict[Place, int]:
        """Return the first or the next offset of partitions, without those that are not there.

        Raises
        ------
        OSError
            The cluster does not answer.
        """


class KafkaOffsets:
    """Offsets of a Kafka cluster, through confluent-kafka (the extra `kafka`)."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float = 10.0) -> None:
        self._cluster = KafkaCluster(settings, "weights")
        self._timeout_s = timeout_s

    def find(self, places: Iterable[Place], *, first: bool) -> dict[Place, int]:
        """See `ClusterOffsets`."""
        from confluent_kafka import KafkaException, TopicPartition, admin  # noqa: PLC0415

        kinds: Any = admin  # it has no types
        spec = kinds.OffsetSpec.earliest() if first else kinds.OffsetSpec.latest()
        asked = {TopicPartition(topic, at): spec for topic, at in places}
        found: dict[Place, int] = {}
        if not asked:
            return found
        with self._cluster.asked() as cluster:
            answers = cluster.list_offsets(asked, request_timeout=self._timeout_s)
            for place, future in answers.items():
                offset = _offset_of(future, KafkaException)
                if offset is not None:
                    found[place.topic, place.partition] = offset
        return found


def _offset_of(future: Any, failure: type[Exception]) -> int | None:  # noqa: ANN401 - no types
    try:
        return int(future.result().offset)
    except failure as error:
        if error.args[0].name() in GONE:
            return None
        raise


class KafkaWeights:
    """Weighs partitions of groups by a cluster's offsets.

    Parameters
    ----------
    cluster
        What is asked.
    measure
        "lag": records that the group has not committed yet; without a commit, all that are there.
        "rate": records that came a second since the last look. "byte_rate": their bytes.
    clock
        Seconds that never go back.
    sizes
        What is asked for the bytes of records.
    """

    def __init__(
        self,
        cluster: ClusterOffsets,
        measure: str,
        clock: Callable[[], float] = time.monotonic,
        sizes: RecordSizes | None = None,
    ) -> None:
        assert sizes is not None or measure != BYTE_RATE, "bytes need the size of records"
        self._cluster, self._measure, self._clock = cluster, measure, clock
        self._seen: dict[Place, int] = {}
        self._seen_at = 0.0
        self._sizes = sizes
        self._record_bytes: dict[Place, float] = {}

    def read(self, groups: Mapping[str, GroupPosition]) -> WeightTables:
        """Return the weights of groups; a partition that is not there has none.

        Raises
        ------
        OSError
            The cluster does not answer.
        """
        places = {place for group in groups.values() for place in group.places()}
        ends = self._cluster.find(sorted(places), first=False)
        if self._measure != LAG:
            rates = self._find_rates(ends)
            if self._sizes is not None:
                rates = self._find_byte_rates(self._sizes, ends, rates)
            rows = [
                (group_id, *place, rates[place])
                for group_id, group in groups.items()
                for place in group.places()
                if place in rates
            ]
        else:
            rows = self._find_lags(groups, ends)
        columns = zip(*rows, strict=True) if rows else ([], [], [], [])
        kinds = (pa.string(), pa.string(), pa.int64(), pa.float64())
        names = ("group_id", "topic", "partition", "weight")
        arrays = (pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True))
        return WeightTables(pa.table(dict(zip(names, arrays, strict=True))))

    def _find_lags(
        self, groups: Mapping[str, GroupPosition], ends: Mapping[Place, int]
    ) -> list[tuple[str, str, int, float]]:
        begun = {
            place
            for group in groups.values()
            for place in group.places()
            if place in ends and place not in group.committed
        }
        starts = self._cluster.find(sorted(begun), first=True)
        out = []
        for group_id, group in groups.items():
            for place in group.places():
                start = group.committed.get(place, starts.get(place))
                if place in ends and start is not None:
                    out.append((group_id, *place, float(max(ends[place] - start, 0))))
        return out

    def _find_rates(self, ends: Mapping[Place, int]) -> dict[Place, float]:
        now = self._clock()
        passed = now - self._seen_at
        rates = {
            place: max(end - self._seen[place], 0) / passed
            for place, end in ends.items()
            if place in self._seen and passed > 0
        }
        self._seen, self._seen_at = dict(ends), now
        return rates

    def _find_byte_rates(
        self, sizes: RecordSizes, ends: Mapping[Place, int], rates: Mapping[Place, float]
    ) -> dict[Place, float]:
        """Return bytes a second; a partition that was not read yet has records as its topic has."""
        known = {place: size for place, size in self._record_bytes.items() if place in ends}
        for place, size in sizes.measure(choose_places(ends, rates, known)).items():
            known[place] = (known.pop(place, size) + size) / 2
        self._record_bytes = known
        by_topic: defaultdict[str, list[float]] = defaultdict(list)
        for (topic, _), size in known.items():
            by_topic[topic].append(size)
        usual = {topic: median(some) for topic, some in by_topic.items()}
        found = {}
        for place, rate in rates.items():
            size_of_record = known.get(place, usual.get(place[0]))
            if rate == 0 or size_of_record is not None:
                found[place] = rate * (size_of_record or 0.0)
        return found


def open_weights(
    source: WeightSource | str | os.PathLike[str] | None, config: WeightsConfig
) -> WeightSource | KafkaWeights | None:
    """Return what reads weights: a cluster, or what `open_weight_source` opens.

    Raises
    ------
    ConfigError
        The source is unknown, or the extra `kafka` is not installed.
    """
    if not isinstance(source, str) or not source.startswith(KAFKA):
        return open_weight_source(source)
    settings = {"bootstrap.servers": source.removeprefix(KAFKA), **config.kafka}
    sizes = KafkaRecordSizes(settings) if config.measure == BYTE_RATE else None
    return KafkaWeights(KafkaOffsets(settings), config.measure, sizes=sizes)
