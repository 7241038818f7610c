"""Targets computed beside the loop: engines that are slow, fail or keep much; another computer."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, PlanConfig
from coordinator.core.state import target_assignment
from coordinator.core.state.records import (
    ComputationPrepared,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
)
from coordinator.engines.engine import ENTRY_POINTS, LocalEngine, list_engines
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from tests.support.installed import install
from tests.support.members import AT_ONCE, beat, code_of, join, wait_for


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 4, "b": 2}, config=Config(kafka=AT_ONCE)) as found:
        yield found


DELEGATED = Config(
    kafka=AT_ONCE, engine=EngineConfig(step_rows_max=0, max_failures=2, backoff_ms=10)
)


def settled(coordinator, member, epoch):
    return wait_for(lambda: beat(coordinator, member, epoch).assignment)


@pytest.mark.parametrize("timeout_ms", [600_000, 10**20])
def test_a_large_target_is_computed_beside_the_loop(timeout_ms):
    config = replace(DELEGATED, engine=replace(DELEGATED.engine, timeout_ms=timeout_ms))
    with Coordinator.open(None, topics={"a": 4}, config=config) as coordinator:
        first = join(coordinator, "m1")
        assert first.assignment == {}
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}
        (group,) = coordinator.consumer_group_describe("g")
        assert group["assignment_epoch"] == group["group_epoch"] == 2


def join_and_wait(coordinator, member, group="g"):
    """Join, and wait until the group's target is for this member too."""
    join(coordinator, member, group=group)
    wait_for(lambda: len(set(coordinator.group_epochs(group)[0])) == 1)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_next_target_looks_at_who_changed(monkeypatch, assignor):
    """One joins many: it continues from the last plan, or puts one member into columns."""
    sizes = []
    columns = target_assignment.to_columns
    monkeypatch.setattr(
        target_assignment, "to_columns", lambda some: sizes.append(len(some)) or columns(some)
    )
    kafka, plan = replace(AT_ONCE, assignors=(assignor,)), PlanConfig(long_ranges=0)
    config = replace(DELEGATED, kafka=kafka, plan=plan)
    with Coordinator.open(None, topics={"a": 8}, config=config) as coordinator:
        for number in range(9):
            join_and_wait(coordinator, f"m{number}")
        sizes.clear()
        join_and_wait(coordinator, "one more")
    assert max(sizes, default=0) <= 1
    assert bool(sizes) is (assignor == "range")


def test_a_small_change_is_made_durable_with_its_target():
    """Who joins, the computation and its target are in one commit, once a target took no time."""
    storage = MemoryRecords()
    config = replace(DELEGATED, plan=PlanConfig(long_ranges=0))
    log = MemoryLog(storage)
    log.claim("test", "", 1)
    with Coordinator.open(None, topics={"a": 90}, config=config, log=log) as coordinator:
        for number in range(30):
            join_and_wait(coordinator, f"m{number}")
    batches = [{type(record) for record in batch.records} for batch in storage.batches]
    whole = {MemberMetadata, ComputationPrepared, TargetMember, TargetMetadata}
    apart = [kinds for kinds in batches if MemberMetadata in kinds and TargetMetadata not in kinds]
    assert any(kinds >= whole for kinds in batches)
    assert apart, "the first target is computed from nothing"
    assert len(apart) + sum(kinds >= whole for kinds in batches) == 30


def test_an_engine_keeps_the_targets_of_a_few_groups():
    engine = LocalEngine(groups_kept=2)
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED, engine=engine) as coordinator:
        for number, group in enumerate(("g1", "g2", "g1", "g3")):
            coordinator.alter_group_config(group, {"consumer.assignor.engine": "spark"})
            join_and_wait(coordinator, f"m{number}", group)
    assert list(engine._before) == ["g1", "g3"]


class HoldingEngine(LocalEngine):
    """An engine that waits for permission to compute."""

    def __init__(self):
        super().__init__()
        self.let = threading.Event()
        self.asked = []

    def compute(self, basis):
        self.asked.append(basis.group_id)
        self.let.wait()
        return super().compute(basis)


def test_a_stale_target_is_installed_and_the_next_one_computed():
    """K-49: computed for epoch X, the group is at X+1: installed, then recomputed."""
    engine = HoldingEngine()
    config = replace(DELEGATED, kafka=AT_ONCE)
    with Coordinator.open(None, topics={"a": 4}, config=config, engine=engine) as coordinator:
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        first = join(coordinator, "m1")
        epochs = [join(coordinator, "m2").member_epoch]
        assert beat(coordinator, "m1", first.member_epoch).assignment is None  # the last target
        engine.let.set()
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}

        def is_next_computed():
            epochs.append(beat(coordinator, "m2", epochs[-1]).member_epoch)
            return coordinator.group_epochs("g") == [(3, 3)]

        wait_for(is_next_computed)
        (group,) = coordinator.consumer_group_describe("g")
        target_assignment = {
            member["member_id"]: member["target_assignment"]["topic_partitions"][0]["partitions"]
            for member in group["members"]
        }
        assert target_assignment == {"m1": [0, 1], "m2": [2, 3]}


def test_a_computation_that_was_cancelled_before_its_turn_is_never_begun():
    engine = HoldingEngine()
    config = replace(DELEGATED, engine=replace(DELEGATED.engine, max_failures=100))
    with Coordinator.open(None, topics={"a": 4}, config=config, engine=engine) as coordinator:
        for group in ("busy", "g"):
            coordinator.alter_group_config(group, {"consumer.assignor.engine": "spark"})
        join(coordinator, "m", group="busy")
        epoch = join(coordinator, "m", group="g").member_epoch

        def is_cancelled():
            beat(coordinator, "m", epoch, group="g")  # begins again what was cancelled
            return coordinator.cancel_computation("g")

        for _ in range(3):
            wait_for(is_cancelled)
        engine.let.set()
        wait_for(lambda: beat(coordinator, "m", epoch, group="g").assignment)
    assert engine.asked == ["busy", "g"]


class FailingEngine(LocalEngine):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def compute(self, _basis):
        self.asked += 1
        raise RuntimeError("no executors")


class CountingEngine(LocalEngine):
    def __init__(self):
        super().__init__()
        self.planned = 0

    def compute(self, basis):
        self.planned += not basis.computation_id
        return super().compute(basis)


def test_plans_are_computed_by_the_engine_that_the_coordinator_was_given():
    engine = CountingEngine()
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED, engine=engine) as coordinator:
        join(coordinator, "m1")
        coordinator.plan("g", engine="spark")
        coordinator.plan("g")
        assert engine.planned == 1
        with pytest.raises(GroupError, match="engine 'sparc': give one of local, spark"):
            coordinator.plan("g", engine="sparc")


COUNTED = """
opened = []

class Made:
    def __init__(self, config=None):
        opened.append(self)
        self.closed = False

    def compute(self, basis):
        from coordinator.core.targets.compute_here import compute_ranges
        return compute_ranges(basis)

    def close(self):
        self.closed = True
"""


def test_an_engine_is_opened_once_for_all_plans_and_closed_with_the_coordinator(
    tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch, ENTRY_POINTS, "counted", COUNTED)
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED) as coordinator:
        join(coordinator, "m1")
        coordinator.plan("g", engine="counted")
        coordinator.plan("g", engine="counted")
        (made,) = list_engines()["counted"].load().__init__.__globals__["opened"]
        assert not made.closed
    assert made.closed


def test_an_engine_that_fails_is_tried_again_and_then_the_local_one(caplog):
    engine = FailingEngine()
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED, engine=engine) as coordinator:
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        first = join(coordinator, "m1")
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}
        assert engine.asked == 2
        assert "no executors" in caplog.text
        text = generate_latest(coordinator.metrics.registry).decode()
        assert 'target_assignment_failed_total{group="g"} 2.0' in text


def test_an_engine_that_failed_very_often_is_still_tried_again(caplog):
    """After a night of failures, doubling the wait once more is beyond any number of seconds."""
    engine = FailingEngine()
    config = replace(DELEGATED, engine=replace(DELEGATED.engine, max_failures=10_000))
    with Coordinator.open(None, topics={"a": 4}, config=config, engine=engine) as coordinator:
        coordinator._loop.target_computations._failures["g"] = 2_000
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        join(coordinator, "m1")
        wait_for(lambda: "(2001 in a row), retrying in 60.0 s: no executors" in caplog.text)


def test_an_external_computer(coordinator):
    join(coordinator, "m1")
    coordinator.alter_group_config("g", {"consumer.assignor.engine": "external"})
    join(coordinator, "m2")
    work = coordinator.consumer_group_prepare_assignment("g")
    assert work["members"]["member_id"].to_pylist() == ["m1", "m2"]
    ranges = pa.table(
        {
            "member_id": ["m1", "m2"],
            "topic": ["a", "a"],
            "first_partition": [1, 0],
            "partition_count": [3, 1],
        }
    )
    call = {
        "group_id": "g",
        "computation_id": work["computation_id"],
        "group_epoch": work["group_epoch"],
    }
    install = coordinator.consumer_group_install_assignment
    with pytest.raises(GroupError, match="1 partitions have no owner") as gap:
        install(**call, ranges=ranges.slice(0, 1))
    assert gap.value.code is ErrorCode.INVALID_ASSIGNMENT
    assert install(**call, ranges=ranges)["moved"] == 1
    assert code_of(install, **call, ranges=ranges) == "STALE_MEMBER_EPOCH"
    assert code_of(install, **call, ranges=[1]) == "INVALID_REQUEST"
