"""A member can confirm and commit whatever it is given: limits of requests follow the topics."""

from __future__ import annotations

import logging

import pytest

from coordinator.core.state.groups import Topic, TopicView
from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.wire.call import (
    ELEMENTS_MOST,
    REQUEST_BYTES_LEAST,
    REQUEST_BYTES_MOST,
    RequestRoom,
    to_uuid,
)
from coordinator.wire.codec import Api, decode_body
from coordinator.wire.connection import Connection
from coordinator.wire.decoder import WireError
from tests.support.wire_client import Client, read_response, request_frame, take_frame
from tests.wire.test_server import count, served

HEARTBEAT = Api.CONSUMER_GROUP_HEARTBEAT
METADATA = "x" * 60
"""As long as what Kafka Streams commits beside its offsets."""


def view_of(topics):
    return TopicView.of(
        {name: Topic.of(name, topic_id_of(name), n, ()) for name, n in topics.items()}
    )


def confirming(topics, **fields):
    owned = [
        {"topic_id": to_uuid(topic_id_of(name)), "partitions": list(range(count))}
        for name, count in topics.items()
    ]
    return {"group_id": "g", "member_id": "m", "topic_partitions": owned, **fields}


def committing(topics):
    written = [
        {
            "name": name,
            "partitions": [
                {"partition_index": p, "committed_offset": p, "committed_metadata": METADATA}
                for p in range(count)
            ],
        }
        for name, count in topics.items()
    ]
    said = {"group_id": "g", "member_id": "m", "generation_id_or_member_epoch": 1}
    return {**said, "topics": written}


def joining(topics):
    """A subscription with what is owned, as two assignors of the classic protocol have it."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    owned = b"".join(
        len(name).to_bytes(2, "big") + name.encode() + bytes(4 + 4 * count)
        for name, count in topics.items()
    )
    protocols = [{"name": name, "metadata": names + 2 * owned} for name in ("one", "two")]
    said = {"group_id": "g", "member_id": "m", "session_timeout": 1_000, "rebalance_timeout": 1_000}
    return {**said, "protocol_type": "consumer", "protocols": protocols}


SHAPES = {
    "many topics": {f"topic-{n:06}": 1 for n in range(3_000)},
    "short names": {f"{n:04}": 1 for n in range(3_000)},
    "long names": {f"{n:04}{'y' * 200}": 2 for n in range(500)},
    "many partitions": {"a": 20_000, "b": 1},
}


@pytest.mark.parametrize("topics", SHAPES.values(), ids=SHAPES)
def test_there_is_room_for_a_member_that_is_given_everything(topics):
    room = RequestRoom.of(view_of(topics))
    frames = {
        "heartbeat": request_frame(HEARTBEAT, 1, **confirming(topics, member_epoch=1)),
        "commit": request_frame(Api.OFFSET_COMMIT, 8, **committing(topics)),
        "join": request_frame(Api.JOIN_GROUP, 5, **joining(topics)),
    }
    longest = {name: len(frame) for name, frame in frames.items()}
    assert max(longest.values()) <= room.size - REQUEST_BYTES_LEAST, longest
    assert room.elements >= len(topics) + sum(topics.values())


def test_the_room_is_bounded_however_many_topics_there_are():
    topics = {f"{n:03}{'y' * 200}": 10_000 for n in range(200)}
    assert RequestRoom.of(view_of(topics)) == (REQUEST_BYTES_MOST, ELEMENTS_MOST)
    assert RequestRoom.of(view_of({})) == (REQUEST_BYTES_LEAST, 100_000)


def test_a_member_confirms_more_than_a_mebibyte():
    topics = {"a": 300_000}
    with served(topics=topics) as (coordinator, address), Client(address) as client:
        epoch = client.join("g", "m", "a").member_epoch
        frame = request_frame(HEARTBEAT, 1, **confirming(topics, member_epoch=epoch))
        assert len(frame) > REQUEST_BYTES_LEAST
        client.socket.sendall(frame)
        _, answer = read_response(take_frame(client.socket), HEARTBEAT, 1)
        assert (int(answer.error_code), answer.member_epoch) == (0, epoch)
        assert count(coordinator, "wire_closed_total", reason="refused") == 0


def test_a_commit_of_all_partitions_is_read():
    topics = {f"topic-{n}": 10 for n in range(100)}
    frame = request_frame(Api.OFFSET_COMMIT, 8, **committing(topics))
    least = Connection("/h", 1_000, 10, elements_max=100)
    least.receive(frame)
    with pytest.raises(WireError, match=r"OFFSET_COMMIT of group 'g' has \d+ bytes, at most 1000 "):
        least.next_request()
    roomy = Connection("/h", 1_000, 10, elements_max=100, room=lambda: (len(frame), 1_100))
    roomy.receive(frame)
    request = roomy.next_request().request
    decode_body(request)
    assert len(request.body.topics) == len(topics)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"request_bytes_max": 10_000}, "at most 10000 are allowed (server.request_bytes_max)"),
        ({"elements_max": 100}, "more elements than are allowed (server.elements_max)"),
    ],
)
def test_a_limit_that_was_set_holds_and_the_log_says_whom_it_refuses(limit, why, caplog):
    topics = {f"topic-{n:06}": 1 for n in range(1_000)}
    with served(topics=topics, **limit) as (coordinator, address), Client(address) as client:
        frame = request_frame(HEARTBEAT, 1, **confirming(topics, member_epoch=1))
        with caplog.at_level(logging.WARNING, "muster.wire"):
            client.socket.sendall(frame)
            assert client.is_closed()
        assert count(coordinator, "wire_closed_total", reason="refused") == 1
    assert "a request CONSUMER_GROUP_HEARTBEAT of group 'g' has" in caplog.text
    assert why in caplog.text


def test_a_commit_of_very_many_offsets_is_answered_for_each():
    topics = {"a": 9_000, "b": 1}
    with served(topics=topics) as (coordinator, address), Client(address) as client:
        nobody = {"member_id": "", "generation_id_or_member_epoch": -1}
        client.socket.sendall(request_frame(Api.OFFSET_COMMIT, 8, **committing(topics) | nobody))
        _, answer = read_response(take_frame(client.socket), Api.OFFSET_COMMIT, 8)
        codes = {t.name: [int(p.error_code) for p in t.partitions] for t in answer.topics}
        assert codes == {"a": [0] * 9_000, "b": [0]}
        found = coordinator.offset_fetch(group_id="g")["topics"]
        assert {name: len(partitions) for name, partitions in found.items()} == topics
