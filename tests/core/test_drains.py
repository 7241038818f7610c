"""A member that a plan drains stays empty until it leaves, whatever the assignor and the operator."""

from __future__ import annotations

import random
import time

import pytest

from coordinator import Coordinator, GroupError
from coordinator.config import Config, EngineConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import TopicsReported
from coordinator.core.targets.load_columns import DRAINED
from coordinator.history.log_reader import LogReader
from coordinator.history.past_target import explain_past_partition
from coordinator.runtime.topic_catalog import DictCatalog
from tests.runtime.test_plans import Running
from tests.support.longer import EVERY
from tests.support.members import state_of

ASSIGNORS = ("uniform", "range", "sticky", "weighted")


@pytest.fixture
def running(tmp_path):
    opened = []

    def open_one(assignor, **options):
        options.setdefault("store", tmp_path / str(len(opened)))
        opened.append(Running(**{"group.consumer.assignors": [assignor], **options}))
        return opened[-1]

    yield open_one
    for one in opened:
        one.coordinator.close()


def drain(group, *members, assignor="weighted"):
    shown = group.coordinator.plan("g", drain=list(members), assignor=assignor)
    group.coordinator.apply_plan(shown)


def targets(group):
    state = state_of(group.coordinator)
    found = state.groups["g"].targets
    return {m: sum(end - first for _, first, end in found[m]) for m in sorted(found)}


@pytest.mark.parametrize("planned", ["weighted", "own"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_whatever_comes_and_goes_a_drained_member_stays_empty(running, assignor, planned):
    for seed in range(2 if EVERY else 1):
        chance = random.Random(seed)
        size, catalog = 6, DictCatalog({"clicks": 6})
        group = running(assignor, topics=catalog)
        group.beat("m1", "m2", "m3")
        first = state_of(group.coordinator).groups["g"].epoch
        drain(group, "m2", assignor=assignor if planned == "own" else planned)
        group.beat("m2", "m1", "m3")
        here = ["m1", "m2", "m3"]
        for step in range(8):
            act = chance.choice(["join", "join", "leave", "grow", "roll back", "plan"])
            if act == "join":
                here.append(f"n{step}")
            elif act == "leave" and len(here) > 2:
                here.remove(gone := chance.choice([m for m in here if m != "m2"]))
                group.leave(gone)
            elif act == "grow":
                size += chance.randrange(1, 3)
                catalog.set("clicks", size)
                group.coordinator._loop.submit([TopicsReported(catalog.topics())]).result()
            elif act == "roll back":
                group.coordinator.apply_plan(group.coordinator.plan_rollback("g", first))
            elif act == "plan":
                group.coordinator.apply_plan(group.coordinator.plan("g"))
            group.beat(*here)
            found = targets(group)
            assert (found["m2"], sum(found.values())) == (0, size), (seed, step, act, found)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_rollback_does_not_refill_a_drained_member(running, assignor):
    group = running(assignor)
    group.beat("m1", "m2")
    epoch = state_of(group.coordinator).groups["g"].epoch
    drain(group, "m2")
    group.coordinator.apply_plan(group.coordinator.plan_rollback("g", epoch))
    assert targets(group) == {"m1": 6, "m2": 0}
    both = group.coordinator.plan("g", undrain=["m2"])
    group.coordinator.apply_plan(both)
    assert targets(group) == {"m1": 3, "m2": 3}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_the_last_member_is_not_drained_and_a_drained_one_that_left_is_forgotten(running, assignor):
    group = running(assignor)
    group.beat("m1", "m2")
    with pytest.raises(GroupError, match="cannot be on any member"):
        group.coordinator.plan("g", drain=["m1", "m2"], assignor=assignor)
    drain(group, "m2", assignor=assignor)
    group.beat("m2", "m1")
    group.leave("m1")
    group.beat("m2")
    assert targets(group) == {"m2": 0}  # no member may have them, and the group goes on
    group.beat("m3", "m2")
    assert targets(group) == {"m2": 0, "m3": 6}
    group.leave("m2")
    group.beat("m4", "m3", "m4")
    assert targets(group) == {"m3": 3, "m4": 3}
    group.coordinator.apply_plan(group.coordinator.plan("g"))  # the drained member is gone by now


def test_explain_names_the_drain_in_a_group_of_equal_members(running, tmp_path):
    group = running("uniform", store=tmp_path / "s")
    group.beat("m1", "m2")
    drain(group, "m2")
    group.beat("m2", "m1", "m3", "m2", "m1", "m3")
    epoch = state_of(group.coordinator).groups["g"].assignment_epoch
    group.coordinator.close()
    _, found = explain_past_partition(LogReader(tmp_path / "s"), "g", "clicks", 0, epoch)
    refused = {one.member_id: one.refused for one in found.candidates}
    assert DRAINED in refused["m2"]
    assert refused["m1"] is refused["m3"] is None


class Group:
    """The group "g" of a coordinator in memory, with the topics a and b."""

    def __init__(self, assignor, **engine):
        kafka = kafka_config(
            {"group.consumer.assignors": [assignor], "group.consumer.assignment.interval.ms": 0}
        )
        config = Config(kafka=kafka, engine=EngineConfig(**engine))
        self.coordinator = Coordinator.open(None, topics={"a": 4, "b": 4}, config=config)
        self.epochs = {}

    def beat(self, member, **more):
        answer = self.coordinator.consumer_group_heartbeat(
            group_id="g", member_id=member, member_epoch=self.epochs.get(member, 0),
            topic_partitions={}, **more,
        )  # fmt: skip
        self.epochs[member] = answer.member_epoch

    def join(self, member, *names):
        self.beat(member, rebalance_timeout_ms=60_000, subscribed_topic_names=names)
        self.settle()

    def leave(self, member):
        del self.epochs[member]
        self.coordinator.consumer_group_heartbeat(group_id="g", member_id=member, member_epoch=-1)

    def settle(self):
        """Beat until the target is there and all members have reached it."""
        state = state_of(self.coordinator)
        for _ in range(200):
            for member_id in [*self.epochs]:
                self.beat(member_id)
            found = state.groups["g"]
            if found.assignment_epoch == found.epoch and {*self.epochs.values()} == {found.epoch}:
                return
            time.sleep(0.01)  # the target may be computed in another thread
        pytest.fail(f"group g is {found.state}")

    def shares(self):
        """Return what each member is to have, as "topic-partition"."""
        found = state_of(self.coordinator).groups["g"].targets
        return {
            m: [f"{k.name}-{n}" for k, f, e in found[m] for n in range(f, e)] for m in sorted(found)
        }


SUBSCRIBED = {"m1": ["b"], "m2": ["a", "b"], "m3": ["a"], "n1": ["a", "b"]}


@pytest.mark.parametrize("order", [("m1", "m2", "m3"), ("m2", "m1", "m3"), ("m3", "m2", "m1")])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_drained_member_may_be_the_only_one_of_its_subscription(assignor, order):
    """Nobody has its list then, and those of the others are numbered as before."""
    group = Group(assignor)
    with group.coordinator as one:
        for member in order:
            group.join(member, *SUBSCRIBED[member])
        one.apply_plan(one.plan("g", drain=["m1"], assignor=assignor))
        group.join("n1", *SUBSCRIBED["n1"])
        found = group.shares()
        spread = sorted(one for theirs in found.values() for one in theirs)
        assert spread == [f"{name}-{n}" for name in "ab" for n in range(4)]
        assert found["m1"] == []


@pytest.mark.parametrize("rows", [0, 1_000_000], ids=["beside heartbeats", "in a heartbeat"])
@pytest.mark.parametrize("approval", ["auto", "manual"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_topic_that_no_member_may_have_holds_up_no_other(assignor, approval, rows):
    """Of those who subscribe to `a`, only m1 is left, which is drained; m3 comes for `b`."""
    group = Group(assignor, step_rows_max=rows)
    with group.coordinator as one:
        group.join("m1", "a")
        group.join("m2", "a", "b")
        one.apply_plan(one.plan("g", drain=["m1"], assignor=assignor))
        group.settle()
        one.alter_group_config("g", {"consumer.assignor.approval": approval})
        group.leave("m2")
        group.join("m3", "b")
        b = [f"b-{n}" for n in range(4)]
        assert group.shares() == {"m1": [], "m3": b}
        one.apply_plan(one.plan("g", assignor=assignor))
        assert group.shares() == {"m1": [], "m3": b}
        with pytest.raises(GroupError, match=r"topic '?b'? cannot be on any member"):
            one.plan("g", drain=["m3"], assignor=assignor)
        one.apply_plan(one.plan("g", undrain=["m1"], assignor=assignor))
        assert group.shares() == {"m1": [f"a-{n}" for n in range(4)], "m3": b}
