"""Plans end: used once, whatever becomes of their group, and waiting no longer than they are valid."""

from __future__ import annotations

import pytest

from coordinator import GroupError
from coordinator.core.plans.decide import WAITING_MAX
from coordinator.history.frames import frame
from coordinator.runtime.plan_tasks.weight_source import WeightTables
from tests.runtime.test_plans import MANUAL, running, weights

__all__ = ["running"]


PATIENT = {
    f"group.consumer.{name}session.timeout.ms": 1 << 30 for name in ("", "max.")
}  # members outlive their plans


def test_a_used_plan_does_not_apply_to_a_recreated_group(running):
    group = running()
    group.beat("m1")
    group.beat("m2", "m1")
    used = group.coordinator.plan("g", drain=["m2"])
    assert group.coordinator.apply_plan(used)["moved"] == 3
    group.leave("m1")
    group.leave("m2")
    group.coordinator.delete_groups(["g"])
    group.now += 1_000
    group.beat("m1")
    group.beat("m2", "m1")
    assert group.coordinator.plan("g").plan.group_epoch == used.plan.group_epoch, "as it was"
    with pytest.raises(GroupError, match="for another state of group g: target: changed"):
        group.coordinator.apply_plan(used)


def test_a_plan_that_expired_is_not_listed_and_makes_room_for_others(running):
    group = running(**PATIENT)
    one = group.coordinator
    group.beat("m1", "m2")
    for number in range(WAITING_MAX):
        one.propose_plan(one.plan("g", drain=["m2"], reason=str(number)))
    with pytest.raises(GroupError, match=f"{WAITING_MAX} plans of group g are waiting"):
        one.propose_plan(one.plan("g", drain=["m1"]))
    first = one.waiting_plans("g")[0]
    group.now += one.config.plans.valid_ms
    assert one.waiting_plans("g") == []
    group.submitter.run()  # the background task sweeps, as it may before a proposal does
    one.propose_plan(other := one.plan("g", drain=["m1"]))
    assert [waiting.plan_id for waiting in one.waiting_plans("g")] == [other.plan.plan_id]
    with pytest.raises(GroupError, match="is already expired"):
        one.approve_plan("g", first.plan_id)
    group.now += one.config.plans.valid_ms
    group.submitter.run()
    with pytest.raises(GroupError, match=f"no plan '{first.plan_id}' of group g is waiting"):
        one.approve_plan("g", first.plan_id)


def test_a_plan_that_expired_is_so_in_the_log_and_its_group_is_planned_again(running, tmp_path):
    group = running(store=tmp_path / "store", **PATIENT)
    one = group.coordinator
    one.alter_group_config("g", MANUAL)
    group.beat("m1")
    group.beat("m2")
    group.submitter.run()
    (first,) = one.waiting_plans("g")
    group.now += one.config.plans.valid_ms - 1
    group.beat("m1", "m2")
    group.submitter.run()
    assert one.waiting_plans("g") == [first]
    group.now += 1
    group.submitter.run()
    (second,) = one.waiting_plans("g")
    assert second.plan_id != first.plan_id
    plans = frame(tmp_path / "store", "plans").to_pylist()
    assert {row["plan_id"]: row["status"] for row in plans} == {
        first.plan_id: "expired",
        second.plan_id: "waiting",
    }
    assert one.approve_plan("g", second.plan_id)["moved"] == 3


def test_a_plan_that_waits_is_not_lost_to_the_first_weights(running):
    """Nor to any others, until it is decided: then they count."""
    group = running(weights=WeightTables(weights(9.0, 1.0, 1.0, 1.0, 1.0, 1.0)))
    group.coordinator.alter_group_config("g", MANUAL)
    group.beat("m1")
    group.beat("m2")
    group.submitter.run()
    (waiting,) = group.coordinator.waiting_plans("g")
    group.poll()
    assert group.coordinator.look(lambda state: state.loads) == {}
    group.coordinator.approve_plan("g", waiting.plan_id, by="ann")
    group.poll()
    assert "g" in group.coordinator.look(lambda state: state.loads)
