"""Messages are read as kio reads them, in every version; hostile bytes are refused cheaply."""

from __future__ import annotations

import contextlib
import io
import random
import struct
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from coordinator.core.events import HeartbeatResponse
from coordinator.core.state.partition_spans import TopicKey, make_id
from coordinator.wire import encoder
from coordinator.wire.apis.heartbeat_api import _response_fields, assignment_fields
from coordinator.wire.call import to_uuid
from coordinator.wire.codec import (
    CLASSIC_VERSIONS,
    VERSIONS,
    Api,
    Request,
    decode,
    decode_body,
    encode,
    encode_steady_classic_heartbeat,
    encode_steady_heartbeat,
)
from coordinator.wire.decoder import WireError
from tests.support.longer import EVERY
from tests.support.wire_client import read_response, request_frame

KNOWN = VERSIONS | CLASSIC_VERSIONS
NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values(field, kind, optional):
    """Return a strategy for one field of a message."""
    name = field.metadata.get("kafka_type")
    if is_dataclass(kind):
        return messages(kind)
    if name in NUMBERS:
        bits = NUMBERS[name] - 1
        made = st.integers(-(2**bits), 2**bits - 1)
    elif name in {"timedelta_i32", "timedelta_i64"}:
        return st.integers(-1, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms))
    else:
        made = {
            "uint16": st.integers(0, 2**16 - 1),
            "string": st.text(st.characters(codec="utf-8"), max_size=20) | st.just("é" * 200),
            "bytes": st.binary(max_size=20),
            "records": st.binary(max_size=20),
            "error_code": st.sampled_from(ErrorCode),
            "bool": st.booleans(),
            "uuid": st.none() | st.uuids(allow_nil=False),
            "datetime_i64": st.integers(0, 2**40).map(
                lambda ms: datetime.fromtimestamp(ms / 1000, UTC)
            ),
        }[name]
    return st.none() | made if optional else made


@cache
def messages(entity):
    """Return a strategy for one of kio's messages."""
    parts = {}
    for field in fields(entity):
        if "tag" in field.metadata:
            continue
        kinds = [kind for kind in get_args(field.type) or [field.type] if kind is not NoneType]
        optional = NoneType in get_args(field.type)
        kind = field.type if get_origin(field.type) is tuple else kinds[0]
        if get_origin(kind) is tuple:
            made = st.lists(values(field, get_args(kind)[0], optional=False), max_size=3).map(tuple)
            parts[field.name] = st.none() | made if optional else made
        else:
            parts[field.name] = values(field, kind, optional)
    return st.builds(entity, **parts)


def written(message):
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


@pytest.mark.parametrize("api", KNOWN)
@settings(max_examples=50 if EVERY else 20)
@given(st.data())
def test_a_request_is_read_as_kio_reads_it(api, data):
    least, most = KNOWN[api]
    version = data.draw(st.integers(least, most))
    kind = load_request_schema(api, version)
    message = data.draw(messages(kind))
    body = written(message)
    assert entity_reader(kind)(body, 0)[0] == message
    head = struct.pack(">hhi", api, version, 7) + struct.pack(">h", 2) + "é".encode()
    if kind.__flexible__:
        head += b"\0"
    found = decode(head + body, versions=KNOWN)
    assert (found.api, found.version, found.correlation_id) == (api, version, 7)
    assert found.client_id == "é"
    assert found.body == message


def plain(message):
    """Return a message as its fields by name, without its tags: we send none."""
    found = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if "tag" in field.metadata:
            continue
        if is_dataclass(value):
            value = plain(value)
        elif isinstance(value, tuple):
            value = [plain(one) if is_dataclass(one) else one for one in value]
        elif isinstance(value, timedelta):
            value = value // timedelta(milliseconds=1)
        found[field.name] = value
    return found


@pytest.mark.parametrize("api", KNOWN)
@settings(max_examples=50 if EVERY else 20)
@given(st.data())
def test_a_response_is_written_as_kio_writes_it(api, data):
    least, most = KNOWN[api]
    version = data.draw(st.integers(least, most))
    message = data.draw(messages(load_response_schema(api, version)))
    request = Request(api, version, 7, body="known")
    frame = encode(request, plain(message))
    assert read_response(frame, api, version) == (7, message)
    assert frame.endswith(written(message))


def some_frames():
    """Return requests of all kinds, one of each version that has arrays to lie about."""
    topics = [{"name": "clicks", "partitions": [{"partition_index": 1, "timestamp": -1}]}]
    return [
        request_frame(Api.LIST_OFFSETS, 10, replica_id=-1, isolation_level=0, topics=topics, timeout=0),
        request_frame(Api.METADATA, 4, topics=[{"name": "clicks"}]),
        request_frame(
            Api.METADATA, 13, topics=[{"name": "clicks", "topic_id": None}],
            include_topic_authorized_operations=False,
        ),
        request_frame(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=5,
            instance_id="i", subscribed_topic_names=["a", "b"],
            topic_partitions=[{"topic_id": UUID(int=7), "partitions": [0, 1, 2]}],
        ),
        request_frame(Api.API_VERSIONS, 3, client_software_name="x", client_software_version="1"),
    ]  # fmt: skip


@pytest.mark.parametrize("frame", some_frames())
def test_a_request_cut_short_anywhere_is_refused(frame):
    decode(frame[4:])
    for end in range(4, len(frame)):
        with pytest.raises(WireError):
            decode(frame[4:end])


def test_garbage_is_a_request_or_refused_and_takes_no_time():
    """No byte makes anything but an answer or WireError: nothing reserves what is only announced."""
    rng = random.Random(5)
    frames = [frame[4:] for frame in some_frames()]
    for _ in range(20_000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(8, len(frame))
            frame[at : at + rng.randrange(3)] = bytes(
                rng.choices((0, 1, 127, 128, 255), k=rng.randrange(6))
            )
        with contextlib.suppress(WireError):
            decode(bytes(frame))


TOO_LONG = (
    struct.pack(">hhih", 3, 12, 1, -1) + b"\0\2" + bytes(16) + b"\x81\x80\x02" + b"t" * 32_768
)
"""A topic's name that a compact text can hold, and an older version of an API could not tell."""


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"", "0 bytes is cut short"),
        (struct.pack(">hhi", 4, 1, 1), "API 4 is not served"),
        (struct.pack(">hhi", 3, 14, 1), "METADATA version 14 is not served here: 0 to 13 are"),
        (struct.pack(">hhi", 3, -1, 1), "METADATA version -1"),
        (struct.pack(">hhih", 3, 0, 1, 300), "300 bytes are announced where 0 are left"),
        (struct.pack(">hhihi", 3, 0, 1, -1, 2**31 - 1), "2147483647 elements are announced"),
        (struct.pack(">hhihi", 3, 0, 1, -1, -2), "-2 elements are announced"),
        (struct.pack(">hhihi", 3, 0, 1, -1, -1), "topics is null"),
        (struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 6, "longer than five bytes"),
        (struct.pack(">hhihi", 3, 0, 1, -1, 1) + b"\0\1\xff", "no valid value"),
        (TOO_LONG, "a text of 32768 bytes is longer than 32767"),
    ],
)
def test_errors_name_what_is_wrong(frame, message):
    with pytest.raises(WireError) as error:
        decode_body(decode(frame))
    assert message in str(error.value)


def test_tags_of_newer_clients_are_skipped():
    head = struct.pack(">hhih", Api.METADATA, 12, 1, -1)
    tags = b"\2" + b"\0\3abc" + b"\x05\1x"
    body = decode(head + tags + b"\0" + b"\1\0" + tags).body
    assert (body.topics, body.allow_auto_topic_creation) == (None, True)


def test_tags_that_are_given_are_written_as_kio_writes_them():
    fetch = load_request_schema(1, 17)
    state = {"replica_id": 7, "replica_epoch": 40}
    fields_given = {"max_wait": 5, "min_bytes": 1, "topics": (), "forgotten_topics_data": ()}
    out = bytearray()
    write = encoder.entity_writer(fetch)
    write(out, fields_given | {"cluster_id": "c", "replica_state": state})
    found, _ = entity_reader(fetch)(bytes(out), 0)
    assert (found.cluster_id, found.replica_state.replica_epoch) == ("c", 40)
    again = io.BytesIO()
    entity_writer(fetch)(again, found)
    assert bytes(out) == again.getvalue()


def test_an_unknown_api_versions_version_is_answered_in_version_0():
    request = decode(struct.pack(">hhi", Api.API_VERSIONS, 9, 5) + b"whatever")
    assert request.body is None
    keys = [{"api_key": 3, "min_version": 0, "max_version": 13}]
    frame = encode(request, {"error_code": 35, "api_keys": keys})
    correlation_id, body = read_response(frame, Api.API_VERSIONS, 0)
    assert (correlation_id, int(body.error_code)) == (5, 35)
    assert [(k.api_key, k.max_version) for k in body.api_keys] == [(3, 13)]


@given(
    st.integers(-(2**31), 2**31 - 1), st.text(max_size=80),
    st.integers(-2, 2**31 - 1), st.integers(0, 15_000), st.integers(0, 1),
)  # fmt: skip
def test_the_steady_heartbeat_is_byte_for_byte_what_kio_writes(
    correlation_id, member, epoch, ms, version
):
    member = member.encode("utf-8", "ignore").decode()
    response = HeartbeatResponse(member, epoch, ms)
    request = Request(Api.CONSUMER_GROUP_HEARTBEAT, version, correlation_id)

    class Answer:
        def __init__(self):
            self.response = response

    frame = encode_steady_heartbeat(request, response)
    assert frame in {None, encode(request, _response_fields(Answer()))}
    assert (frame is None) == (not 0 < len(member.encode()) < 127)


@pytest.mark.parametrize("partitions", [(0, 1), (4, 5), (4, 7)])
def test_very_many_topics_of_an_assignment_are_written_as_few_are(partitions):
    ids = ["plain", *(make_id(str(number)) for number in range(1_500))]
    spans = tuple((TopicKey(f"t{at:04}", each), *partitions) for at, each in enumerate(ids))
    request = Request(Api.CONSUMER_GROUP_HEARTBEAT, 1, 7)
    words = {"error_code": 0, "member_id": "m", "member_epoch": 3, "heartbeat_interval": 5_000}
    frame = encode(request, words | {"assignment": assignment_fields(spans)})
    few = assignment_fields(spans, many=1 << 30)
    assert frame == encode(request, words | {"assignment": few})
    _, body = read_response(frame, Api.CONSUMER_GROUP_HEARTBEAT, 1)
    topics = body.assignment.topic_partitions
    assert [topic.topic_id for topic in topics] == [to_uuid(each) for each in ids]


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 15_000),
    st.integers(*CLASSIC_VERSIONS[Api.HEARTBEAT]),
)
def test_the_steady_classic_heartbeat_is_byte_for_byte_what_kio_writes(
    correlation_id, throttle_ms, version
):
    request = Request(Api.HEARTBEAT, version, correlation_id, throttle_ms=throttle_ms)
    assert encode_steady_classic_heartbeat(request) == encode(request, {"error_code": 0})
