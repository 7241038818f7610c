"""The certificate judges any ranges, from any assignor."""

from __future__ import annotations

import pyarrow as pa
import pytest

from assignors import GroupSpec, PartitionRanges, get_assignor, quality

RULES = [
    {"kind": "pin", "selector": "a/0", "value": "m1", "reason": "disk"},
    {"kind": "exclude", "selector": "a/1", "value": "m1"},
    {"kind": "colocate", "selector": "a/2-3", "value": "x"},
    {"kind": "anti_affinity", "selector": "a/0-1", "value": "x"},
    {"kind": "max_partitions", "selector": "m1", "value": 2},
    {"kind": "drain", "selector": "m3"},
    {"kind": "drain", "selector": "m9"},
]


def group(**fields):
    members = {
        "m1": {"subscribed": ["a"], "rack": "r", "owned": {"a": [0, 1]}},
        "m2": {"subscribed": ["a"], "rack": "s", "capacity": 2, "owned": {"a": [2]}},
        "m3": {"subscribed": ["a"], "rack": "s"},
    }
    spec = {
        "topics": {"a": 4},
        "members": members,
        "weights": {"a": [6, 2, None, 1]},
        "racks": {"a": [["r"], ["s"], [], ["s"]]},
    }
    return GroupSpec.from_dict(spec | fields)


def given(spec, **owners):
    rows = [(m, p) for m, ps in owners.items() for p in ps]
    table = pa.table(
        {
            "member_id": [m for m, _ in rows],
            "topic": ["a"] * len(rows),
            "first_partition": [p for _, p in rows],
            "partition_count": [1] * len(rows),
        }
    )
    return PartitionRanges.from_arrow(spec.member_ids, spec.topics, table)


def test_figures_are_those_of_the_ranges():
    spec = group()
    found = quality.report(spec, given(spec, m1=[0], m2=[1, 2, 3], m3=[])).certificate
    assert (found.makespan, found.lower_bound, found.term) == (6, 3, "heaviest")
    assert found.gap == 1
    assert (found.moved_weight, found.moved_weight_bound) == (2, 2)
    assert (found.distant_before, found.distant_after) == (2, 0)
    assert (found.weights_known, found.partitions) == (3, 4)
    assert found.held == ({"member_id": "m1", "held_by": "no rule; a/0 is 100% of its load"},)
    wide = group(weights={"a": [1, 1, 1, 1]})
    found = quality.report(wide, given(wide, m1=[0], m2=[1, 2], m3=[3])).certificate
    assert (found.makespan, found.lower_bound, found.term) == (1, 1, "share")
    assert found.held == ()


BREAKS = {
    "pin a/0 to m1": {"m2": [0, 2, 3], "m1": [], "m3": []},
    "exclude a/1 from m1": {"m1": [0, 1], "m2": [2, 3]},
    "colocate a/2-3 as x": {"m1": [0, 2], "m2": [1, 3]},
    "anti_affinity a/0-1 as x": {"m1": [0, 1], "m2": [2, 3]},
    "max_partitions m1 2": {"m1": [0, 2, 3], "m2": [1]},
    "drain m3": {"m1": [0], "m2": [2, 3], "m3": [1]},
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_makes_an_assignment_invalid(name):
    spec = group(constraints=RULES)
    report = quality.report(spec, given(spec, **BREAKS[name]))
    assert f"constraint does not hold: {name}" in report.problems
    rules = {rule["name"]: rule["holds"] for rule in report.certificate.rules}
    assert rules[name] is False
    assert report.certificate.idle == ("drain m9: member 'm9' is not in the group",)


def test_rules_that_hold_are_said_to_hold():
    spec = group(constraints=RULES)
    report = quality.report(spec, get_assignor("weighted").assign(spec))
    assert report.valid
    assert all(rule["holds"] for rule in report.certificate.rules)
    assert report.certificate.rules[0]["reason"] == "disk"
    assert report.totals()["weights"]["lower_bound"] == 6


def test_a_group_without_weights_has_no_certificate():
    spec = GroupSpec.from_dict({"topics": {"a": 1}, "members": {"m": {"subscribed": ["a"]}}})
    report = quality.report(spec, get_assignor("uniform").assign(spec))
    assert report.certificate is None
    assert "weights" not in report.totals()
