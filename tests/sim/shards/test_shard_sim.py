"""Nodes that share a store of shards, under faults; `make sim` runs many more seeds."""

from __future__ import annotations

import pytest

from tests.sim.run import simulate
from tests.sim.shards.world import ShardWorld

SEEDS = 6
FOUND = (21,)
"""Of those that failed once: a shard that was claimed for a request, and had gone meanwhile."""


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_all_holds(seed):
    outcome = simulate(seed, kind=ShardWorld)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
