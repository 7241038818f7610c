"""What clients on the wire need of the core: topics by id, and single settings of a group."""

from __future__ import annotations

import pytest

from coordinator.core.events import AlterConfig, DescribeConfig
from coordinator.core.state.partition_spans import kafka_id
from coordinator.core.state.records import MemberState
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.topic_catalog import topic_id_of
from tests.support.coordinator_shell import Shell

LATER_MS = 5_000


class Group(Shell):
    """A group as clients on the wire see it: some time passes between requests."""

    def __init__(self, **topics):
        super().__init__(interval_ms=1_000, **topics)

    def beat(self, member, epoch, owned=None, **fields):
        self.now += LATER_MS
        return super().beat(member, epoch, owned, by_topic_id=True, **fields)

    def member(self, member):
        return super().member(member).current


@pytest.mark.parametrize("topic_id", [None, "orders, second try", topic_id_of("x")])
def test_a_revocation_by_id_is_acknowledged_when_the_member_stops_reporting_it(topic_id):
    group = Group()
    group.catalog.set("orders", 2, topic_id)
    group.processor.see_topics()
    own_id = kafka_id(topic_id or topic_id_of("orders"))
    assert group.join("m1", "orders").assignment[0][1:] == (0, 2)
    group.join("m2", "orders")
    epoch = group.member("m1").member_epoch
    for owned in ({own_id: [0, 1]}, {own_id: [1], "unknown": [7]}):
        group.beat("m1", epoch, owned)
        assert group.member("m1").state is MemberState.UNREVOKED_PARTITIONS
    group.beat("m1", epoch, {own_id: [0]})
    assert group.member("m1").state is MemberState.STABLE
    assert group.beat("m2", group.member("m2").member_epoch).assignment[0][1:] == (1, 2)


@pytest.mark.parametrize("comes_back", [False, True])
def test_partitions_of_a_topic_that_is_gone_are_owned_until_the_member_stops_reporting(comes_back):
    group = Group(clicks=2)
    group.join("m1", "clicks")
    dead = group.processor.topics.by_name["clicks"].key.topic_id
    group.catalog.delete("clicks")
    if comes_back:
        group.catalog.set("clicks", 2, topic_id_of("another"))
    group.processor.see_topics()
    epoch = group.member("m1").member_epoch
    for _ in range(3):
        group.beat("m1", epoch, {dead: [0, 1]})
        assert group.member("m1").state is MemberState.UNREVOKED_PARTITIONS
    answer = group.beat("m1", epoch, {})
    assert group.member("m1").state is MemberState.STABLE
    given = answer.assignment or ()
    assert [span[0].topic_id for span in given] == [topic_id_of("another")] * comes_back


def test_the_previous_epoch_is_taken_only_with_ids_that_the_member_holds():
    group = Group(clicks=2)
    group.join("m1", "clicks")
    group.join("m2", "clicks")
    own_id = topic_id_of("clicks")
    epoch = group.member("m1").member_epoch
    group.beat("m1", epoch, {own_id: [0]})
    assert group.member("m1").member_epoch > epoch
    for wrong in ({topic_id_of("other"): [0]}, {own_id: [0, 1]}, None):
        with pytest.raises(GroupError) as error:
            group.beat("m1", epoch, wrong)
        assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m1", epoch, {own_id: [0]}).member_epoch > epoch


def test_single_settings_of_a_group_change_and_go_back():
    group = Group()
    group.ask(AlterConfig("g", {"consumer.session.timeout.ms": "50000"}))
    group.ask(AlterConfig("g", {"consumer.heartbeat.interval.ms": "6000"}))
    found = group.ask(DescribeConfig("g"))
    assert found["consumer.session.timeout.ms"] == ("50000", True)
    assert found["consumer.heartbeat.interval.ms"] == ("6000", True)
    assert found["consumer.assignment.interval.ms"] == ("1000", False)
    group.ask(AlterConfig("g", {"consumer.session.timeout.ms": None}))
    found = group.ask(DescribeConfig("g"))
    assert found["consumer.session.timeout.ms"] == ("45000", False)
    assert found["consumer.heartbeat.interval.ms"] == ("6000", True)
    with pytest.raises(GroupError) as error:
        group.ask(AlterConfig("g", {"consumer.session.timeout.ms": "1"}))
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert "consumer.session.timeout.ms is '1': give 45000 to 60000" in error.value.message


def test_readers_see_topics_once_they_are_durable():
    group = Group(clicks=2)
    before = group.processor.topics
    group.catalog.set("clicks", 3)
    group.processor.see_topics()
    assert before.by_name["clicks"].partitions == 2
    assert group.processor.topics.by_id[topic_id_of("clicks")].partitions == 3
    group.processor.reload()
    assert group.processor.topics.by_name["clicks"].partitions == 3
