"""Classic groups under faults: each phase of a rebalance, slow members, and seeds with everything.

`make sim` runs many more seeds.
"""

from __future__ import annotations

import pytest

from coordinator.core.classic import membership, sync
from coordinator.core.classic_events import SyncGroupResponse
from coordinator.core.events import Result
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.runtime.log_writer import LogWriter
from coordinator.runtime.parked_requests import ParkedRequests
from tests.sim.classic.node import PHASES
from tests.sim.classic.phases import CAUSES, OneRebalance, Trouble
from tests.sim.classic.world import ClassicWorld
from tests.sim.run import DELTA_EVERY, simulate

SEEDS = [*(seed for seed in range(30) if seed % DELTA_EVERY), DELTA_EVERY]
FOUND = (9, 199, 1095)
"""Of those that failed once: a leader that restarted and watched no topics, a round of joins
that took as long as one of its members waited for it, a restart in one batch with a sync."""
NEVER = {("telling", "a newcomer"), ("telling", "a topic grows")}
"""There a join waits from the beginning: at no time do only heartbeats tell of the rebalance."""

PLANTED = {
    "answers leave before their records are durable": (LogWriter, "append", lambda *_: None),
    "a member gets another part than what was written": (
        sync, "_assigned", lambda *_: SyncGroupResponse(assignment=b"")
    ),
    "any generation commits": (ClassicGroup, "check_generation", lambda *_: None),
    "who waits is forgotten with the memory": (
        ParkedRequests, "release", lambda self: self.waiting.clear()
    ),
    "no sessions begin after a load": (
        membership, "start_loaded_groups", lambda *_: Result()
    ),
    "sessions of members never end": (membership, "_expire", lambda *_: None),
}  # fmt: skip
"""Where, what is replaced, and by what."""


@pytest.mark.behaviour("W-87", "W-90", "W-93", "W-95", "W-97", "W-98", "S-3", "S-5", "S-7")
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("phase", PHASES)
def test_a_coordinator_dies_in_a_phase_of_a_rebalance(phase, cause):
    for seed in range(8):
        world = OneRebalance(seed, Trouble(phase=phase))
        world.play(cause)
        if world.happened or (phase, cause) in NEVER:
            break
    assert world.happened is ((phase, cause) not in NEVER)


@pytest.mark.behaviour("W-79", "W-84", "W-85", "W-101", "W-103", "W-104", "W-105", "S-18", "S-21")
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("stops_ms", [2_000, 30_000], ids=["within its session", "for longer"])
@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup", "ClassicHeartbeat"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_is_slow(when, request_name, stops_ms, cause):
    trouble = Trouble(when=when, request=request_name, stops_ms=stops_ms)
    world = OneRebalance(1, trouble)
    world.play(cause)
    assert world.happened


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_all_holds(seed):
    outcome = simulate(seed, kind=ClassicWorld)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{outcome.commands}"


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED[bug])
    outcomes = (simulate(seed, kind=ClassicWorld) for seed in range(300) if seed % DELTA_EVERY)
    assert any(outcome.violation for outcome in outcomes)
