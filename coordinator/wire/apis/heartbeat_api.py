"""ConsumerGroupHeartbeat as an event, and its answer as a response.

A conversation remembers of each member what the last answer in it brought, because clients are not
always where their requests say they are (`wire/quirks.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from kio.schema.errors import ErrorCode as Code
from numpy.typing import NDArray

from coordinator.core.events import JOIN, Answer, Heartbeat, HeartbeatResponse, needs_member_id
from coordinator.core.state.partition_spans import (
    Spans,
    count_partitions,
    has_topics_once,
    partitions_by,
)
from coordinator.core.state.span_columns import SpanColumns, TopicKeys
from coordinator.errors import GroupError
from coordinator.wire import quirks
from coordinator.wire.call import Call, Cluster, from_uuid, list_uuids, to_uuid, visible_to
from coordinator.wire.codec import EncodedList, Request, Values

MILLISECOND = timedelta(milliseconds=1)
MANY = 1_000
"""Spans that are worth columns."""
ONE_PARTITION = 2
"""A list of one, in its compact form."""
SINGLE = np.dtype([("topic_id", "V16"), ("count", "u1"), ("partition", ">i4"), ("tags", "u1")])
"""A topic of an assignment with one partition, as bytes."""


def heartbeat(request: Request, cluster: Cluster) -> Call:
    """ConsumerGroupHeartbeat."""
    body, conversation = request.body, request.conversation
    event = conversation.event_of(body)
    if not isinstance(event, Heartbeat):
        event = _read_heartbeat(request, cluster)
        if body.member_id:  # without one, a member gets a new one each time
            conversation.note_event(body, event)
    if event.member_epoch > JOIN:
        brought = conversation.has_brought(event.group_id, event.member_id)
        event = quirks.read_in_conversation(event, brought)
    return Call(lambda answers: _response_fields(answers[0]), (event,))


def _read_heartbeat(request: Request, cluster: Cluster) -> Heartbeat:
    asked = request.body
    member_id = asked.member_id
    if needs_member_id(request.version, asked.member_epoch, member_id):
        member_id = str(uuid.uuid4())
    return Heartbeat(
        group_id=asked.group_id,
        member_id=member_id,
        member_epoch=asked.member_epoch,
        instance_id=asked.instance_id,
        rack_id=asked.rack_id,
        rebalance_timeout_ms=asked.rebalance_timeout // MILLISECOND,
        subscribed_topic_names=asked.subscribed_topic_names,
        subscribed_topic_regex=getattr(asked, "subscribed_topic_regex", None),
        server_assignor=asked.server_assignor,
        topic_partitions=_read_owned(asked.topic_partitions),
        client_id=request.client_id,
        client_host=request.client_host,
        by_topic_id=True,
        client_software=request.session.named_software,
        find_visible=visible_to(request.session, cluster),
    )


def _read_owned(topics: Sequence[Any] | None) -> Mapping[str, Sequence[int]] | None:
    if topics is None:
        return None
    owned: dict[str, list[int]] = {}
    for topic in topics:
        known = [partition for partition in topic.partitions if partition >= 0]  # none is below 0
        owned.setdefault(from_uuid(topic.topic_id), []).extend(known)
    return owned


def _response_fields(answer: Answer) -> Values:
    if isinstance(answer, GroupError):
        return {
            "error_code": answer.code,
            "error_message": answer.message,
            "member_epoch": 0,
            "heartbeat_interval": 0,
        }
    response = answer.response
    assert isinstance(response, HeartbeatResponse)
    return {
        "error_code": Code.none,
        "member_id": response.member_id,
        "member_epoch": response.member_epoch,
        "heartbeat_interval": response.heartbeat_interval_ms,
        "assignment": None
        if response.assignment is None
        else assignment_fields(response.assignment),
    }


def assignment_fields(spans: Spans, many: int = MANY) -> Values:
    """Return an assignment; of so many spans by columns, where each is a topic's one partition."""
    if len(spans) >= many and count_partitions(spans) == len(spans) and has_topics_once(spans):
        columns = SpanColumns.of(spans)
        assert columns is not None, "these are assigned"
        return {"topic_partitions": _encode_singles(columns)}
    return {
        "topic_partitions": [
            {"topic_id": to_uuid(key.topic_id), "partitions": partitions}
            for key, partitions in partitions_by(lambda key: key, spans).items()
        ]
    }


def _encode_singles(spans: SpanColumns) -> EncodedList:
    """Write very many topics with one partition each, by columns."""
    rows = np.zeros(len(spans), SINGLE)
    rows["topic_id"] = _list_ids(spans.topics)[spans.topic]
    rows["count"] = ONE_PARTITION
    rows["partition"] = spans.first
    return EncodedList(len(rows), bytearray(rows.tobytes()))


@lru_cache(maxsize=8)
def _list_ids(topics: TopicKeys) -> NDArray[np.void]:
    """Return the id of each topic; members of a group are assigned those of the same, mostly."""
    return list_uuids([key.topic_id for key in topics.keys])
