"""Refused clients leave a trace, however many of them there are (B5)."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.wire.client_warnings import CLIENTS_MAX, GROUPS_MAX, RefusedClients
from coordinator.wire.codec import Api
from coordinator.wire.session import Session
from tests.support.wire_client import Client, request_frame, take_frame
from tests.support.wire_side import CLICKS, side
from tests.wire.test_server import count, served, until

__all__ = ["side"]

ADD_PARTITIONS_TO_TXN = b"\x00\x18\x00\x03" + bytes(4) + b"\xff\xff"


def introduced(client, name="kgo", version="v1.22"):
    words = {"client_software_name": name, "client_software_version": version}
    client.socket.sendall(request_frame(Api.API_VERSIONS, 4, client_id="me\x1b[2J", **words))
    take_frame(client.socket)


def test_a_refused_client_is_logged_and_counted(caplog):
    with served() as (coordinator, address):
        for attempt in range(3):
            with Client(address) as client:
                introduced(client)
                client.socket.sendall(
                    len(ADD_PARTITIONS_TO_TXN).to_bytes(4) + ADD_PARTITIONS_TO_TXN
                )
                until(lambda n=attempt: count(coordinator, "wire_refused_total", client="kgo") > n)
    (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert said == (
        r"refused the client kgo v1.22 ('me\x1b[2J') at 127.0.0.1: API 24 is not served here "
        "(ADD_PARTITIONS_TO_TXN); further refusals are only counted for a minute"
    )


def test_an_answered_refusal_is_counted():
    with served() as (coordinator, address), Client(address) as client:
        introduced(client, "producer")
        client.ask(Api.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
        data = [{"name": "clicks", "partition_data": [{"index": 0, "records": b"x"}]}]
        client.ask(Api.PRODUCE, 9, acks=-1, transactional_id=None, timeout=0, topic_data=data)
        assert count(coordinator, "wire_refused_total", client="producer") == 2
        client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        assert count(coordinator, "wire_refused_total", client="producer") == 2


def test_garbage_is_counted_without_a_name():
    with served() as (coordinator, address), Client(address) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(lambda: count(coordinator, "wire_refused_total", client="unknown") == 1)


class Noted:
    """Clients on a clock of the test's own."""

    def __init__(self):
        self.now_s = 1000.0
        self.counts = Counter()
        self.clients = RefusedClients(lambda name: self.counts.update([name]), lambda: self.now_s)

    def refused(self, name, why="why"):
        self.clients.note(Session(software=name, software_version="1"), why)


def test_names_are_bounded_and_each_is_said_once_a_minute(caplog):
    noted = Noted()
    for number in range(1000):
        noted.refused(f"stranger-{number}")
        noted.refused("kgo")
    assert len(noted.counts) == len(caplog.records) == CLIENTS_MAX + 1
    assert (noted.counts["kgo"], noted.counts["other"]) == (1000, 1000 - CLIENTS_MAX + 1)
    noted.now_s += 59
    noted.refused("kgo")
    assert len(caplog.records) == CLIENTS_MAX + 1
    noted.now_s += 1
    noted.refused("kgo")
    assert len(caplog.records) == CLIENTS_MAX + 2


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("x", ""), ("a b", "1"), ("-a", "1"), ("a", "1\n"), ("ä", "1"), ("a" * 101, "1")],
)
def test_a_name_that_kafka_would_not_take_is_an_invalid_request(side, name, version):
    words = {"client_software_name": name, "client_software_version": version}
    answer = side.ask(Api.API_VERSIONS, 4, **words)
    assert (int(answer.error_code), answer.api_keys) == (42, ())
    assert side.connection.session.software == ""
    fine = side.ask(Api.API_VERSIONS, 4, client_software_name="a.b-c", client_software_version="1")
    assert int(fine.error_code) == 0
    assert side.connection.session.software == "a.b-c"


# Consumers that read nothing ---------------------------------------------------------------------


class OfKafka(DictCatalog):
    """Topics whose records are in a cluster."""

    def find_offsets(self, *_asked):
        raise AssertionError


def fetch(address, client_id, version=11, name="clicks", topic_id=CLICKS):
    topic = {"topic": name, "topic_id": topic_id}
    one = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    with Client(address) as client:
        words = {"topics": [topic | {"partitions": [one]}], "forgotten_topics_data": ()}
        client.ask(Api.FETCH, version, max_wait=0, min_bytes=1, client_id=client_id, **words)


def join(address, group, client_id, *, classic=False):
    with Client(address) as client:
        if classic:
            words = {
                "group_id": group, "session_timeout": 45_000, "rebalance_timeout": 1_000,
                "member_id": "", "protocol_type": "consumer", "client_id": client_id,
                "protocols": [{"name": "range", "metadata": b""}],
            }  # fmt: skip
            client.ask(Api.JOIN_GROUP, 9, **words)
            return
        client.beat(
            group, f"{group}-{client_id}", 0, rebalance_timeout=60_000, client_id=client_id,
            subscribed_topic_names=["clicks"], topic_partitions=(),
        )  # fmt: skip


def warnings(caplog):
    found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [text.split(" fetches records of ")[0] for text in found]


@pytest.mark.parametrize("classic", [False, True])
@pytest.mark.parametrize("version", [11, 17])
def test_a_group_whose_consumers_read_nothing_is_warned_of_once(caplog, classic, version):
    with served(OfKafka({"clicks": 4})) as (_, address):
        join(address, "g", "one", classic=classic)
        join(address, "silent", "other", classic=classic)
        assert warnings(caplog) == []
        for _ in range(3):
            fetch(address, "one", version)
        join(address, "g", "two", classic=classic)
        fetch(address, "two", version)
        assert warnings(caplog) == ["group 'g'"]
        assert "topic clicks here (client 'one' at 127.0.0.1)" in caplog.text
        fetch(address, "other", version)
        assert warnings(caplog) == ["group 'g'", "group 'silent'"]


def test_a_consumer_without_a_group_is_warned_of_once(caplog):
    with served(OfKafka({"clicks": 4})) as (_, address):
        fetch(address, "one")
        fetch(address, "two")
        assert warnings(caplog) == ["a consumer without a group"]


def test_no_warning_where_the_records_are_in_no_cluster(caplog):
    with served() as (_, address):
        join(address, "g", "one")
        fetch(address, "one")
    with served(OfKafka({"orders": 4})) as (_, address):
        fetch(address, "one")
    assert warnings(caplog) == []


def test_very_many_groups_of_one_client_are_not_all_remembered(caplog):
    with served(OfKafka({"clicks": 4})) as (_, address):
        for number in range(GROUPS_MAX + 1):
            join(address, f"g{number}", "rdkafka")
        fetch(address, "rdkafka")
        assert warnings(caplog) == [f"group 'g{number}'" for number in range(1, GROUPS_MAX + 1)]
