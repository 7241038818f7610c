"""The servers of a store find each other, on a disk and in an object store."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient
from obstore.store import MemoryStore

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig
from coordinator.storage.nodes import AGAIN, BYTES_MAX, StoreNodes
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.object_files import ObjectFiles
from tests.support.members import wait_for

LONG_MS = 900_000


def date_files(files, now, written):
    """Have files written at the time of a test, by the store's own clock."""
    swap, listed = files.swap, files.listed

    def swap_now(path, *given):
        written[path.rpartition("/")[2]] = now[0]
        return swap(path, *given)

    files.swap = swap_now
    files.listed = lambda folder: {
        name: one._replace(written_ms=written.get(name, 0)) for name, one in listed(folder).items()
    }


@pytest.fixture(params=["disk", "objects"])
def server(request, tmp_path):
    """Return what makes one server's side; `now` is the time of all, in ms."""
    now, written = [1_000_000], {}
    memory = MemoryStore()

    def new(epoch=0, ahead_ms=0):
        on_disk = request.param == "disk"
        root = str(tmp_path) if on_disk else "memory://tests/store"
        disk = Filesystem() if on_disk else ObjectFiles("memory://tests", memory)
        date_files(disk, now, written)
        clock = lambda: now[0] + ahead_ms  # noqa: E731
        return StoreNodes(root, LeaseConfig(), lambda: epoch, clock, disk)

    new.now = now
    return new


def test_servers_get_ids_of_their_own_and_see_who_coordinates(server):
    first, second = server(epoch=3), server()
    assert first.register(1, "a:1") == 1
    assert second.register(1, "b:1") == 2  # it is taken
    first.renew()
    assert [(one.node_id, one.address) for one in first.others] == [(2, "b:1")]
    assert (first.coordinator(), second.coordinator().address) == (None, "a:1")
    again = server(epoch=4)  # of the process that stood by: the address keeps its id
    assert again.register(1, "b:1") == 2
    first.renew()
    assert first.coordinator().coordinator_epoch == 4
    again.leave()
    first.renew()
    assert first.others == ()


def test_a_server_that_writes_no_more_is_forgotten_and_its_id_is_free(server):
    first, second = server(), server()
    first.register(1, "a:1")
    second.register(1, "b:1")
    server.now[0] += LONG_MS
    second.renew()
    assert second.others == ()
    assert server().register(1, "c:1") == 1


def test_who_made_a_claim_is_known_once_it_is_gone(server):
    """Its lease and its file end at the same time: the next one that claims asks for it then."""
    first, second = server(epoch=3), server()
    first.register(1, "a:1")
    second.register(2, "b:1")
    server.now[0] += LONG_MS
    second.look()
    assert second.coordinator() is None
    assert second.with_claim(3).address == "a:1"
    assert second.with_claim(2) is None


def test_two_servers_with_one_address_are_warned_of(server, caplog):
    """Each wrote the other's file over: what a node has was there now and then."""
    first, second = server(), server()
    first.register(1, "a:1")
    second.register(1, "a:1")
    second.renew()
    assert caplog.text == "", "the first one may have ended"
    for _ in range(3):
        first.renew()
        second.renew()
    assert caplog.text.count("another server says that it is at a:1 too") == 2  # each says it once


@pytest.mark.parametrize("ahead_ms", [-LONG_MS, LONG_MS])
def test_clocks_may_differ(server, ahead_ms):
    first, second = server(), server(ahead_ms=ahead_ms)
    first.register(1, "a:1")
    second.register(2, "b:1")
    for _ in range(3):
        server.now[0] += 1_000
        second.renew()
        first.renew()
    assert [one.address for one in first.others] == ["b:1"]
    assert [one.address for one in second.others] == ["a:1"]


@pytest.mark.parametrize("ahead_ms", [-LONG_MS, LONG_MS])
def test_who_looks_once_sees_who_is_alive_whatever_their_clocks_say(server, ahead_ms):
    """As `muster nodes` looks: it said of a node that was an hour behind that it had no shard."""
    first, second, dead = server(), server(ahead_ms=ahead_ms), server(ahead_ms=LONG_MS)
    dead.register(3, "c:1")
    server.now[0] += LONG_MS // 2
    first.register(1, "a:1")
    second.register(2, "b:1")
    assert [one.address for one in server().look()] == ["a:1", "b:1"]


def said(node_id, **more):
    """What the file of a server says."""
    words = {"node_id": node_id, "address": "x:1", "coordinator_epoch": 0, "renewed_ms": 1_000_000}
    return words | {"token": "other"} | more


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("5", b""),
        ("5", b'{"node_id": 5, "addr'),
        ("5", b"[" * 100_000),
        ("5", b"\xff\xfe"),
        ("5", json.dumps(said("5")).encode()),
        ("5", json.dumps(said(6)).encode()),
        ("005", json.dumps(said(5)).encode()),
        ("\N{ARABIC-INDIC DIGIT FIVE}", json.dumps(said(5)).encode()),
        ("2147483648", json.dumps(said(2_147_483_648)).encode()),
        ("9" * 200, b"{}"),
        ("5", json.dumps(said(5, renewed_ms=10**18)).encode()),
        ("5", json.dumps(said(5, loads={"1": 1e300})).encode()),
        ("5", json.dumps(said(5, shards={"-1": 1})).encode()),
        ("5", json.dumps(said(5, address="x" * 2_000)).encode()),
        ("5", json.dumps(said(5)).encode() + b" " * BYTES_MAX),
    ],
)
def test_a_file_that_no_server_wrote_is_passed_over(server, name, content):
    first = server()
    first.register(1, "a:1")
    first._disk.create(f"{first._folder}/{name}.json", content)
    first.renew()
    assert first.others == ()
    assert server().register(5, "b:1") == 5, "its id is free"


@pytest.mark.parametrize("server", ["disk"], indirect=True)
def test_what_is_no_file_is_passed_over(server, tmp_path):
    """A pipe would keep a server waiting indefinitely, and a folder cannot be read."""
    first = server()
    first.register(1, "a:1")
    folder = tmp_path / "_nodes"
    os.mkfifo(folder / "5.json")
    (folder / "6.json").mkdir()
    for name, to in (("7", "/dev/zero"), ("8", "8.json"), ("9", "1.json")):
        (folder / f"{name}.json").symlink_to(to)
    first.renew()
    assert first.others == ()


@pytest.mark.parametrize("server", ["objects"], indirect=True)
def test_objects_that_did_not_change_are_not_read_again(server, monkeypatch):
    first, second, third = server(), server(), server()
    for number, one in enumerate((first, second, third), 1):
        one.register(number, f"{number}:1")
    first.renew()
    read, asked = first._disk.read_tagged, []
    monkeypatch.setattr(first._disk, "read_tagged", lambda path: asked.append(path) or read(path))
    first.look()
    assert asked == []
    server.now[0] += 1_000
    second.renew()
    assert [one.renewed_ms for one in first.look()] == [server.now[0], 1_000_000]
    assert [path.rpartition("/")[2] for path in asked] == ["2.json"]
    assert [one.node_id for one in first.others] == [2, 3]


@pytest.mark.parametrize("server", ["objects"], indirect=True)
def test_few_objects_are_read_again_however_many_servers_renew_them(server, monkeypatch):
    """Each server read the files of all others at each renewal."""
    has = {number: {number: 1} for number in range(1, 31)}
    servers = {number: server() for number in has}
    for number, one in servers.items():
        one._shards = has[number].copy
        one.register(number, f"{number}:1")
    first, *others = servers.values()
    first.renew()
    read, asked = first._disk.read_tagged, []

    def renew():
        server.now[0] += 1_000
        for one in others:
            one.renew()
        asked.clear()
        monkeypatch.setattr(
            first._disk, "read_tagged", lambda path: asked.append(path) or read(path)
        )
        first.renew()
        monkeypatch.setattr(first._disk, "read_tagged", read)
        return set(asked)

    rounds = [renew() for _ in range(4)]
    assert {len(one) for one in rounds} == {AGAIN}
    assert len(set.union(*rounds)) == len(others), "all have their turns, for their loads"
    has[29] |= {30: 2}
    assert any("/29.json" in path for path in renew()), "its file is another one by its length"
    assert first.owner_of(30)[0].node_id == 29
    del servers[17]
    others.remove(next(one for one in others if one._own.node_id == 17))
    for _ in range(60):
        renew()
    assert sorted({1, *(one.node_id for one in first.others)}) == sorted(servers)


def test_a_server_that_could_not_register_at_first_is_known_later(tmp_path, monkeypatch):
    """Else no client of another node would ever find it."""
    config = Config(lease=replace(LeaseConfig(), renew_ms=50))
    other = StoreNodes(str(tmp_path), config.lease)
    register, asked = StoreNodes.register, []

    def fail_once(nodes, wanted, address):
        asked.append(wanted)
        if len(asked) == 1:
            raise OSError("the store does not answer")
        return register(nodes, wanted, address)

    with Coordinator.open(tmp_path, config=config, topics={}) as coordinator:
        register(other, 1, "127.0.0.1:1")
        monkeypatch.setattr(StoreNodes, "register", fail_once)
        with coordinator.serve("127.0.0.1:0") as server:
            assert server.node.node_id == 1  # as it wants
            wait_for(lambda: server.node.node_id == 2)
            assert [one.address for one in other.look()] == [server.address]
            client = AdminClient({"bootstrap.servers": server.address})
            named = client.list_topics(timeout=10).brokers
            assert f"127.0.0.1:{named[2].port}" == server.address
