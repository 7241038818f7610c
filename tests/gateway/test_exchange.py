"""One connection without any socket: its order, whatever the pieces that bytes come in."""

import random
import struct

import pytest

from coordinator.gateway.exchange import SLOTS_AGAIN, SLOTS_MAX, Exchange, To
from coordinator.gateway.offer import FORWARDED, forwarded_versions, offered_versions, own_versions
from coordinator.wire.call import REQUEST_BYTES_MOST
from coordinator.wire.codec import CLASSIC_VERSIONS, SERVED, VERSIONS, Api, Request, encode
from coordinator.wire.decoder import WireError
from tests.gateway.test_gateway import raw
from tests.support.wire_client import read_response, request_frame

ALL = dict.fromkeys(FORWARDED, (0, 20))
FORWARDS = forwarded_versions([ALL], passes_logins=False)
NODE = {"node_id": 3, "host": "real.example", "port": 9092, "rack": "a"}
BROKERS = {
    "brokers": [NODE, {**NODE, "node_id": 4}],
    "cluster_id": "c",
    "controller_id": 3,
    "topics": [],
    "error_code": 0,
}


def exchange(**words):
    return Exchange(lambda: FORWARDS, lambda node, _host, _port: ("gw", 100 + node), **words)


def answer(number, body):
    return struct.pack(">ii", 4 + len(body), number) + body


def fetch(number):
    return raw(Api.FETCH, 12, number, b"")


def heartbeat(number):
    return request_frame(Api.HEARTBEAT, 4, number, group_id="g", generation_id=1, member_id="m", group_instance_id=None)  # fmt: skip


def cut(data, rng):
    """Cut bytes into pieces of random lengths."""
    at = 0
    while at < len(data):
        end = at + rng.choice([1, 2, 3, 7, 50, 1000])
        yield data[at:end]
        at = end


@pytest.mark.parametrize("seed", range(10))
def test_pieces_of_any_length_come_out_divided_and_in_order(seed):
    rng = random.Random(seed)
    sides = {To.KAFKA: b"", To.MUSTER: b""}
    sent, want, kafka, muster = b"", b"", b"", []
    for number in range(60):
        kind = rng.choice(["fetch", "heartbeat", "metadata", "produce", "unanswered"])
        body = rng.randbytes(rng.randrange(300))
        if kind == "heartbeat":
            sent += heartbeat(number)
            muster.append(answer(number, body))
            want += muster[-1]
            continue
        if kind == "metadata":
            sent += request_frame(Api.METADATA, 12, number, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)  # fmt: skip
            request = Request(Api.METADATA, 12, number)
            kafka += encode(request, BROKERS)
            served = [
                {**one, "host": "gw", "port": 100 + one["node_id"]} for one in BROKERS["brokers"]
            ]
            want += encode(request, BROKERS | {"brokers": served})
            continue
        acks = b"\0\0" if kind == "unanswered" else b"\xff\xff"
        sent += (
            fetch(number)
            if kind == "fetch"
            else raw(Api.PRODUCE, 7, number, b"\xff\xff" + acks + body)
        )
        if kind != "unanswered":
            kafka += answer(number, body)
            want += answer(number, body)
    found, got = exchange(), b""
    for piece in cut(sent, rng):
        for to, data in found.take_requests(piece):
            sides[to] += bytes(data)
    assert len(sides[To.KAFKA]) + len(sides[To.MUSTER]) == len(sent)
    assert sides[To.MUSTER].count(b"\x00\x0c\x00\x04") == len(muster)
    pieces = [("kafka", one) for one in cut(kafka, rng)]
    for _ in muster:
        pieces.insert(rng.randrange(len(pieces) + 1), ("muster", None))
    left = iter(muster)
    for who, one in pieces:
        if who == "kafka":
            got += b"".join(map(bytes, found.hear_kafka(one)))
        else:
            found.hear_muster(next(left))
            got += b"".join(map(bytes, found.take_answers()))
    assert got == want
    assert not found.kept_bytes


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_every_version_names_the_gateway_and_keeps_the_rest(version):
    found, request = exchange(), Request(Api.METADATA, version, 5)
    found.take_requests(raw(Api.METADATA, version, 5, b"\0\0"))
    parts = {
        "error_code": 0,
        "leader_id": 3,
        "replica_nodes": (3,),
        "isr_nodes": (3,),
        "partition_index": 0,
    }
    topic = {"error_code": 0, "name": "t", "topic_id": None, "partitions": [parts] * 1_000}
    data = encode(request, BROKERS | {"topics": [topic]})
    got = b"".join(
        b"".join(map(bytes, found.hear_kafka(one))) for one in cut(data, random.Random(1))
    )
    number, body = read_response(got, Api.METADATA, version)
    assert number == 5
    assert [(one.host, one.port) for one in body.brokers] == [("gw", 103), ("gw", 104)]
    assert body.topics == read_response(data, Api.METADATA, version)[1].topics


def test_a_broker_that_has_no_port_is_left_out():
    """Clients that knew of it would go past the gateway."""
    found = Exchange(lambda: FORWARDS, lambda node, *_: None if node == 3 else ("gw", 1))
    found.take_requests(raw(Api.METADATA, 12, 5, b""))
    data = b"".join(map(bytes, found.hear_kafka(encode(Request(Api.METADATA, 12, 5), BROKERS))))
    assert [one.node_id for one in read_response(data, Api.METADATA, 12)[1].brokers] == [4]
    for version, code in ((3, 15), (6, 15)):
        request = Request(Api.FIND_COORDINATOR, version, 6)
        found.take_requests(request_frame(Api.FIND_COORDINATOR, version, 6, key="t", key_type=1, coordinator_keys=["t"]))  # fmt: skip
        named = {"error_code": 0, "error_message": None, **NODE}
        said = encode(request, {**named, "coordinators": [{**named, "key": "t"}]})
        _, body = read_response(b"".join(map(bytes, found.hear_kafka(said))), request.api, version)
        (one,) = getattr(body, "coordinators", [body])
        assert (int(one.error_code), one.host, one.port) == (code, "", -1)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", REQUEST_BYTES_MOST + 1),
        b"GET / HTTP/1.1\r\n\r\n",
        raw(Api.PRODUCE, 9, 1, b""),
        raw(Api.PRODUCE, 7, 1, b"\x7f\xff"),
        raw(Api.FIND_COORDINATOR, 4, 1, b"\xff"),
        raw(Api.INCREMENTAL_ALTER_CONFIGS, 1, 1, b"\xff" * 40),
        raw(Api.DESCRIBE_CONFIGS, 4, 1, b""),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(sent):
    with pytest.raises(WireError):
        exchange().take_requests(sent)


@pytest.mark.parametrize(
    "said",
    [
        answer(2, b""),
        struct.pack(">ii", 2, 1),
        answer(1, b"")[:-1] + b"\x07",
        answer(1, b"whole") + b"and more than was asked",
    ],
)
def test_what_is_no_answer_ends_the_connection(said):
    """The broker and the gateway then differ in what was asked: nothing after it is right."""
    found = exchange()
    found.take_requests(fetch(1))
    with pytest.raises(WireError):
        found.hear_kafka(said)


def test_metadata_that_cannot_be_read_ends_the_connection():
    found = exchange()
    found.take_requests(raw(Api.METADATA, 12, 1, b""))
    with pytest.raises(WireError):
        found.hear_kafka(answer(1, b"\xff" * 40))


def test_what_is_not_offered_is_left_to_the_server_which_refuses_it():
    for api, version in (
        (Api.FETCH, 16),
        (Api.PRODUCE, 10),
        (28, 3),
        (25, 0),
        (76, 1),
        (36, 2),
        (999, 0),
    ):
        (piece,) = exchange().take_requests(raw(api, version, 1, b""))
        assert piece.to is To.MUSTER


def test_so_many_requests_at_a_time():
    """More than may wait are kept, and taken once half of those before are answered."""
    found = exchange()
    sent = b"".join(map(fetch, range(SLOTS_MAX + 10)))
    taken = sum(len(one.data) for one in found.take_requests(sent))
    assert taken == SLOTS_MAX * len(fetch(0))
    assert found.is_full
    for number in range(SLOTS_MAX - SLOTS_AGAIN):
        assert not found.has_unread
        assert found.take_requests(b"") == []
        found.hear_kafka(answer(number, b""))
    assert found.has_unread
    taken += sum(len(one.data) for one in found.take_requests(b""))
    assert taken == len(sent)
    assert not found.has_unread


def test_so_many_requests_without_answers_in_a_call():
    one = raw(Api.PRODUCE, 7, 1, b"\xff\xff\0\0")
    found, taken, calls = exchange(), 0, 1
    taken += sum(len(piece.data) for piece in found.take_requests(one * 600))
    while found.has_unread:
        taken += sum(len(piece.data) for piece in found.take_requests(b""))
        calls += 1
    assert (taken, calls) == (len(one) * 600, 3)


def test_settings_of_groups_are_muster_s_and_others_the_cluster_s():
    group, topic = 32, 2
    for kinds, to in (
        ([group], To.MUSTER),
        ([topic], To.KAFKA),
        ([topic, group], To.KAFKA),
        ([], To.KAFKA),
    ):
        resources = [
            {"resource_type": one, "resource_name": "n", "configuration_keys": None}
            for one in kinds
        ]
        sent = request_frame(Api.DESCRIBE_CONFIGS, 4, 1, resources=resources, include_synonyms=False, include_documentation=False)  # fmt: skip
        assert {piece.to for piece in exchange().take_requests(sent)} == {to}
    for kinds, to in (([32], To.MUSTER), ([2, 32], To.KAFKA), ([], To.KAFKA)):
        sent = request_frame(Api.LIST_CONFIG_RESOURCES, 1, 1, resource_types=kinds)
        assert {piece.to for piece in exchange().take_requests(sent)} == {to}


def test_what_all_brokers_have_is_offered():
    own = own_versions(SERVED, with_login=False)
    assert not own_versions(VERSIONS, with_login=True).keys() & CLASSIC_VERSIONS.keys()
    old = {key: (0, 3) for key in FORWARDED if key != Api.LIST_CONFIG_RESOURCES}
    forwards = forwarded_versions([ALL, old], passes_logins=False)
    assert forwards[Api.FETCH] == (0, 3)
    assert Api.LIST_CONFIG_RESOURCES not in forwards
    offered = offered_versions(own, forwards)
    assert offered[Api.JOIN_GROUP] == (0, 9)
    assert offered[Api.FIND_COORDINATOR] == (0, 3)
    assert Api.LIST_CONFIG_RESOURCES not in offered
    assert not offered.keys() & {Api.SASL_HANDSHAKE, 38}
    passed = forwarded_versions([ALL], passes_logins=True)
    assert passed.keys() >= {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, 38}
    assert forwarded_versions([], passes_logins=False) == {}
    assert all(
        most <= VERSIONS[api][1] for api in VERSIONS if (most := FORWARDED.get(api, (0, 0))[1])
    )
