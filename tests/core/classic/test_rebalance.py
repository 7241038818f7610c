"""How a classic group comes from one generation to the next: its phases, timers and leavers."""

from __future__ import annotations

import pytest

from coordinator.core.classic_events import NO_GENERATION
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, SYNC_PHASE
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.classic_written import record_of
from coordinator.core.state.records import ClassicGroupWritten
from coordinator.core.state.replay import replay
from tests.support.classic_core import DELAY, Completing, Empty, Preparing, Stable
from tests.support.coordinator_core import Code


@pytest.mark.behaviour("H-19", "P-26", "S-6", "W-105")
def test_a_join_while_the_leader_assigns_ends_the_round(core):
    core.generation_of("m1", "m2")
    waits = core.sync("m2")
    assert core.runs(SYNC_PHASE, "") == 60_000
    core.join("m3")
    assert core.code(waits) is Code.REBALANCE_IN_PROGRESS
    assert core.runs(SYNC_PHASE, "") is None
    assert core.runs(HEARTBEAT, "m2") == 10_000, "its session begins with the answer"
    assert core.code(core.sync("m1", m1=b"x")) is Code.REBALANCE_IN_PROGRESS
    assert core.g.members["m1"].assignment == b""


@pytest.mark.behaviour("H-20", "G-75")
def test_a_first_generation_waits_for_more_members_and_again_for_each(core):
    core.configure(**{DELAY: 3_000})
    first = core.join("m1", rebalance_timeout_ms=7_000)
    core.advance(1_000)
    core.join("m2", rebalance_timeout_ms=7_000)
    core.advance(2_000)
    assert first not in core.heard, "a member has come: another 3 s"
    core.join("m3", rebalance_timeout_ms=7_000)
    core.advance(3_000)
    assert (first in core.heard, core.runs(JOIN_PHASE, "")) == (False, 1_000), "7 s in all"
    core.advance(1_000)
    assert (core.heard[first].generation, len(core.heard[first].members)) == (1, 3)


@pytest.mark.behaviour("H-20", "G-75")
def test_a_first_generation_without_newcomers_waits_once(core):
    core.configure(**{DELAY: 3_000})
    first = core.join("m1")
    core.advance(2_999)
    assert first not in core.heard, "nothing ends it early, though all have joined"
    core.advance(1)
    assert core.heard[first].generation == 1


@pytest.mark.behaviour("H-21", "W-14", "W-44", "W-46", "W-71", "W-77", "P-12", "P-16", "P-19")
def test_a_rebalance_ends_when_all_have_joined(core):
    core.stable("m1", "m2", "m3")
    core.join("m1")
    assert core.runs(JOIN_PHASE, "") == 60_000
    core.join("m2")
    assert (core.g.state, core.g.generation) == (Preparing, 1)
    assert core.commit("m3", 1) is Code.NONE, "the generation runs until all have joined"
    core.join("m3")
    assert (core.g.state, core.g.generation) == (Completing, 2)
    assert core.runs(JOIN_PHASE, "") is None


@pytest.mark.behaviour("H-21")
def test_the_longest_rebalance_timeout_counts(core):
    core.join("m1", rebalance_timeout_ms=5_000)
    core.join("m2", rebalance_timeout_ms=90_000)
    core.advance(0)
    assert core.runs(SYNC_PHASE, "") == 90_000
    core.assign()
    core.leave("m2")
    assert core.runs(JOIN_PHASE, "") == 5_000


@pytest.mark.behaviour("H-22", "G-107", "S-21")
def test_who_does_not_rejoin_in_time_is_not_of_the_next_generation(core):
    core.stable("m1", "m2", instances=[None, "i2"])
    core.join("m3")
    for _ in range(12):
        core.advance(5_000)
        if core.g.state is Preparing:
            core.ping("m1")
            core.ping("m2")
    assert (core.g.state, core.g.generation) == (Completing, 2)
    assert list(core.g.members) == ["m2", "m3"], "a static member stays"
    assert core.g.leader == "m3", "the leader has not rejoined: one who has leads"


@pytest.mark.behaviour("H-22", "G-107")
def test_a_join_phase_of_static_members_begins_again(core):
    core.stable("m1", "m2", instances=["i1", "i2"], session_timeout_ms=1_800_000)
    core.leave("m1")
    core.advance(60_000)
    assert (core.g.state, core.g.generation, list(core.g.members)) == (Preparing, 1, ["m2"])
    assert core.runs(JOIN_PHASE, "") == 60_000


@pytest.mark.behaviour("H-22")
def test_the_generation_after_the_greatest_is_the_least(core):
    greatest = ClassicGroup("g", protocol_type="consumer", generation=2**31 - 1)
    replay(core.state, record_of(greatest))
    core.generation_of("m1")
    assert core.g.generation == -(2**31)


@pytest.mark.behaviour("H-23", "H-41", "W-7", "W-39", "W-73", "W-86", "W-72")
def test_the_answers_of_a_join_phase(core):
    core.stable("m1", "m2")
    core.ping("m1")
    first = core.join("m1")
    core.advance(3_000)
    second = core.join("m2")
    answers = [core.heard[first], second]
    assert [(one.error_code, one.generation, one.protocol_name) for one in answers] == [
        (Code.NONE, 2, "range")
    ] * 2
    assert [len(one.members) for one in answers] == [2, 0]
    assert [core.runs(HEARTBEAT, one) for one in ("m1", "m2")] == [10_000, 10_000]
    assert not any(one.is_new for one in core.g.members.values())
    assert core.runs(SYNC_PHASE, "") == 60_000
    assert [one.generation for one in core.records if isinstance(one, ClassicGroupWritten)][-1] == 1
    refused = core.join("m3", "other")
    assert refused.generation == NO_GENERATION


@pytest.mark.behaviour("H-23", "H-41")
def test_a_group_that_no_member_rejoins_is_empty_at_the_next_generation(core):
    core.stable("m1")
    core.leave("m1")
    assert (core.g.state, core.g.generation) == (Empty, 2)
    assert core.records[-1] == record_of(core.g)
    assert core.g.protocol is None


@pytest.mark.behaviour("H-24", "G-76", "P-31")
@pytest.mark.parametrize("slow", ["m1", "m3"])
def test_who_does_not_sync_in_time_is_removed(core, slow):
    """The leader, or a static follower: a generation is synced within its rebalance timeout."""
    core.generation_of("m3", "m1", "m2", instances=["i3"], rebalance_timeout_ms=9_000)
    leader = core.g.leader
    assert leader == "m3"
    waiting = [core.sync(one) for one in ("m2", "m1", "m3") if one != slow]
    if slow == leader:
        assert all(one not in core.heard for one in waiting)
    core.advance(8_999)
    assert slow in core.g.members
    core.advance(1)
    assert (slow in core.g.members, core.g.state) == (False, Preparing)
    if slow == leader:
        assert {core.code(one) for one in waiting} == {Code.REBALANCE_IN_PROGRESS}


@pytest.mark.behaviour("H-24")
def test_the_time_for_a_sync_ends_when_all_have_sent_one(core):
    core.generation_of("m1", "m2")
    core.sync("m1")
    assert core.runs(SYNC_PHASE, "") == 60_000, "Stable, but m2 has not asked for its part"
    core.sync("m2")
    assert core.runs(SYNC_PHASE, "") is None


@pytest.mark.behaviour("H-25", "W-9", "W-20", "W-101", "P-30", "S-37", "G-72", "W-79", "W-84")
def test_a_session_that_ends(core):
    core.stable("m1", "m2", "m3")
    core.advance(9_000)
    for one in ("m2", "m3"):
        core.ping(one)
    core.advance(1_000)
    assert (list(core.g.members), core.g.state, core.g.leader) == (["m2", "m3"], Preparing, "m2")
    assert core.ping("m2") is Code.REBALANCE_IN_PROGRESS
    core.join("m2")
    core.advance(9_000)
    assert (core.g.state, list(core.g.members)) == (Completing, ["m2"]), "the last one missing went"


@pytest.mark.behaviour("W-18", "H-25")
def test_every_member_has_a_session_timeout_of_its_own(core):
    core.join("m1", session_timeout_ms=6_000)
    core.join("m2", session_timeout_ms=30_000)
    core.advance(0)
    core.assign()
    core.advance(6_000)
    assert list(core.g.members) == ["m2"]


# Slow members ------------------------------------------------------------------------------------


def slow(core):
    """Let m2 be silent for its session, and m1 and m3 be there."""
    core.stable("m1", "m2", "m3")
    core.advance(9_000)
    core.ping("m1")
    core.ping("m3")
    core.advance(1_000)
    assert core.g.state is Preparing


@pytest.mark.behaviour("W-103", "S-17")
def test_a_slow_member_that_is_back_before_the_others_is_a_newcomer(core):
    """It was removed when its session ended; what began then is not taken back."""
    slow(core)
    assert core.ping("m2", 1) is Code.UNKNOWN_MEMBER_ID
    assert core.ping("m1") is Code.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("W-104", "W-122", "S-18")
def test_a_slow_member_that_joins_during_the_round_is_of_it(core):
    slow(core)
    core.join("m1")
    back = core.join("n2")
    core.join("m3")
    assert (core.heard[back].generation, list(core.g.members)) == (2, ["m1", "m3", "n2"])


@pytest.mark.behaviour("W-105", "S-18")
def test_a_slow_member_that_joins_after_the_round_begins_another(core):
    slow(core)
    core.join("m1")
    core.join("m3")
    assert core.g.state is Completing
    core.join("n2")
    assert (core.g.state, core.g.generation) == (Preparing, 2)
    core.join("m1")
    core.join("m3")
    assert (core.g.state, core.g.generation) == (Completing, 3)


@pytest.mark.behaviour("W-45")
def test_a_member_that_joins_without_its_id_waits_for_its_former_self(core):
    core.stable("m1", "m2")
    core.join("n2")
    core.join("m1")
    core.advance(9_999)
    assert core.g.state is Preparing, "nothing maps it to the old member"
    core.advance(1)
    assert (core.g.state, list(core.g.members)) == (Completing, ["m1", "n2"])


@pytest.mark.behaviour("H-25")
@pytest.mark.parametrize("waits", [False, True])
def test_a_session_that_ends_while_the_leader_assigns(core, waits):
    core.generation_of("m1", "m2")
    if waits:
        core.sync("m2")
    core.advance(10_000)
    assert ("m2" in core.g.members) is waits, "while its sync waits it is there"
    assert "m1" not in core.g.members
    assert core.g.state is (Preparing if waits else Empty)


@pytest.mark.behaviour("W-1", "W-4", "W-40")
def test_what_one_generation_comes_to(core):
    """The leader decides who owns a partition; the coordinator sees that all members hear it."""
    core.stable("m1", "m2")
    assert {one.member_id: one.assignment for one in core.g.members.values()} == {
        "m1": b"m1", "m2": b"m2",
    }  # fmt: skip
    assert core.g.state is Stable
    assert [core.ping(one) for one in ("m1", "m2")] == [Code.NONE] * 2
    assert [core.commit(one, 1) for one in ("m1", "m2")] == [Code.NONE] * 2
