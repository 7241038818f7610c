"""A server that stands by answers what it knows: who coordinates, the nodes and the topics."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace

import pytest

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig, ServerConfig
from coordinator.storage.nodes import StoreNodes
from coordinator.wire import listener, stand_by
from coordinator.wire.codec import Api
from coordinator.wire.decoder import StandsByError
from coordinator.wire.stand_by import NoGroups, StandBy
from tests.support.wire_client import Client, request_frame
from tests.wire.test_server import until

CONFIG = Config(server=ServerConfig(listen="127.0.0.1:0", node_id=7))
LOOK_S = 0.01
WORDS = {"include_topic_authorized_operations": False}


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture
def first(store):
    """The address of the coordinator's server."""
    with (
        Coordinator.open(store, topics={"clicks": 3}, config=CONFIG) as coordinator,
        coordinator.serve() as serving,
    ):
        yield serving.address


@pytest.fixture
def second(first, store):
    """The address of the server that stands by."""
    here = replace(CONFIG, server=ServerConfig(listen="localhost:0", node_id=7))
    with StandBy(store, here, LOOK_S) as waits:
        until(lambda: waits._server is not None)
        yield waits._server.address


def where(node):
    return f"{node.host}:{node.port}"


def test_clients_learn_both_servers_the_coordinator_and_the_topics(first, second):
    with Client(second) as client:
        answer = client.ask(Api.METADATA, 12, topics=None, **WORDS)
        assert {where(node) for node in answer.brokers} == {first, second}
        assert len({node.node_id for node in answer.brokers}) == 2, "both want the id 7"
        (topic,) = answer.topics
        assert (topic.name, len(topic.partitions)) == ("clicks", 3)
        (found,) = client.ask(
            Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]
        ).coordinators
        assert where(found) == first


def test_it_has_no_groups_and_closes_on_what_only_the_coordinator_may_answer(first, second):
    with Client(first) as member:
        assert member.join("g", "m1", "clicks").member_epoch == 2
    with Client(second) as client:
        found = client.ask(Api.LIST_GROUPS, 4, states_filter=())
        assert (int(found.error_code), found.groups) == (0, ())
        client.socket.sendall(
            request_frame(Api.HEARTBEAT, 4, group_id="g", member_id="m1", generation_id=2)
        )
        assert client.is_closed()


def test_topics_that_cannot_be_read_are_not_taken_for_none(store):
    groups = NoGroups(store, CONFIG, StoreNodes(store, CONFIG.lease))
    with pytest.raises(StandsByError, match="topics cannot be read"):
        groups.look_at_topics()


@pytest.mark.usefixtures("first")
def test_an_address_that_is_taken_is_logged_once(store, monkeypatch, caplog):
    serve, tries = stand_by.RunningServer, []
    monkeypatch.setattr(stand_by, "RunningServer", lambda *a: tries.append(a) or serve(*a))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with StandBy(store, replace(CONFIG, server=ServerConfig(listen=at)), LOOK_S):
            until(lambda: len(tries) > 2)
    (line,) = [one for one in caplog.messages if "cannot tell clients" in one]
    assert line.startswith(f"cannot tell clients that {at} stands by: ")
    assert line.endswith(f"cannot listen on {at}: Address already in use")


def test_a_server_whose_store_is_read_only_tells_the_others_later(store, monkeypatch, caplog):
    """It serves at once, with the id wanted; then with another if that one was taken meanwhile."""
    register, tries = StoreNodes.register, []

    def fails_thrice(nodes, *place):
        tries.append(place)
        if len(tries) < 4:
            raise OSError(errno.EROFS, "Read-only file system")
        return register(nodes, *place)

    quick = replace(CONFIG, lease=LeaseConfig(ttl_ms=60_000, renew_ms=20))
    with Coordinator.open(store, topics={"clicks": 3}, config=quick) as coordinator:
        register(StoreNodes(store, quick.lease), 7, "127.0.0.1:1")
        monkeypatch.setattr(StoreNodes, "register", fails_thrice)
        with coordinator.serve() as serving, Client(serving.address) as client:
            ids = []

            def has_another_id():
                found = client.ask(Api.METADATA, 12, topics=(), **WORDS).brokers
                ids.extend(node.node_id for node in found if where(node) == serving.address)
                return ids[-1] != 7

            until(has_another_id)
    assert (ids[0], ids[-1]) == (7, 1)
    assert [one for one in caplog.messages if "other servers" in one] == [
        f"cannot tell other servers about {serving.address} yet: [Errno 30] Read-only file system",
        "cannot refresh the other servers of the store: [Errno 30] Read-only file system",
    ]


def test_fewer_files_than_connections_lower_their_number(monkeypatch, caplog):
    monkeypatch.setattr(listener, "raise_files_limit", lambda: 500)
    opened = Coordinator.open(None, topics={"clicks": 3}, config=CONFIG)
    with opened as coordinator, coordinator.serve() as serving, Client(serving.address) as client:
        assert client.ask(Api.METADATA, 12, topics=(), **WORDS).controller_id == 7
    (line,) = [one for one in caplog.messages if "connections_max" in one]
    assert line == (
        "server.connections_max is 10000, but this process may have 500 files: 300 connections"
    )
