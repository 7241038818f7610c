"""ListOffsets: where partitions begin and end, and which offset a time has.

Where topics are those of a Kafka cluster, that cluster is asked, and what it says is passed on. Of
other topics it is unknown where their partitions end: `END` stands for the end, beyond any
committed offset, so that no tool lowers an offset to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from coordinator.core.events import Answer, Result
from coordinator.wire import quirks
from coordinator.wire.call import Call, Cluster, Place, respond_with
from coordinator.wire.codec import VERSIONS, Api, Request, Values

END = 2**62
"""Stands for the end of a partition that has no known one. Offsets that are times in nanoseconds
are below it, and what tools add to it does not overflow."""
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
PLACES_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
"""What a negative timestamp means, and since which version."""
NEWER = VERSIONS[Api.LIST_OFFSETS][1] + 1
KNOWN = {LATEST: END, EARLIEST: 0, EARLIEST_LOCAL: 0}
"""Places that a partition has without a record."""
TIMEOUT = timedelta(seconds=10)
"""How long a cluster is waited for, unless the request says less."""
NOT_AVAILABLE_SINCE = 5
"""Clients know OFFSET_NOT_AVAILABLE."""


def list_offsets(request: Request, cluster: Cluster) -> Call:
    """Answer from the cluster that has the topics; where none has, without knowing an end."""
    asked = request.body
    places = [
        (topic.name, one.partition_index, one.timestamp)
        for topic in asked.topics
        for one in topic.partitions
    ]
    refused = _refuse(places, request.version, cluster)
    times = {
        (name, partition): timestamp
        for name, partition, timestamp in places
        if (name, partition) not in refused
    }
    if cluster.find_offsets is None or not times:
        found = {place: _find_place(timestamp) for place, timestamp in times.items()}
        return respond_with(_group_by_topic(refused | found))
    isolation_level = getattr(asked, "isolation_level", 0)
    patience = getattr(asked, "timeout", TIMEOUT)
    timeout_s = min(patience if patience > timedelta() else TIMEOUT, TIMEOUT).total_seconds()
    find = cluster.find_offsets

    def respond(answers: Sequence[Answer]) -> Values:
        (answer,) = answers
        assert isinstance(answer, Result)
        answered: Any = answer.response
        found = {place: _as_answer(fields, request.version) for place, fields in answered.items()}
        return _group_by_topic(refused | found)

    return Call(respond, later=lambda: find(times, isolation_level, timeout_s))


def _refuse(
    places: Sequence[tuple[str, int, int]], version: int, cluster: Cluster
) -> dict[Place, Values]:
    """Refuse what is asked for twice, does not exist, or is of later versions."""
    known = cluster.topics().by_name
    named = Counter((name, partition) for name, partition, _ in places)
    found: dict[Place, Values] = {}
    for name, partition, timestamp in places:
        if named[name, partition] > 1:
            code = ErrorCode.invalid_request
        elif not 0 <= partition < (known[name].partitions if name in known else 0):
            code = ErrorCode.unknown_topic_or_partition
        elif timestamp < 0 and version < PLACES_SINCE.get(timestamp, NEWER):
            code = ErrorCode.unsupported_version
        elif timestamp < MAX_TIMESTAMP and cluster.find_offsets is not None:
            code = quirks.UNASKABLE
        else:
            continue
        found[name, partition] = {"error_code": code}
    return found


def _find_place(timestamp: int) -> Values:
    """Return where a partition without records begins or ends; no cluster knows it."""
    if timestamp in KNOWN:
        return {"error_code": ErrorCode.none, "offset": KNOWN[timestamp], "leader_epoch": 0}
    return {"error_code": ErrorCode.none, "offset": -1, "timestamp": -1, "leader_epoch": -1}


def _as_answer(fields: Values, version: int) -> Values:
    """Return a cluster's answer, with a code that the client knows."""
    code = fields["error_code"]
    if code == ErrorCode.offset_not_available and version < NOT_AVAILABLE_SINCE:
        return {**fields, "error_code": ErrorCode.leader_not_available}
    return fields


def _group_by_topic(found: Mapping[Place, Values]) -> Values:
    """Return the response; as in Kafka, each topic and partition is answered once."""
    topics: dict[str, list[Values]] = {}
    for (name, partition), fields in found.items():
        topics.setdefault(name, []).append({"partition_index": partition, **fields})
    return {"topics": [{"name": name, "partitions": of_one} for name, of_one in topics.items()]}
