"""A member's connections: what they survive, who is let in, and what brokers answer."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from random import Random
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader as kio_reader

from coordinator import Coordinator, Fenced, GroupError, Member
from coordinator.config import ServerConfig
from coordinator.core.events import Heartbeat
from coordinator.errors import ErrorCode
from coordinator.member.events import MemberSettings
from coordinator.member.kafka import Kafka
from coordinator.member.kafka_connection import VERSIONS, read_response
from coordinator.wire.codec import Api
from coordinator.wire.decoder import field_shape
from coordinator.wire.encoder import entity_writer
from tests.member.cut_network import Proxy
from tests.member.runs import PATIENCE_S, QUICK, Diary, Running, until
from tests.wire.test_access import acls, certificates, tls_of, users
from tests.wire.test_server import served

__all__ = ["acls", "certificates", "users"]


@pytest.fixture
def network():
    """A coordinator, its address, and a proxy through which members find it."""
    proxy = Proxy()
    with socket.create_server(("127.0.0.1", 0)) as free:
        target = free.getsockname()
    server = ServerConfig(listen=f"127.0.0.1:{target[1]}", advertised=proxy.address)
    opened = Coordinator.open(None, config=replace(QUICK, server=server), topics={"clicks": 2})
    with opened as coordinator, coordinator.serve():
        proxy.begin(target)
        yield coordinator, proxy
        proxy.close()


def test_a_worker_that_is_cut_off_stops_before_another_one_begins(network, caplog):
    coordinator, proxy = network
    diary = Diary()
    ann = Member(
        proxy.address, group_id="g", topics="clicks", rebalance_timeout_ms=1_000,
        **diary.callbacks("ann"),
    )  # fmt: skip
    bob = Member(coordinator, group_id="g", topics="clicks", **diary.callbacks("bob"))
    with Running(ann, diary.work("ann")):
        until(lambda: diary.when("ann", "begins", "clicks-1"))
        proxy.whole.clear()
        with Running(bob, diary.work("bob")):
            until(lambda: diary.when("bob", "begins", "clicks-1"))
            for partition in ("clicks-0", "clicks-1"):
                ended = diary.when("ann", "ends", partition)
                assert ended < diary.when("bob", "begins", partition)
            with pytest.raises(Fenced, match="not, or no longer, owned by this member"):
                ann.commit({("clicks", 0): 1})
            proxy.whole.set()
            until(lambda: len(ann.owned) == 1)  # it is back
            assert len(bob.owned) == 1
    assert caplog.text.count("a heartbeat is") == 1  # once a minute


def test_a_member_goes_on_with_a_connection_of_another_time(network):
    _, proxy = network
    with Member(f"127.0.0.1:1,{proxy.address}", group_id="g", topics="clicks") as member:
        first = member.wait_for_change(PATIENCE_S)
        for one in proxy.sockets[1:]:
            with suppress(OSError):  # the other end of one that went
                one.shutdown(socket.SHUT_RDWR)
        member.commit({("clicks", 0): 5})
        assert member.committed(("clicks", 0)) == 5
        assert member.owned == first.owned


@pytest.mark.parametrize("how", ["by its answer", "before it"])
def test_who_cannot_learn_the_session_yet_does_not_join(monkeypatch, how):
    """By a longer one of its own it would work on what the coordinator has given to another."""
    transport = Kafka("h:1", MemberSettings("g", "m"))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    result = SimpleNamespace(error_code=loading, error_message="loading", configs=())
    asked = []

    async def ask(api, **_fields):
        asked.append(api)
        if how == "before it":
            raise GroupError(loading, "loading")
        return SimpleNamespace(results=[result])

    monkeypatch.setattr(transport, "_ask", ask)
    with pytest.raises(GroupError, match="loading"):
        asyncio.run(transport.heartbeat(Heartbeat("g", "m", 0)))
    assert asked == [Api.DESCRIBE_CONFIGS]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_member_logs_in_over_tls(certificates, users, acls, mechanism):
    tls = ssl.create_default_context(cafile=certificates / "ca.pem")
    login = {"sasl_mechanisms": (mechanism,), "sasl_users": users, "acls": acls}

    def member(password):
        who = (mechanism, "ann", password)
        return Member(address, group_id="g", topics="clicks", tls=tls, login=who)

    with served(**tls_of(certificates), **login) as (_, address):
        with member("secret") as joined:
            assert len(joined.wait_for_change(PATIENCE_S).owned) == 4
        with member("Secret") as refused, pytest.raises(GroupError, match="wrong name") as error:
            refused.run(lambda *_: None)
        assert error.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_what_is_no_broker_is_tried_again(caplog):
    """Bytes that are no answer end the connection, never the member."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with Member(address, group_id="g", topics="clicks", session_timeout_ms=1_500) as member:
            for garbage in (b"HTTP/1.1 400 Bad Request", bytes(8), b"\0\0\0\5" + bytes(5)):
                near = listening.accept()[0]
                near.sendall(garbage)
                near.close()
            assert member.wait_for_change(0) is None
    assert caplog.text.count("a heartbeat is not answered") == 1


# Answers of brokers -----------------------------------------------------------------------------


def example(kind, rng, number):
    """A value of each field of a kio entity, by names; `number` sizes what varies."""
    return {
        field.name: example_of(field, field_shape(field), rng, number) for field in fields(kind)
    }


def example_of(field, shape, rng, number):
    def one():
        if is_dataclass(shape.kind):
            return example(shape.kind, rng, number)
        kafka_type = field.metadata["kafka_type"]
        if kafka_type == "string":
            return "x" * rng.randrange(300)
        if kafka_type in {"bytes", "records"}:
            return rng.randbytes(rng.randrange(300))
        if kafka_type == "uuid":
            return UUID(int=rng.randrange(1, 1 << 128))
        return {"bool": True, "error_code": rng.choice([0, 3, 30])}.get(
            kafka_type, rng.randrange(100)
        )

    if shape.optional and rng.random() < 0.3:
        return None
    return [one() for _ in range(rng.randrange(number))] if shape.array else one()


ANSWERS = [(api, v) for api, (low, high) in VERSIONS.items() for v in range(low, high + 1)]


@pytest.mark.parametrize(("api", "version"), ANSWERS)
def test_an_answer_is_read_as_kios_own_reader_reads_it(api, version):
    schema = load_response_schema(api, version)
    head = struct.pack(">i", 7) + b"\0" * (schema.__header_schema__.__version__ == 1)
    for seed in range(10):
        out = bytearray(head)
        entity_writer(schema)(out, example(schema, Random(seed), 4))
        wanted, size = kio_reader(schema)(bytes(out), len(head))
        assert len(head) + size == len(out)
        assert read_response(api, version, bytes(out)) == wanted


def test_a_few_bytes_of_an_answer_reserve_no_memory():
    """kio's own reader would end the process."""
    frame = struct.pack(">ib", 7, 0) + bytes(4) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(ConnectionError, match="4294967294 elements are announced"):
        read_response(Api.CONSUMER_GROUP_DESCRIBE, 0, frame)


def test_an_error_of_a_newer_broker_is_unknown():
    schema = load_response_schema(Api.LIST_OFFSETS, 7)
    row = {"partition_index": 9, "error_code": 0, "timestamp": -1, "offset": 5, "leader_epoch": 0}
    out = bytearray(struct.pack(">ib", 7, 0))
    topics = [{"name": "t", "partitions": [row]}]
    entity_writer(schema)(out, {"throttle_time": 0, "topics": topics})
    raw = bytes(out).replace(struct.pack(">ih", 9, 0), struct.pack(">ih", 9, 999))
    ((one,),) = [t.partitions for t in read_response(Api.LIST_OFFSETS, 7, raw).topics]
    assert (one.error_code.name, one.offset) == ("unknown_server_error", 5)
