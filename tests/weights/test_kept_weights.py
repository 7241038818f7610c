"""Weights of a group whose targets an engine computes: asked of its last plan whether they pay."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, WeightsConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.state.plan_values import TopicWeights
from coordinator.runtime.plan_tasks.weight_poller import WeightPoller
from coordinator.runtime.plan_tasks.weight_source import WeightTables

KAFKA = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.assignors": ["weighted"],
}
SIZE = 32


class Weighing:
    """A coordinator that computes no target within a step, and the members of a group."""

    def __init__(self):
        self.now, self.epochs, self.owned = 1_000_000, {}, {}
        config = Config(
            kafka=kafka_config(KAFKA),
            weights=WeightsConfig(half_life_ms=0, interval_ms=1_000),
            engine=EngineConfig(step_rows_max=0),
        )
        self.coordinator = Coordinator.open(
            None, config=config, topics={"clicks": SIZE}, clock=lambda: self.now
        )
        self.weights = [1.0 + at / SIZE for at in range(SIZE)]
        self.poller = WeightPoller(self.coordinator._loop, self._read)

    def _read(self):
        columns = ["clicks"] * SIZE, list(range(SIZE)), self.weights
        names = ("topic", "partition", "weight")
        return WeightTables(pa.table(dict(zip(names, columns, strict=True))))

    def poll(self):
        self.now += 1_000
        self.poller.run()

    @property
    def epoch(self):
        return self.group.epoch

    @property
    def group(self):
        return self.coordinator._loop.processor.state.groups["g"]

    def settle(self, *members):
        """Let members send heartbeats until all have what they are to have."""
        for _ in range(500):
            for member in members:
                self._beat(member)
            done = {self.epochs[member] for member in members} == {self.epoch}
            if done and self.group.assignment_epoch == self.epoch:
                return
            time.sleep(0.01)
        pytest.fail("the group does not come to rest")

    def _beat(self, member):
        epoch = self.epochs.get(member, 0)
        fields = {"topic_partitions": self.owned.get(member, {})}
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["clicks"]}
        answer = self.coordinator.consumer_group_heartbeat(
            group_id="g", member_id=member, member_epoch=epoch, **fields
        )
        self.epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member] = answer.assignment

    def leaves(self):
        """Tell whether the engine knows that weights as they are now change nothing."""
        (basis,) = self.poller._find_groups(set())
        found = msgspec.structs.replace(
            basis.input.loads, weights=(TopicWeights("clicks", tuple(self.weights)),)
        )
        asked = replace(basis, input=replace(basis.input, loads=found))
        return self.coordinator._loop.target_computations.engine("local").leaves(asked)


def test_the_last_plan_tells_that_weights_that_drift_move_nothing():
    group = Weighing()
    try:
        group.settle("m1")
        group.poll()
        group.settle("m1", "m2")
        epoch = group.epoch
        for at in range(4):
            group.weights[at] *= 1.02
            assert group.leaves()
            group.poll()
            assert group.group.epoch == epoch
            noted = group.coordinator._loop.processor.state.loads["g"].weights[0].weights
            assert noted[at] == pytest.approx(group.weights[at], rel=1e-5)
        group.weights[0] *= 30
        assert not group.leaves()
        group.poll()
        assert group.epoch == epoch + 1
        group.settle("m1", "m2")
    finally:
        group.coordinator.close()
