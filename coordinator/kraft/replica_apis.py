"""What followers, and readers of the topic of groups, ask its leader: Fetch, ListOffsets, epochs.

A fetch that finds nothing waits until something comes: an append of any partition, or a new high
watermark, wakes it. No sessions are kept; followers then send all their partitions each time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from coordinator.core.events import Answer, Result
from coordinator.kraft.leading import MARK_MAX
from coordinator.kraft.led_partition import LedPartition
from coordinator.kraft.partition_log import NO_EPOCH
from coordinator.kraft.registration import TOPIC
from coordinator.wire.call import Call, Cluster, respond_with
from coordinator.wire.codec import Api, Request, Values

BY_ID_SINCE = 13
"""The version of Fetch from which topics have ids and no names."""
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
CONSUMER, READ_COMMITTED = -1, 1
MILLISECOND = timedelta(milliseconds=1)
NO_ID = UUID(int=0)
FETCH_BYTES_MAX = 55 << 20
"""As Kafka's `fetch.max.bytes`: of one answer, also where its client takes more."""
WAIT_S_MAX = 300.0


class Leaders(NamedTuple):
    """What is known of the topic of groups when a request comes.

    Attributes
    ----------
    led
        By number, the partitions that this node leads.
    known
        By number, leaders and epochs of all partitions.
    """

    topic_id: UUID
    led: Mapping[int, LedPartition]
    known: Mapping[int, tuple[int, int]]


class ReplicaApis:
    """Answers what replicas and readers ask.

    Parameters
    ----------
    leaders
        Asked for what is known now; None before the topic is.
    """

    def __init__(self, leaders: Callable[[], Leaders | None]) -> None:
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[WaitingFetch, None] = {}
        self._lock = threading.Lock()
        self._wakes = False

    def handlers(self) -> Mapping[Api, Callable[[Request, Cluster], Call]]:
        """Return what answers each API."""
        return {
            Api.FETCH: lambda request, _: self.fetch(request),
            Api.LIST_OFFSETS: lambda request, _: self.list_offsets(request),
            Api.OFFSET_FOR_LEADER_EPOCH: lambda request, _: self.find_epochs(request),
        }

    # Fetch ---------------------------------------------------------------------------------------

    def fetch(self, request: Request) -> Call:
        """Answer a fetch: at once, or as soon as there is something."""
        fetch = WaitingFetch(request.body, request.version, self._leaders)
        fetch.note()
        values = fetch.collect(is_over=fetch.wait_s <= 0)
        if values is not None:
            return respond_with(values)
        self._loop.call_soon_threadsafe(self._hold, fetch)
        return Call(first_response, later=lambda: fetch.future)

    def _hold(self, fetch: WaitingFetch) -> None:
        """Keep a fetch until something comes, or its time is over."""
        self._waiting[fetch] = None
        fetch.timer = self._loop.call_later(fetch.wait_s, lambda: self._try(fetch, is_over=True))
        self._try(fetch)

    def _try(self, fetch: WaitingFetch, *, is_over: bool = False) -> None:
        values = None if fetch.future.done() else fetch.collect(is_over=is_over)
        if values is None and not fetch.future.done():
            return
        self._waiting.pop(fetch, None)
        if fetch.timer is not None:
            fetch.timer.cancel()
        if values is not None:
            fetch.future.set_result(Result(response=values))

    def wake(self) -> None:
        """Look again at the fetches that wait; any thread may say so."""
        with self._lock:
            if self._wakes:
                return
            self._wakes = True
        try:
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # the server ends
            return

    def _look(self) -> None:
        with self._lock:
            self._wakes = False
        for fetch in list(self._waiting):
            self._try(fetch)

    # The rest ------------------------------------------------------------------------------------

    def list_offsets(self, request: Request) -> Call:
        """Say where partitions begin and end; offsets are not found by their times."""
        body, leaders = request.body, self._leaders()

        def find(name: str, one: Any) -> Values:  # noqa: ANN401 - kio's
            led, error = _find(leaders, one.partition_index, is_ours=name == TOPIC)
            known = one.timestamp in {LATEST, EARLIEST, EARLIEST_LOCAL}
            if led is None:
                return {"error_code": error}
            if not known:
                return {"error_code": ErrorCode.unsupported_version}
            code, offset = led.find_offset(
                getattr(one, "current_leader_epoch", NO_EPOCH),
                last=one.timestamp == LATEST,
                replica=body.replica_id >= 0,
                committed=_reads_committed(body),
            )
            if code:
                return {"error_code": ErrorCode(code)}
            return {"error_code": ErrorCode.none, "offset": offset, "leader_epoch": led.epoch}

        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, **find(topic.name, one)}
                    for one in topic.partitions
                ],
            }
            for topic in body.topics
        ]
        return respond_with({"topics": topics})

    def find_epochs(self, request: Request) -> Call:
        """Say where epochs of leaders end."""
        leaders = self._leaders()

        def find(name: str, one: Any) -> Values:  # noqa: ANN401 - kio's
            led, error = _find(leaders, one.partition, is_ours=name == TOPIC)
            if led is None:
                return {"error_code": error}
            code, end = led.find_end(
                getattr(one, "current_leader_epoch", NO_EPOCH), one.leader_epoch
            )
            if code:
                return {"error_code": ErrorCode(code)}
            return {
                "error_code": ErrorCode.none,
                "leader_epoch": end.epoch,
                "end_offset": end.end_offset,
            }

        topics = [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition": one.partition, **find(topic.topic, one)}
                    for one in topic.partitions
                ],
            }
            for topic in request.body.topics
        ]
        return respond_with({"topics": topics})


class WaitingFetch:
    """A fetch, until it is answered.

    Attributes
    ----------
    wait_s
        How long it waits for something at most.
    """

    def __init__(
        self,
        body: Any,  # noqa: ANN401 - kio's message
        version: int,
        leaders: Callable[[], Leaders | None],
    ) -> None:
        self._body, self._version, self._leaders = body, version, leaders
        state = getattr(body, "replica_state", None)
        self._node_id = int(state.replica_id if state is not None else body.replica_id)
        self._broker_epoch = int(state.replica_epoch) if state is not None else -1
        named = any(topic.partitions for topic in body.topics)
        self.wait_s = min(body.max_wait / MILLISECOND / 1000, WAIT_S_MAX) if named else 0.0
        self._bytes_max = min(body.max_bytes, FETCH_BYTES_MAX)
        self._bytes_least = max(1, min(body.min_bytes, self._bytes_max))
        self.future: Future[Answer] = Future()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def _is_replica(self) -> bool:
        return self._node_id != CONSUMER

    def note(self) -> None:
        """Note what the follower has, by where it fetches from."""
        if not self._is_replica:
            return
        for _, one, led in self._partitions():
            if led is None:
                continue
            led.note_fetch(
                self._node_id,
                self._broker_epoch,
                one.fetch_offset,
                one.current_leader_epoch,
                getattr(one, "last_fetched_epoch", NO_EPOCH),
            )

    def collect(self, *, is_over: bool) -> Values | None:
        """Return the answer; None where there is nothing yet, and time is left."""
        leaders = self._leaders()
        left, is_ready, size = self._bytes_max, is_over, 0
        topics: list[Values] = []
        for topic in self._body.topics:
            parts: list[Values] = []
            for one in topic.partitions:
                values, has_news = self._answer(leaders, topic, one, left)
                taken = len(values.get("records") or b"")  # type: ignore[arg-type]
                size, left = size + taken, max(0, left - taken)
                is_ready |= has_news
                parts.append(values)
            topics.append(
                {
                    "topic": getattr(topic, "topic", ""),
                    "topic_id": getattr(topic, "topic_id", None),
                    "partitions": parts,
                }
            )
        if not is_ready and size < self._bytes_least:
            return None
        if self._is_replica:
            for _, _, led in self._partitions():
                if led is not None:
                    led.note_answer(self._node_id)
        return {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}

    def _answer(
        self,
        leaders: Leaders | None,
        topic: Any,  # noqa: ANN401 - kio's
        one: Any,  # noqa: ANN401 - kio's
        left: int,
    ) -> tuple[Values, bool]:
        """Return the answer for a partition, and whether it is one that need not wait."""
        led, error = _find(leaders, one.partition, is_ours=self._is_ours(leaders, topic))
        nothing: dict[str, object] = {
            "partition_index": one.partition,
            "error_code": error,
            "high_watermark": -1,
            "last_stable_offset": -1,
            "aborted_transactions": None,
            "records": b"",
        }
        if led is None:
            known = leaders.known.get(one.partition) if leaders else None
            if known is not None and error == ErrorCode.not_leader_or_follower:
                nothing |= {"current_leader": {"leader_id": known[0], "leader_epoch": known[1]}}
            return nothing, True
        last_epoch = getattr(one, "last_fetched_epoch", NO_EPOCH)
        epoch = getattr(one, "current_leader_epoch", NO_EPOCH)
        most = min(one.partition_max_bytes, left) if left else 0
        got = led.fetch(
            one.fetch_offset, epoch, last_epoch, most,
            replica=self._is_replica, committed=_reads_committed(self._body),
        )  # fmt: skip
        found, mark = got.found, got.high_watermark
        if found.error:
            return nothing | {"error_code": ErrorCode(found.error)}, True
        values = nothing | {
            "error_code": ErrorCode.none,
            "high_watermark": mark,
            "last_stable_offset": got.stable_end,
            "log_start_offset": got.start,
            "aborted_transactions": got.aborted,
        }
        if found.diverging is not None:
            return values | {"diverging_epoch": found.diverging._asdict()}, True
        known_mark = getattr(one, "high_watermark", MARK_MAX)
        has_news = known_mark < mark and self._is_replica
        return values | {"records": got.data if left else b""}, has_news

    def _partitions(self) -> Iterator[tuple[Any, Any, LedPartition | None]]:
        leaders = self._leaders()
        for topic in self._body.topics:
            for one in topic.partitions:
                yield (
                    topic,
                    one,
                    _find(leaders, one.partition, is_ours=self._is_ours(leaders, topic))[0],
                )

    def _is_ours(self, leaders: Leaders | None, topic: Any) -> bool:  # noqa: ANN401 - kio's
        if self._version < BY_ID_SINCE:
            return bool(topic.topic == TOPIC)
        return leaders is not None and (topic.topic_id or NO_ID) == leaders.topic_id


def _reads_committed(body: Any) -> bool:  # noqa: ANN401 - kio's message
    return int(getattr(body, "isolation_level", 0)) == READ_COMMITTED


def _find(
    leaders: Leaders | None,
    number: int,
    *,
    is_ours: bool,
) -> tuple[LedPartition | None, ErrorCode]:
    """Return a partition that is led here; else why not."""
    if leaders is None or not is_ours:
        return None, ErrorCode.unknown_topic_id if not is_ours else ErrorCode.not_leader_or_follower
    if number not in leaders.known:
        return None, ErrorCode.unknown_topic_or_partition
    led = leaders.led.get(number)
    if led is None or led.has_ended:
        return None, ErrorCode.not_leader_or_follower
    return led, ErrorCode.none


def first_response(answers: Any) -> Values:  # noqa: ANN401 - of another server
    """Return the fields that the one answer to a call has."""
    values: Values = answers[0].response
    return values
