"""Shards are divided by what they have to do."""

from __future__ import annotations

import json
from dataclasses import replace

from coordinator.config import LeaseConfig, WeightsConfig
from coordinator.core.java_hash import place_of
from coordinator.history import frame
from coordinator.member.member import Member
from coordinator.runtime.plan_tasks.weight_source import open_weight_source
from coordinator.shards.shard_loads import BASE, MEASURED_S, ShardLoads, ShardWeights
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import NODES, root_at
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes import has, node, wait_for

QUICK = WeightsConfig(poll_ms=200, half_life_ms=0, interval_ms=1_000)


def test_a_load_is_what_was_asked_a_second_since_the_last_measure():
    asked, now = {3: (1, 100)}, [50.0]
    loads = ShardLoads(lambda: asked, lambda: now[0])
    assert loads.measure() == {}, "it is not known yet"
    asked[3], now[0] = (1, 150), 50.0 + MEASURED_S / 2
    assert loads.measure() == {}, "nor over so short a time"
    asked[3], now[0] = (1, 200), 50.0 + MEASURED_S
    assert loads.measure() == {3: 100 / MEASURED_S}
    asked[3], now[0] = (1, 10_000), now[0] + MEASURED_S / 2
    assert loads.measure() == {3: 100 / MEASURED_S}, "a moment is no load"
    now[0] += MEASURED_S
    assert loads.measure() == {3: round(9_800 / (1.5 * MEASURED_S), 1)}
    asked[3], asked[4] = (2, 7), (1, 0)
    assert loads.measure() == {}, "another claim restarts the count"
    asked.clear()
    assert loads.measure() == {}


def nodes_with(store, node_id, shards, loads):
    nodes = StoreNodes(store, LeaseConfig(), shards=lambda: shards, loads=lambda: loads)
    nodes.register(node_id, f"127.0.0.1:{node_id}")
    return nodes


def test_a_shard_weighs_what_its_last_owner_says_or_said(store):
    one, loads = {0: 1, 1: 1, 2: 4}, {0: 10.0, 1: 20.0, 2: 30.0}
    nodes = nodes_with(store, 1, one, loads)
    weights = ShardWeights(SHARDS, nodes, None)

    def found():
        rows = weights().partitions.to_pylist()
        assert {row["group_id"] for row in rows} == {NODES}
        return [row["weight"] - BASE for row in rows]

    assert found() == [10.0, 20.0, 30.0, 0.0]
    two = {0: 2, 1: 2, 2: 3}
    other = nodes_with(store, 2, two, {1: 99.0, 2: 99.0, 77: 1.0})
    assert found() == [10.0, 99.0, 30.0, 0.0], "shard 0 is new there, and 2 was claimed here later"
    two.clear()
    other.renew()
    one.clear()
    nodes.renew()
    assert found() == [10.0, 99.0, 30.0, 0.0], "no node has them now"


def test_no_weight_changes_while_a_node_is_late(store):
    """A shard was moved beside those of a node that had been killed, and all came later."""
    loads, late = {0: 10.0}, []
    nodes = nodes_with(store, 1, {0: 1}, loads)
    weights = ShardWeights(SHARDS, nodes, None, lambda: bool(late))
    assert weights().partitions["weight"][0].as_py() == BASE + 10
    loads[0] = 20.0
    nodes.renew()
    late.append("b:1")
    assert weights().partitions["weight"][0].as_py() == BASE + 10
    late.clear()
    assert weights().partitions["weight"][0].as_py() == BASE + 20


def test_a_load_below_0_weighs_as_none(store):
    """What a node says comes from its file: no shard may weigh less than one without members."""
    weights = ShardWeights(SHARDS, nodes_with(store, 1, {0: 1, 1: 1}, {0: -5.0, 1: 7.0}), None)
    assert weights().partitions["weight"].to_pylist() == [BASE, BASE + 7, BASE, BASE]


def test_rules_of_the_nodes_are_those_that_name_their_group(tmp_path, store):
    rows = [
        {"group_id": NODES, "kind": "pin", "selector": "muster.shards/1", "value": "a"},
        {"kind": "pin", "selector": "t", "value": "b"},
        {"group_id": "billing", "kind": "pin", "selector": "t", "value": "c"},
    ]
    (tmp_path / "constraints.json").write_text("\n".join(map(json.dumps, rows)))
    found = ShardWeights(SHARDS, nodes_with(store, 1, {}, {}), open_weight_source(tmp_path))()
    assert [row["value"] for row in found.constraints.to_pylist()] == ["a"]
    assert found.members is None


def test_shards_with_much_to_do_come_to_different_nodes(store, monkeypatch):
    hot = {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}
    monkeypatch.setattr(ShardLoads, "measure", lambda self: {n: hot[n] for n in self._asked()})
    with node(store, 1, weights=QUICK) as one:
        wait_for(lambda: has(SHARDS)(one))
        for shard in range(SHARDS):  # a shard without a log has no load
            group_id = next(f"g{n}" for n in range(99) if place_of(f"g{n}", SHARDS) == shard)
            with Member(one.address, group_id=group_id, topics=["t"]) as member:
                assert member.wait_for_change(timeout=60)
        with node(store, 2, weights=QUICK) as two:
            wait_for(lambda: has(2, 2)(one, two))
            both = one.owned
            hot.update(dict.fromkeys(both, 1_000.0))
            wait_for(lambda: has(2, 2)(one, two) and len(set(both) & set(one.owned)) == 1)
    epochs = frame(root_at(store), "epochs", group_id=NODES)
    assert epochs["reason"].to_pylist().count("weights changed") == 1


def test_a_shard_is_pinned_to_a_node_and_a_node_has_a_capacity(tmp_path, store):
    tables = tmp_path / "tables"
    tables.mkdir()
    weights = replace(QUICK, source=str(tables))
    with node(store, 1, weights=weights) as one, node(store, 2, weights=weights) as two:
        wait_for(lambda: has(2, 2)(one, two))
        (shard,) = one.owned[:1]
        rule = {"kind": "pin", "selector": f"muster.shards/{shard}", "value": two.address}
        write_table(tables / "constraints.json", rule)
        wait_for(lambda: has(2, 2)(one, two) and shard in two.owned)
        write_table(tables / "members.json", {"name": two.address, "capacity": 3})
        wait_for(lambda: has(1, 3)(one, two) and shard in two.owned)


def write_table(path, row):
    """Write a table of one row, at once for its readers."""
    path.with_suffix(".new").write_text(json.dumps({"group_id": NODES} | row))
    path.with_suffix(".new").rename(path)
