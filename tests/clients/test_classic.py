"""librdkafka with its defaults: a member of a classic group."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.wire.test_classic_groups import served
from tests.wire.test_server import until

PATIENCE_S = 60


class Member:
    """A consumer that notes what it has."""

    def __init__(self, address, name):
        self.partitions = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": address, "group.id": "g", "client.id": name,
                "enable.auto.commit": False, "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
            }
        )  # fmt: skip
        self.consumer.subscribe(["clicks"], on_assign=self._take, on_revoke=self._give_up)

    def _take(self, _consumer, partitions):
        self.partitions = [one.partition for one in partitions]

    def _give_up(self, _consumer, _partitions):
        self.partitions = []


def shared(*members):
    """Poll; whether the members have all partitions, each a part."""
    for member in members:
        member.consumer.poll(0.05)
    held = [partition for member in members for partition in member.partitions]
    return all(member.partitions for member in members) and sorted(held) == [0, 1, 2, 3]


def test_consumers_with_their_defaults_join_commit_and_leave():
    with served() as (_, address):
        first = Member(address, "first")
        until(lambda: shared(first), PATIENCE_S)
        second = Member(address, "second")
        until(lambda: shared(first, second), PATIENCE_S)
        own = TopicPartition("clicks", first.partitions[0], 7)
        first.consumer.commit(offsets=[own], asynchronous=False)
        (found,) = first.consumer.committed([own], timeout=60)
        assert found.offset == 7
        admin = AdminClient({"bootstrap.servers": address})
        group = admin.describe_consumer_groups(["g"])["g"].result(60)
        assert (group.state, group.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        held = {
            one.client_id: [p.partition for p in one.assignment.topic_partitions]
            for one in group.members
        }
        assert held == {"first": first.partitions, "second": second.partitions}
        (listed,) = admin.list_consumer_groups().result(60).valid
        assert (listed.group_id, listed.type) == ("g", ConsumerGroupType.CLASSIC)
        second.consumer.close()
        until(lambda: shared(first), PATIENCE_S)
        first.consumer.close()
