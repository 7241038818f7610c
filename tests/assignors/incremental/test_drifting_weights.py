"""The next plan of a group with weights: what the plan from nothing gives, whatever changed."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.planned_group import PlannedGroup
from tests.support.longer import EVERY

SEEDS = st.integers(0, 2**32)
OPTIONS = [
    {},
    {"improvement": "0%"},
    {"improvement": "50%", "least_share": "30%"},
    {"improvement": "20%", "max_moves": 2},
    {"improvement": "300%", "max_moved_weight": 5.0},
    {"rack": "ignore", "improvement": "10%"},
]


class DriftingGroup:
    """A group that lives twice: as a spec in dicts, planned from nothing, and as a PlannedGroup."""

    def __init__(self, seed, options, large=False):
        self.draw = draw = random.Random(seed)
        self.assignor = get_assignor("weighted", **options)
        many = draw.choice([400, 600]) if large else draw.choice([1, 4, 12, 40])
        self.topics = {f"t{at}": draw.randint(1, many) for at in range(draw.randint(1, 4))}
        if large:
            self.topics["t0"] = 1_200
        names = sorted(self.topics)
        lists = [names] * 3 if draw.random() < 0.6 else [draw.sample(names, draw.randint(1, 2))
                                                         if len(names) > 1 else names
                                                         for _ in range(3)]  # fmt: skip
        self.topics["unseen"] = draw.randint(0, 3)
        self.kind = draw.choice(["few", "whole", "lognormal", "steep", "powers"])
        self.weights = {name: [self.weight() for _ in range(n)] for name, n in self.topics.items()}
        if draw.random() < 0.15:
            topic = draw.choice(names)
            self.weights[topic] = [None if draw.random() < 0.5 else one
                                   for one in self.weights[topic]]  # fmt: skip
        self.members = {}
        static, sizes = draw.random() < 0.4, draw.choice([[1.0], [1.0, 2.0, 4.0], [1.0, 3.7]])
        for at in range(draw.randint(1, 30 if large else 9)):
            one = {"subscribed": draw.choice(lists), "capacity": draw.choice(sizes)}
            if static:
                one["instance_id"] = f"i{at:02}"
            self.members[f"m{at}"] = one
        if draw.random() < 0.2:
            names = self.members["m0"]["subscribed"]
            self.members["idle"] = {"subscribed": names, "state": "draining"}
        self.planned = PlannedGroup.plan(GroupSpec.from_dict(self.spec), self.assignor)

    def weight(self):
        draw = self.draw
        if self.kind == "few":
            return draw.choice([0.0, 1.0, 1.0, 2.0])
        if self.kind == "whole":
            return float(draw.randint(0, 1000))
        if self.kind == "powers":
            return 2.0 ** draw.randint(-20, 6)
        return draw.lognormvariate(0, 1.0 if self.kind == "lognormal" else 5.0)

    @property
    def spec(self):
        given = {"topics": self.topics, "members": self.members}
        return given | {"weights": self.weights}

    def draw_drift(self, many=4):
        """Draw new weights of a few partitions, most of them near those that they have."""
        draw, found = self.draw, {}
        for _ in range(draw.randint(0, many)):
            topic = draw.choice(sorted(self.topics))
            if not self.topics[topic]:
                continue
            at = draw.randrange(self.topics[topic])
            old = self.weights[topic][at]
            shape = draw.random()
            if shape < 0.6 and old is not None:
                new = old * draw.choice([1.0, 1.001, 0.999, 1.05, 0.5, 2.0])
            elif shape < 0.65:
                new = None
            else:
                new = self.weight()
            found.setdefault(topic, {})[at] = self.weights[topic][at] = new
        renamed = {}
        if draw.random() < 0.2:
            old = draw.choice(sorted(self.members))
            renamed = {old: f"x{draw.randint(0, 10**9)}"}
            self.members = {renamed.get(name, name): one for name, one in self.members.items()}
        return GroupChanges(weights=found, renamed=renamed)

    def draw_any(self):
        """Draw a change of which a plan is made from nothing, with others."""
        draw, found = self.draw, self.draw_drift()
        left = [name for name in self.members if draw.random() < 0.1 and len(self.members) > 3]
        left = [name for name in left if name not in found.renamed.values()][:1]
        kept = {name: one for name, one in self.members.items() if name not in left}
        needed = {topic for one in self.members.values() for topic in one["subscribed"]}
        active = [one for one in kept.values() if one.get("state") is None]
        if {topic for one in active for topic in one["subscribed"]} != needed:
            left, kept = [], self.members
        self.members = dict(kept)
        name, names = f"z{draw.randint(0, 10**9)}", sorted(self.topics)[:1]
        self.members[name] = {"subscribed": names}
        topic = draw.choice(sorted(self.topics))
        size = draw.randint(0, self.topics[topic] + 4)
        self.topics[topic] = size
        old = (self.weights[topic] + [None] * size)[:size]
        self.weights[topic] = old
        weights = {
            topic: {at: one for at, one in some.items() if at < self.topics[topic]}
            for topic, some in found.weights.items()
        }
        joined = [SubscribedMembers.of(name, subscribed=names)]
        return GroupChanges(
            left=left, joined=joined, topics={topic: size}, weights=weights, renamed=found.renamed
        )

    def follow(self, changes):
        """Plan both ways, compare, and go on from there."""
        before = self.planned.assignment()
        owned = before.to_dict(lists=False)
        for old, new in changes.renamed.items():
            owned[new] = owned.pop(old)
        for name, one in self.members.items():
            one["owned"] = {
                topic: [[first, min(count, self.topics[topic] - first)]
                        for first, count in some if first < self.topics[topic]]
                for topic, some in owned.get(name, {}).items()
            }  # fmt: skip
        group = GroupSpec.from_dict(self.spec)
        expected = self.assignor.assign(group)
        change = self.planned.after(changes)
        done = change.planned
        assert done.assignment() == expected
        assert done.assignment().verdict == expected.verdict
        assert self.planned.assignment() == before, "the plan before it has changed"
        if done.full is None:
            assert expected == group.owned(), "a plan that continued has moved something"
            assert not len(change.changed)
        self.compare(done.group(), expected)
        names = [*self.draw.sample(sorted(self.members), min(3, len(self.members))), "unknown"]
        assert done.assignment_of(names) == expected.of_members(_are_in(expected.member_ids, names))
        self.planned = done

    def compare(self, group, ranges):
        """The group has what was given, and its members own what was planned."""
        owned = ranges.to_dict(lists=False)
        members = {name: one | {"owned": owned[name]} for name, one in self.members.items()}
        expected = GroupSpec.from_dict(self.spec | {"members": members})
        assert group.to_arrow() == expected.to_arrow()
        for name in ("capacity", "active", "weight", "move_cost"):
            assert (getattr(group.loads, name) == getattr(expected.loads, name)).all(), name
        assert group.loads.weight_unit == expected.loads.weight_unit
        assert group.loads.known == expected.loads.known


def _are_in(ids, names):
    return pc.is_in(ids, value_set=pa.array(names, pa.string()))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@given(seed=SEEDS)
@settings(max_examples=1000 if EVERY else 30)
def test_weights_that_drift_give_the_rows_of_the_plan_from_nothing(options, seed):
    group = DriftingGroup(seed, options)
    for _ in range(10):
        group.follow(group.draw_drift())


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@given(seed=SEEDS)
@settings(max_examples=100 if EVERY else 5)
def test_weights_on_a_grid_drift(options, seed):
    """Above 1,024 partitions, weights are rounded, and count for a floor at least."""
    group = DriftingGroup(seed, options, large=True)
    for _ in range(6):
        group.follow(group.draw_drift(many=40))


@given(seed=SEEDS)
@settings(max_examples=300 if EVERY else 20)
def test_members_and_topics_change_with_weights(seed):
    group = DriftingGroup(seed, {"improvement": "30%"})
    for at in range(6):
        changes = group.draw_any() if at % 2 else group.draw_drift()
        group.follow(changes)


def two(weights=(3.0, 3.0, 2.0, 2.0), rules=(), racks=None, home=None, **options):
    """Return the plan of two members with two partitions each; others by `options`."""
    spec = {
        "topics": {"x": len(weights)},
        "members": {
            "a": {"subscribed": ["x"], "owned": {"x": [0, 2]}, "rack": home},
            "b": {"subscribed": ["x"], "owned": {"x": [1, 3]}, "rack": home},
        },
        "weights": {"x": list(weights)},
        "constraints": list(rules),
    }
    if racks is not None:
        spec["racks"] = {"x": [[one] for one in racks]}
    return PlannedGroup.plan(GroupSpec.from_dict(spec), get_assignor("weighted", **options))


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({0: 3.0}, None),
        ({0: 3.5}, None),
        ({0: 3.75}, FullPlan.DRIFT),
        ({0: 4.0}, FullPlan.DRIFT),
        ({0: None}, FullPlan.UNKNOWN),
        ({0: 3.0, 1: 2.0}, FullPlan.DRIFT),
        ({0: 30.0}, FullPlan.DRIFT),
        ({0: 6.0, 1: 6.0, 2: 4.0, 3: 4.5}, None),
        ({0: 1.5, 1: 1.5, 2: 1.0, 3: 1.0625}, None),
        ({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}, FullPlan.WEIGHTLESS),
        ({0: 2.0, 1: 2.0}, FullPlan.DRIFT),
    ],
    ids=str,
)
def test_a_plan_from_nothing_says_why(weights, why):
    """At 5 %, 5.5 beside 5 is near enough, and 6 is not; equal ones are counted."""
    planned = two()
    done = planned.after(GroupChanges(weights={"x": weights})).planned
    assert done.full is why
    assert planned.find_obstacle(GroupChanges(weights={"x": weights})) is why


@pytest.mark.parametrize(("more", "why"), [(0, None), (1, FullPlan.DRIFT)])
def test_the_limit_is_met_exactly(more, why):
    """6 of 10 is 20 % above the half; with the least that a weight may be more, it is above."""
    planned = two(improvement="20%")
    least = more * 2.0**-37
    changes = GroupChanges(weights={"x": {0: 3.5 + least, 1: 2.0 - least, 2: 2.5}})
    assert planned.after(changes).planned.full is why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rules": [{"kind": "pin", "selector": "x/0", "value": "a"}]}, FullPlan.LOADS),
        ({"racks": "rrrr", "home": "r"}, FullPlan.LOADS),
        ({"racks": "rrrr", "home": "r", "options": {"rack": "ignore"}}, None),
        ({"weights": (0.0,) * 4}, FullPlan.LOADS),
        ({"weights": (3.0, None, 2.0, 2.0)}, FullPlan.UNKNOWN),
    ],
    ids=str,
)
def test_what_decides_besides_weights_is_planned_from_nothing(changed, why):
    planned = two(**{key: one for key, one in changed.items() if key != "options"},
                  **changed.get("options", {}))  # fmt: skip
    assert planned.find_obstacle(GroupChanges(weights={"x": {0: 3.0}})) is why


def test_members_that_come_and_go_are_planned_from_nothing():
    planned, other = two(), SubscribedMembers.of("c", subscribed=["x"])
    for changes in (GroupChanges(joined=[other]), GroupChanges(left=["a"])):
        done = planned.after(changes).planned
        assert done.full is FullPlan.WEIGHED


def test_weights_of_a_group_that_counts_partitions():
    """The first weights make it one that weighs; without `weighted` they decide nothing."""
    spec = {"topics": {"x": 2}, "members": {"a": {"subscribed": ["x"]}}}
    changes = GroupChanges(weights={"x": {0: 2.0}})
    for name, why in (("weighted", FullPlan.ASSIGNOR), ("uniform", FullPlan.LOADS)):
        options = {} if name == "weighted" else {"long_ranges": 0}
        planned = PlannedGroup.plan(GroupSpec.from_dict(spec), get_assignor(name, **options))
        done = planned.after(changes).planned
        assert done.full is why
        assert done.group().loads.known == 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"y": {0: 1.0}}, "weights: topic 'y' is not in topics: add it, or leave its weights out"),
        ({"x": {4: 1.0}}, "topic 'x' has no partition 4, it has 4: correct"),
        ({"x": {-1: 1.0}}, "topic 'x' has no partition -1"),
        ({"x": {10**30: 1.0}}, "topic 'x' has no partition 1000000000000000000000000000000"),
        ({"x": {0: -1.0}}, "partition 0 of topic 'x' has weight -1.0: give a number from 0 on"),
        ({"x": {0: float("nan")}}, "partition 0 of topic 'x' has weight nan"),
        ({"x": {0: 10**400}}, "partition 0 of topic 'x' has weight 1000"),
    ],
    ids=str,
)
def test_weights_that_cannot_be_are_refused(weights, message):
    with pytest.raises(SpecError) as found:
        two().after(GroupChanges(weights=weights))
    assert message in str(found.value)
