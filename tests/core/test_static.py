"""Static members: an instance id that outlives the process behind it."""

from __future__ import annotations

import pytest

from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    Tombstone,
)
from tests.support.coordinator_core import REBALANCE, SESSION, SESSION_MS, UNREVOKED, Code, lists


@pytest.fixture
def pair(group):
    """A static member s1 (instance i1) and a dynamic m2, each with half of topic a, at rest."""
    group.join("s1", "a", instance_id="i1")
    group.join("m2", "a")
    group.settle()
    assert group.given == {"s1": {"a": [0, 1, 2]}, "m2": {"a": [3, 4, 5]}}
    return group


def away(group, member="s1", instance="i1"):
    return group.beat(member, -2, instance_id=instance)


@pytest.mark.behaviour("G-46", "G-152")
def test_a_new_instance_id_makes_a_plain_new_member(group):
    result = group.run(group.joining("s1", "a", instance_id="i1"))
    assert [r.reason for r in result.records if isinstance(r, GroupMetadata)] == ["member joined"]
    assert group.group.instances == {"i1": "s1"}


@pytest.mark.behaviour("G-47", "S-25")
@pytest.mark.parametrize("member", ["s2", "s1"])
def test_an_instance_id_in_use_is_not_given_away(pair, member):
    """Not even to the member id that has it: in 4.4 it must leave for a while first (G-49d)."""
    refused = pair.refused(pair.joining(member, "a", instance_id="i1"))
    assert refused is Code.UNRELEASED_INSTANCE_ID


@pytest.mark.behaviour("G-48", "G-35", "S-25")
def test_the_next_incarnation_gets_everything_back_without_a_new_epoch(pair):
    epoch = pair.group.epoch
    away(pair)
    result = pair.run(pair.joining("s9", "a", instance_id="i1"))
    assert not any(isinstance(r, GroupMetadata) for r in result.records)
    assert pair.group.epoch == epoch
    assert lists(result.response.assignment) == {"a": [0, 1, 2]}
    assert result.response.member_epoch == pair.group.assignment_epoch
    assert set(pair.group.members) == {"s9", "m2"}
    assert pair.group.instances == {"i1": "s9"}
    assert pair.target("s9") == {"a": [0, 1, 2]}


@pytest.mark.behaviour("G-48")
def test_records_of_a_replacement(pair):
    away(pair)
    records = pair.run(pair.joining("s9", "a", instance_id="i1")).records
    ended = [(r.of, r.member_id) for r in records if isinstance(r, Tombstone)]
    assert ended == [
        (CurrentMember.kind, "s1"),
        (TargetMember.kind, "s1"),
        (MemberMetadata.kind, "s1"),
    ]
    taken = next(r for r in records if isinstance(r, CurrentMember))
    assert (taken.member_id, taken.member_epoch, taken.previous_member_epoch) == ("s9", 0, 0)
    assert (pair.runs(SESSION, "s1"), pair.runs(SESSION, "s9")) == (None, SESSION_MS)


@pytest.mark.behaviour("G-48", "G-34")
def test_coming_back_with_another_subscription_moves_the_epoch(pair):
    away(pair)
    result = pair.run(pair.joining("s9", "a", "b", instance_id="i1"))
    reasons = [r.reason for r in result.records if isinstance(r, GroupMetadata)]
    assert reasons == ["subscription changed"]


@pytest.mark.behaviour("G-48")
def test_coming_back_under_the_same_member_id(pair):
    away(pair)
    pair.advance(1_000)
    assert lists(pair.join("s1", "a", instance_id="i1").assignment) == {"a": [0, 1, 2]}
    assert pair.runs(SESSION, "s1") == SESSION_MS


@pytest.mark.behaviour("G-49")
def test_requests_for_an_instance_id_need_its_member_id(pair):
    epoch = pair.member("s1").epoch
    assert pair.refused(pair.heartbeat("s1", epoch, instance_id="i9")) is Code.UNKNOWN_MEMBER_ID
    assert pair.refused(pair.heartbeat("m2", epoch, instance_id="i1")) is Code.FENCED_INSTANCE_ID
    fenced = pair.refused(pair.heartbeat("s1", epoch + 1, instance_id="i1"))
    assert fenced is Code.FENCED_MEMBER_EPOCH
    assert pair.beat("s1", epoch, instance_id="i1").member_epoch == epoch


@pytest.mark.behaviour("G-49a", "G-35", "G-20", "G-122")
def test_a_static_leave_keeps_the_partitions(pair):
    epoch, session = pair.group.epoch, pair.runs(SESSION, "s1")
    response = away(pair)
    assert (response.member_id, response.member_epoch) == ("s1", -2)
    assert pair.group.epoch == epoch
    assert pair.target("s1") == {"a": [0, 1, 2]}
    assert pair.runs(SESSION, "s1") == session  # keeps running
    found = pair.member("s1").current
    assert (found.member_epoch, lists(found.assigned), found.pending) == (-2, {"a": [0, 1, 2]}, ())
    assert {given for *_, given in found.assigned} == {0}


@pytest.mark.behaviour("G-49a")
def test_leaving_for_a_while_is_for_those_who_have_the_instance_id(pair):
    assert pair.refused(pair.heartbeat("s1", -2, instance_id="i9")) is Code.UNKNOWN_MEMBER_ID
    assert pair.refused(pair.heartbeat("m2", -2, instance_id="i1")) is Code.FENCED_INSTANCE_ID


@pytest.mark.behaviour("G-49a", "G-57", "G-65")
def test_what_is_pending_is_free_once_its_member_is_away(pair):
    """A process that stopped has let go of what it was to give up."""
    pair.join("m3", "a")
    pair.beat("s1")
    assert pair.member("s1").current.state is UNREVOKED
    pending = pair.current("s1")[3]["a"]
    pair.beat("m2")
    pair.acknowledge("m2")
    assert not set(pending) & set(pair.acknowledge("m3").assignment or ())
    away(pair)
    pair.acknowledge("m3")
    assert set(pending) <= set(pair.given["m3"]["a"])


@pytest.mark.behaviour("G-49a", "G-71")
def test_its_rebalance_timer_does_not_mean_a_member_that_is_away(pair):
    pair.join("m3", "a", rebalance_timeout_ms=1_000)
    pair.run(pair.heartbeat("s1", rebalance_timeout_ms=1_000))
    assert pair.runs(REBALANCE, "s1") == 1_000
    away(pair)
    pair.advance(1_000)
    assert "s1" in pair.group.members


@pytest.mark.behaviour("G-49b", "S-25")
def test_a_member_that_stays_away_too_long_is_removed(pair):
    away(pair)
    pair.advance(SESSION_MS - 1)
    pair.beat("m2")
    assert "s1" in pair.group.members
    pair.advance(1)
    assert set(pair.group.members) == {"m2"}
    pair.settle()
    assert pair.given["m2"] == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-49c")
@pytest.mark.parametrize("instance", ["i1", None])
def test_a_static_member_can_leave_for_good(pair, instance):
    pair.beat("s1", -1, instance_id=instance)
    assert set(pair.group.members) == {"m2"}
    assert pair.group.instances == {}


@pytest.mark.behaviour("G-49d")
def test_a_member_that_takes_another_instance_id_loses_the_old_one(pair):
    pair.join("s1", "a", instance_id="i2")
    assert pair.group.instances == {"i2": "s1"}
    assert pair.refused(pair.heartbeat("s1", instance_id="i1")) is Code.UNKNOWN_MEMBER_ID
    pair.join("s3", "a", instance_id="i1")
    assert pair.group.instances == {"i1": "s3", "i2": "s1"}


@pytest.mark.behaviour("G-49d")
def test_a_dynamic_member_becomes_a_static_one(pair):
    result = pair.run(pair.joining("m2", "a", instance_id="i2"))
    assert not any(isinstance(r, GroupMetadata) for r in result.records)
    assert pair.group.instances == {"i1": "s1", "i2": "m2"}
    assert lists(result.response.assignment) == {"a": [3, 4, 5]}


@pytest.mark.behaviour("G-48")
def test_a_member_of_the_group_cannot_be_the_next_incarnation_of_another(pair):
    """It would get the other one's partitions for its own, and those would have no owner."""
    away(pair)
    assert pair.refused(pair.joining("m2", "a", instance_id="i1")) is Code.INVALID_REQUEST
    assert pair.target("m2") == {"a": [3, 4, 5]}
