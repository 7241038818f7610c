"""SyncGroup, heartbeats, leaving and static members of a classic group."""

from __future__ import annotations

import pytest

from coordinator.core.events import HEARTBEAT
from coordinator.core.state.classic_written import record_of
from tests.support.classic_core import POLICY, Completing, Empty, Preparing, Stable, topics
from tests.support.coordinator_core import Code


@pytest.mark.behaviour("H-26", "G-108", "W-42", "W-96")
def test_a_sync_that_is_refused(core):
    assert core.code(core.sync("m1", 0)) is Code.UNKNOWN_MEMBER_ID, "no group"
    core.stable("m1", "m2")
    assert core.code(core.sync("m9", 1)) is Code.UNKNOWN_MEMBER_ID
    assert core.code(core.sync("m1", 0)) is Code.ILLEGAL_GENERATION
    assert core.code(core.sync("m1", 2)) is Code.ILLEGAL_GENERATION
    assert core.code(core.sync("m1", kind="connect")) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert core.code(core.sync("m1", name="sticky")) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert core.code(core.sync("m1", 0, name="sticky")) is Code.ILLEGAL_GENERATION, "in this order"
    assert core.code(core.sync("m1", kind="consumer", name="range")) is Code.NONE
    core.leave("m1", "m2")
    assert core.code(core.sync("m1", 2)) is Code.UNKNOWN_MEMBER_ID, "Empty"


@pytest.mark.behaviour("H-27", "G-108", "P-12", "P-15", "P-28", "W-4", "W-14")
def test_the_leader_brings_the_assignment_and_everyone_gets_a_part(core):
    core.generation_of("m1", "m2", "m3")
    waits = core.sync("m2")
    assert (type(waits), core.g.state) == (int, Completing)
    led = core.sync("m1", m1=b"one", m2=b"two", stranger=b"x")
    assert (led.assignment, core.heard[waits].assignment) == (b"one", b"two")
    assert core.records[-1].members == record_of(core.g).members
    assert core.g.state is Stable
    late = core.sync("m3")
    assert (late.error_code, late.assignment) == (Code.NONE, b""), "left out by the leader"
    assert core.sync("m2").assignment == b"two"
    core.join("m1")
    assert core.code(core.sync("m2")) is Code.REBALANCE_IN_PROGRESS, "Preparing"


@pytest.mark.behaviour("H-27", "P-11", "H-4")
@pytest.mark.parametrize("kind", ["connect", "own", "consumer"])
def test_bytes_pass_untouched(core, kind):
    """Whatever they say, and for protocol type consumer too, where they are read besides."""
    raw = bytes(range(256))
    (answer,) = core.generation_of("m1", protocol_type=kind, protocols=[("x", raw)])
    assert core.heard[answer].members[0].metadata == raw
    assert core.sync("m1", m1=raw[::-1]).assignment == raw[::-1]
    assert core.records[-1].members[0].subscription == raw


@pytest.mark.behaviour("H-29", "W-82")
def test_a_session_begins_with_the_answer_to_a_sync(core):
    core.generation_of("m1", "m2")
    core.sync("m2")
    core.advance(9_000)
    core.ping("m1")
    core.advance(500)
    core.sync("m1")
    assert [core.runs(HEARTBEAT, one) for one in ("m1", "m2")] == [10_000, 10_000]


# Heartbeats --------------------------------------------------------------------------------------


@pytest.mark.behaviour("H-30", "G-110", "W-8", "W-13", "W-24", "W-38", "W-76", "W-117", "P-33")
def test_a_heartbeat_in_each_state(core):
    assert core.ping("m1", 0) is Code.UNKNOWN_MEMBER_ID
    core.join("m1")
    assert core.ping("m1") is Code.REBALANCE_IN_PROGRESS, "the first generation waits"
    core.advance(0)
    assert (core.g.state, core.ping("m1")) == (Completing, Code.NONE)
    core.assign()
    assert (core.g.state, core.ping("m1")) == (Stable, Code.NONE)
    core.join("m2", ("range", topics("a", "b")))
    core.advance(4_000)
    assert (core.g.state, core.ping("m1")) == (Preparing, Code.REBALANCE_IN_PROGRESS)
    assert core.runs(HEARTBEAT, "m1") == 10_000, "its session restarts all the same"
    for generation in (0, 2):
        assert core.ping("m1", generation) is Code.ILLEGAL_GENERATION
    core.leave("m1", "m2")
    assert (core.g.state, core.ping("m1", 1)) == (Empty, Code.UNKNOWN_MEMBER_ID)


# Leaving -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("H-31", "G-100")
def test_several_leave_and_one_rebalance_begins(core):
    assert core.leave("m1", "m2") == [Code.UNKNOWN_MEMBER_ID] * 2
    core.stable("s1", "s2", "m1", "m2", "m3", instances=["i1", "i2"])
    core.join("p1", version=4)
    waits = core.join("m1", ("range", b"other"))
    assert core.g.state is Preparing
    answer = core.leave(
        ("", "i1"), ("", "i9"), ("", None), ("m2", "i2"), "m1", "p1", "m1", "nobody"
    )
    unknown = Code.UNKNOWN_MEMBER_ID
    assert answer == [
        Code.NONE, unknown, unknown, Code.FENCED_INSTANCE_ID, Code.NONE, Code.NONE, unknown, unknown,
    ]  # fmt: skip
    assert core.code(waits) is Code.UNKNOWN_MEMBER_ID, "its join waited"
    assert list(core.g.members) == ["s2", "m2", "m3"]


@pytest.mark.behaviour("H-31")
def test_who_is_unknown_begins_no_rebalance(core):
    core.stable("m1")
    assert core.leave("m9") == [Code.UNKNOWN_MEMBER_ID]
    assert core.g.state is Stable
    assert core.leave("m1") == [Code.NONE]
    assert core.g.state is Empty


# Static members ----------------------------------------------------------------------------------


@pytest.mark.behaviour("H-32", "G-111", "H-41")
def test_a_static_follower_restarts_without_a_rebalance(core):
    core.stable("m1", "m2", instances=[None, "i2"])
    answer = core.join("n2", instance="i2", version=9)
    assert (answer.error_code, answer.generation, answer.leader, answer.skip_assignment, answer.members) == (
        Code.NONE, 1, "m1", False, (),
    )  # fmt: skip
    assert core.records[-1] == record_of(core.g), "its new id is durable"
    assert core.sync("n2").assignment == b"m2"
    assert core.ping("m2", instance="i2") is Code.FENCED_INSTANCE_ID
    core.fail_over()
    assert core.ping("n2", instance="i2") is Code.NONE


@pytest.mark.behaviour("H-32", "G-111", "H-1")
@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_restarts_and_does_not_assign(core, version):
    core.stable("m1", "m2", instances=["i1"])
    answer = core.join("n1", instance="i1", version=version)
    knows = version >= 9
    assert (answer.leader, answer.skip_assignment) == ("n1" if knows else "m1", knows)
    assert [one.member_id for one in answer.members] == (["m2", "n1"] if knows else [])
    assert (core.g.leader, core.g.state) == ("n1", Stable)


@pytest.mark.behaviour("H-32", "G-111")
def test_a_static_restart_that_changes_the_protocol_is_a_rebalance(core):
    core.stable("m1", "m2", instances=["i1"], protocols=["range", "sticky"])
    answer = core.join("n1", ("range", b"other"), "sticky", instance="i1")
    assert (answer.generation, core.g.state) == (1, Stable), "range is chosen as before"
    core.join("o1", "sticky", instance="i1")
    assert core.g.state is Preparing


@pytest.mark.behaviour("H-32", "G-111")
def test_a_static_restart_fences_the_request_of_its_former_self(core):
    core.stable("m1", "m2", "m3", instances=[None, "i2"])
    join = core.join("m2", ("range", b"other"), instance="i2")
    core.join("n2", ("range", b"other"), instance="i2")
    assert core.code(join) is Code.FENCED_INSTANCE_ID
    assert core.g.state is Preparing
    core.join("m1")
    core.join("m3")
    assert core.g.state is Completing, "all have joined"
    sync = core.sync("n2", instance="i2")
    core.join("o2", ("range", b"other"), instance="i2")
    assert core.code(sync) is Code.FENCED_INSTANCE_ID
    assert core.g.state is Preparing, "while the leader assigns always a rebalance"


@pytest.mark.behaviour("M2-1")
@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_a_classic_group_without_members_gives_way(core, policy):
    core.configure(**{POLICY: policy})
    core.stable("m1")
    core.leave("m1")
    assert core.join_consumer("m", "a").member_epoch > 0
    assert "g" not in core.state.classic
