"""One client's conversation: whole requests from pieces, answers in order, everything bounded."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.wire.codec import CLASSIC_VERSIONS, Api, encode
from coordinator.wire.connection import Connection
from coordinator.wire.decoder import WireError
from tests.support.wire_client import read_response, request_frame

MOST, IN_FLIGHT = 1_000, 4


def connection(**more):
    return Connection("/h", MOST, IN_FLIGHT, **more)


def listing(number):
    return request_frame(Api.LIST_GROUPS, 4, number, states_filter=["x" * number])


def beat(number, epoch=5, version=1, client_id="test"):
    return request_frame(
        Api.CONSUMER_GROUP_HEARTBEAT, version, number, client_id, group_id="g", member_id="m",
        member_epoch=epoch, topic_partitions=None,
    )  # fmt: skip


def answer(pending):
    if pending.request.api is Api.LIST_GROUPS:
        pending.frame = encode(pending.request, {"error_code": 0, "groups": ()})
    else:
        words = {"error_code": 0, "member_epoch": 1, "heartbeat_interval": 1}
        pending.frame = encode(pending.request, words)


def sent(side):
    """Return the correlation ids of what may be sent, in order."""
    data, found = side.take_answers(), []
    while data:
        (length,) = struct.unpack_from(">i", data)
        found.append(struct.unpack_from(">i", data, 4)[0])
        data = data[4 + length :]
    return found


@pytest.mark.behaviour("W-83")
@given(st.lists(st.integers(1, 300), max_size=12), st.integers(0, 3), st.randoms())
def test_answers_leave_in_request_order(numbers, answer_first, rng):
    """What is sent is what is received, and every answer leaves in the order of the requests."""
    side = connection()
    stream = b"".join(listing(n) if n % 3 else beat(n) for n in numbers)
    received, came, waiting = [], [], []
    while len(came) < len(numbers):
        size = rng.randrange(1, 80)
        piece, stream = stream[:size], stream[size:]
        side.receive(piece)
        while (pending := side.next_request()) is not None:
            received.append(pending.request.correlation_id)
            waiting.append(pending)
        if waiting and (side.full or not stream or rng.randrange(3) < answer_first):
            answer(waiting.pop(rng.randrange(len(waiting))))
        came += sent(side)
        assert len(received) - len(came) <= IN_FLIGHT
    assert received == came == numbers
    assert side.buffered_bytes == 0


def test_requests_in_flight_are_bounded():
    side = connection()
    side.receive(b"".join(map(listing, range(1, 8))))
    pending = [side.next_request() for _ in range(IN_FLIGHT)]
    assert side.next_request() is None
    assert side.full
    assert side.buffered_bytes > 0
    answer(pending[1])
    assert sent(side) == []
    assert side.next_request() is None
    answer(pending[0])
    assert sent(side) == [1, 2]
    assert side.next_request().request.correlation_id == 5


@pytest.mark.parametrize("length", [MOST + 1, 2**31 - 1, -1, -(2**31)])
def test_a_request_too_large_is_refused_before_it_comes(length):
    side = connection()
    side.receive(struct.pack(">i", length))
    why = "at most 1000 are allowed" if length > 0 else f"a request of {length} bytes"
    with pytest.raises(WireError, match=why):
        side.next_request()


def test_a_request_as_large_as_allowed_is_taken():
    side = connection()
    frame = request_frame(Api.LIST_GROUPS, 4, 1, states_filter=["x" * (MOST - 19)])
    assert len(frame) - 4 == MOST
    side.receive(frame[:-1])
    assert side.next_request() is None
    assert side.buffered_bytes == MOST + 3
    side.receive(frame[-1:])
    assert side.next_request().request.body.states_filter == ("x" * (MOST - 19),)


def test_requests_before_garbage_are_answered():
    side = connection()
    side.receive(listing(1) + struct.pack(">ihhi", 8, 99, 0, 2))
    first = side.next_request()
    with pytest.raises(WireError, match="API 99 is not served"):
        side.next_request()
    answer(first)
    assert sent(side) == [1]


def test_only_equal_heartbeats_share_a_decoded_body():
    side = connection()
    frames = [
        beat(1), beat(2), beat(3, epoch=6), beat(4, version=0), beat(5), beat(6, client_id="tesu"),
        listing(7), beat(8, client_id="tesu"),
    ]  # fmt: skip
    found = []
    for frame in frames:
        side.receive(frame)
        pending = side.next_request()
        answer(pending)
        side.take_answers()
        found.append(pending.request)
    assert found[1].body is found[0].body
    assert found[7].body is found[5].body
    epochs = [r.body.member_epoch for r in found if r.api is Api.CONSUMER_GROUP_HEARTBEAT]
    assert epochs == [5, 5, 6, 5, 5, 5, 5]
    assert [r.version for r in found] == [1, 1, 1, 0, 1, 1, 4, 1]
    assert [r.client_id for r in found][4:6] == ["test", "tesu"]
    assert [r.correlation_id for r in found] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_answers_are_kio_s():
    side = connection()
    side.receive(listing(1))
    pending = side.next_request()
    pending.frame = encode(pending.request, {"error_code": 16, "groups": ()})
    assert int(read_response(side.take_answers(), Api.LIST_GROUPS, 4)[1].error_code) == 16


def test_a_request_is_known_to_be_brief_before_it_is_read():
    for frame, brief in ((beat(1), True), (listing(2), False)):
        side = connection()
        for piece in (frame[:3], frame[3:-1]):
            side.receive(piece)
            assert side.is_next_brief, "there is none yet"
        side.receive(frame[-1:])
        assert side.is_next_brief is brief
    for number in range(IN_FLIGHT):
        side.receive(listing(number))
        assert side.next_request()
    assert side.is_next_brief, "there is no room for more"


def test_a_classic_heartbeat_that_is_said_again_is_not_decoded_again():
    side = connection(versions=CLASSIC_VERSIONS)
    words = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    side.receive(request_frame(Api.HEARTBEAT, 4, 1, **words))
    side.receive(request_frame(Api.HEARTBEAT, 4, 2, **words))
    side.receive(request_frame(Api.HEARTBEAT, 4, 3, **words | {"generation_id": 2}))
    first, again, other = (side.next_request().request for _ in range(3))
    assert (again.body is first.body, again.correlation_id) == (True, 2)
    assert other.body.generation_id == 2
