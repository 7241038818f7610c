"""What clients may use up: connections from their first packet on, and other clients' time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import ssl
import struct
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, ServerConfig
from coordinator.core.events import (
    CommittedOffset,
    DescribeGroup,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
)
from coordinator.core.large_requests import cut, join
from coordinator.errors import ErrorCode
from coordinator.runtime import futures
from coordinator.wire import acceptor
from coordinator.wire.codec import DECODED_AT_ONCE_BYTES, Api
from coordinator.wire.connection import BRIEF
from coordinator.wire.listener import load_access
from coordinator.wire.sasl import Verifier
from coordinator.wire.server import Server
from coordinator.wire.turns import REQUESTS_A_TURN, Turns
from tests.support.wire_client import Client, read_response, request_frame, take_frame
from tests.wire.test_access import certificates, tls_of
from tests.wire.test_server import count, loop, served, until

__all__ = ["certificates", "loop"]


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("loop")
def test_silent_connections_are_limited(certificates):
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    limits = {"connections_max": 10, "handshake_ms": 1_500}
    with served(**tls_of(certificates), **limits) as (coordinator, address):
        before = open_files()
        with contextlib.ExitStack() as closing:
            silent = [closing.enter_context(Client(address)) for _ in range(40)]
            until(lambda: count(coordinator, "wire_closed_total", reason="full") == 30)
            assert open_files() - before < 40 + 10 + 5  # far less than two of each
            assert count(coordinator, "wire_connections") == 10
            assert all(client.is_closed() for client in silent), "those in their handshake, too"
            until(lambda: count(coordinator, "wire_closed_total", reason="handshake") == 10)
        until(lambda: count(coordinator, "wire_connections") == 0)
        with Client(address, trusting) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2


@pytest.mark.usefixtures("loop")
def test_a_server_ends_in_the_middle_of_handshakes(certificates):
    with contextlib.ExitStack() as closing:
        with served(**tls_of(certificates)) as (coordinator, address):
            silent = [closing.enter_context(Client(address)) for _ in range(5)]
            until(lambda: count(coordinator, "wire_connections") == 5)
        assert all(client.is_closed() for client in silent)
        until(lambda: count(coordinator, "wire_connections") == 0)


@pytest.mark.usefixtures("loop")
def test_connections_of_one_address_are_limited():
    with served(connections_per_address_max=2) as (coordinator, address):
        with Client(address) as one, Client(address) as two, Client(address) as three:
            assert three.is_closed()
            assert count(coordinator, "wire_closed_total", reason="address") == 1
            assert int(one.ask(Api.LIST_GROUPS, 4).error_code) == 0
            assert int(two.ask(Api.LIST_GROUPS, 4).error_code) == 0
        until(lambda: count(coordinator, "wire_connections") == 0)
        with Client(address) as again:
            assert int(again.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_the_last_file_descriptors_are_kept_for_the_log(monkeypatch):
    monkeypatch.setattr(acceptor, "raise_files_limit", lambda: open_files() + 120)
    with served() as (coordinator, address), contextlib.ExitStack() as closing:
        most = acceptor.raise_files_limit() - acceptor.count_reserved_files() // 2
        clients = [closing.enter_context(Client(address)) for _ in range(60)]
        until(lambda: count(coordinator, "wire_closed_total", reason="files") > 0)
        assert clients[-1].is_closed()
        assert count(coordinator, "wire_connections") < most


def test_when_descriptors_run_out_the_server_waits_for_some(monkeypatch):
    real, failing = acceptor.Acceptor._accept, [True]

    class Without:
        """A socket that the system has no descriptor for."""

        def __init__(self, sock):
            self.sock = sock

        def accept(self):
            raise OSError(24, "Too many open files")

        def __getattr__(self, name):
            return getattr(self.sock, name)

    def accept(self):
        sock = self._socket
        if failing:
            self._socket = Without(sock)
        try:
            real(self)
        finally:
            self._socket = sock

    monkeypatch.setattr(acceptor.Acceptor, "_accept", accept)
    with served() as (_, address), Client(address) as client:
        time.sleep(0.2)
        failing.clear()
        assert int(client.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_a_handshake_timeout_of_zero_is_refused():
    with pytest.raises(ConfigError, match="handshake_ms is 0: give 1 or more"):
        load_access(ServerConfig(handshake_ms=0))


# Long requests -----------------------------------------------------------------------------------


def describe_many(number, count):
    names = [f"group-{n}" for n in range(count)]
    return request_frame(
        Api.CONSUMER_GROUP_DESCRIBE, 1, number, group_ids=names,
        include_authorized_operations=False,
    )  # fmt: skip


def test_heartbeats_do_not_wait_for_large_requests():
    with served() as (_, address), Client(address) as member, Client(address) as curious:
        epoch = member.join("g", "m1", "clicks").member_epoch
        curious.socket.sendall(describe_many(1, 20_000))
        for _ in range(3):
            assert member.beat("g", "m1", epoch).member_epoch == epoch
            assert select.select([curious.socket], [], [], 0)[0] == []
        answer = read_response(take_frame(curious.socket), Api.CONSUMER_GROUP_DESCRIBE, 1)[1]
        assert [group.group_id for group in answer.groups[:2]] == ["group-0", "group-1"]
        assert {int(group.error_code) for group in answer.groups} == {69}
        assert len(answer.groups) == 20_000


def test_long_and_short_requests_are_answered_in_their_order():
    partitions = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1} for p in range(900)]
    topics = [{"topic": "clicks", "partitions": partitions}]
    long_fetch = {"topics": topics, "max_wait": 60_000, "min_bytes": 1, "forgotten_topics_data": ()}
    with served() as (_, address), Client(address) as client:
        frames = [
            request_frame(Api.LIST_GROUPS, 4, 1),
            describe_many(2, 3_000),
            request_frame(Api.FETCH, 12, 3, **long_fetch),
            request_frame(Api.LIST_GROUPS, 4, 4),
            request_frame(Api.DELETE_GROUPS, 2, 5, groups_names=[f"g{n}" for n in range(5_000)]),
            request_frame(Api.LIST_GROUPS, 4, 6),
        ]
        long = [len(frame) > DECODED_AT_ONCE_BYTES for frame in frames]
        assert long == [False, True, True, False, True, False]
        client.socket.sendall(b"".join(frames))
        kinds = [
            (Api.LIST_GROUPS, 4), (Api.CONSUMER_GROUP_DESCRIBE, 1), (Api.FETCH, 12),
            (Api.LIST_GROUPS, 4), (Api.DELETE_GROUPS, 2), (Api.LIST_GROUPS, 4),
        ]  # fmt: skip
        for number, (api, version) in enumerate(kinds, 1):
            assert read_response(take_frame(client.socket), api, version)[0] == number


@pytest.mark.parametrize("names", [["x"] * 101, ["x" * 200] * 101, [""] * 1_000_000])
def test_a_request_with_too_many_elements_ends_its_connection(names):
    with served(elements_max=100) as (coordinator, address), Client(address) as client:
        join = {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000,
            "topic_partitions": (),
        }  # fmt: skip
        client.join("g", "m", *["clicks"] * 100)
        frame = request_frame(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, 1, subscribed_topic_names=names, **join
        )
        client.socket.sendall(frame)
        assert client.is_closed()
        assert count(coordinator, "wire_closed_total", reason="refused") == 1


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_long_request_of_garbage_ends_its_connection(size):
    with served() as (coordinator, address), Client(address) as client, Client(address) as other:
        head = struct.pack(">hhihbb", Api.CONSUMER_GROUP_DESCRIBE, 1, 7, -1, 0, 0x7F)
        client.socket.sendall(struct.pack(">i", len(head) + size) + head + b"\xff" * size)
        assert client.is_closed()
        assert count(coordinator, "wire_closed_total", reason="refused") == 1
        assert int(other.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_a_batch_about_very_many_groups_is_decided_in_pieces():
    with Coordinator.open(None, topics={"clicks": 1}) as coordinator:
        let, holds, order = threading.Event(), threading.Event(), []
        coordinator._loop.call(lambda: holds.set() or let.wait(30))
        assert holds.wait(30)
        many = coordinator.submit([DescribeGroup(f"g{n}") for n in range(3_000)])
        many.add_done_callback(lambda _: order.append("many"))
        one = coordinator.submit([DescribeGroup("other")])
        one.add_done_callback(lambda _: order.append("one"))
        let.set()
        answers = many.result(30)
        assert order == ["one", "many"]
        assert [answer.response.fields()["group_id"] for answer in answers] == [
            f"g{n}" for n in range(3_000)
        ]


NAMES = [f"t{number:04}" for number in range(1_500)]
ONE = {"t": {0: CommittedOffset(7)}}


def commit(topics, each=1, group="g"):
    offsets = {name: {at: CommittedOffset(at) for at in range(each)} for name in topics}
    return OffsetCommit(group, "", -1, offsets)


def answered_in_order(*batches):
    """Submit batches of events together; return whose answers came when, and the answers."""
    with Coordinator.open(None, topics=dict.fromkeys([*NAMES, "t"], 1)) as coordinator:
        let, holds, order = threading.Event(), threading.Event(), []
        coordinator._loop.call(lambda: holds.set() or let.wait(30))
        assert holds.wait(30)
        asked = [coordinator.submit(batch) for batch in batches]
        for at, future in enumerate(asked):
            future.add_done_callback(lambda _, at=at: order.append(at))
        let.set()
        return [future.result(30) for future in asked], order


def test_a_member_waits_for_one_large_request_of_others_at_most():
    larges = [[commit(NAMES, 2, group=f"large-{at}")] for at in range(5)]
    many = [OffsetCommit(f"small-{at}", "", -1, ONE) for at in range(20)]
    _, order = answered_in_order(*larges, many)
    assert order.index(len(larges)) <= 1


def test_others_are_answered_between_the_pieces_of_a_commit():
    pieces = cut(commit(NAMES, 8))
    assert len(pieces) == 6
    (found, _), order = answered_in_order([*pieces], [OffsetCommit("small", "", -1, ONE)])
    assert order == [1, 0]
    answer = join(pieces, found)
    assert answer.response == {name: dict.fromkeys(range(8), ErrorCode.NONE) for name in NAMES}


def test_a_batch_of_both_is_answered_in_its_order():
    batch = [commit(["t"]), commit(NAMES, 2), OffsetFetch("g", {"t0000": [1]}), commit(["t"], 2)]
    ((first, large, fetched, last),), _ = answered_in_order(batch)
    assert (first.response, last.response) == ({"t": {0: 0}}, {"t": {0: 0, 1: 0}})
    assert len(large.response) == len(NAMES)
    assert fetched.response["t0000"][1].offset == 1


def test_a_member_of_very_many_topics_beats_beside_others():
    with Coordinator.open(None, topics=dict.fromkeys(NAMES, 1)) as coordinator:
        coordinator.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=NAMES, topic_partitions={},
        )  # fmt: skip
        assert coordinator.is_large(Heartbeat("g", "m", 2))
        assert not coordinator.is_large(Heartbeat("g", "other", 2))


# Logins ------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path):
    """Settings of a server with one user, whose password takes a second to hash."""
    users, acls = tmp_path / "users.toml", tmp_path / "acls.toml"
    users.write_text(f'[users]\nann = "{Verifier.of("SCRAM-SHA-256", "secret")}"\n')
    acls.write_text('super_users = ["User:ann"]')
    return {"sasl_mechanisms": ("PLAIN",), "sasl_users": str(users), "acls": str(acls)}


def begin_login(client, password):
    client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    words = f"\0ann\0{password}".encode()
    client.socket.sendall(request_frame(Api.SASL_AUTHENTICATE, 2, 2, auth_bytes=words))


def login_code(client):
    return int(read_response(take_frame(client.socket), Api.SASL_AUTHENTICATE, 2)[1].error_code)


@pytest.mark.usefixtures("loop")
def test_members_do_not_wait_while_passwords_are_hashed(guarded, monkeypatch):
    """A guess costs some milliseconds, with many iterations half a second; no other client waits for it."""
    let, real = threading.Event(), Verifier.matches

    def matches(self, password):
        assert password != "guess" or let.wait(30)
        return real(self, password)

    with (
        served(**guarded) as (coordinator, address), Client(address) as member,
        Client(address) as guesser, Client(address) as gone, Client(address) as other,
    ):  # fmt: skip
        begin_login(member, "secret")
        assert login_code(member) == 0
        epoch = member.join("g", "m1", "clicks").member_epoch
        monkeypatch.setattr(Verifier, "matches", matches)
        begin_login(guesser, "guess")
        begin_login(gone, "guess")
        gone.socket.close()
        assert member.beat("g", "m1", epoch).member_epoch == epoch
        begin_login(other, "secret")
        assert login_code(other) == 0, "a password that was right before is right at once"
        until(lambda: count(coordinator, "wire_connections") == 3)
        assert select.select([guesser.socket], [], [], 0)[0] == []
        guesser.socket.sendall(request_frame(Api.LIST_GROUPS, 4, 3))
        let.set()
        assert login_code(guesser) == 58
        assert guesser.is_closed(), "what came behind a wrong password is not looked at"


def test_a_user_removed_during_the_login_is_refused(guarded, monkeypatch):
    hashing, let, real = threading.Event(), threading.Event(), Verifier.matches

    def matches(self, password):
        hashing.set()
        assert let.wait(30)
        return real(self, password)

    monkeypatch.setattr(Verifier, "matches", matches)
    config = Config(server=ServerConfig(listen="127.0.0.1:0", reread_ms=0, **guarded))
    with (
        Coordinator.open(None, config=config) as coordinator, coordinator.serve() as serving,
        Client(serving.address) as client,
    ):  # fmt: skip
        begin_login(client, "secret")
        assert hashing.wait(30)
        Path(guarded["sasl_users"]).write_text('[users]\nbob = "other"\n')
        serving.reload()
        let.set()
        assert login_code(client) == 58
        assert client.is_closed()


BACKEND = SimpleNamespace(metrics=SimpleNamespace(client_refused=None))


class TurnLoop:
    """An event loop whose turns a test takes."""

    def __init__(self):
        self.soon = []

    def call_soon(self, work):
        self.soon.append(work)

    def take_turn(self):
        now, self.soon = self.soon, []
        for work in now:
            work()


class TurnLink:
    """A connection with requests that others wait for; it notes each that it may ask."""

    def __init__(self, turns, requests, asked):
        self.turns, self.left, self.asked = turns, requests, asked

    def have_turn(self):
        while self.left and self.turns.take(self):
            self.left -= 1
            self.asked.append(self)


MANY = 5 * REQUESTS_A_TURN // 2


def test_requests_that_others_wait_for_are_asked_some_a_turn_one_connection_after_another():
    loop, asked = TurnLoop(), []
    turns = Turns(loop)
    greedy, *others = links = [TurnLink(turns, n, asked) for n in (500, *[1] * MANY)]
    for link in links:
        link.have_turn()
    assert asked == [greedy] * REQUESTS_A_TURN, "at once, while no other waits"
    for _ in range(3):
        before = len(asked)
        loop.take_turn()
        assert len(asked) - before == REQUESTS_A_TURN
    assert all(asked.count(link) == 1 for link in others), "in the order in which they came"
    while loop.soon:
        loop.take_turn()
    assert asked.count(greedy) == 500
    newcomer = TurnLink(turns, 1, asked)
    newcomer.have_turn()
    assert asked[-1] is newcomer, "with none behind it, it waits for nothing"


def test_turns_go_on_when_a_connection_has_gone_meanwhile():
    loop, asked = TurnLoop(), []
    turns = Turns(loop)
    links = [TurnLink(turns, 1, asked) for _ in range(3 * REQUESTS_A_TURN)]
    for link in links:
        link.have_turn()
    for link in links[REQUESTS_A_TURN : 2 * REQUESTS_A_TURN]:
        link.left = 0
    while loop.soon:
        loop.take_turn()
    assert len(asked) == 2 * REQUESTS_A_TURN


class HashedLink(SimpleNamespace):
    """A connection's fields; like it, equal to itself only."""

    __hash__ = object.__hash__


def test_who_waited_is_answered_some_a_turn():
    """A rebalance may answer any number of members at once; other clients are served in between."""

    async def answer_all():
        server = Server(BACKEND, SimpleNamespace(versions={}, find_offsets=None), ServerConfig())
        answered, turns = [], []
        server._answer = lambda *words: answered.append(words)
        sent = []
        link = HashedLink(waiting=set(), waiting_bytes=0, connected=True)
        link.proceed = lambda: sent.append(len(answered))
        futures = [Future() for _ in range(MANY)]
        for future in futures:
            pending = SimpleNamespace(size=10, request=SimpleNamespace(body=b"large"))
            server._await_answer(link, pending, SimpleNamespace(events=[1]), future)
            assert pending.request.body is None, "nothing that only the way in needed is kept"
        for future in futures:
            future.set_result(None)
        while len(answered) < len(futures):
            await asyncio.sleep(0)
            turns.append(len(answered))
        assert {after - before for before, after in itertools.pairwise(turns)} <= {
            0,
            REQUESTS_A_TURN // 2,
            REQUESTS_A_TURN,
        }
        assert (link.waiting, link.waiting_bytes) == (set(), 0)
        assert len(sent) == len(set(turns) - {0}), "it sends once a turn, whatever it answers"
        await server.close()

    asyncio.run(answer_all())


def test_what_is_brief_on_the_wire_is_brief_in_the_loop():
    """Else its batch would wait in the loop behind those that it passed on the wire."""
    events = {"Heartbeat": "CONSUMER_GROUP_HEARTBEAT", "ClassicHeartbeat": "HEARTBEAT"}
    names = {one.__name__ for one in get_args(futures.BRIEF)}
    assert {events.get(name, "OFFSET_COMMIT") for name in names} == {api.name for api in BRIEF}
    assert len(names) == len(BRIEF)
