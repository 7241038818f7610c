"""Constraints by the thousand: more than a table of partitions and members could hold."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from assignors import GroupSpec, SpecError, get_assignor, quality, solvers
from assignors.loads.held_rules import find_held
from tests.assignors import weighted_twins
from tests.support.longer import EVERY

MEMBERS, TOPICS, EACH = 6_000, 3, 6_000

RULES = {
    "pin": lambda at: ("pin", f"t0/{at}", f"m{at * 7 % MEMBERS:04}"),
    "pin two by two": lambda at: ("pin", f"t1/{at}", f"p{at % 3_000}"),
    "exclude": lambda at: ("exclude", f"t0/{at}", f"m{at * 7 % MEMBERS:04}"),
    "exclude ranges": lambda at: ("exclude", f"t0/{at}-{at + 50}", f"m{at * 7 % MEMBERS:04}"),
    "exclude topics": lambda at: ("exclude", f"t{at % 2}", f"m{at:04}"),
    "colocate": lambda at: ("colocate", f"t{at % 2}/{at // 2}", f"c{at // 2}"),
    "anti_affinity": lambda at: ("anti_affinity", f"t{at % 2}/{at // 2}", f"a{at // 2}"),
    "anti_affinity of all": lambda at: ("anti_affinity", f"t0/{at}", "a"),
    "max_partitions": lambda at: ("max_partitions", f"m{at:04}", "4"),
    "drain": lambda at: ("drain", f"m{at % 3_000:04}", None),
}


def group(names, owned=None, *, hard=True, count=MEMBERS):
    draw = np.random.default_rng(2)
    topics = [f"t{at}" for at in range(TOPICS)]
    members = pa.table(
        {
            "member_id": [f"m{at:04}" for at in range(MEMBERS)],
            "process": [f"p{at % 3_000}" for at in range(MEMBERS)],
            "subscribed": [topics] * MEMBERS,
        }
    )
    partitions = pa.table(
        {
            "topic": np.repeat(topics, EACH),
            "partition": np.tile(np.arange(EACH), TOPICS),
            "weight": draw.lognormal(0, 0.5, TOPICS * EACH),
        }
    )
    fields = ("kind", "selector", "value")
    rules = [
        dict(zip(fields, RULES[name](at), strict=True)) | {"hard": hard}
        for name in names
        for at in range(count)
    ]
    sizes = pa.table({"topic": topics, "partitions": [EACH] * TOPICS})
    return GroupSpec.from_arrow(members, sizes, owned, partitions=partitions, constraints=rules)


def check(spec, ranges, gap):
    report = quality.report(spec, ranges)
    assert report.problems == ()
    assert report.certificate.gap < gap
    return report.certificate


@pytest.mark.parametrize("name", RULES)
def test_thousands_of_rules_hold_and_a_result_is_kept(name):
    spec = group([name])
    assignor = get_assignor("weighted")
    ranges = assignor.assign(spec)
    check(spec, ranges, 0.35)
    again = assignor.assign(group([name], ranges.to_arrow()))
    assert again == ranges


def test_thousands_of_soft_rules_hold_and_move_only_what_they_must():
    assignor = get_assignor("weighted")
    before = assignor.assign(group([]))
    names = ["pin two by two", "exclude", "anti_affinity"]
    spec = group(names, before.to_arrow(), hard=False)
    found = check(spec, assignor.assign(spec), 0.35)
    assert all(rule["holds"] for rule in found.rules)
    assert found.moved_weight < 0.5 * sum(spec.loads.weight) * spec.loads.weight_unit


def test_kinds_by_the_thousand_go_together():
    names = ["pin two by two", "exclude ranges", "anti_affinity", "max_partitions"]
    spec = group(names, count=5_000)
    ranges = get_assignor("weighted").assign(spec)
    check(spec, ranges, 2.0)


@pytest.mark.parametrize(("members", "units"), [(1_500, 1_500), (1_500, 600)])
def test_wide_labels_are_laid_along_members_without_matching_all_pairs(members, units, monkeypatch):
    """Matching takes steps by the square of a label's partitions: that is for a few."""
    steps = []

    def count(cost):
        steps.append(cost.shape[0] ** 2 * cost.shape[1])
        return linear_sum_assignment(cost)

    monkeypatch.setattr(solvers, "linear_sum_assignment", count, raising=False)
    topics = {f"t{at}": units for at in range(max(4_000 // units, 2) * 3)}
    weight = np.random.default_rng(1).lognormal(0, 0.5, len(topics) * units)
    spec = {
        "topics": topics,
        "members": {f"m{at:04}": {"subscribed": list(topics)} for at in range(members)},
        "weights": dict(zip(topics, weight.reshape(-1, units).tolist(), strict=True)),
        "constraints": [{"kind": "anti_affinity", "selector": t, "value": t} for t in topics],
    }
    spec = GroupSpec.from_dict(spec)
    found = check(spec, get_assignor("weighted").assign(spec), 1.0)
    assert all(rule["holds"] for rule in found.rules)
    assert sum(steps) <= 2**28


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([("pin", "t2/5", "m0001"), ("pin", "t2/5", "m0002")], "pin t2/5 to m0001; pin t2/5"),
        ([("pin", "t2/5", "m0001"), ("drain", "m0001", None)], "to m0001; drain m0001"),
        ([("pin", "t2/5", "m0001"), ("exclude", "t2", "m0001")], "exclude t2 from m0001"),
        ([("pin", "t2/0-4", "m0001"), ("max_partitions", "m0001", "3")], "max_partitions"),
        ([("pin", "t2/0-1", "m0001"), ("anti_affinity", "t2/0-1", "x")], "anti_affinity"),
    ],
)
def test_what_cannot_hold_among_thousands_is_refused_by_name(rules, words):
    fields = ("kind", "selector", "value")
    many = [RULES["pin"](at) for at in range(MEMBERS)] + rules
    spec = group([])
    columns = spec.to_arrow()
    partitions = pa.table({"topic": ["t0"], "partition": [0], "weight": [2.0]})
    given = [dict(zip(fields, rule, strict=True)) for rule in many]
    members, topics, _ = columns
    spec = GroupSpec.from_arrow(members, topics, partitions=partitions, constraints=given)
    with pytest.raises(SpecError, match=words):
        get_assignor("weighted").assign(spec)


LABELS = ("colocate", "anti_affinity")


def holds(rule, rules, owner):
    """Judge one rule, partition by partition."""
    owned = [at for at in rule.partitions.tolist() if owner[at] >= 0]
    if rule.kind == "pin":
        return all(owner[at] in rule.members for at in owned)
    if rule.kind == "exclude":
        return not any(owner[at] in rule.members for at in owned)
    if rule.kind in ("drain", "max_partitions"):
        return all((owner == member).sum() <= rule.limit for member in rule.members)
    others = [one for one in rules if one.kind == rule.kind and (one.hard or not rule.hard)]
    rows = {
        (int(label), at)
        for one in others
        for at, label in zip(one.partitions.tolist(), one.label, strict=True)
        if owner[at] >= 0
    }
    own = {(int(label), at) for at, label in zip(rule.partitions.tolist(), rule.label, strict=True)}
    together = rule.kind == "colocate"
    return not any(
        one[0] == other[0] and one[1] != other[1] and (owner[one[1]] == owner[other[1]]) != together
        for one in own & rows
        for other in rows
    )


@given(seed=st.integers(0, 2**32))
@settings(max_examples=150 if EVERY else 50)
def test_all_rules_at_once_are_judged_as_one_by_one(seed):
    draw = random.Random(seed)
    spec = weighted_twins.random_spec(seed)
    spec["constraints"] = [
        rule | {"hard": draw.random() < 0.5}
        for at in range(3)
        for rule in weighted_twins.random_spec(seed + at)["constraints"]
    ]
    group = GroupSpec.from_dict(spec)
    rules = group.loads.constraints
    names = draw.choice([1, group.member_count])  # often all on one member
    owner = np.array([draw.randint(-1, names - 1) for _ in range(int(group.partitions.sum()))])
    found = find_held(rules, owner.astype(np.int64), group.member_count)
    assert found.tolist() == [holds(rule, rules, owner) for rule in rules]


@pytest.mark.parametrize("kind", LABELS)
def test_a_label_means_the_same_in_every_rule(kind):
    """Two rules of one label about a partition each, which lie as the label forbids."""
    members = {name: {"subscribed": ["a"]} for name in ("m0", "m1")}
    rules = [{"kind": kind, "selector": f"a/{at}", "value": "x"} for at in (0, 1)]
    rules.append({"kind": kind, "selector": "a/2", "value": "y"})
    spec = {"topics": {"a": 3}, "members": members, "constraints": rules}
    group = GroupSpec.from_dict(spec)
    owner = np.array([0, 1, 1] if kind == "colocate" else [0, 0, 1], dtype=np.int64)
    assert find_held(group.loads.constraints, owner, 2).tolist() == [False, False, True]


@pytest.mark.parametrize("hard", [True, False])
def test_the_order_of_rules_changes_nothing(hard):
    """Nor which label a partition has of two soft rules, nor which of two is placed first."""
    one = {"kind": "anti_affinity", "selector": "b", "value": "L", "hard": hard}
    if hard:
        other = one | {"selector": "c", "value": "K"}
    else:
        other = one | {"selector": "b/3", "value": "K"}
    members = {f"m{at}": {"subscribed": ["b", "c"], "capacity": 2 + at} for at in range(6)}
    weights = {"b": [2, 7, 3, 5, 2, 9], "c": [9, 2, 5, 3, 7, 2]}
    spec = {"topics": {"b": 6, "c": 6}, "members": members, "weights": weights}
    orders = ([one, other], [other, one])
    groups = [GroupSpec.from_dict(spec | {"constraints": rules}) for rules in orders]
    found = [get_assignor("weighted").assign(group) for group in groups]
    assert found[0] == found[1]
