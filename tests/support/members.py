"""Members that beat as clients do: they own what they are given, and say so."""

from __future__ import annotations

import time

from coordinator.config.kafka import kafka_config
from coordinator.errors import GroupError

AT_ONCE = kafka_config({"group.consumer.assignment.interval.ms": 0})
WHILE_JOBS_RUN = kafka_config(
    {
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.max.session.timeout.ms": 600_000,
        "group.consumer.session.timeout.ms": 600_000,
    }
)
"""For members that do not beat while a test waits for Spark: on a busy machine that takes long."""


def join(coordinator, member, topics=("a",), group="g", **fields):
    return coordinator.consumer_group_heartbeat(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics), topic_partitions={}, **fields,
    )  # fmt: skip


def beat(coordinator, member, epoch, group="g", **fields):
    return coordinator.consumer_group_heartbeat(
        group_id=group, member_id=member, member_epoch=epoch, **fields
    )


def code_of(ask, *args, **fields):
    """The name of the error that a request is refused with; NONE when it is served."""
    try:
        ask(*args, **fields)
    except GroupError as error:
        return error.code.name
    return "NONE"


def wait_for(found, timeout_s=120.0, every_s=0.01):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError("it did not come")


class Members:
    """Members that beat, and own what they are given, until the group is at rest."""

    def __init__(self, coordinator, every_s=0.01):
        self.coordinator, self.every_s = coordinator, every_s
        self.epochs, self.owned = {}, {}

    def join(self, *members, **fields):
        for member in members:
            answer = join(self.coordinator, member, **fields)
            self.epochs[member], self.owned[member] = answer.member_epoch, answer.assignment

    def leave(self, member):
        beat(self.coordinator, member, -1)
        del self.epochs[member], self.owned[member]

    def beat(self):
        for member, epoch in self.epochs.items():
            owned = self.owned[member]
            answer = beat(self.coordinator, member, epoch, topic_partitions=owned)
            self.epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[member] = answer.assignment

    def settle(self):
        def settled():
            self.beat()
            (group,) = self.coordinator.consumer_group_describe("g")
            return group["group_state"] == "Stable"

        wait_for(settled, every_s=self.every_s)
        return {member: owned.get("a", []) for member, owned in self.owned.items()}


# Inside a coordinator, for tests that compare states or break its log ----------------------------


def processor_of(coordinator):
    """Return what decides and replays events."""
    return coordinator._processor


def state_of(coordinator):
    """Return the state of all groups, which the loop alone may change."""
    return processor_of(coordinator).state


def log_of(coordinator):
    """Return the record log."""
    return processor_of(coordinator).log


def position_of(coordinator):
    """Return how many records the log has."""
    return processor_of(coordinator).position
