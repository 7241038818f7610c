"""What Kafka answered about its groups, one answer after the other, as records of a store."""

import asyncio
import random
from types import SimpleNamespace
from uuid import UUID

import pytest

from coordinator.core.reasons import Reason
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey, spans_of
from coordinator.core.state.records import GroupMetadata, KafkaWatched
from coordinator.core.state.replay import replay
from coordinator.core.watched_events import KafkaWrote
from coordinator.watcher.describe_source import DescribeSource
from coordinator.watcher.described_groups import (
    Committed,
    DescribedGroup,
    DescribedMember,
    compare_groups,
    compare_offsets,
    end_group,
)
from coordinator.watcher.described_state import find_known
from coordinator.watcher.kafka_brokers import ClusterMetadata
from coordinator.watcher.watched_store import WatchedStore
from coordinator.wire.codec import Api
from tests.support.members import position_of

from .recorded import FILES, change, read_lines
from .test_watched_groups import NO_GROUP, WatchedGroups, describe


def described(answer):
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
        for m in answer["members"]
    }
    return DescribedGroup(
        answer["groupId"],
        answer["groupEpoch"],
        answer["assignmentEpoch"],
        answer["assignorName"],
        members,
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
        for group_id, answer in line.get("groups", {}).items():
            before = last.pop(group_id, None)
            if answer["errorCode"] == NO_GROUP:
                records = [] if before is None else end_group(before)
            else:
                last[group_id] = described(answer)
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


# A cluster that does not answer everything, or wrongly ------------------------------------------


class Answering:
    """Brokers that answer about a group, as the test says."""

    node_ids = (1,)

    def __init__(self):
        self.listed, self.offsets = True, {("t", 0): (5, 0), ("t", 1): (6, 0)}
        self.codes, self.states, self.parts = {}, {}, {"a": [0, 1], "b": [2]}
        self.epoch, self.others = 1, []

    async def describe(self, _topic):
        return ClusterMetadata("c", {}, 0, {})

    async def coordinators(self, group_ids):
        return dict.fromkeys(group_ids, 1)

    async def ask(self, _node_id, api, **_fields):
        code = self.codes.get(api, 0)
        if api is Api.LIST_GROUPS:
            one = SimpleNamespace(group_id="g", group_type="consumer")
            return SimpleNamespace(
                error_code=code, groups=[one] if self.listed and not code else []
            )
        if api is Api.OFFSET_FETCH:
            return SimpleNamespace(groups=[self._offsets("g", code), *self.others])
        assert api is Api.CONSUMER_GROUP_DESCRIBE
        members = [self._member(name, parts) for name, parts in self.parts.items()]
        found = SimpleNamespace(
            error_code=code, group_id="g", group_epoch=self.epoch, assignment_epoch=self.epoch,
            assignor_name="uniform", members=members,
        )  # fmt: skip
        return SimpleNamespace(groups=[found])

    def _member(self, name, parts):
        topic = SimpleNamespace(topic_id=UUID(int=7), topic_name="t", partitions=parts)
        has = SimpleNamespace(topic_partitions=[topic])
        return SimpleNamespace(
            member_id=name, instance_id=None, rack_id=None, member_epoch=self.epoch, client_id="c",
            client_host="/h", subscribed_topic_names=["t"], subscribed_topic_regex=None,
            member_type=1, assignment=has, target_assignment=has,
        )  # fmt: skip

    def _offsets(self, group_id, code):
        rows = [
            SimpleNamespace(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=-1,
                metadata="", error_code=error,
            )
            for (_, partition), (offset, error) in self.offsets.items()
        ]  # fmt: skip
        topics = [] if code else [SimpleNamespace(name="t", partitions=rows)]
        return SimpleNamespace(group_id=group_id, error_code=code, topics=topics)


@pytest.fixture
def poll(tmp_path):
    """Ask once, and return what the store has: owners and offsets of the group, if it is there."""
    brokers, source = Answering(), DescribeSource("kafka://h:1")
    with WatchedStore.open(tmp_path, KafkaWatched("c", "describe", 1)) as store:
        known = store.coordinator.look(find_known)

        def ask():
            try:
                asyncio.run(source._poll(brokers, store, known))
            finally:
                again = store.coordinator.look(find_known)
            found = again.get("g")
            if found is None or "g" in store.watched.unread:
                return None
            owned = {name: one.assigned for name, one in found.consumer.members.items()}
            return owned, {place[1]: one.offset for place, one in found.offsets.items()}

        ask.brokers, ask.store = brokers, store
        yield ask


LOADING, NOT_COORDINATOR, REFUSED = 14, 16, 30


def test_a_broker_that_loads_its_groups_ends_none(poll):
    before = poll()
    poll.brokers.codes = {Api.LIST_GROUPS: LOADING}
    assert before is not None
    assert poll() == before
    poll.brokers.codes, poll.brokers.listed = {}, False
    assert poll() == before, "no broker lists it, and its coordinator has it"
    poll.brokers.codes = {Api.CONSUMER_GROUP_DESCRIBE: NOT_COORDINATOR}
    assert poll() == before
    poll.brokers.codes = {Api.CONSUMER_GROUP_DESCRIBE: NO_GROUP}
    assert poll() is None


def test_offsets_that_are_not_answered_stay(poll):
    owned, offsets = poll()
    assert offsets == {0: 5, 1: 6}
    poll.brokers.codes = {Api.OFFSET_FETCH: LOADING}
    assert poll() == (owned, offsets)
    poll.brokers.codes, poll.brokers.offsets = {}, {("t", 0): (-1, 29), ("t", 1): (7, 0)}
    assert poll() == (owned, {0: 5, 1: 7})
    poll.brokers.offsets = {("t", 1): (8, 0)}
    assert poll() == (owned, {1: 8})


def test_an_answer_that_was_not_asked_for_is_passed_over(poll):
    poll.brokers.others = [poll.brokers._offsets("other", 0)]
    assert poll()[1] == {0: 5, 1: 6}


@pytest.mark.parametrize("parts", [[0, 2], [1 << 24], [-3], [(1 << 31) - 1]])
def test_a_wrong_answer_costs_its_group_until_it_is_right(poll, parts):
    before = poll()
    poll.brokers.parts, poll.brokers.epoch = {"a": parts, "b": [2]}, 2
    assert (poll(), poll()) == (None, None)
    at = position_of(poll.store.coordinator)
    assert (poll(), position_of(poll.store.coordinator)) == (None, at), "it is said once"
    poll.brokers.parts, poll.brokers.epoch = {"a": [0, 1], "b": [2]}, 3
    assert poll() == before


def test_a_group_that_cannot_be_read_ends_with_kafkas(poll):
    poll.brokers.parts = {"a": [-1]}
    poll()
    assert set(poll.store.watched.unread) == {"g"}
    poll.brokers.listed, poll.brokers.codes = False, {Api.CONSUMER_GROUP_DESCRIBE: NO_GROUP}
    poll()
    assert not poll.store.watched.unread


def test_what_may_not_be_read_is_said_after_the_rest(poll):
    before = poll()
    poll.brokers.codes = {Api.CONSUMER_GROUP_DESCRIBE: REFUSED}
    with pytest.raises(OSError, match="allow DESCRIBE on group g"):
        poll()
    poll.brokers.codes = {}
    assert poll() == before
