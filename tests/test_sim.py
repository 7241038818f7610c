"""A few seeds of the simulation, and bugs planted to see that it finds them; `make sim` runs more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT

from coordinator import keeper, membership, reconcile, replay
from coordinator.log import MemoryLog
from coordinator.records import CurrentMember
from coordinator.runner import Runner
from coordinator.state import Group

sys.path.insert(0, str(ROOT))
from tests.sim.run import simulate

SEEDS = 25
commit, records_of = Runner._commit, keeper.records_of

PLANTED = {
    "partitions are given before they are revoked": (reconcile, "_owns", lambda *_: False),
    "partitions are given that others hold": (
        Group, "free", lambda _self, _key, first, end, _serial: iter([(first, end)])
    ),
    "what a member gives up is not released": (replay, "_release", lambda *_: None),
    "any member epoch is accepted": (membership, "_check_epoch", lambda *_: None),
    "answers leave before their records are durable": (Runner, "_commit", lambda *_: True),
    "no look at the log before a steady answer": (
        Runner, "_commit", lambda self, records: commit(self, records) if records else True
    ),
    "a coordinator that lost the log still writes": (MemoryLog, "look", lambda _self: None),
    "no timers are started after a load": (Runner, "_start_timers", lambda _self: None),
    "a snapshot forgets what members hold": (
        keeper,
        "records_of",
        lambda state: (r for r in records_of(state) if not isinstance(r, CurrentMember)),
    ),
}  # fmt: skip
"""Where, what is replaced, and by what."""


def first_violation(seeds):
    return next((found for found in map(simulate, seeds) if found.violation is not None), None)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_holds(seed):
    outcome = simulate(seed)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED[bug])
    assert first_violation(range(60)) is not None


def test_a_seed_is_one_run_in_every_process():
    code = "from tests.sim.run import simulate; print('\\n'.join(simulate(1).events))"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) > 100
