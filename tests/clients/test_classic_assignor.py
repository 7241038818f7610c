"""librdkafka in classic groups for which the coordinator assigns, eager and cooperative."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from coordinator.config.kafka import CLASSIC_ASSIGNOR
from tests.wire.test_classic_groups import served
from tests.wire.test_server import until

PATIENCE_S = 60


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_the_coordinator_assigns(strategy):
    with served() as (coordinator, address):
        coordinator.alter_group_config("g", {CLASSIC_ASSIGNOR: "sticky"})

        def start():
            consumer = Consumer(
                {
                    "bootstrap.servers": address, "group.id": "g", "heartbeat.interval.ms": 100,
                    "session.timeout.ms": 6_000, "partition.assignment.strategy": strategy,
                }
            )  # fmt: skip
            consumer.subscribe(["clicks"])
            return consumer

        def shared(*loads):
            for consumer in consumers:
                consumer.poll(0.05)
            held = [[one.partition for one in consumer.assignment()] for consumer in consumers]
            flat = [partition for one in held for partition in one]
            assert strategy == "range,roundrobin" or len(flat) == len(set(flat)), held
            return sorted(map(len, held)) == sorted(loads) and sorted(flat) == [0, 1, 2, 3]

        consumers = [start()]
        until(lambda: shared(4), PATIENCE_S)
        consumers.append(start())
        until(lambda: shared(2, 2), PATIENCE_S)
        before = {one.partition for one in consumers[0].assignment()}
        consumers.append(start())
        until(lambda: shared(2, 1, 1), PATIENCE_S)
        assert {one.partition for one in consumers[0].assignment()} <= before
        consumers.pop(1).close()
        until(lambda: shared(2, 2), PATIENCE_S)
        for consumer in consumers:
            consumer.close()
