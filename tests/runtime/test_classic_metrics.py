"""Metrics of classic groups."""

from __future__ import annotations

import pytest

from coordinator.config.kafka import CLASSIC_ASSIGNOR
from coordinator.core.events import ConfigureGroup
from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.wire.codec import Api
from tests.support.classic_side import JOIN, SYNC, Classic


def read(side):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in side.processor.metrics.registry.collect()
        for sample in family.samples
    }


@pytest.mark.behaviour("K-120", "G-145")
def test_classic_groups_are_counted():
    side = Classic(clicks=4)
    state = side.processor
    side.processor.metrics.watch(lambda: state.state, lambda: state.status.value)
    side.processor.run([ConfigureGroup("g", {CLASSIC_ASSIGNOR: "uniform"})])
    protocols = [{"name": "range", "metadata": write_subscription(Subscription(1, ["clicks"]))}]
    first = side.say(Api.JOIN_GROUP, 3, **JOIN | {"member_id": "", "protocols": protocols})
    found = read(side)
    assert found["classic_group_count", "preparingrebalance"] == 1
    side.processor.tick()
    member_id = side.hear()[first].member_id
    side.say(Api.SYNC_GROUP, 2, **SYNC | {"member_id": member_id, "generation_id": 1})
    found = read(side)
    assert (found["group_count", "classic"], found["group_count", "consumer"]) == (1, 0)
    assert found["classic_group_count", "stable"] == 1
    assert found["group_members", "g"] == 1
    assert found["group_completed_rebalance_total", "g", "member joined"] == 1
    side.say(Api.LEAVE_GROUP, 3, group_id="g", members=[{"member_id": member_id}])
    found = read(side)
    assert found["group_completed_rebalance_total", "g", "member left"] == 1
    assert found["classic_group_count", "empty"] == 1
