"""Targets that continue from the last plan: the records that a target from nothing has."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignors.loads.constraints import parse_constraints
from coordinator.config import Config, PlanConfig
from coordinator.core.plans.note_loads import would_pay
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.plan_values import MemberLoad, TopicWeights
from coordinator.core.state.records import (
    ComputationPrepared,
    GroupMetadata,
    LoadsNoted,
    MemberMetadata,
    TargetMember,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay
from coordinator.core.targets.approval import MAX_MOVES as MOST
from coordinator.core.targets.basis import AssignorInput, Basis
from coordinator.core.targets.rebase import rebase, restore_input
from coordinator.engines.engine import LocalEngine, compute_target
from coordinator.engines.kept_plan import KeptPlan
from coordinator.errors import GroupError
from tests.engines.twin_engine import TwinEngine
from tests.support.longer import EVERY

LISTS = [
    (("a", "b"),),
    (("a",), ("b",)),
    (("a",), ("a", "nowhere"), ("b",)),
    (("a", "new"), ("b",), ("later",)),
    (("a",), ("a", "b")),
    (("a",), ("a", "b", "new"), ("b", "new")),
]
"""What members subscribe to; lists of the last two have a topic in common."""
SETTINGS = {"consumer.assignor.imbalance": "1"}


class LivingGroup:
    """A group whose members come and go, also while its targets are computed; it draws all of it."""

    def __init__(
        self, seed, assignor="uniform", members=12, calm=False, lists=(("a", "b"),), static=True
    ):
        self.draw, self.assignor, self.calm = random.Random(seed), assignor, calm
        most = 0 if calm else self.draw.choice([0, 0, 0, 20 * 128])  # up to 20 members
        self.config = Config(plan=PlanConfig(long_ranges=most))
        self.state, self.engine, self.settings = State(), TwinEngine(), SETTINGS
        self.lists, self.static = lists, static
        self.sizes = {"a": self.draw.randint(1, 40), "b": self.draw.randint(1, 9)}
        for topic in self.sizes:
            self._resize(topic)
        replay(self.state, GroupMetadata("g", 2, 0))
        self.group = self.state.groups["g"]
        self.serial = self.computations = 0
        for names in lists * 3:
            self.join(names)
        for _ in range(members):
            self.join()

    def _resize(self, topic, topic_id=None):
        replay(self.state, TopicChanged(topic, topic_id or f"id-{topic}", self.sizes[topic]))

    def join(self, names=None):
        self.serial += 1
        name = f"m{self.draw.randrange(1000):03}-{self.serial}"
        instance = self.draw.choice([None, f"i{self.serial:03}"]) if self.static else None
        self._meet(name, instance, names or self.draw.choice(self.lists))

    def _meet(self, name, instance, names):
        meta = MemberMetadata("g", name, instance_id=instance, subscribed_topic_names=names)
        replay(self.state, meta)
        if instance is not None:
            self.group.instances[instance] = name

    def leave(self):
        member = self._draw_spare()
        if member is not None:
            self._end(member)

    def resubscribe(self):
        member = self._draw_spare()
        if member is not None:
            instance = self.group.metas[member].instance_id
            self._meet(member, instance, self.draw.choice(self.lists))

    def _draw_spare(self):
        """Draw a member that is not one of the last two with its subscription."""
        metas = self.group.metas
        member = self.draw.choice(list(metas))
        names = metas[member].subscribed_topic_names
        alike = sum(meta.subscribed_topic_names == names for meta in metas.values())
        return member if alike > 2 else None

    def _end(self, name):
        meta = self.group.metas[name]
        for kind in (TargetMember.kind, MemberMetadata.kind):
            replay(self.state, Tombstone(kind, "g", name))
        if self.group.instances.get(meta.instance_id) == name:
            del self.group.instances[meta.instance_id]

    def return_static(self):
        """A static member's next incarnation takes its place and its target."""
        statics = sorted(self.group.instances.items())
        if not statics:
            return
        instance, before = self.draw.choice(statics)
        names = self.group.metas[before].subscribed_topic_names
        spans = self.group.targets.get(before, ())
        self._end(before)
        self.serial += 1
        self._meet(f"r{self.serial}", instance, names)
        replay(self.state, TargetMember("g", f"r{self.serial}", spans))

    def grow(self):
        topic = self.draw.choice("ab")
        self.sizes[topic] += self.draw.randint(0, 9)
        self._resize(topic)

    def change_topic(self):
        """A topic that some may name comes; or one goes, unless it was always there, or shrinks."""
        topic = self.draw.choice(["a", "new", "later"])
        if topic not in self.sizes:
            self.serial += 1
            self.sizes[topic] = self.draw.randint(0, 20)
            self._resize(topic, f"id-{topic}{self.serial}")
        elif topic != "a" and self.draw.random() < 0.5:
            del self.sizes[topic]
            replay(self.state, Tombstone(TopicChanged.kind, name=topic))
        else:
            self.sizes[topic] = self.draw.randint(0, self.sizes[topic])
            self._resize(topic, self.state.topics[topic].key.topic_id)

    def do_odd(self):
        """What keeps a target from continuing from the last plan."""
        draw = self.draw
        what = draw.randrange(5)
        member = draw.choice(list(self.group.members))
        instance = self.group.metas[member].instance_id
        if what == 0:
            self._meet(member, instance, draw.choice([("a",), ("b",), ("a", "b", "nowhere")]))
        elif what == 1:
            topic = draw.choice("ab")
            self.sizes[topic] = draw.randint(0, 9)
            self._resize(topic, f"id-{topic}{draw.randrange(3)}")
        elif what == 2:
            replay(self.state, TargetMember("g", member, ((TopicKey("a", "id-a"), 0, 1),)))
        elif what == 3:
            replay(self.state, Tombstone(TargetMember.kind, "g", member))
        else:
            self._meet(member, draw.choice([None, f"j{self.serial}"]), self.lists[0])

    def change(self, most=4):
        for _ in range(self.draw.randint(0, most)):
            odd = not self.calm and self.draw.random() < 0.03
            usual = [self.join, self.join, self.leave, self.leave, self.return_static, self.grow]
            usual += [self.resubscribe] if self.draw.random() < 0.3 else []
            usual += [self.change_topic] if self.draw.random() < 0.3 else []
            self.do_odd() if odd else self.draw.choice(usual)()

    def prepare(self):
        self.computations += 1
        name = f"c{self.computations}"
        replay(self.state, ComputationPrepared("g", name, 2, 0))
        return name

    def basis(self, name):
        loads = self.state.loads.get("g")
        found = restore_input(self.group, self.group.computation, loads)
        return Basis.of(
            ("g", 2),
            self.assignor,
            self.settings,
            found,
            self.config,
            is_target=True,
            computation_id=name,
        )

    def compute(self, chance=0.8):
        """Compute a target, and mostly install it; return whether it continued from the last."""
        name = self.prepare()
        self.change(1)
        before = self.engine._before.get("g")
        basis = self.basis(name)
        followed = isinstance(before, KeptPlan) and before.follow(basis) is not None
        target = self.engine.compute(basis)
        self.change(1)
        if self.draw.random() < chance:
            for record in rebase(self.group, self.group.computation, target):
                replay(self.state, record)
        return followed


@pytest.mark.parametrize("assignor", ["uniform", "sticky"])
@given(seed=st.integers(0, 2**32), lists=st.sampled_from(LISTS))
@example(seed=10217, lists=LISTS[1])  # a static member returns, subscribes to others, gets nothing
@settings(max_examples=400 if EVERY else 20)
def test_a_target_is_the_same_from_the_last_plan_and_from_nothing(assignor, seed, lists):
    """Members come, go and return, topics grow; some targets are overtaken, and never installed."""
    group = LivingGroup(seed, assignor, lists=lists)
    for _ in range(8):
        group.change()
        group.compute()


@given(seed=st.integers(0, 2**32), lists=st.sampled_from(LISTS[:4]))
@settings(max_examples=100 if EVERY else 10)
def test_what_happens_daily_is_continued_from_the_last_plan(seed, lists):
    group = LivingGroup(seed, calm=True, lists=lists)
    group.compute(chance=1)
    for _ in range(8):
        group.change()
        assert group.compute()


@given(seed=st.integers(0, 2**32), lists=st.sampled_from(LISTS[4:]))
@settings(max_examples=100 if EVERY else 10)
def test_a_changed_list_is_continued_where_lists_share_topics(seed, lists):
    group = LivingGroup(seed, calm=True, lists=lists, static=False)
    group.compute(chance=1)
    for _ in range(8):
        group.resubscribe()
        group.change()
        assert group.compute()


def test_a_plan_that_gives_a_partition_twice_is_refused(monkeypatch):
    group = LivingGroup(1, calm=True)
    group.sizes["a"] = 100
    group._resize("a")
    group.draw = random.Random(8)
    target = group.engine.compute(group.basis(group.prepare()))
    for record in target.changes:
        replay(group.state, record)
    kept = group.engine._before["g"]
    group.join()
    basis = group.basis(group.prepare())
    assert kept.follow(basis) is not None
    follow = type(kept.planned).follow

    def lose_some(planned, changes):
        done = follow(planned, changes)
        done.changed.count[0] -= 1
        return done

    monkeypatch.setattr(type(kept.planned), "follow", lose_some)
    with pytest.raises(GroupError, match="do not own together"):
        kept.follow(basis)


class WeighingGroup(LivingGroup):
    """A group whose weights drift; most members are static, and come back under other ids."""

    def __init__(self, seed, calm=False):
        super().__init__(seed, "weighted", calm=True, lists=LISTS[seed % 2 * 4])
        self.settings = {"consumer.assignor.improvement": "40%" if calm else "10%"}
        self.odd = not calm
        self.weights = {topic: [self._draw_weight() for _ in range(60)] for topic in "ab"}
        self._note()

    def _draw_weight(self):
        return float(f"{self.draw.lognormvariate(0, 0.5):.6g}")

    def _note(self, **more):
        found = tuple(TopicWeights(name, tuple(some)) for name, some in self.weights.items())
        replay(self.state, LoadsNoted("g", **{"weights": found} | more))

    def drift(self):
        for _ in range(self.draw.randint(1, 5)):
            topic = self.draw.choice("ab")
            at = self.draw.randrange(self.sizes[topic])
            new = self.weights[topic][at] * self.draw.choice(
                [0.9, 1.05, 1.1, 1.1 if not self.odd else 2.0]
            )
            self.weights[topic][at] = float(f"{new:.6g}")
        self._note()

    def do_odd(self):
        """What a weighted plan does not continue with."""
        what = self.draw.randrange(6)
        if what == 0:
            self.weights["a"][self.draw.randrange(3)] = -1.0
            self._note()
        elif what == 1:
            name = self.draw.choice(list(self.group.members))
            self._note(capacities=(MemberLoad(name, self.draw.choice([2.0, 3.0])),))
        elif what == 2:
            rule = {"kind": "pin", "selector": "a/0", "value": next(iter(self.group.members))}
            self._note(constraints=tuple(parse_constraints([rule])))
        elif what == 3:
            self._note(weights=())
        else:
            self.draw.choice([self.join, self.leave, self.grow])()

    def change(self, most=4):
        for _ in range(self.draw.randint(0, most)):
            odd = self.odd and self.draw.random() < 0.1
            usual = self.draw.choice([self.drift, self.drift, self.return_static])
            self.do_odd() if odd else usual()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=400 if EVERY else 30)
def test_a_target_with_weights_is_the_same_from_the_last_plan_and_from_nothing(seed):
    group = WeighingGroup(seed)
    for _ in range(8):
        group.change()
        group.compute()


def test_weights_that_drift_are_continued_from_the_last_plan():
    """Where they drift further than the plan allows, the target is computed from nothing."""
    followed = []
    for seed in range(20):
        group = WeighingGroup(seed, calm=True)
        group.compute(chance=1)
        for _ in range(8):
            group.change()
            followed.append(group.compute(chance=1))
    assert followed.count(True) > len(followed) // 2


def test_a_brief_computation_has_the_weights_of_the_plan():
    """What is computed while others wait does not look at weights one by one."""
    group = WeighingGroup(7, calm=True)
    group.compute(chance=1)
    kept = group.engine._before["g"]
    assert kept.is_brief(group.basis(group.prepare()))
    group._note()
    assert not kept.is_brief(group.basis(group.prepare()))


def test_what_stays_is_known_from_the_last_plan():
    """Then no other target pays; where the engine does not know, it is computed."""
    known = []
    for seed in range(30):
        group = WeighingGroup(seed, calm=True)
        group.compute(chance=1)
        for _ in range(6):
            group.change()
            loads = group.state.loads["g"]
            mark = group.group.mark()
            given = AssignorInput(
                group.group.copy_metas(), group.group.targets.copy(),
                group.group.list_topics(group.state.topics), {}, loads, 0, mark, mark,
            )  # fmt: skip
            place = ("g", 2), "weighted", group.settings, given, group.config
            basis = Basis.of(*place, is_target=True)
            leaves = group.engine.leaves(basis)
            known.append(leaves)
            assert not leaves or not would_pay(basis, loads, group.config)
            assert not leaves or not compute_target(basis).changes
            other = Basis.of(*place[:2], {**group.settings, MOST: "1"}, *place[3:], is_target=True)
            assert not group.engine.leaves(other), "a plan with other options"
    assert known.count(True) > len(known) // 2
    assert not LocalEngine().leaves(basis)
