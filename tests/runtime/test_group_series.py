"""Metrics by group: of so many groups, and gone with them."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.config import Config, MetricsConfig
from coordinator.runtime.group_series import OTHERS
from tests.support.members import AT_ONCE, code_of

CONFIG = Config(kafka=AT_ONCE, metrics=MetricsConfig(groups_max=2))


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 4}, config=CONFIG) as found:
        yield found


def join(coordinator, group, member="m"):
    return coordinator.consumer_group_heartbeat(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["a"], topic_partitions={},
    )  # fmt: skip


def beat(coordinator, group, epoch, member="m"):
    return coordinator.consumer_group_heartbeat(
        group_id=group, member_id=member, member_epoch=epoch
    )


def end(coordinator, group):
    beat(coordinator, group, -1)
    coordinator.delete_groups(group).raise_for_error()


def text(coordinator):
    return generate_latest(coordinator.metrics.registry).decode()


def value(coordinator, name, **labels):
    return coordinator.metrics.registry.get_sample_value(name, labels)


def test_a_groups_series_go_with_the_group(coordinator):
    join(coordinator, "g")
    assert code_of(beat, coordinator, "g", 99) == "FENCED_MEMBER_EPOCH"
    assert text(coordinator).count('group="g"') > 10
    end(coordinator, "g")
    assert 'group="g"' not in text(coordinator)
    join(coordinator, "g")
    reason = {"group": "g", "reason": "member joined"}
    assert value(coordinator, "consumer_group_rebalance_total", **reason) == 1


def test_thousands_of_groups_that_came_and_went_leave_nothing_behind(coordinator):
    join(coordinator, "warm")
    end(coordinator, "warm")
    before = len(text(coordinator))
    for number in range(300):
        name = f"{number:04}" + "x" * 1_000
        join(coordinator, name)
        end(coordinator, name)
    assert "xxx" not in text(coordinator)
    assert len(text(coordinator)) < before + 10_000  # those of (others)


def test_groups_beyond_the_limit_are_summed(coordinator):
    for number in range(5):
        join(coordinator, f"g{number}")
        join(coordinator, f"g{number}", "n")
    reason = {"reason": "member joined"}
    name = "consumer_group_rebalance_total"
    assert value(coordinator, name, group="g0", **reason) == 2
    assert value(coordinator, name, group="g2", **reason) is None
    assert value(coordinator, name, group=OTHERS, **reason) == 6
    assert value(coordinator, "group_members", group="g1") == 2
    assert value(coordinator, "group_members", group=OTHERS) == 6
    assert value(coordinator, "load_spread", group=OTHERS) is not None
    beat(coordinator, "g0", -1)
    beat(coordinator, "g0", -1, "n")
    coordinator.delete_groups("g0").raise_for_error()
    join(coordinator, "g9")  # there is room again
    assert value(coordinator, name, group="g9", **reason) == 1


def test_a_group_that_is_none_gets_no_series(coordinator):
    coordinator.offset_commit(group_id="simple", topics={"a": {0: 1}})
    for name in ("simple", "nobody"):
        fields = {"group_id": name, "member_id": "m", "member_epoch": 3, "topics": {"a": {0: 1}}}
        assert code_of(coordinator.offset_commit, **fields) != "NONE"
        assert code_of(beat, coordinator, name, 3) != "NONE"
    assert "simple" not in text(coordinator)
    assert "nobody" not in text(coordinator)


def test_loaded_groups_are_counted(tmp_path):
    with Coordinator.open(tmp_path, topics={"a": 4}, config=CONFIG) as first:
        for number in range(4):
            join(first, f"g{number}")
    with Coordinator.open(tmp_path, topics={"a": 4}, config=CONFIG) as second:
        assert value(second, "group_members", group="g0") == 1
        assert value(second, "group_members", group=OTHERS) == 2


def test_a_fenced_coordinator_has_no_group_series(tmp_path):
    with Coordinator.open(tmp_path, topics={"a": 4}, config=CONFIG) as first:
        join(first, "g")
        with Coordinator.open(tmp_path, topics={"a": 4}, config=CONFIG, takeover="force"):
            assert code_of(join, first, "h") == "NOT_COORDINATOR"
            assert first.status == "fenced"
            assert 'group="g"' not in text(first)
