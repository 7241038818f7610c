"""Offsets: committed, fetched, deleted and expired, fenced by epochs."""

from __future__ import annotations

import pytest

from coordinator.core.events import (
    DeleteGroup,
    ExpireOffsets,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from coordinator.core.state import state_records
from coordinator.core.state.groups import State
from coordinator.core.state.records import OffsetCommitted
from coordinator.core.state.replay import replay
from tests.support.coordinator_core import UNREVOKED, Code

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS


def commit(member, epoch, offsets, *, group="g"):
    """{"a": {0: 5}} as a commit."""
    given = {topic: {p: (o, "") for p, o in found.items()} for topic, found in offsets.items()}
    return OffsetCommit(group, member, epoch, given)


def committed(core, group="g"):
    return {key: record.offset for key, record in core.state.offsets.get(group, {}).items()}


@pytest.fixture
def later(group):
    """m1 has a[0..2] since epoch 2 and is at a later epoch; a[3..5] it has given to m2."""
    group.join("m1", "a")
    group.join("m2", "a")
    group.settle()
    assert group.given == {"m1": {"a": [0, 1, 2]}, "m2": {"a": [3, 4, 5]}}
    assert group.member("m1").epoch == 3
    return group


@pytest.mark.behaviour("G-121", "G-147")
def test_a_commit_at_the_members_epoch_is_stored(later):
    event = commit("m1", 3, {"a": {0: 42, 5: 43}})  # at its own epoch nothing else is asked
    result = later.run(event)
    assert result.response == {"a": {0: Code.NONE, 5: Code.NONE}}
    assert committed(later) == {("a", 0): 42, ("a", 5): 43}
    stored = later.state.offsets["g"]["a", 0]
    assert (stored.topic_id, stored.commit_timestamp) == (
        later.state.topics["a"].key.topic_id,
        later.now,
    )


FENCED = {
    "an epoch to come": (4, {"a": {0: 1}}),
    "older than the partition's": (1, {"a": {0: 1}}),
    "a partition it gave up": (2, {"a": {5: 1}}),
    "one it holds and one it gave up": (2, {"a": {0: 1, 5: 1}}),
    "a topic it never had": (2, {"b": {0: 1}}),
    "a topic that is not there": (2, {"x": {0: 1}}),
}


@pytest.mark.behaviour("G-121", "G-122", "S-14")
@pytest.mark.parametrize(("epoch", "offsets"), FENCED.values(), ids=FENCED)
def test_a_commit_is_fenced_whole(later, epoch, offsets):
    assert later.refused(commit("m1", epoch, offsets)) is Code.STALE_MEMBER_EPOCH
    assert committed(later) == {}


@pytest.mark.behaviour("G-122", "S-14", "S-39")
def test_an_older_epoch_is_taken_for_partitions_that_were_given_by_then(later):
    later.run(commit("m1", 2, {"a": {0: 7, 2: 8}}))
    assert committed(later) == {("a", 0): 7, ("a", 2): 8}


@pytest.mark.behaviour("G-122")
def test_a_partition_to_be_revoked_can_still_be_committed(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1")
    assert group.current("m1")[1:] == (UNREVOKED, {"a": [0, 1, 2]}, {"a": [3, 4, 5]})
    group.acknowledge("m1")
    group.run(commit("m1", 2, {"a": {0: 1}}))
    assert group.refused(commit("m1", 2, {"a": {3: 1}})) is Code.STALE_MEMBER_EPOCH


@pytest.mark.behaviour("G-122", "S-22")
def test_a_topic_that_came_back_knows_no_old_epochs(later):
    """m1 still holds partitions of the topic that is gone: its offsets are not the new one's."""
    later.topics(delete=["a"])
    later.topics(a=6)
    assert later.refused(commit("m1", 2, {"a": {0: 7}})) is Code.STALE_MEMBER_EPOCH


@pytest.mark.behaviour("G-122", "G-49a")
def test_what_a_static_member_had_when_it_left_for_a_while(group):
    group.join("s1", "a", instance_id="i1")
    group.beat("s1", -2, instance_id="i1")
    assert group.refused(commit("s1", -3, {"a": {0: 1}})) is Code.STALE_MEMBER_EPOCH
    group.join("s2", "a", instance_id="i1")
    group.run(commit("s2", 1, {"a": {0: 1}}))  # epochs restarted when it left: any is late enough
    assert committed(group) == {("a", 0): 1}


@pytest.mark.behaviour("G-123", "K-37")
def test_commits_without_a_member(later):
    assert later.refused(commit("m9", 3, {"a": {0: 1}})) is Code.UNKNOWN_MEMBER_ID
    assert later.refused(commit("", -1, {"a": {0: 1}})) is Code.UNKNOWN_MEMBER_ID
    assert later.refused(commit("m1", 3, {"a": {0: 1}}, group="none")) is Code.GROUP_ID_NOT_FOUND
    later.run(commit("", -1, {"a": {0: 1}}, group="simple"))
    assert committed(later, "simple") == {("a", 0): 1}
    for member in ("m1", "m2"):
        later.beat(member, -1)
    later.run(commit("", -1, {"a": {0: 9}}))
    assert committed(later) == {("a", 0): 9}


@pytest.mark.behaviour("G-123")
@pytest.mark.parametrize(
    ("event", "code"),
    [
        (commit("m", -1, {"a": {0: 1}}, group=""), Code.INVALID_GROUP_ID),
        (commit("m", -1, {"a": {-1: 1}}), Code.INVALID_REQUEST),
        (commit("m", -1, {"a": {0: -1}}), Code.INVALID_REQUEST),
    ],
)
def test_an_invalid_commit_is_refused(group, event, code):
    assert group.refused(event) is code


@pytest.mark.behaviour("G-124", "G-142")
def test_metadata_that_is_too_large_is_refused_for_that_partition_only(group):
    most = group.config.kafka.offset_metadata_max_bytes
    offsets = {"a": {0: (1, "x" * most), 1: (2, "x" * (most + 1))}}
    result = group.run(OffsetCommit("g", "", -1, offsets))
    assert result.response == {"a": {0: Code.NONE, 1: Code.OFFSET_METADATA_TOO_LARGE}}
    assert committed(group) == {("a", 0): 1}


# Fetch -------------------------------------------------------------------------------------------


def fetched(core, **fields):
    response = core.run(OffsetFetch("g", **fields)).response
    return {t: {p: r and r.offset for p, r in found.items()} for t, found in response.items()}


@pytest.mark.behaviour("G-125")
def test_fetching_some_or_all(later):
    later.run(commit("m1", 3, {"a": {0: 5}, "b": {1: 6}}))
    assert fetched(later) == {"a": {0: 5}, "b": {1: 6}}
    assert fetched(later, topics={"a": [0, 1], "x": [0]}) == {"a": {0: 5, 1: None}, "x": {0: None}}
    assert fetched(later, member_id="m1", member_epoch=3, topics={"b": [1]}) == {"b": {1: 6}}


@pytest.mark.behaviour("G-125")
@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("m1", 2, Code.STALE_MEMBER_EPOCH),
        ("m1", 4, Code.STALE_MEMBER_EPOCH),
        ("m1", -1, Code.STALE_MEMBER_EPOCH),
        ("m9", 3, Code.UNKNOWN_MEMBER_ID),
        (None, 3, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_fetch_is_fenced_by_exact_match(later, member, epoch, code):
    assert later.refused(OffsetFetch("g", None, member, epoch)) is code


@pytest.mark.behaviour("G-125")
def test_a_group_that_is_not_there_has_committed_nothing(group):
    assert fetched(group, topics={"a": [0]}, member_id="m1", member_epoch=3) == {"a": {0: None}}


# Deletion and expiry -----------------------------------------------------------------------------


@pytest.mark.behaviour("G-126")
def test_offsets_of_a_subscribed_topic_are_not_deleted(later):
    later.run(commit("m1", 3, {"a": {0: 5}, "b": {1: 6}}))
    result = later.run(OffsetDelete("g", {"a": [0], "b": [0, 1]}))
    subscribed = Code.GROUP_SUBSCRIBED_TO_TOPIC
    assert result.response == {"a": {0: subscribed}, "b": {0: Code.NONE, 1: Code.NONE}}
    assert committed(later) == {("a", 0): 5}
    assert later.refused(OffsetDelete("none", {"a": [0]})) is Code.GROUP_ID_NOT_FOUND


@pytest.mark.behaviour("G-126")
def test_a_topic_matched_by_a_pattern_is_subscribed(group):
    group.join("m1", subscribed_topic_regex="a")
    group.resolve()
    assert group.run(OffsetDelete("g", {"a": [0]})).response == {
        "a": {0: Code.GROUP_SUBSCRIBED_TO_TOPIC}
    }


@pytest.mark.behaviour("G-128", "S-22")
@pytest.mark.parametrize("comes_back", [False, True])
def test_the_offsets_of_a_deleted_topic_end_at_once(later, comes_back):
    later.run(commit("m1", 3, {"a": {0: 5}, "b": {1: 6}}))
    later.run(commit("", -1, {"a": {0: 1}}, group="simple"))
    if comes_back:
        later.catalog["a"] = later.catalog["a"].__class__("another id", 6)
        later.topics()
    else:
        later.topics(delete=["a"])
    assert (committed(later), committed(later, "simple")) == ({("b", 1): 6}, {})


def expire(core, ms):
    core.now += ms
    return core.run(ExpireOffsets())


@pytest.mark.behaviour("G-127", "G-142", "G-77")
def test_old_offsets_of_topics_without_subscribers_expire(later):
    later.run(commit("m1", 3, {"a": {0: 5}, "b": {1: 6}}))
    later.run(commit("", -1, {"b": {0: 1}}, group="simple"))
    assert expire(later, RETENTION_MS - 1).records == []
    later.run(commit("m1", 3, {"b": {0: 7}}))
    expire(later, 1)
    assert committed(later) == {("a", 0): 5, ("b", 0): 7}
    assert committed(later, "simple") == {}


@pytest.mark.behaviour("G-128")
def test_an_empty_group_is_deleted_with_its_last_offset(later):
    later.run(commit("m1", 3, {"b": {1: 6}}))
    for member in ("m1", "m2"):
        later.beat(member, -1)
    assert expire(later, DAY_MS).records == []  # it has an offset still
    expire(later, RETENTION_MS)
    assert later.state.groups == {}
    assert later.run(ListGroups()).response == []


@pytest.mark.behaviour("G-131")
def test_deleting_a_group_ends_its_offsets(later):
    later.run(commit("m1", 3, {"b": {1: 6}}))
    for member in ("m1", "m2"):
        later.beat(member, -1)
    later.run(DeleteGroup("g"))
    assert later.state.offsets == {}
    assert later.state.groups == {}


@pytest.mark.behaviour("G-147")
def test_a_commit_without_topic_metadata_is_kept(group):
    group.run(commit("", -1, {"nowhere": {0: 5}}, group="simple"))
    record = group.state.offsets["simple"]["nowhere", 0]
    assert isinstance(record, OffsetCommitted)
    assert record.topic_id == ""


@pytest.mark.behaviour("G-123", "G-126", "G-131")
@pytest.mark.parametrize("replayed", [False, True])
def test_a_group_that_has_had_offsets_is_there_until_it_is_deleted(group, replayed):
    group.run(commit("", -1, {"b": {0: 1}}, group="simple"))
    group.run(OffsetDelete("simple", {"b": [0]}))
    if replayed:
        group.records = list(state_records.records_of(group.state))
        group.state = State()
        for record in group.records:
            replay(group.state, record)
    assert [row["group_id"] for row in group.run(ListGroups()).response] == ["simple"]
    assert group.refused(commit("m1", 3, {"b": {0: 1}}, group="simple")) is Code.UNKNOWN_MEMBER_ID
    assert group.run(OffsetDelete("simple", {"b": [0]})).response == {"b": {0: Code.NONE}}
    group.run(DeleteGroup("simple"))
    assert group.refused(DeleteGroup("simple")) is Code.GROUP_ID_NOT_FOUND
    assert group.refused(commit("m1", 3, {"b": {0: 1}}, group="simple")) is Code.GROUP_ID_NOT_FOUND


@pytest.mark.behaviour("G-128")
def test_a_group_without_members_and_offsets_expires(group):
    group.run(commit("", -1, {"b": {0: 1}}, group="simple"))
    group.run(OffsetDelete("simple", {"b": [0]}))
    expire(group, 1)
    assert group.run(ListGroups()).response == []
    assert group.state.offsets == {}


@pytest.mark.behaviour("G-30", "S-22")
def test_partitions_of_a_recreated_topic_are_not_those_that_were_assigned(later):
    """With the previous epoch it is no lost answer then: the member is fenced."""
    owned = later.given["m1"]
    later.topics(delete=["a"])
    later.topics(a=6)
    assert later.refused(later.heartbeat("m1", 2, owned=owned)) is Code.FENCED_MEMBER_EPOCH
