"""A gateway over real sockets, before brokers that are threads."""

import ssl
import struct

import pytest

from coordinator.wire.codec import Api
from tests.clients.world import free_port
from tests.gateway.world import gateway_of
from tests.support.wire_client import Client, request_frame, take_frame
from tests.wire.test_access import certificates, tls_of

__all__ = ["certificates"]

PLAIN = {
    "topics": (),
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
CREATE_TOPICS = 19
CLUSTER = {"include_cluster_authorized_operations": False}


def raw(api, version, number, body):
    """A request whose body is not read."""
    frame = struct.pack(">hhih", api, version, number, 4) + b"test" + body
    return struct.pack(">i", len(frame)) + frame


def places(client, version=12):
    """Where the brokers are, as a client learns."""
    found = client.ask(Api.METADATA, version, **PLAIN).brokers
    return {int(one.node_id): f"{one.host}:{one.port}" for one in found}


@pytest.mark.usefixtures("loop")
def test_groups_are_muster_s_and_all_else_is_the_cluster_s():
    with gateway_of(2) as (kafka, coordinator, address), Client(address) as client:
        offered = {
            int(one.api_key): (one.min_version, one.max_version)
            for one in client.ask(
                Api.API_VERSIONS, 3, client_software_name="x", client_software_version="1"
            ).api_keys
        }
        assert offered[Api.PRODUCE] == (0, 9)
        assert offered[Api.FETCH] == (0, 15)
        assert offered[Api.CONSUMER_GROUP_HEARTBEAT] == (0, 1)
        assert not offered.keys() & {25, 28, 76, 78, 88, Api.SASL_HANDSHAKE, 38}
        found = places(client)
        assert found.keys() == {1, 2}
        assert not set(found.values()) & {f"127.0.0.1:{one.port}" for one in kafka.brokers.values()}
        (coordinator_of,) = client.ask(
            Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]
        ).coordinators
        assert f"{coordinator_of.host}:{coordinator_of.port}" == found[1]
        with Client(found[1]) as member:
            assert member.join("g", "m1", "clicks").member_epoch == 2
        (group,) = coordinator.consumer_group_describe("g")
        assert group["members"][0]["member_id"] == "m1"
        for node_id, place in found.items():
            with Client(place) as asker:
                asker.socket.sendall(raw(CREATE_TOPICS, 2, 7, b"whatever it is"))
                answer = take_frame(asker.socket)
                assert answer[4:8] == struct.pack(">i", 7)
                assert answer.endswith(b"whatever it is")
                listed = asker.ask(Api.LIST_GROUPS, 4, states_filter=())
                assert [one.group_id for one in listed.groups] == (["g"] if node_id == 1 else [])
            assert [one[0] for one in kafka.brokers[node_id].heard] == [CREATE_TOPICS]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described_with_the_gateway_s_addresses(version):
    with gateway_of(2) as (_, _coordinator, address), Client(address) as client:
        words = CLUSTER | {"endpoint_type": 1, "include_fenced_brokers": False}
        found = client.ask(Api.DESCRIBE_CLUSTER, version, **words)
        assert {int(one.broker_id): f"{one.host}:{one.port}" for one in found.brokers} == places(
            client
        )
        assert found.cluster_id == "fake"


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_the_coordinator_of_a_transaction_is_the_cluster_s_at_the_gateway_s_address(version):
    with gateway_of(2) as (_, _coordinator, address), Client(address) as client:
        answer = client.ask(
            Api.FIND_COORDINATOR, version, key="t", key_type=1, coordinator_keys=["t", "u"]
        )
        for one in getattr(answer, "coordinators", [answer]):
            assert f"{one.host}:{one.port}" == places(client)[2]


def test_the_advertised_name_and_port_are_those_of_the_gateway_and_of_its_brokers():
    port = free_port()
    words = {"listen": f"127.0.0.1:{port}", "advertised": "localhost:7000"}
    with gateway_of(**words), Client(f"127.0.0.1:{port}") as client:
        assert places(client) == {1: "localhost:7002"}
        with Client(f"127.0.0.1:{port + 2}") as broker:
            assert places(broker) == {1: "localhost:7002"}


@pytest.mark.usefixtures("loop")
def test_tls_ends_at_the_gateway(certificates):
    with gateway_of(**tls_of(certificates)) as (kafka, _, address):
        trusted = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
        with Client(address, trusted) as client:
            client.socket.sendall(raw(CREATE_TOPICS, 2, 7, bytes(1 << 20)))
            assert len(take_frame(client.socket)) > 1 << 20
            assert client.join("g", "m1", "clicks").member_epoch == 2
        with Client(address) as plain:
            plain.socket.sendall(raw(CREATE_TOPICS, 2, 7, b""))
            assert plain.is_closed() or True  # an alert, or the end; never an answer
        assert len(kafka.brokers[1].heard) == 1


@pytest.mark.usefixtures("loop")
def test_answers_come_in_the_order_of_the_requests():
    """Muster's wait for those of the broker before them, however early they are known."""
    with gateway_of() as (kafka, _, address), Client(address) as client:
        kafka.brokers[1].answers.clear()
        sent = b""
        for number in range(1, 200, 2):
            sent += raw(Api.FETCH, 15, number, b"f" * (number * 10))
            sent += request_frame(Api.LIST_GROUPS, 4, number + 1, states_filter=())
        client.socket.sendall(sent)
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(30)
        kafka.brokers[1].answers.set()
        numbers = [struct.unpack(">i", take_frame(client.socket)[4:8])[0] for _ in range(199)]
        assert numbers == list(range(1, 200))


def test_a_produce_without_an_answer_takes_no_answer_of_another():
    """Flexible versions and those before; its acks are behind two texts."""
    with gateway_of() as (kafka, _, address), Client(address) as client:
        for version in (8, 9):
            text = b"\0\2x" if version == 9 else b"\0\1x"  # tags, a transactional id
            unanswered = raw(Api.PRODUCE, version, 1, text + b"\0\0acks=0")
            answered = raw(Api.PRODUCE, version, 2, text + b"\xff\xffacks=-1")
            client.socket.sendall(unanswered + answered + unanswered)
            assert take_frame(client.socket)[4:8] == struct.pack(">i", 2)
            assert places(client).keys() == {1}
        assert len(kafka.brokers[1].heard) == 6


def test_brokers_come_and_go():
    with gateway_of(1) as (kafka, _, address), Client(address) as client:
        before = places(client)
        kafka.add(5)
        found = places(client)  # at once: an answer that names it may be the first to
        assert found.keys() == {1, 5}
        assert found[1] == before[1]
        with Client(found[5]) as other:
            assert places(other) == found
            kafka.remove(5)
            assert other.is_closed()
        with Client(found[5]) as late:
            late.socket.sendall(raw(CREATE_TOPICS, 2, 7, b""))
            assert late.is_closed()
        assert places(client) == before
        kafka.remove(1)
        assert client.is_closed()
        with Client(address) as member:  # groups need no broker
            assert member.join("g", "m1", "clicks").member_epoch == 2
