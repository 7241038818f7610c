"""Requests that take long by themselves: others wait for one of them at most, not for all."""

from __future__ import annotations

import threading

import pytest

from coordinator import Coordinator
from coordinator.core.events import (
    CommittedOffset,
    ComputedTarget,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    RegexesResolved,
    TopicsReported,
)
from coordinator.core.large_requests import LARGE, cut, join, weigh
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import TargetMember
from coordinator.errors import ErrorCode, GroupError
from tests.support.fingerprint import fingerprint

NAMES = [f"t{number:04}" for number in range(1_500)]
ONE = {"t": {0: CommittedOffset(7)}}


def commit(topics, each=1, group="g", **fields):
    offsets = {
        name: {at: CommittedOffset(at, f"{name}-{at}") for at in range(each)} for name in topics
    }
    return OffsetCommit(group, "", -1, offsets, **fields)


def ordered(*batches):
    """Submit batches of events together; return whose answers came when, and the answers."""
    with Coordinator.open(None, topics=dict.fromkeys([*NAMES, "t"], 1)) as coordinator:
        let, holds, order = threading.Event(), threading.Event(), []
        coordinator._loop.call(lambda: holds.set() or let.wait(30))
        assert holds.wait(30)
        asked = [coordinator.submit(batch) for batch in batches]
        for at, future in enumerate(asked):
            future.add_done_callback(lambda _, at=at: order.append(at))
        let.set()
        return [future.result(30) for future in asked], order


def test_a_member_waits_for_one_large_request_of_others_at_most():
    larges = [[commit(NAMES, 2, group=f"large-{at}")] for at in range(5)]
    many = [OffsetCommit(f"small-{at}", "", -1, ONE) for at in range(20)]
    _, order = ordered(*larges, many)
    assert order.index(len(larges)) <= 1


def test_others_are_answered_between_the_pieces_of_a_commit():
    (found, _), order = ordered([commit(NAMES, 8)], [OffsetCommit("small", "", -1, ONE)])
    assert order == [1, 0]
    (answer,) = found
    assert answer.response == {name: dict.fromkeys(range(8), ErrorCode.NONE) for name in NAMES}


def test_a_batch_of_both_is_answered_in_its_order():
    batch = [commit(["t"]), commit(NAMES, 8), OffsetFetch("g", {"t0000": [5]}), commit(["t"], 2)]
    ((first, large, fetched, last),), _ = ordered(batch)
    assert (first.response, last.response) == ({"t": {0: 0}}, {"t": {0: 0, 1: 0}})
    assert len(large.response) == len(NAMES)
    assert fetched.response["t0000"][5].offset == 5


@pytest.mark.parametrize("most", [1, 3, 4, 5, 100])
def test_pieces_commit_what_the_whole_does(most):
    whole = commit(["a", "b", "c"], 4)
    pieces = cut(whole, most)
    assert all(sum(map(len, piece.offsets.values())) <= most for piece in pieces)
    assert len(pieces) == -(-12 // most)
    states = []
    for events in ([whole], pieces):
        with Coordinator.open(None, topics={"a": 4, "b": 4, "c": 4}) as coordinator:
            answers = [coordinator.submit([event]).result(30)[0] for event in events]
            found = join(events, answers)
            states.append((fingerprint(coordinator._processor.state), found.response))
    for offsets, _ in states:
        assert offsets
    assert states[0][1] == states[1][1]
    assert list(states[0][1]) == list(states[1][1])


def test_a_piece_that_is_refused_is_refused_by_partition():
    pieces = cut(commit(["a", "b"], 2), 3)
    refused = GroupError(ErrorCode.STALE_MEMBER_EPOCH, "too late")
    with Coordinator.open(None, topics={"a": 2, "b": 2}) as coordinator:
        ((first,),) = [coordinator.submit(pieces[:1]).result(30)]
    found = join(pieces, [first, refused])
    assert found.response == {"a": {0: 0, 1: 0}, "b": {0: 0, 1: ErrorCode.STALE_MEMBER_EPOCH}}
    assert join(pieces, [refused, refused]) is refused


def test_what_is_about_very_many_topics_is_large_and_what_is_of_wrong_types_is_not():
    many = {name: [0] for name in NAMES}
    spans = tuple((TopicKey(name, name), 0, 1) for name in NAMES)
    larges = [
        commit(NAMES),
        OffsetFetch("g", many),
        Heartbeat("g", "m", 3, topic_partitions=many),
        Heartbeat("g", "m", 0, subscribed_topic_names=NAMES),
        RegexesResolved("g", {"t.*": NAMES}, 1, 1),
        ComputedTarget("g", "c", 1, 1, "uniform", changes=[TargetMember("g", "m", spans)]),
        TopicsReported(many, gone=()),
    ]
    assert all(weigh(State(), event) > LARGE for event in larges)
    wrong = [
        Heartbeat("g", "m", 3, topic_partitions=7),
        Heartbeat(["g"], "m", 3),
        OffsetCommit("g", "", -1, 7),
        OffsetCommit("g", "", -1, {"t": 7}),
    ]
    assert {weigh(State(), event) for event in [*wrong, OffsetFetch("g"), commit(["t"])]} == {1}


def test_a_member_of_very_many_topics_beats_beside_others():
    with Coordinator.open(None, topics=dict.fromkeys(NAMES, 1)) as coordinator:
        coordinator.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=NAMES, topic_partitions={},
        )  # fmt: skip
        assert coordinator.is_large(Heartbeat("g", "m", 2))
        assert not coordinator.is_large(Heartbeat("g", "other", 2))
