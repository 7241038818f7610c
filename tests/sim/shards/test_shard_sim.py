"""Nodes that share a store of shards, under faults, and bugs planted to see that they are found.

`make sim` runs many more seeds.
"""

from __future__ import annotations

import pytest

from coordinator.core.java_hash import place_of
from coordinator.runtime.log_writer import LogWriter
from coordinator.shards.node import Node
from coordinator.shards.reach import Reach
from coordinator.shards.root import Root
from coordinator.shards.shards_here import ShardsHere
from coordinator.storage.record_log import MemoryLog
from coordinator.storage.shards import Shards
from tests.sim.run import simulate
from tests.sim.shards.store import NodeLog
from tests.sim.shards.world import ShardWorld
from tests.support.longer import EVERY

SEEDS = 4
FOUND = (30, 324)
"""Of those that failed once: the root's lease was not given back by a node that ended; a node that
was given a shard back never learned that it had lost it meanwhile."""


def close_at_once(self, shard, ours):
    """Serve a departing shard no longer."""
    with self._changing:
        self._here.pop(shard, None)
    ours.close()


PLANTED = {
    "a node says nothing of a claim": (Node, "_tell", lambda _self: None, 3),
    "a node does not look who has claimed": (Node, "_look_at_nodes", lambda _self: None, 3),
    "answers leave before their records are durable": (LogWriter, "append", lambda *_: None, 0),
    "no look at the log before a steady answer": (LogWriter, "confirm", lambda _self: None, 0),
    "a node that lost a shard still writes": (MemoryLog, "look", lambda _self: None, 0),
    "what came after the read-ahead is not read": (NodeLog, "_rest", lambda *_: iter(()), 24),
    "a group's shard is another one": (
        Shards, "shard_of", lambda self, group_id: place_of(group_id[::-1], self.count), 0
    ),
    "a departing shard is closed before it is claimed": (
        ShardsHere, "_close_once_lost", close_at_once, 3
    ),
    "a node that ends waits for no claims": (Node, "_wait_for_claims", lambda _self: None, 8),
    "a claim that fails ends the member": (
        ShardsHere, "_try_to_claim", lambda self, shard: self.claim(shard) is None, 0
    ),
    "the state of a shard that went is kept": (ShardsHere, "_close_once_lost", lambda *_: None, 2),
    "a node that cannot reach the store keeps its shards": (
        Reach, "leave_where_cut_off", lambda _self: None, 4722
    ),
    "a root that no node reaches is kept": (Root, "_is_missed", lambda *_: False, 150),
}  # fmt: skip
"""Where, what is replaced, by what, and a seed that finds it."""


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_all_holds(seed):
    outcome = simulate(seed, kind=ShardWorld)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


@pytest.mark.parametrize("bug", PLANTED if EVERY else list(PLANTED)[:8])
def test_a_planted_bug_is_found(monkeypatch, bug):
    *where, seed = PLANTED[bug]
    monkeypatch.setattr(*where)
    assert any(simulate(seed + more, kind=ShardWorld).violation for more in range(20))
