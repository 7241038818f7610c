"""Clients and brokers that break rules or do not read: what is held stays bounded."""

import contextlib
import random
import socket
import struct
import time

import pytest

from coordinator.cli.gateway import _look_behind
from coordinator.config import Config, ConfigError, GatewayConfig, ServerConfig
from coordinator.gateway.cluster import KafkaBehind
from coordinator.gateway.exchange import KEPT_ANSWERS, Exchange
from coordinator.gateway.gateway import Gateway, read_settings
from coordinator.wire.codec import Api
from coordinator.wire.decoder import WireError
from coordinator.wire.listener import serve
from tests.clients.world import free_port
from tests.gateway.fake_kafka import FakeKafka
from tests.gateway.test_gateway import places, raw
from tests.gateway.world import gateway, gateway_of
from tests.support.wire_client import Client, request_frame, take_frame

HELD_MAX = 1 << 20
"""Bytes that a gateway has of a connection; what its sockets have is the kernel's."""


def until(condition, patience_s=20.0):
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def test_a_client_that_does_not_read_is_not_read_from_and_gets_all_later():
    with gateway_of() as (kafka, _, address), Client(address) as client:
        body = random.Random(1).randbytes(1 << 20)
        sent = memoryview(b"".join(raw(Api.FETCH, 15, number, body) for number in range(48)))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.socket.settimeout(0.3)
        at = 0
        with contextlib.suppress(TimeoutError):
            while at < len(sent):
                at += client.socket.send(sent[at:])
        (relay,) = kafka.front.relays
        buffers = [one.get_write_buffer_size() for one in (relay.client, relay._broker)]
        assert 0 < sum(buffers) < HELD_MAX
        with Client(address) as other:  # no other waits for it
            assert places(other).keys() == {1}
        client.socket.settimeout(30)
        for number in range(48):
            answer = take_frame(client.socket)
            assert answer[4:8] == struct.pack(">i", number)
            assert answer.endswith(body)
            with contextlib.suppress(BlockingIOError):
                client.socket.setblocking(False)
                while at < len(sent):
                    at += client.socket.send(sent[at:])
            client.socket.settimeout(30)
        assert len(kafka.brokers[1].heard) == 48


def test_answers_of_muster_that_cannot_go_are_few():
    """Behind one of a broker that does not come; each of them has a thousand groups."""
    with gateway_of() as (kafka, _, address), Client(address) as client:
        assert places(client).keys() == {1}
        kafka.brokers[1].answers.clear()
        client.socket.sendall(raw(Api.FETCH, 15, 1, b""))
        keys = [f"a group of a rather long name {number}" for number in range(1_000)]
        asked = {"key_type": 0, "coordinator_keys": keys}
        for number in range(2, 50):
            client.socket.sendall(request_frame(Api.FIND_COORDINATOR, 4, number, **asked))
        (relay,) = kafka.front.relays
        until(lambda: relay.kept_bytes > KEPT_ANSWERS)
        time.sleep(0.3)
        assert relay.kept_bytes < 8 * KEPT_ANSWERS
        kafka.brokers[1].answers.set()
        numbers = [struct.unpack(">i", take_frame(client.socket)[4:8])[0] for _ in range(49)]
        assert numbers == list(range(1, 50))
        assert not relay.kept_bytes


@pytest.mark.usefixtures("loop")
def test_a_gateway_ends_while_clients_do_not_read():
    """An event loop would wait for what is still to be sent."""
    with FakeKafka() as kafka:
        with gateway(kafka) as (_, address):
            client = Client(address)
            client.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.socket.sendall(raw(Api.FETCH, 15, 1, bytes(60 << 20)))
        client.socket.close()


def test_what_is_held_for_clients_that_do_not_read_counts_with_the_limit_of_all():
    with (
        gateway_of(buffer_bytes_max=50_000) as (_, _coordinator, address),
        Client(address) as client,
    ):
        body = bytes(1 << 20)
        client.socket.settimeout(20)
        sent = b"".join(raw(Api.FETCH, 15, number, body) for number in range(64))
        with pytest.raises(ConnectionError):
            client.socket.sendall(sent)
        with Client(address) as another:
            assert places(another).keys() == {1}


def drip(found, sent):
    """Bring bytes one by one."""
    for at in range(len(sent)):
        assert found.take_requests(sent[at : at + 1]) == []


def test_bytes_that_come_one_by_one_are_seldom_looked_at():
    """A head of thousands of tags: looked at after each byte it would take minutes."""
    looks = []
    found = Exchange(lambda: looks.append(1) or {0: (0, 9), 32: (0, 4)}, lambda *_: None)
    for api, version in ((Api.PRODUCE, 9), (Api.DESCRIBE_CONFIGS, 4)):
        sent = raw(api, version, 1, b"\x80\x80\x02" + bytes(20_000))  # 32,768 of them
        with pytest.raises(WireError):
            drip(found, sent)
        found = Exchange(lambda: looks.append(1) or {0: (0, 9), 32: (0, 4)}, lambda *_: None)
    assert len(looks) < 40


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1) + b"\0" * 100,
        raw(Api.FETCH, 99, 1, b""),
        raw(Api.FETCH, 16, 1, b""),
        raw(28, 3, 1, b""),
        raw(12345, 0, 1, b""),
        raw(Api.HEARTBEAT, 4, 1, b"\xff" * 9),
        raw(Api.PRODUCE, 9, 1, b""),
    ],
)
def test_a_client_that_sends_garbage_loses_its_connection_alone(sent):
    with gateway_of() as (kafka, _, address), Client(address) as honest:
        assert places(honest).keys() == {1}
        with Client(address) as client:
            client.socket.sendall(sent)
            assert client.is_closed()
        assert places(honest).keys() == {1}
        assert not kafka.brokers[1].heard


def test_a_broker_that_answers_what_was_not_asked_loses_the_connection():
    with gateway_of() as (kafka, _, address), Client(address) as client:
        assert places(client).keys() == {1}
        kafka.brokers[1].connections[-1].sendall(raw(Api.FETCH, 15, 1, b""))
        assert client.is_closed()
        with Client(address) as another:
            assert places(another).keys() == {1}


def test_a_client_that_goes_takes_its_connection_to_the_broker_along():
    with gateway_of() as (kafka, coordinator, address):
        with Client(address) as client:
            assert places(client).keys() == {1}
        ours = kafka.brokers[1].connections
        until(lambda: ours[-1].fileno() < 0)
        metrics = coordinator.metrics.registry
        until(lambda: metrics.get_sample_value("wire_connections") == 0)


def test_the_limit_of_connections_is_that_of_all_listeners():
    with gateway_of(2, connections_max=3) as (_, _coordinator, address), Client(address) as client:
        found = places(client)
        with Client(found[1]) as one, Client(found[2]) as two:
            assert places(one) == places(two) == found
            with Client(found[2]) as late:
                late.socket.settimeout(10)  # before it would be closed because it says nothing
                assert late.is_closed()


def test_a_cluster_that_does_not_answer_is_named_with_what_to_do():
    silent = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConfigError, match=f"{silent} does not answer.*start it, or give"):
        _look_behind(silent, Config())


def test_a_port_that_is_taken_is_named_at_the_start():
    with FakeKafka() as kafka:
        own = GatewayConfig()
        behind = KafkaBehind(read_settings(kafka.address, own))
        behind.topics()
        port = free_port()
        with socket.create_server(("127.0.0.1", port + 2)):
            config = Config(server=ServerConfig(listen=f"127.0.0.1:{port}"), gateway=own)
            with (
                gateway(kafka) as (coordinator, _),
                pytest.raises(ConfigError, match=f"broker 1 .*{port + 2}"),
            ):
                serve(Coordinated(coordinator, config), front=Gateway(behind, config)).close()


class Coordinated:
    """A coordinator with other settings."""

    def __init__(self, coordinator, config):
        self._coordinator, self.config = coordinator, config

    def __getattr__(self, name):
        return getattr(self._coordinator, name)


@pytest.mark.parametrize(
    ("first", "port", "node"), [(2, 9092, 1), (0, 65_533, 3), (0, 9092, 70_000)]
)
def test_an_id_for_which_there_is_no_port_is_named(first, port, node):
    behind = KafkaBehind(read_settings("127.0.0.1:1", GatewayConfig()))
    behind.seen = type(behind.seen)({node: ("x", 1)}, {})
    config = Config(
        server=ServerConfig(listen=f"127.0.0.1:{port}"),
        gateway=GatewayConfig(first_broker_id=first),
    )
    with pytest.raises(ConfigError, match=f"no port for broker {node} .*--first-broker-id"):
        Gateway(behind, config)
