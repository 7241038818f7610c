"""ListOffsets of a Kafka cluster, for who asks it of Muster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from coordinator.clock import monotonic_ms
from coordinator.core.events import Answer, Result
from coordinator.runtime.futures import begin, set_answer
from coordinator.runtime.kafka.cluster import KafkaCluster

PLACES_A_REQUEST = 1_000
"""Partitions whose offsets are asked for at once; nothing else runs while they are handed over."""
NOT_AVAILABLE: Mapping[str, object] = MappingProxyType({"error_code": 5})
"""LEADER_NOT_AVAILABLE, after which every client asks again: the cluster has not answered."""
UNKNOWN_TOPIC_OR_PARTITION = 3
GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
"""What a cluster, or librdkafka itself, says of a topic or partition that is not there."""
READ_COMMITTED = 1
"""As an isolation level."""
WARN_AGAIN_MS = 60_000
T = TypeVar("T")
logger = logging.getLogger("muster.coordinator")


class OffsetRequests:
    """Asks a cluster for offsets, in a thread of its own that waits for nothing."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._asker = ThreadPoolExecutor(1, "muster-kafka")
        self._warned_ms = -WARN_AGAIN_MS

    def find(
        self, times: Mapping[tuple[str, int], int], isolation_level: int, timeout_s: float
    ) -> Future[Answer]:
        """Ask the cluster for offsets by their times, without waiting (ListOffsets).

        Parameters
        ----------
        times
            The timestamp of each topic and partition; below 0 a place, as in the request.
        isolation_level
            1, if the end is that of committed transactions.
        timeout_s
            When the answer must be there: for each partition an offset, or why it is missing.
        """
        found: Future[Answer] = Future()
        begin(found)
        until_ms = monotonic_ms() + int(timeout_s * 1000)

        def ask() -> None:
            futures: dict[tuple[str, int], Future[Any]]
            try:
                futures = self._ask_offsets(times, isolation_level, until_ms)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                failed: Future[Any] = Future()
                failed.set_exception(error)
                futures = dict.fromkeys(times, failed)
            _gather(futures, lambda answers: set_answer(found, self._offset_fields(answers)))

        self._asker.submit(ask)
        return found

    def _ask_offsets(
        self, times: Mapping[tuple[str, int], int], isolation_level: int, until_ms: int
    ) -> dict[tuple[str, int], Future[Any]]:
        """Ask for offsets, in a thread of its own: of many, to ask alone takes seconds."""
        from confluent_kafka import IsolationLevel, TopicPartition, admin  # noqa: PLC0415

        kinds: Any = admin  # it has no types
        spec = kinds.OffsetSpec
        specs = {-1: spec.latest(), -2: spec.earliest(), -3: spec.max_timestamp()}
        levels = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        level = levels[isolation_level == READ_COMMITTED]
        found: dict[tuple[str, int], Future[Any]] = {}
        left = iter(times.items())
        while some := list(islice(left, PLACES_A_REQUEST)):
            asked = {
                TopicPartition(*place): specs.get(time) or spec.for_timestamp(time)
                for place, time in some
            }
            left_s = max(until_ms - monotonic_ms(), 1) / 1000
            with self._cluster.asked() as admin_client:
                answers = admin_client.list_offsets(
                    asked, isolation_level=level, request_timeout=left_s
                )
            found |= {(place.topic, place.partition): future for place, future in answers.items()}
        return found

    def _offset_fields(self, answers: Mapping[tuple[str, int], Future[Any]]) -> Result:
        """Return the cluster's answer, in the fields of ListOffsets."""
        fields = {place: _fields_of(future) for place, future in answers.items()}
        silent = next(
            (future for place, future in answers.items() if fields[place] is NOT_AVAILABLE), None
        )
        if silent is not None and monotonic_ms() - self._warned_ms >= WARN_AGAIN_MS:
            self._warned_ms = monotonic_ms()
            logger.warning(
                "the Kafka cluster returns no offsets, so clients must ask again: %s",
                silent.exception(),
            )
        return Result(response=fields)


def _gather(
    futures: Mapping[T, Future[Any]], then: Callable[[Mapping[T, Future[Any]]], object]
) -> None:
    """Call once all futures are done, in the thread of the last."""
    lock, left = Lock(), len(futures)

    def done(_future: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            then(futures)

    for future in futures.values():
        future.add_done_callback(done)


def _fields_of(future: Future[Any]) -> Mapping[str, object]:
    """Return the offset of a partition, or the broker's error code."""
    error = future.exception()
    if error is None:
        found = future.result()
        epoch = -1 if found.leader_epoch is None else found.leader_epoch
        return {
            "error_code": 0,
            "offset": found.offset,
            "timestamp": found.timestamp,
            "leader_epoch": epoch,
        }
    kafka_error: Any = error.args[0] if error.args else None
    if not hasattr(kafka_error, "code"):
        return NOT_AVAILABLE
    code = UNKNOWN_TOPIC_OR_PARTITION if kafka_error.name() in GONE else kafka_error.code()
    return {"error_code": code} if code > 0 else NOT_AVAILABLE
