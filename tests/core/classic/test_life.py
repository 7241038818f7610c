"""Commits, deletion, listing and records of a classic group, and what a fail-over leaves of it."""

from __future__ import annotations

import pytest

from coordinator.core.classic_events import DescribeClassicGroup
from coordinator.core.events import (
    HEARTBEAT,
    DeleteGroup,
    ExpireOffsets,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
)
from coordinator.core.state.classic_written import group_of, record_of
from coordinator.core.state.records import ClassicGroupWritten
from coordinator.core.state.transactions import Producer
from coordinator.errors import GroupError
from tests.support.classic_core import (
    MAX_SIZE,
    Completing,
    Empty,
    Preparing,
    Stable,
    topics,
)
from tests.support.coordinator_core import Code
from tests.support.fingerprint import fingerprint

WEEK_MS = 7 * 86_400_000


@pytest.mark.behaviour("H-34")
def test_a_commit_in_a_transaction_need_not_name_a_member(core):
    core.generation_of("m1", "m2")
    assert core.commit("", -1) is Code.UNKNOWN_MEMBER_ID
    assert _commit_in_transaction(core, "", -1) is Code.NONE
    assert _commit_in_transaction(core, "m1", 1) is Code.NONE, "while the leader assigns, too"
    assert _commit_in_transaction(core, "m1", 0) is Code.ILLEGAL_GENERATION
    assert _commit_in_transaction(core, "m9", 1) is Code.UNKNOWN_MEMBER_ID


def _commit_in_transaction(core, member, generation):
    commit = OffsetCommit("g", member, generation, {"a": {0: (5, "")}})
    try:
        return core.run(TxnOffsetCommit(commit, Producer(7, 0), 0)).response["a"][0]
    except GroupError as error:
        return error.code


@pytest.mark.behaviour("H-34", "G-123", "W-24", "W-40", "W-75", "W-76", "W-77", "W-78", "W-113")
def test_a_commit_in_each_state(core):
    assert core.commit("", -1) is Code.NONE, "an unknown group, or an Empty one"
    core.generation_of("m1", "m2", instances=["i1"])
    assert core.commit("m1", 1) is Code.REBALANCE_IN_PROGRESS, "the leader assigns"
    core.assign()
    core.advance(5_000)
    assert core.commit("m1", 1) is Code.NONE
    assert core.runs(HEARTBEAT, "m1") == 10_000
    assert [core.commit("m1", one) for one in (0, 2)] == [Code.ILLEGAL_GENERATION] * 2
    assert core.commit("m9", 1) is Code.UNKNOWN_MEMBER_ID
    assert core.commit("m2", 1, instance="i1") is Code.FENCED_INSTANCE_ID
    assert core.commit("", -1) is Code.UNKNOWN_MEMBER_ID, "its members use its offsets"
    core.join("m1")
    assert (core.g.state, core.commit("m2", 1)) == (Preparing, Code.NONE), "before it joins again"
    core.leave("m1", "m2")
    assert core.g.state is Empty
    assert core.commit("", -1) is Code.NONE
    assert core.commit("m1", 2) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("H-35", "G-126", "G-131")
def test_deletion_of_a_classic_group_and_its_offsets(core):
    core.stable("m1", protocols=[("range", topics("a"))])
    for topic in ("a", "b"):
        core.commit("m1", 1, topic=topic)
    assert core.refused(DeleteGroup("g")) is Code.NON_EMPTY_GROUP
    deleted = core.run(OffsetDelete("g", {"a": [0], "b": [0]})).response
    assert deleted == {"a": {0: Code.GROUP_SUBSCRIBED_TO_TOPIC}, "b": {0: Code.NONE}}
    core.leave("m1")
    core.run(DeleteGroup("g"))
    assert ("g" in core.state.classic, "g" in core.state.offsets) == (False, False)
    assert core.refused(DeleteGroup("g")) is Code.GROUP_ID_NOT_FOUND
    core.stable("m1", protocol_type="connect")
    core.commit("m1", 1)
    assert core.refused(OffsetDelete("g", {"a": [0]})) is Code.NON_EMPTY_GROUP


@pytest.mark.behaviour("H-35")
def test_where_a_subscription_is_none_all_topics_count_as_subscribed(core):
    core.stable("m1", protocols=[("range", b"?")])
    core.commit("m1", 1)
    deleted = core.run(OffsetDelete("g", {"a": [0]})).response
    assert deleted == {"a": {0: Code.GROUP_SUBSCRIBED_TO_TOPIC}}


@pytest.mark.behaviour("H-4", "G-127")
def test_offsets_expire_as_the_group_lets_them(core):
    core.stable("m1", protocols=[("range", topics("a"))], session_timeout_ms=1_800_000)
    for topic in ("a", "b"):
        core.commit("m1", 1, topic=topic)
    core.now += WEEK_MS
    core.run(ExpireOffsets())
    assert list(core.state.offsets["g"]) == [("a", 0)], "b has no subscriber"
    core.timers.clear()
    core.leave("m1")
    core.now += WEEK_MS - 1
    core.run(ExpireOffsets())
    assert "g" in core.state.offsets, "counted from when it became Empty"
    core.now += 1
    core.run(ExpireOffsets())
    assert ("g" in core.state.offsets, "g" in core.state.classic) == (False, False)


@pytest.mark.behaviour("H-36")
def test_describing_shows_metadata_only_while_it_is_stable(core):
    described = lambda: core.run(DescribeClassicGroup("g")).response  # noqa: E731
    assert core.refused(DescribeClassicGroup("g")) is Code.GROUP_ID_NOT_FOUND
    core.generation_of("m1", protocols=[("range", b"said")])
    one = described()
    assert (one.state, one.protocol, one.members[0].metadata) == ("CompletingRebalance", "", b"")
    core.assign()
    one = described()
    assert (one.state, one.protocol, one.members[0].metadata, one.members[0].assignment) == (
        "Stable", "range", b"said", b"m1",
    )  # fmt: skip
    core.join("m2")
    one = described()
    assert (one.state, {member.metadata for member in one.members}) == ("PreparingRebalance", {b""})


@pytest.mark.behaviour("G-99", "H-36")
def test_a_consumer_group_is_no_classic_group(core):
    core.join_consumer("m", "a")
    assert core.refused(DescribeClassicGroup("g")) is Code.GROUP_ID_NOT_FOUND
    assert core.run(OffsetFetch("nowhere")).response == {}


@pytest.mark.behaviour("G-4")
def test_the_states_of_a_group(core):
    states = []
    core.join("m1")
    states.append(core.g.state)
    core.advance(0)
    states.append(core.g.state)
    core.assign()
    states.append(core.g.state)
    core.leave("m1")
    states.append(core.g.state)
    assert states == [Preparing, Completing, Stable, Empty]


# What outlives the coordinator -------------------------------------------------------------------


@pytest.mark.behaviour("H-37", "W-10", "W-12", "W-26", "W-27", "W-91", "W-97", "P-28")
def test_after_a_fail_over_a_stable_group_goes_on(core):
    core.stable("m1", "m2")
    core.advance(9_000)
    core.fail_over()
    assert [core.ping(one) for one in ("m1", "m2")] == [Code.NONE] * 2
    assert core.sync("m2").assignment == b"m2", "and no other one syncs again"
    core.fail_over()
    check_ms = core.config.lease.check_ms
    assert core.runs(HEARTBEAT, "m1") == 10_000 + check_ms, "a full session for everyone"
    core.advance(10_000 + check_ms)
    assert core.g.state is Empty, "and who does not come is removed"
    assert core.ping("m1", 1) is Code.UNKNOWN_MEMBER_ID, "and who comes too late is a newcomer"


@pytest.mark.behaviour("H-37", "S-33")
def test_after_a_fail_over_a_group_that_is_too_large_rebalances(core):
    core.stable("m1", "m2", "m3")
    core.configure(**{MAX_SIZE: 2})
    core.fail_over()
    assert core.g.state is Preparing
    core.join("m2")
    core.join("m3")
    assert core.code(core.join("m1")) is Code.GROUP_MAX_SIZE_REACHED
    assert sorted(core.g.members) == ["m2", "m3"]


@pytest.mark.behaviour("H-40", "G-113", "W-49")
def test_the_record_of_a_group_holds_every_member(core):
    core.stable("m1", "m2", instances=["i1"], protocols=[("range", b"said"), ("x", b"")],
                client_id="app", client_host="/h")  # fmt: skip
    record = core.records[-1]
    assert isinstance(record, ClassicGroupWritten)
    assert (record.generation, record.protocol_type, record.protocol, record.leader) == (
        1, "consumer", "range", "m1",
    )  # fmt: skip
    (one, two) = record.members
    assert (one.member_id, one.instance_id, one.client_id, one.client_host) == (
        "m1", "i1", "app", "/h",
    )  # fmt: skip
    assert (one.session_timeout_ms, one.rebalance_timeout_ms) == (10_000, 60_000)
    assert (one.subscription, one.assignment) == (b"said", b"m1")
    assert two.instance_id is None
    assert record_of(group_of(record)) == record


@pytest.mark.behaviour("H-41")
def test_a_rebalance_writes_once(core):
    core.stable("m1", "m2")
    written = len(core.records)
    core.join("m3")
    core.ping("m1")
    core.join("m1")
    core.join("m2")
    core.sync("m2")
    assert len(core.records) == written
    core.assign()
    assert len(core.records) == written + 1


@pytest.mark.behaviour(
    "H-42",
    "G-151",
    "W-89",
    "W-87",
    "W-92",
    "W-93",
    "W-94",
    "W-95",
    "W-98",
    "P-24",
    "P-25",
    "P-27",
    "P-29",
    "S-7",
)
@pytest.mark.parametrize("phase", ["joining", "assigning"])
def test_after_a_fail_over_nothing_is_left_of_a_rebalance(core, phase):
    """The generation that was written last is Stable again, with all that was assigned in it."""
    core.stable("m1", "m2")
    before = fingerprint(core.state)["classic"]
    core.join("m3")
    core.join("p1", version=4)
    if phase == "assigning":
        core.leave("p1")
        core.join("m1")
        core.join("m2")
        core.sync("m2")
        assert (core.g.state, core.g.generation) == (Completing, 2)
    core.fail_over()
    assert (core.g.state, core.g.generation, list(core.g.members)) == (Stable, 1, ["m1", "m2"])
    assert [one.assignment for one in core.g.members.values()] == [b"m1", b"m2"]
    assert dict(before["g"]["members"]).keys() == core.g.members.keys()
    assert core.ping("m1", 2) is Code.ILLEGAL_GENERATION, "who had its answer joins again"
    assert core.ping("m3", 2) is Code.UNKNOWN_MEMBER_ID
    core.join("m3")
    assert core.g.state is Preparing, "and with it the whole group"


@pytest.mark.behaviour("W-90", "S-2")
def test_after_a_fail_over_a_rebalance_is_found_necessary_again(core):
    """Some of the members knew; a missing one is missed again."""
    core.stable("m1", "m2", "m3")
    core.advance(9_000)
    core.ping("m1")
    core.ping("m2")
    core.advance(1_000)
    assert core.ping("m1") is Code.REBALANCE_IN_PROGRESS
    core.fail_over()
    for _ in range(2):
        assert [core.ping(one) for one in ("m1", "m2")] == [Code.NONE] * 2
        core.advance(9_000)
    assert core.g.state is Preparing
    assert core.ping("m1") is Code.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("H-42", "W-98")
def test_after_a_fail_over_a_first_generation_is_lost(core):
    core.generation_of("m1", "m2")
    core.fail_over()
    assert (core.g.state, core.g.generation, list(core.g.members)) == (Empty, 0, [])
    assert core.ping("m1", 1) is Code.UNKNOWN_MEMBER_ID
