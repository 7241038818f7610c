"""How large the records of a Kafka cluster are: a few of the newest of each partition are read.

A consumer that joins no group reads them, so a login needs only to be allowed to read the topics.
Sizes on the brokers' disks would need a right to describe the whole cluster, which managed clusters
do not give, and they fall whenever old records are deleted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeAlias

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""

RECORDS = 16
"""Records of a partition that are read in one look."""
PARTITIONS_MAX = 200
"""Partitions that are read in one look; the others are read in later ones."""
_SETTINGS: Mapping[str, str | int | bool] = {
    "group.id": "muster-weights",  # the client demands one; without a commit it is never used
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # an open transaction holds up nothing
    "fetch.wait.max.ms": 100,
    "max.partition.fetch.bytes": 1 << 16,
    "queued.min.messages": RECORDS,
    "queued.max.messages.kbytes": 4096,
    "fetch.queue.backoff.ms": 50,
}


class RecordSizes(Protocol):
    """What is asked of a cluster for the sizes of its records."""

    def measure(self, ends: Mapping[Place, int]) -> dict[Place, float]:
        """Return the mean bytes of the records before these offsets; no place without records.

        Raises
        ------
        OSError
            The cluster does not give records out.
        """


class KafkaRecordSizes:
    """Reads a few records of partitions, through confluent-kafka (the extra `kafka`)."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float = 10.0) -> None:
        self._settings, self._timeout_s = settings, timeout_s

    def measure(self, ends: Mapping[Place, int]) -> dict[Place, float]:
        """See `RecordSizes`; keys and values count, as they are without compression."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415

        asked = [
            TopicPartition(*place, max(end - RECORDS, 0)) for place, end in ends.items() if end > 0
        ]
        if not asked:
            return {}
        try:
            consumer = Consumer({**self._settings, **_SETTINGS})
            try:
                consumer.assign(asked)
                return self._read(consumer, ends, {(one.topic, one.partition) for one in asked})
            finally:
                consumer.close()
        except KafkaException as error:
            raise OSError(f"the Kafka cluster does not answer: {error}") from error

    def _read(
        self,
        consumer: Any,  # noqa: ANN401 - no types
        ends: Mapping[Place, int],
        left: set[Place],
    ) -> dict[Place, float]:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        until = time.monotonic() + self._timeout_s
        found: defaultdict[Place, list[int]] = defaultdict(list)
        while left and (patience := until - time.monotonic()) > 0:
            for message in consumer.consume(RECORDS * 16, min(patience, 0.2)):
                place = message.topic(), message.partition()
                if _is_record(message):
                    found[place].append(len(message.key() or b"") + len(message.value() or b""))
                    if len(found[place]) < RECORDS and message.offset() < ends[place] - 1:
                        continue
                elif message.error().name() != "_PARTITION_EOF":
                    continue
                if place in left:
                    left.discard(place)
                    consumer.pause([TopicPartition(*place)])
        if not found and left:
            topic, partition = min(left)
            raise OSError(
                f"the Kafka cluster gave no record of topic {topic!r}, partition {partition}, "
                f"within {self._timeout_s:g} s"
            )
        return {place: sum(sizes) / len(sizes) for place, sizes in found.items()}


def _is_record(message: Any) -> bool:  # noqa: ANN401 - no types
    """Tell a record from an error; most errors pass, as members of no group need no coordinator."""
    error = message.error()
    if error is not None and error.name() == "TOPIC_AUTHORIZATION_FAILED":
        raise OSError(
            f"the Kafka cluster does not let this login read topic {message.topic()!r}: give it "
            "permission to read, or set weights.measure to 'rate'"
        )
    return error is None


def choose_places(
    ends: Mapping[Place, int], rates: Mapping[Place, float], seen: Collection[Place]
) -> dict[Place, int]:
    """Return which partitions to read, with their ends: those that grew, never read ones first.

    Parameters
    ----------
    ends, rates
        Next offsets, and records a second.
    seen
        Partitions that were read, the last ones last.
    """
    order = {place: at for at, place in enumerate(seen)}
    growing = sorted(place for place, rate in rates.items() if rate > 0)
    growing.sort(key=lambda place: order.get(place, -1))
    return {place: ends[place] for place in growing[:PARTITIONS_MAX]}
