"""Weights from a Kafka cluster: how far groups are behind, or how fast their topics grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from coordinator.config import WeightsConfig
from coordinator.runtime.plan_tasks.weight_source import (
    WeightSource,
    WeightTables,
    open_weight_source,
)
from coordinator.runtime.topic_catalog import KAFKA, connect_admin

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
_GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


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
        self._admin = connect_admin(settings, "weights")
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
        try:
            answers = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
            for place, future in answers.items():
                offset = _offset_of(future, KafkaException)
                if offset is not None:
                    found[place.topic, place.partition] = offset
        except KafkaException as error:
            raise OSError(f"the Kafka cluster does not answer: {error}") from error
        return found


def _offset_of(future: Any, failure: type[Exception]) -> int | None:  # noqa: ANN401 - no types
    try:
        return int(future.result().offset)
    except failure as error:
        if error.args[0].name() in _GONE:
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
        "rate": records that came a second since the last look.
    clock
        Seconds that never go back.
    """

    def __init__(
        self, cluster: ClusterOffsets, measure: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._measure, self._clock = cluster, measure, clock
        self._seen: dict[Place, int] = {}
        self._seen_at = 0.0

    def read(self, groups: Mapping[str, GroupPosition]) -> WeightTables:
        """Return the weights of groups; a partition that is not there has none.

        Raises
        ------
        OSError
            The cluster does not answer.
        """
        places = {place for group in groups.values() for place in group.places()}
        ends = self._cluster.find(sorted(places), first=False)
        if self._measure == "rate":
            rates = self._find_rates(ends)
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


def open_weights(
    source: WeightSource | str | os.PathLike[str] | None, config: WeightsConfig
) -> WeightSource | KafkaWeights | None:
    """Return what reads weights: a cluster, or what `open_weight_source` opens.

    Raises
    ------
    ConfigError
        There is no such source, or the extra `kafka` is not installed.
    """
    if not isinstance(source, str) or not source.startswith(KAFKA):
        return open_weight_source(source)
    settings = {"bootstrap.servers": source.removeprefix(KAFKA), **config.kafka}
    return KafkaWeights(KafkaOffsets(settings), config.measure)
