"""A few seeds of the simulation, and bugs planted to see that it finds them; `make sim` runs more."""

from __future__ import annotations

import sys

import pytest
from conftest import ROOT

from coordinator import reconcile
from coordinator.runner import Runner

sys.path.insert(0, str(ROOT))
from tests.sim.run import simulate

SEEDS = 25


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_holds(seed):
    outcome = simulate(seed)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


def found_within(seeds):
    return any(simulate(seed).violation is not None for seed in range(seeds))


def test_it_finds_an_assignment_before_the_revocation(monkeypatch):
    monkeypatch.setattr(reconcile, "_owns", lambda _owned, _revoked: False)
    assert found_within(SEEDS)


def test_it_finds_an_answer_that_is_not_durable(monkeypatch):
    """Records stay in memory: whoever takes over knows nothing of what was answered."""
    monkeypatch.setattr(Runner, "_commit", lambda _self, _records: True)
    assert found_within(SEEDS)
