"""`muster nodes` and `muster drain`: what an operator sees of nodes, and asks of them."""

from __future__ import annotations

import json

from coordinator import Coordinator
from coordinator.cli import nodes as module
from coordinator.shards.shard_loads import ShardLoads
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes import Work, committed, has, node, wait_for


def rows_of(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def counts(muster_here, store, name="shards"):
    return {row["node_id"]: row[name] for row in rows_of(muster_here("nodes", "--store", store))}


def test_nodes_are_listed_and_one_is_drained_and_filled_again(store, muster_here):
    with node(store, 1) as one, node(store, 2) as two:
        wait_for(lambda: has(2, 2)(one, two))
        with Work([one.address, two.address]) as work:
            work.go_on()
            wait_for(lambda: counts(muster_here, store) == {1: 2, 2: 2})
            rows = rows_of(muster_here("nodes", "--store", store))
            assert [row["address"] for row in rows] == [one.address, two.address]
            assert [row["target"] for row in rows] == [2, 2]
            assert [row["drained"] for row in rows] == [False, False]
            assert sum(row["has_root"] for row in rows) == 1

            (done,) = rows_of(muster_here("drain", 2, "--store", store, "--reason", "upgrade"))
            assert done["drained"]
            assert done["moves"] == 2
            wait_for(lambda: has(0, SHARDS)(one, two))
            wait_for(lambda: counts(muster_here, store) == {1: SHARDS, 2: 0})
            owners = rows_of(muster_here("nodes", "--store", store, "--shards"))
            assert {row["shard"]: row["node_id"] for row in owners} == dict.fromkeys(range(4), 1)
            work.go_on()
            rows = rows_of(muster_here("nodes", "--store", store))
            assert [row["drained"] for row in rows] == [False, True]

            last = muster_here("drain", 1, "--store", store)
            assert last.returncode == 2, "a shard has a node"
            again = muster_here("drain", 1, "--undo", "--store", store)
            assert again.returncode == 2, "it was not drained"

            rows_of(muster_here("drain", 2, "--undo", "--store", store))
            wait_for(lambda: has(2, 2)(one, two))
            work.go_on()
        assert committed(store) == work.counts


def test_what_is_no_node_is_refused(store, tmp_path, muster_here):
    assert counts(muster_here, store) == {}
    owners = rows_of(muster_here("nodes", "--store", store, "--shards"))
    assert [row["node_id"] for row in owners] == [None] * SHARDS
    done = muster_here("drain", 7, "--store", store)
    assert (done.returncode, b"alive are none" in done.stderr) == (2, True)
    Coordinator.open(tmp_path / "one").close()
    for words in (["nodes"], ["drain", 1]):
        done = muster_here(*words, "--store", tmp_path / "one")
        assert done.returncode == 2
        assert b"is not a store of shards" in done.stderr


def test_the_loads_of_nodes_and_shards_are_listed(store, muster_here, monkeypatch):
    monkeypatch.setattr(ShardLoads, "measure", lambda _: {0: 7.5, 3: 4.0})
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        one.nodes.renew()
        assert counts(muster_here, store, "load") == {1: 11.5}
        owners = rows_of(muster_here("nodes", "--store", store, "--shards"))
        assert [row["load"] for row in owners] == [7.5, None, None, 4.0]


def test_a_node_is_drained_though_shards_move_meanwhile(store, muster_here, monkeypatch):
    """A plan is for one state of the nodes, and an operator asks for no certain one."""
    ask, asked = module.ask_coordinator, []

    def ask_late(*words):
        asked.append(words)
        if len(asked) == 1:
            for undo in ((), ("--undo",)):
                rows_of(muster_here("drain", 1, *undo, "--store", store))
        return ask(*words)

    with node(store, 1) as one, node(store, 2) as two:
        wait_for(lambda: has(2, 2)(one, two))
        wait_for(lambda: counts(muster_here, store, "target") == {1: 2, 2: 2})
        monkeypatch.setattr(module, "ask_coordinator", ask_late)
        (done,) = rows_of(muster_here("drain", 2, "--store", store))
        assert done["moves"] == 2
        assert len(asked) == 4, "ours, two others, ours again"
        wait_for(lambda: has(0, SHARDS)(one, two))
