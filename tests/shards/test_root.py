"""The root of a store of shards: its owner is replaced, whatever the store does."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig
from coordinator.errors import ErrorCode, GroupError
from coordinator.shards import root
from coordinator.shards.node import Node
from coordinator.storage.lease import Holder
from coordinator.storage.shards import NODES, SHARDS_TOPIC, Shards, root_at
from tests.support.members import wait_for


def test_a_node_has_the_root_though_it_could_not_remove_its_predecessor(tmp_path, monkeypatch):
    """Else the root would be held by one who does not coordinate, and by no one after it."""
    ending, asked = threading.Event(), []

    def refuse(*_settings, member_id="no member", **_fields):
        asked.append(member_id)
        raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log failed")

    opened = SimpleNamespace(
        epoch=2,
        status="active",
        close=lambda: None,
        consumer_group_describe=lambda _: [{"members": [{"client_id": "a:1", "member_id": "m"}]}],
        consumer_group_heartbeat=refuse,
        describe_group_config=lambda _: {},
        alter_group_config=refuse,
        name_late=lambda _: None,
    )
    former = SimpleNamespace(coordinator_epoch=1, address="a:1")
    nodes = SimpleNamespace(look=lambda: (), with_claim={1: former}.get, others=())
    monkeypatch.setattr(root, "Coordinator", SimpleNamespace(open=lambda *_, **__: opened))
    has_root = root.Root(str(tmp_path), Shards(4), Config(), nodes, ending.set)
    has_root.hold("b:1", ending, ending)
    assert asked == ["m", "no member"]
    assert ending.is_set()  # the others are to know that it has the root


def test_a_root_that_no_node_reaches_is_given_to_others(tmp_path):
    """Its owner reached the store, and kept it: no node had a shard until the network was well."""
    at, leaving = root_at(str(tmp_path)), threading.Event()
    others = [SimpleNamespace(address="b:1", misses=1)]
    nodes = SimpleNamespace(look=lambda: others, with_claim={}.get, others=others)
    config = Config(lease=LeaseConfig(ttl_ms=2_000, renew_ms=200))
    until_s = time.monotonic() + 20

    def stand_by(seconds, _holder):
        assert time.monotonic() < until_s
        time.sleep(seconds)

    has_root = root.Root(str(tmp_path), Shards(4), config, nodes, lambda: None)
    with ExitStack() as held:
        thread = threading.Thread(target=has_root.hold, args=("a:1", leaving, leaving))
        thread.start()
        held.callback(thread.join)
        held.callback(leaving.set)
        wait_for(lambda: has_root.coordinator is not None)
        for address in ("a:1", "b:1"):
            has_root.coordinator.consumer_group_heartbeat(
                group_id=NODES,
                member_id=address,
                client_id=address,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[SHARDS_TOPIC],
                topic_partitions={},
            )
        with Coordinator.open(at, address="b:1", stand_by=stand_by) as other:
            wait_for(lambda: has_root.holder is not None)
            assert has_root.holder.coordinator_epoch == other.epoch == 2
            (described,) = other.consumer_group_describe(NODES)
            assert [one["member_id"] for one in described["members"]] == ["b:1"], "a:1's are free"


@pytest.mark.parametrize(
    ("heard", "misses", "missed"),
    [([], 3, True), (["b:1"], 3, False), (["a:1", "d:1"], 3, True), ([], 2, False), ([], 0, False)],
    ids=["by none", "by one", "by itself", "another claim", "they ended"],
)
def test_a_root_makes_way_where_others_live_and_none_is_heard_of(tmp_path, heard, misses, missed):
    others = [SimpleNamespace(address=f"{name}:1", misses=misses) for name in "bc"]
    nodes = SimpleNamespace(look=lambda: others, others=others)
    config = Config(lease=LeaseConfig(ttl_ms=30))
    has_root = root.Root(str(tmp_path), Shards(4), config, nodes, lambda: None)
    time.sleep(root.session_ms_of(config) / 1_000)
    for address in heard:
        has_root.heard.note(address)
    assert has_root._is_missed(3) == missed
    assert not has_root._is_missed(3), "the store is not asked all the time"


def test_a_node_is_late_that_the_store_knows_and_the_root_does_not_hear_of(tmp_path):
    nodes = SimpleNamespace(others=[SimpleNamespace(address="b:1"), SimpleNamespace(address="c:1")])
    config = Config(lease=LeaseConfig(ttl_ms=1_000))
    has_root = root.Root(str(tmp_path), Shards(4), config, nodes, lambda: None)
    time.sleep(root.BEATS_MISSED * 0.1)
    has_root.heard.note("b:1")
    assert has_root._list_late() == has_root._list_ended() == ["c:1"]
    has_root.heard.start_over()
    time.sleep(root.BEATS_MISSED * 0.1)
    assert (has_root._list_late(), has_root._list_ended()) == (["b:1", "c:1"], []), "it is cut off"
    has_root.heard.note("b:1")
    del nodes.others[1]
    assert has_root._list_late() == []
    time.sleep(root.BEATS_MISSED * 0.1)
    assert has_root._list_ended() == ["b:1"], "the only other one"


def test_who_stands_by_learns_from_the_lease_who_has_the_root(tmp_path):
    """Heartbeats go there at once: nodes waited for the next one, or for one that hung."""
    at, leaving, moves = root_at(str(tmp_path)), threading.Event(), []
    nodes = SimpleNamespace(look=lambda: (), with_claim={}.get)
    has_root = root.Root(
        *(str(tmp_path), Shards(4), Config(), nodes, lambda: None),
        lambda: moves.append(has_root.holder.address),
    )
    with ExitStack() as held:
        held.enter_context(Coordinator.open(at, address="a:1"))
        thread = threading.Thread(target=has_root.hold, args=("b:1", leaving, leaving))
        thread.start()
        held.callback(thread.join)
        held.callback(leaving.set)
        wait_for(lambda: moves == ["a:1"])
        held.enter_context(Coordinator.open(at, address="c:1", takeover="force"))
        wait_for(lambda: moves == ["a:1", "c:1"])
        assert has_root.holder.coordinator_epoch == 2


@pytest.mark.parametrize(
    ("lease", "said", "found"),
    [
        ((6, "b:1"), [(5, "a:1"), (0, "b:1")], "b:1"),
        ((5, "a:1"), [(6, "b:1"), (5, "a:1")], "b:1"),
        ((6, "c:1"), [(5, "a:1")], "a:1"),
        (None, [(5, "a:1")], "a:1"),
        ((6, "b:1"), [], None),
    ],
)
def test_the_root_is_where_its_lease_or_the_nodes_say(lease, said, found):
    """The lease says it first: the file of a node is written once it has loaded the root."""
    others = [SimpleNamespace(coordinator_epoch=epoch, address=at) for epoch, at in said]
    claimed = [one for one in others if one.coordinator_epoch]
    newest = max(claimed, key=lambda one: one.coordinator_epoch, default=None)
    holder = None if lease is None else Holder("o", lease[0], lease[1], 1, "t")
    node = SimpleNamespace(
        nodes=SimpleNamespace(others=others, coordinator=lambda: newest),
        _holds=SimpleNamespace(holder=holder),
    )
    assert getattr(Node._find_root(node), "address", None) == found


@pytest.mark.parametrize("leaves", ["while it waits for the lease", "while it opens the root"])
def test_a_node_that_ends_keeps_no_root(tmp_path, leaves):
    """Its thread had opened the root after the node had closed, and kept renewing its lease."""
    leaving, says, at = threading.Event(), [], root_at(str(tmp_path))
    nodes = SimpleNamespace(look=lambda: (), with_claim={}.get)
    has_root = root.Root(str(tmp_path), Shards(4), Config(), nodes, lambda: says.append("has it"))
    with ExitStack() as held:
        if leaves == "while it waits for the lease":
            held.enter_context(Coordinator.open(at))
            threading.Timer(0.3, leaving.set).start()
        else:
            config = root.config_of_nodes(Config())
            begins = patch.object(root, "config_of_nodes", lambda _: leaving.set() or config)
            held.enter_context(begins)
        has_root.hold("b:1", leaving, threading.Event())
    assert (has_root.coordinator, says) == (None, [])
    with Coordinator.open(at, takeover="refuse"):
        pass
