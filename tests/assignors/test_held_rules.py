"""Which constraints hold: all at once, beside one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec
from assignors.loads.held_rules import find_held
from tests.assignors import weighted_twins

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
@settings(max_examples=150)
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
