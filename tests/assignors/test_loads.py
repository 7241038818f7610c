"""Weights, capacities, racks and constraints are read whole, or refused with value and remedy."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from assignors import GroupSpec, SpecError
from assignors.loads.load_spec import WEIGHT_BITS, fill_medians, quantise_weights

TOPICS = {"clicks": 4, "orders": 2}


def spec(members=None, **fields):
    members = members or {"m1": {}, "m2": {"capacity": 2, "rack": "a"}}
    both = {m: {"subscribed": list(TOPICS)} | own for m, own in members.items()}
    return {"topics": TOPICS, "members": both} | fields


def rule(**fields):
    return spec(constraints=[{"kind": "pin", "selector": "clicks/3", "value": "m1"} | fields])


REFUSED = {
    "capacity 0": (
        spec({"m1": {"capacity": 0}}),
        "member 'm1' has capacity 0: give a number from 1e-18 on, below 2^62",
    ),
    "capacity next to nothing": (spec({"m1": {"capacity": 5e-324}}), "from 1e-18 on, below 2^62"),
    "capacity text": (spec({"m1": {"capacity": "2"}}), "member 'm1' has capacity '2'"),
    "capacities far apart": (
        spec({"m1": {"capacity": 1}, "m2": {"capacity": 5000}}),
        "member 'm1' has capacity 1.0 and another 5000.0: capacities may differ by a factor of 4096",
    ),
    "state": (spec({"m1": {"state": "gone"}}), "member 'm1' has state 'gone': give one of active"),
    "weights short": (
        spec(weights={"clicks": [1, 2]}),
        "weights of topic 'clicks': found 2; give a list of 4",
    ),
    "weights of nothing": (spec(weights={"no": [1]}), "weights: topic 'no' is not in topics"),
    "weights no object": (spec(weights=[1]), "weights is [1], expected an object"),
    "negative": (
        spec(weights={"orders": [1, -1]}),
        "partition 1 of topic 'orders' has weights -1: give a number from 0 on",
    ),
    "huge": (spec(weights={"orders": [1, 1e300]}), "has weights 1e+300"),
    "boolean": (spec(weights={"orders": [1, True]}), "has weights True"),
    "racks": (spec(racks={"orders": [["a"], "b"]}), "racks of partition 1 of topic 'orders'"),
    "kind": (rule(kind="pins"), "constraints, row 0: kind is 'pins': give one of pin, exclude"),
    "selector": (rule(selector=3), "constraints, row 0: selector is 3: give partitions"),
    "value": (rule(value=None), "constraints, row 0: pin has value None: give a member"),
    "limit": (rule(kind="max_partitions", value="-1"), "max_partitions has value '-1'"),
    "drain": (rule(kind="drain", selector="m1"), "drain has value 'm1': leave the value out"),
    "hard": (rule(hard="yes"), "hard is 'yes': give true or false"),
    "until": (rule(until="soon"), "until is 'soon': give a time"),
    "until in seconds": (
        rule(until=1_793_000_000),
        "until is 1793000000, which may be seconds, milliseconds or another unit: give a time",
    ),
    "until in microseconds": (rule(until=1_793_000_000_000_000), "whole milliseconds since 1970"),
    "until as a fraction": (rule(until=1_793_000_000_000.5), "which may be seconds, milliseconds"),
    "field": (rule(owner="me"), "unknown field 'owner'"),
    "until 0": (rule(until=0), "until is 0, which may be"),
    "rules no list": (spec(constraints={"kind": "pin"}), "constraints: expected a list of rules"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_loads_are_refused_with_the_value_and_the_remedy(case):
    bad, message = REFUSED[case]
    with pytest.raises(SpecError) as refused:
        GroupSpec.from_dict(bad)
    assert message in str(refused.value)


def tables(**columns):
    members = pa.table({"member_id": ["m2", "m1"], "subscribed": [list(TOPICS)] * 2})
    for name in ("capacity", "state", "process"):
        if name in columns:
            members = members.append_column(name, pa.array(columns.pop(name)))
    topics = pa.table({"topic": list(TOPICS), "partitions": list(TOPICS.values())})
    return members, topics, pa.table(columns) if columns else None


BAD_TABLES = {
    "unknown column": ({"topic": ["clicks"], "partition": [0], "lag": [3]}, "unknown column 'lag'"),
    "unknown topic": ({"topic": ["zz"], "partition": [0]}, "topic 'zz' is not in topics"),
    "outside": (
        {"topic": ["orders"], "partition": [2]},
        "topic 'orders' has no partition 2, it has 2",
    ),
    "twice": (
        {"topic": ["orders", "clicks", "orders"], "partition": [1, 1, 1]},
        "partition 1 of topic 'orders' appears twice",
    ),
    "weight": (
        {"topic": ["orders"], "partition": [1], "weight": [-0.5]},
        "topic 'orders', partition 1 has weight -0.5",
    ),
    "weight NaN": (
        {"topic": ["orders"], "partition": [1], "weight": [float("nan")]},
        "partition 1 has weight nan",
    ),
    "weight text": (
        {"topic": ["orders"], "partition": [1], "weight": ["1"]},
        "column 'weight' is string",
    ),
    "racks": ({"topic": ["orders"], "partition": [1], "racks": ["a"]}, "column 'racks' is string"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_refused_with_the_value_and_the_remedy(case):
    columns, message = BAD_TABLES[case]
    members, topics, partitions = tables(**columns)
    with pytest.raises(SpecError) as refused:
        GroupSpec.from_arrow(members, topics, partitions=partitions)
    assert message in str(refused.value)


def test_a_group_without_loads_has_none():
    assert GroupSpec.from_dict(spec({"m1": {}})).loads is None
    members, topics, _ = tables()
    assert GroupSpec.from_arrow(members, topics).loads is None


def test_tables_and_json_give_the_same_loads():
    rules = [
        {"kind": "exclude", "selector": "clicks", "value": "m1", "reason": "disk"},
        {"kind": "colocate", "selector": "clicks/0-1", "value": "pair {partition}"},
        {"kind": "colocate", "selector": "orders", "value": "pair {partition}", "hard": False},
    ]
    json = spec(
        {"m1": {"capacity": 2}, "m2": {"state": "draining"}},
        weights={"clicks": [1, None, 3, 5.5], "orders": [0, 7]},
        racks={"clicks": [["b", "a"], [], ["a", "b"], ["c"]]},
        constraints=rules,
    )
    members, topics, partitions = tables(
        capacity=[None, 2.0], state=["draining", None],
        topic=["orders", "orders", "clicks", "clicks", "clicks", "clicks"],
        partition=[1, 0, 3, 1, 2, 0],
        weight=[7.0, 0.0, 5.5, None, 3.0, 1.0],
        racks=[None, None, ["c"], [], ["a", "b"], ["b", "a"]],
    )  # fmt: skip
    a = GroupSpec.from_dict(json).loads
    b = GroupSpec.from_arrow(members, topics, partitions=partitions, constraints=rules).loads
    for name in ("capacity", "active", "weight", "move_cost"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    shown = [
        [one.rack_sets[at] if at >= 0 else None for at in one.rack_set.tolist()] for one in (a, b)
    ]
    assert shown[0] == shown[1] == [("a", "b"), None, ("a", "b"), ("c",), None, None]
    assert (a.weight * a.weight_unit).tolist() == [1, 3, 3, 5.5, 0, 7]
    assert (a.known, b.known) == (5, 5)
    assert (a.capacity * a.capacity_unit).tolist() == [2, 1]
    assert a.active.tolist() == [True, False]
    exclude, pair, pairs = a.constraints
    assert (exclude.partitions.tolist(), exclude.members.tolist()) == ([0, 1, 2, 3], [0])
    assert (exclude.name, exclude.reason) == ("exclude clicks from m1", "disk")
    assert pair.label.tolist() == pairs.label.tolist()
    assert (pair.hard, pairs.hard) == (True, False)


def test_rules_on_what_is_not_there_are_idle():
    rules = [
        {"kind": "pin", "selector": "clicks/3", "value": "m9"},
        {"kind": "pin", "selector": "clicks/4", "value": "m1"},
        {"kind": "drain", "selector": "m1", "until": datetime(2026, 1, 1, tzinfo=UTC)},
        {"kind": "drain", "selector": "m2", "until": "2026-01-03T01:00:00+01:00"},
    ]
    members, topics, _ = tables()
    now = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    loads = GroupSpec.from_arrow(members, topics, constraints=rules, as_of_ms=now).loads
    assert [one.name for one in loads.constraints] == ["drain m2"]
    assert loads.idle == (
        "pin clicks/3 to m9: member 'm9' is not in the group",
        "pin clicks/4 to m1: topic 'clicks' has 4 partitions",
        "drain m1: expired at 2026-01-01T00:00:00Z",
    )
    assert len(GroupSpec.from_arrow(members, topics, constraints=rules).loads.constraints) == 2
    whole = [{"kind": "drain", "selector": "m1", "until": ms} for ms in (now - 1, now + 1)]
    loads = GroupSpec.from_arrow(members, topics, constraints=whole, as_of_ms=now).loads
    assert loads.idle == ("drain m1: expired at 2026-01-01T23:59:59Z",)
    assert len(loads.constraints) == 1


def test_whole_weights_stay_exact_and_sums_stay_below_the_limit():
    weight = np.array([3, 5, 2**30, 0], dtype=np.float64)
    ints, unit = quantise_weights(weight)
    assert (ints * unit).tolist() == weight.tolist()
    assert 2 ** (WEIGHT_BITS - 1) <= ints.sum() <= 2**WEIGHT_BITS
    for one in (5e-324, 1e-9, 2.0**62):
        ints, _ = quantise_weights(np.full(1000, one))
        assert 0 < ints.sum() <= 2**WEIGHT_BITS + 1000


def test_a_missing_weight_is_the_median_of_its_topic():
    nan = np.nan
    weight, known = fill_medians(
        np.array([1, nan, 9, nan, 4, nan, nan, 2, 8, nan]), np.array([0, 5, 6, 10])
    )
    assert known == 5
    assert weight.tolist() == [1, 4, 9, 4, 4, 4, 5, 2, 8, 5]
