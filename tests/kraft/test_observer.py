"""The metadata is read by Fetch, and by snapshots where that is trimmed; refusals are named."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from coordinator.kraft.links import Controllers, RefusedError
from coordinator.kraft.links import Quorum as Known
from coordinator.kraft.observer import NO_NODE, Observer
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import Api
from coordinator.wire.decoder import entity_reader
from coordinator.wire.encoder import entity_writer

from .recorded import METADATA, SAID, answer, split

END = split(METADATA)[-1][1] + 1
NONE = ErrorCode.none


class Controller:
    """An active controller whose log begins at an offset; before that it has a snapshot."""

    def __init__(self, start=0, code=NONE, chunk=5_000):
        self.start, self.code, self.chunk, self.asked = start, code, chunk, []

    async def ask(self, api, **fields):
        self.asked.append(api)
        if api == Api.FETCH_SNAPSHOT:
            return self.part_of_a_snapshot(fields)
        (asked,) = fields["topics"][0]["partitions"]
        leader = SimpleNamespace(leader_id=1, leader_epoch=4)
        if asked["current_leader_epoch"] < 4:
            found = answer(error_code=ErrorCode.fenced_leader_epoch, current_leader=leader)
        elif asked["fetch_offset"] < self.start:
            snapshot = SimpleNamespace(end_offset=self.start, epoch=3)
            found = answer(error_code=NONE, snapshot_id=snapshot)
        else:
            some = [one[2] for one in split(METADATA) if one[0] >= asked["fetch_offset"]][:50]
            found = answer(b"".join(some), END, error_code=NONE)
        topic = SimpleNamespace(partitions=[found])
        return SimpleNamespace(error_code=self.code, responses=[topic])

    def part_of_a_snapshot(self, fields):
        (asked,) = fields["topics"][0]["partitions"]
        data = b"".join(one[2] for one in split(METADATA) if one[0] < self.start)
        at = asked["position"]
        part = SimpleNamespace(
            error_code=NONE, size=len(data), unaligned_records=data[at : at + self.chunk]
        )
        return SimpleNamespace(error_code=NONE, topics=[SimpleNamespace(partitions=[part])])

    def forget(self):
        self.asked.append("forget")


def read(controller):
    observer = Observer(controller, SAID["cluster_id"], NO_NODE, UUID(int=1))
    return asyncio.run(observer.catch_up()).image


def test_a_trimmed_log_is_read_from_its_snapshot():
    """In parts that end anywhere."""
    whole, trimmed = Controller(), Controller(start=split(METADATA)[300][0])
    assert vars(read(trimmed)) == vars(read(whole))
    assert set(trimmed.asked) == {Api.FETCH, Api.FETCH_SNAPSHOT}


def test_a_right_that_is_missing_is_named():
    refused = Controller(code=ErrorCode.cluster_authorization_failed)
    with pytest.raises(RefusedError, match="the node's user needs CLUSTER_ACTION"):
        read(refused)
    with pytest.raises(ConnectionError, match="answers unknown_server_error"):
        read(Controller(code=ErrorCode.unknown_server_error))


def test_a_snapshot_that_ends_too_soon_is_asked_for_again():
    with pytest.raises(ConnectionError, match="ends after 0"):
        read(Controller(start=END, chunk=0))


def test_the_answer_to_fetch_snapshot_is_read():
    """Kafka leaves its leader out, which is a tagged struct that has no default in kio."""
    message = load_response_schema(Api.FETCH_SNAPSHOT, 1)
    part = {
        "index": 0, "error_code": 0, "size": 3, "position": 0, "unaligned_records": b"abc",
        "snapshot_id": {"end_offset": 9, "epoch": 2},
    }  # fmt: skip
    out = bytearray()
    topics = [{"name": "__cluster_metadata", "partitions": [part]}]
    entity_writer(message)(out, {"error_code": 0, "topics": topics})
    found, end = entity_reader(message)(bytes(out), 0)
    assert end == len(out)
    leader = found.topics[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (0, 0)


HANGS = object()


class Quorum:
    """Links to controllers and brokers, of which some answer who is active."""

    def __init__(self, servers, answers):
        self.settings = ClientSettings(servers, None, None, "c")
        self.answers, self.asked, self.code = answers, [], NONE

    async def ask(self, address, api, **_fields):
        self.asked.append((address[1], api))
        found = self.answers[address[1]]
        if isinstance(found, Exception):
            raise found
        if found is HANGS:
            await asyncio.sleep(60)
        if api != Api.DESCRIBE_QUORUM:
            return found
        if not isinstance(found, int):  # it answers, but is a controller that is not active
            return SimpleNamespace(error_code=ErrorCode.not_leader_or_follower, error_message="no")
        partition = SimpleNamespace(error_code=NONE, leader_id=found)
        nodes = [
            SimpleNamespace(node_id=n, listeners=[SimpleNamespace(host="c", port=9_000 + n)])
            for n in (1, 2)
        ]
        topic = SimpleNamespace(partitions=[partition])
        return SimpleNamespace(
            error_code=self.code, error_message=None, topics=[topic], nodes=nodes
        )


def controllers_of(named, brokers, quorum=None):
    found = Controllers(brokers.settings, named.settings, quorum=quorum)
    found._links, found._brokers = named, brokers
    return found


def test_the_active_controller_is_found_again_where_it_moved():
    """Named controllers are asked first, then those that were seen, then brokers."""
    moved = SimpleNamespace(error_code=ErrorCode.not_controller)
    done = SimpleNamespace(error_code=NONE)
    named = Quorum([("c", 1)], {1: ConnectionError("down"), 9_001: moved, 9_002: done})
    brokers = Quorum([("b", 5), ("b", 6)], {5: -1, 6: 1})
    found = controllers_of(named, brokers)

    async def ask_twice():
        with pytest.raises(ConnectionError, match="c:9001 is no longer the active controller"):
            await found.ask(Api.BROKER_HEARTBEAT)
        brokers.answers[6] = 2
        return await found.ask(Api.BROKER_HEARTBEAT)

    assert asyncio.run(ask_twice()) is done
    assert [one for one, _ in named.asked] == [1, 9_001, 1, 9_001, 9_002, 9_002]
    assert [one for one, _ in brokers.asked] == [5, 6, 5, 6]


def test_a_controller_that_hangs_holds_up_no_search():
    """It was perhaps the active one; the next is asked soon, and the others are not waited for."""
    done = SimpleNamespace(error_code=NONE)
    named = Quorum([("c", 1), ("c", 2)], {1: HANGS, 2: HANGS, 9_002: done})
    brokers = Quorum([("b", 5)], {5: 2})

    async def ask_many():
        found = controllers_of(named, brokers)
        asked = [found.ask(Api.BROKER_HEARTBEAT) for _ in range(3)]
        async with asyncio.timeout(10):
            return await asyncio.gather(*asked)

    assert asyncio.run(ask_many()) == [done] * 3
    searched = [
        port
        for links in (named, brokers)
        for port, api in links.asked
        if api != Api.BROKER_HEARTBEAT
    ]
    assert searched == [1, 2, 5]  # once for all


def test_a_request_to_one_that_is_no_longer_active_is_not_waited_for():
    """Another task of the node has found the next one, by its heartbeat."""
    done, quorum = SimpleNamespace(error_code=NONE), Known()
    named = Quorum([], {9_001: HANGS, 9_002: done})
    found = controllers_of(named, Quorum([("b", 5)], {5: 1}), quorum)

    async def ask():
        waiting = asyncio.create_task(found.ask(Api.ENVELOPE))
        await asyncio.sleep(0.05)
        quorum.active = "c", 9_002
        with pytest.raises(ConnectionError, match="9001 is no longer the active"):
            await waiting
        return await found.ask(Api.ENVELOPE)

    assert asyncio.run(ask()) is done


def test_a_user_that_may_not_ask_for_the_controller_is_refused():
    named, brokers = Quorum([], {}), Quorum([("b", 5)], {5: 1})
    brokers.code = ErrorCode.cluster_authorization_failed
    with pytest.raises(RefusedError, match="the node's user needs DESCRIBE on the cluster"):
        asyncio.run(controllers_of(named, brokers).ask(Api.BROKER_HEARTBEAT))


def test_no_active_controller_is_an_error_that_passes():
    named, brokers = Quorum([], {}), Quorum([("b", 5)], {5: -1})
    with pytest.raises(ConnectionError, match="cannot be found: b:5: none, leader -1"):
        asyncio.run(controllers_of(named, brokers).ask(Api.BROKER_HEARTBEAT))
