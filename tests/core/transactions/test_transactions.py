"""Offsets in transactions: they wait, end with a marker, and are fenced by producers' epochs."""

from __future__ import annotations

import pytest

from coordinator.core.events import (
    DeleteGroup,
    EndTransaction,
    ExpireOffsets,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
    Unverified,
)
from coordinator.core.state.transactions import Producer
from coordinator.core.validate_types import check_types
from coordinator.errors import GroupError
from tests.core.test_offsets import DAY_MS, RETENTION_MS, commit, committed
from tests.support.coordinator_core import Code

UNSTABLE = Code.UNSTABLE_OFFSET_COMMIT


def begun(core, producer, offsets, *, group="g", member="", epoch=-1):
    """Offsets in a transaction whose coordinator confirms that it is open."""
    event = TxnOffsetCommit(commit(member, epoch, offsets, group=group), Producer(*producer))
    found = core.run(event)
    if isinstance(found.response, Unverified):
        found = core.run(TxnOffsetCommit(event.commit, event.producer, found.response.ended))
    return found


def end(core, producer, *, committed=True, coordinator=0, version=0):
    event = EndTransaction(Producer(*producer), coordinator, committed, version)
    return core.run(event)


def refused_end(core, producer, *, coordinator=0, version=0):
    return core.refused(EndTransaction(Producer(*producer), coordinator, True, version))


def stable(core, topics=None, group="g"):
    found = core.run(OffsetFetch(group, topics, require_stable=True)).response
    return {
        (topic, partition): getattr(one, "offset", one)
        for topic, of_topic in found.items()
        for partition, one in of_topic.items()
    }


def forget(core):
    core.advance(DAY_MS)
    return core.run(ExpireOffsets()).records


@pytest.mark.behaviour("G-125")
def test_offsets_count_when_their_transaction_is_committed(group):
    group.topics(a=2)
    group.run(commit("", -1, {"a": {0: 1, 1: 1}}))
    assert begun(group, (7, 0), {"a": {0: 5}}).response == {"a": {0: Code.NONE}}
    assert committed(group) == {("a", 0): 1, ("a", 1): 1}
    assert stable(group, {"a": [0, 1, 2]}) == {("a", 0): UNSTABLE, ("a", 1): 1, ("a", 2): None}
    assert stable(group) == {("a", 0): UNSTABLE, ("a", 1): 1}
    found = group.run(OffsetFetch("g", {"a": [0]})).response
    assert found["a"][0].offset == 1, "who does not ask for stable offsets gets the one that counts"
    end(group, (7, 0))
    assert committed(group) == stable(group) == {("a", 0): 5, ("a", 1): 1}


def test_offsets_of_an_aborted_transaction_are_gone(group):
    begun(group, (7, 0), {"a": {0: 5}})
    assert stable(group, {"a": [0]}) == {("a", 0): UNSTABLE}
    end(group, (7, 0), committed=False)
    assert committed(group) == {}
    assert stable(group, {"a": [0]}) == {("a", 0): None}


def test_a_transaction_has_offsets_of_several_groups(group):
    begun(group, (7, 0), {"a": {0: 5}})
    begun(group, (7, 0), {"a": {0: 6}}, group="h")
    begun(group, (8, 0), {"a": {1: 7}}, group="h")
    end(group, (7, 0))
    assert (committed(group), committed(group, "h")) == ({("a", 0): 5}, {("a", 0): 6})
    assert stable(group, {"a": [0, 1]}, "h") == {("a", 0): 6, ("a", 1): UNSTABLE}


ORDERS = {
    "a commit outside is later": (["7:5", "plain:6", "7 commits"], 6),
    "a transaction is later": (["plain:6", "7:5", "7 commits"], 5),
    "the transaction that ends last is not the later one": (
        ["7:5", "8:6", "8 commits", "7 commits"], 6,
    ),
    "it is": (["7:5", "8:6", "7 commits", "8 commits"], 6),
    "an offset that was sent again is later": (
        ["7:5", "8:6", "7:9", "8 commits", "7 commits"], 9,
    ),
    "a commit outside between two": (
        ["7:5", "plain:4", "8:6", "8 commits", "7 commits"], 6,
    ),
    "an aborted one is no later one": (["7:5", "8:6", "8 aborts", "7 commits"], 5),
    "deleted meanwhile": (["7:5", "deleted", "7 commits"], None),
    "deleted before": (["plain:4", "deleted", "7:5", "7 commits"], 5),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "offset"), ORDERS.values(), ids=ORDERS)
def test_of_several_offsets_the_one_that_was_written_last_counts(group, steps, offset):
    """As Kafka 4.4.0 compares the offsets of the records."""
    for step in steps:
        who, _, value = step.replace(" ", ":").partition(":")
        if who == "deleted":
            group.run(OffsetDelete("g", {"a": [0]}))
        elif who == "plain":
            group.run(commit("", -1, {"a": {0: int(value)}}))
        elif value in {"commits", "aborts"}:
            end(group, (int(who), 0), committed=value == "commits")
        else:
            begun(group, (int(who), 0), {"a": {0: int(value)}})
    assert committed(group).get(("a", 0)) == offset
    assert stable(group, {"a": [0]}) == {("a", 0): offset}


def test_an_overtaken_offset_keeps_its_place_unstable(group):
    begun(group, (7, 0), {"a": {0: 5}})
    group.run(commit("", -1, {"a": {0: 6}}))
    assert stable(group, {"a": [0]}) == {("a", 0): UNSTABLE}


# Whether a transaction is open -------------------------------------------------------------------


def test_the_coordinator_of_the_transaction_is_asked_once(group):
    event = TxnOffsetCommit(commit("", -1, {"a": {0: 5}}), Producer(7, 0))
    assert group.run(event).response == Unverified(0)
    assert not group.state.offsets
    begun(group, (7, 0), {"a": {0: 5}})
    assert group.run(event).response == {"a": {0: Code.NONE}}, "it is open here by now"
    later = TxnOffsetCommit(event.commit, Producer(7, 1))
    assert group.run(later).response == Unverified(0), "of another epoch it may not be"


def test_what_was_confirmed_before_a_transaction_ended_is_asked_again(group):
    """Else a late request would open a transaction that nobody ends."""
    event = TxnOffsetCommit(commit("", -1, {"a": {0: 5}}), Producer(7, 0))
    asked = group.run(event).response.ended
    end(group, (7, 0), committed=False)
    late = group.run(TxnOffsetCommit(event.commit, event.producer, asked))
    assert (late.response, late.records) == (Unverified(1), [])


# Epochs ------------------------------------------------------------------------------------------


def test_an_older_epoch_of_a_producer_is_refused(group):
    begun(group, (7, 3), {"a": {0: 5}})
    old = TxnOffsetCommit(commit("", -1, {"a": {0: 9}}), Producer(7, 2), 0)
    assert group.refused(old) is Code.INVALID_PRODUCER_EPOCH
    assert refused_end(group, (7, 2)) is Code.INVALID_PRODUCER_EPOCH
    end(group, (7, 3))
    assert committed(group) == {("a", 0): 5}


def test_a_marker_of_an_older_coordinator_is_refused(group):
    begun(group, (7, 0), {"a": {0: 5}})
    end(group, (7, 0), coordinator=4)
    begun(group, (7, 0), {"a": {0: 6}})
    assert refused_end(group, (7, 0), coordinator=3) is Code.TRANSACTION_COORDINATOR_FENCED
    assert committed(group) == {("a", 0): 5}
    end(group, (7, 0), coordinator=4)
    assert committed(group) == {("a", 0): 6}


def test_a_marker_of_nothing_is_written(group):
    """As Kafka does: its epoch fences what comes after it."""
    assert end(group, (7, 3)).records
    assert refused_end(group, (7, 2)) is Code.INVALID_PRODUCER_EPOCH


MARKERS = {
    "the same epoch, open": (3, True, False),
    "the next epoch": (4, True, True),
    "the same epoch again": (3, False, True),
    "an older one": (2, False, False),
}


@pytest.mark.parametrize(("epoch", "is_open", "is_taken"), MARKERS.values(), ids=MARKERS)
def test_from_version_2_on_a_marker_raises_the_epoch(group, epoch, is_open, is_taken):
    end(group, (7, 3), version=2)
    if is_open:
        begun(group, (7, 3), {"a": {0: 5}})
    if is_taken:
        end(group, (7, epoch), version=2)
    else:
        assert refused_end(group, (7, epoch), version=2) is Code.INVALID_PRODUCER_EPOCH


def test_the_last_epoch_of_all_ends_its_transaction(group):
    begun(group, (7, 32767), {"a": {0: 5}})
    end(group, (7, 32767), version=2)
    assert committed(group) == {("a", 0): 5}


# Members -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("G-123")
def test_a_member_need_not_be_named(group):
    group.join("m1", "a")
    group.settle()
    assert begun(group, (7, 0), {"a": {0: 5}}).response == {"a": {0: Code.NONE}}


NAMED = {
    "a member that is not there": ("m2", 2, "g", Code.UNKNOWN_MEMBER_ID),
    "an epoch to come": ("m1", 99, "g", Code.ILLEGAL_GENERATION),
    "no such group": ("m1", 1, "nobody", Code.ILLEGAL_GENERATION),
}


@pytest.mark.parametrize(("member", "epoch", "name", "code"), NAMED.values(), ids=NAMED)
def test_a_member_that_is_named_is_fenced(group, member, epoch, name, code):
    group.join("m1", "a")
    group.settle()
    begun(group, (7, 0), {"a": {0: 4}})
    offsets = commit(member, epoch, {"a": {0: 5}}, group=name)
    assert group.refused(TxnOffsetCommit(offsets, Producer(7, 0))) is code
    mine = commit("m1", group.member("m1").epoch, {"a": {0: 6}})
    assert group.run(TxnOffsetCommit(mine, Producer(7, 0))).response == {"a": {0: Code.NONE}}


def test_metadata_that_is_too_long_is_refused_alone(group):
    offsets = {"a": {0: (5, "x" * 5000), 1: (6, "")}}
    event = TxnOffsetCommit(OffsetCommit("g", "", -1, offsets), Producer(7, 0), 0)
    assert group.run(event).response == {"a": {0: Code.OFFSET_METADATA_TOO_LARGE, 1: Code.NONE}}
    end(group, (7, 0))
    assert committed(group) == {("a", 1): 6}


def test_wrong_types_are_refused():
    offsets = OffsetCommit("g", "", -1, {"a": {0: "5"}})
    with pytest.raises(GroupError, match="refused"):
        check_types(TxnOffsetCommit(offsets, Producer(7, 0), 0))


# Deletion and expiry -----------------------------------------------------------------------------


@pytest.mark.behaviour("G-127")
def test_a_pending_offset_keeps_the_one_that_counts_and_its_group(group):
    group.run(commit("", -1, {"a": {0: 1, 1: 1}}))
    begun(group, (7, 0), {"a": {0: 5}})
    begun(group, (8, 0), {"a": {0: 6}}, group="h")
    group.advance(RETENTION_MS)
    group.run(ExpireOffsets())
    assert committed(group) == {("a", 0): 1}
    assert "h" in group.state.offsets
    end(group, (7, 0), committed=False)
    end(group, (8, 0), committed=False)
    group.run(ExpireOffsets())
    assert not group.state.offsets


def test_deleting_a_group_deletes_what_waits(group):
    begun(group, (7, 0), {"a": {0: 5}})
    group.run(DeleteGroup("g"))
    end(group, (7, 0))
    assert not group.state.offsets


def test_a_topic_that_goes_takes_what_waits(group):
    group.topics(a=2, b=2)
    begun(group, (7, 0), {"a": {0: 5}, "b": {0: 6}})
    group.topics(delete=["a"])
    end(group, (7, 0))
    assert committed(group) == {("b", 0): 6}


def test_a_producer_is_forgotten_after_a_day(group):
    end(group, (7, 3))
    begun(group, (8, 3), {"a": {0: 5}})
    assert group.run(ExpireOffsets()).records == []
    forget(group)
    assert list(group.state.transactions.producers) == [8], "an open transaction stays"
    assert end(group, (7, 0)).records
