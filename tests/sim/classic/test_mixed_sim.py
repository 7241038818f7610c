"""Groups that change their protocol while they run, and mixed ones, under faults.

`make sim` runs many more seeds.
"""

from __future__ import annotations

import pytest

from coordinator.core.migration import downgrade, mixed
from coordinator.core.state.embedded import Assignment, write_assignment
from tests.sim.classic.mixed import MixedWorld
from tests.sim.run import DELTA_EVERY, simulate

SEEDS = [*(seed for seed in range(1, 12) if seed % DELTA_EVERY), DELTA_EVERY]
FOUND = (52, 95, 696)
"""Of those that failed once: classic members were left alone in a consumer group, and no member
was given what had no owner; a group became a classic one before all had what they were to have."""
NOTHING = write_assignment(Assignment(1, {}))

PLANTED = {
    "a group forgets its targets when it becomes a classic one": (
        downgrade, "assignment_of", lambda *_: NOTHING
    ),
    "a classic member gets nothing": (mixed, "assignment_of", lambda *_: NOTHING),
    "classic members that are left alone wait endlessly": (mixed, "_needs_join", lambda *_: False),
}  # fmt: skip
"""Where, what is replaced, and by what."""


@pytest.mark.behaviour("M2-4", "M2-13", "M2-17", "M2-19")
@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_all_holds(seed):
    outcome = simulate(seed, kind=MixedWorld)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{outcome.commands}"


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED[bug])
    outcomes = (simulate(seed, kind=MixedWorld) for seed in (*FOUND, *SEEDS))
    assert any(outcome.violation for outcome in outcomes)
