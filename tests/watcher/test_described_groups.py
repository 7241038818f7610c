"""What Kafka answered about its groups, one answer after the other, as records of a store."""

import random

import pytest

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey, spans_of
from coordinator.core.state.records import GroupMetadata, KafkaWatched
from coordinator.core.state.replay import replay
from coordinator.core.watched_events import KafkaWrote
from coordinator.reasons import Reason
from coordinator.watcher.described_groups import (
    Committed,
    DescribedGroup,
    DescribedMember,
    compare_groups,
    compare_offsets,
    end_group,
)
from coordinator.watcher.described_state import find_known
from coordinator.watcher.watched_store import WatchedStore

from .recorded import FILES, change, read_lines
from .test_watched_groups import NO_GROUP, WatchedGroups, describe


def described(told):
    """An answer of Kafka's, as recorded."""
    members = {
        m["memberId"]: DescribedMember(
            m["memberId"],
            m["instanceId"],
            m["rackId"],
            m["memberEpoch"],
            m["clientId"],
            m["clientHost"],
            tuple(m["subscribedTopicNames"]),
            m["subscribedTopicRegex"] or "",
            m["memberType"] == 0,
            spans(m["assignment"]),
            spans(m["targetAssignment"]),
        )
        for m in told["members"]
    }
    return DescribedGroup(
        told["groupId"], told["groupEpoch"], told["assignmentEpoch"], told["assignorName"], members
    )


def spans(assignment):
    return spans_of(
        (TopicKey(t["topicName"] or t["topicId"], t["topicId"]), number)
        for t in assignment["topicPartitions"]
        for number in t["partitions"]
    )


CONSUMER = [name for name in FILES if name not in {"classic-00.jsonl", "classic-03.jsonl"}]
"""The recorded topics in which some group speaks the consumer protocol when Kafka is asked."""


@pytest.mark.parametrize("name", CONSUMER)
def test_a_store_says_what_kafka_answered_last(name):
    watched, last, topics, compared = WatchedGroups(), {}, {}, 0
    for line in read_lines(name):
        if "topics" in line:
            change(topics, line)
            watched.set_topics(topics)
        for group_id, told in line.get("groups", {}).items():
            before = last.pop(group_id, None)
            if told["errorCode"] == NO_GROUP:
                records = [] if before is None else end_group(before)
            else:
                last[group_id] = described(told)
                records, _ = compare_groups(before, last[group_id])
            for record in records:
                replay(watched.state, record)
            found = describe(watched, group_id)
            if group_id not in last:
                assert found is None
                continue
            assert described(found)._replace(assignor="") == last[group_id]._replace(assignor="")
            compared += 1
            assert compare_groups(last[group_id], last[group_id]) == ([], False)
    assert compared


def test_partitions_that_members_swap_have_one_owner_each():
    rng = random.Random(7)
    key = TopicKey("t", "T")
    state, before = State(), None
    replay(state, KafkaWatched("c", "describe"))
    for epoch in range(1, 60):
        owners = [rng.choice(["m1", "m2", "m3", None]) for _ in range(8)]
        members = {}
        for name in ("m1", "m2", "m3"):
            own = spans_of((key, n) for n, owner in enumerate(owners) if owner == name)
            members[name] = DescribedMember(
                name, None, None, epoch, "c", "h", ("t",), "", False, own, own
            )
        now = DescribedGroup("g", epoch, epoch, "range", members)
        for record in compare_groups(before, now)[0]:
            replay(state, record)  # raises where a partition has two owners
        held = {m.member_id: m.current.assigned for m in state.groups["g"].members.values()}
        assert {n: tuple(s[:3] for s in h) for n, h in held.items()} == {
            n: m.assigned for n, m in members.items()
        }
        before = now


def test_an_epoch_that_rose_twice_has_no_reason():
    first = DescribedGroup("g", 3, 3, "range", {})
    later = first._replace(epoch=5)
    records, explains = compare_groups(first, later)
    assert not explains
    assert [r.reason for r in records if isinstance(r, GroupMetadata)] == [Reason.UNKNOWN]
    assert compare_groups(first, first._replace(epoch=4))[1]


def test_offsets_that_differ_are_written():
    one, two = Committed(1, -1, ""), Committed(2, -1, "")
    records = compare_offsets(
        "g", {("t", 0): one, ("t", 1): one}, {("t", 1): two, ("t", 2): one}, 9
    )
    assert [(r.kind, r.partition) for r in records] == [
        ("tombstone", 0), ("offset_commit", 1), ("offset_commit", 2),
    ]  # fmt: skip
    assert compare_offsets("g", {("t", 0): one}, {("t", 0): one}, 9) == []


def test_a_change_that_nothing_explains_leaves_the_rest_of_the_group(tmp_path):
    own = [spans_of([(TopicKey("t", "T"), number)]) for number in range(2)]
    members = {
        name: DescribedMember(name, None, None, 1, "c", "h", ("t",), "", False, held, held)
        for name, held in zip(("m1", "m2"), own, strict=True)
    }
    first = DescribedGroup("g", 1, 1, "range", members)
    later = first._replace(epoch=4, assignment_epoch=4)
    with WatchedStore.open(tmp_path, KafkaWatched("c", "describe", 1)) as store:
        for before, now in ((None, first), (first, later)):
            records, explains = compare_groups(before, now)
            store.write([KafkaWrote(tuple(records), 2, explains=explains)])
        ((known),) = store.coordinator.look(find_known).values()
    assert known.consumer._replace(assignor="") == later._replace(assignor="")
