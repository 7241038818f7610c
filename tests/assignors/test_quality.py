"""The report: valid or not, how fair, what moved and why."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import GroupSpec, PartitionRanges, get_assignor, quality
from tests.support import twins


def solve(spec, name="uniform", **options):
    group = GroupSpec.from_dict(spec)
    ranges = get_assignor(name, **options).assign(group)
    return group, ranges, quality.report(group, ranges)


def members(**owned):
    return {m: {"subscribed": ["a"], "owned": {"a": o} if o else {}} for m, o in owned.items()}


def test_why_a_partition_moved():
    _, _, report = solve({"topics": {"a": 6}, "members": members(m1=[0, 1, 2, 3], m2=[4], m3=[])})
    assert report.summary() == {
        "loads": {"min": 2, "max": 2}, "moved": 2, "moved_lower_bound": 2, "orphans": 1,
    }  # fmt: skip
    changes = [tuple(row.values()) for row in report.changes.to_pylist()]
    assert changes == [
        ("a", 2, 2, "m1", "m3", "owner above its share"),
        ("a", 5, 1, None, "m2", "nobody owned it"),
    ]
    assert report.members.to_pylist()[0] == {
        "member_id": "m1", "owned": 4, "load": 2, "kept": 2, "gained": 0, "lost": 2, "ranges": 1,
    }  # fmt: skip


def test_exchanges_and_released_claims_are_distinguished():
    spec = {
        "topics": {"a": 2, "b": 2, "c": 1},
        "members": {
            "m1": {"subscribed": ["a", "b"], "owned": {"a": [0, 1], "c": [0]}},
            "m2": {"subscribed": ["a"], "owned": {}},
            "m3": {"subscribed": ["c"], "owned": {}},
        },
    }
    _, _, report = solve(spec)
    assert report.reasons() == {
        "exchanged for another topic": 2, "nobody owned it": 2, "owner unsubscribed": 1,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(11))
def test_moves_are_the_same_however_many_ranges_are_looked_at_together(seed):
    draw, names = random.Random(seed), ["a", "b", "c"]
    owned = [dict.fromkeys(names, ()) for _ in range(6)]
    for topic in names:
        for partition in range(40):
            draw.choice(owned[: 2 + seed % 4])[topic] += (partition,)
    lists = [["a", "b"], ["b", "c"], names]
    spec = {
        f"m{at}": {"subscribed": lists[at % (1 + seed % 3)], "owned": theirs}
        for at, theirs in enumerate(owned)
    }
    group, ranges, report = solve({"topics": dict.fromkeys(names, 50), "members": spec})
    assert report.moved
    for piece in (1, 7, 1 << 20):
        assert (
            quality.count_moved(group, ranges, piece).tolist() == report.members["lost"].to_pylist()
        )
    part = ranges.of_members(pa.array([True] + [False] * (group.member_count - 1)))
    kept = PartitionRanges(
        group.member_ids, group.topics, part.member, part.topic, part.first, part.count
    )
    lost = quality.report(group, kept).members["lost"].to_pylist()
    assert quality.count_moved(group, kept, 1).tolist() == lost  # of those that another one has


def test_an_owner_that_left_is_named():
    tables = (
        pa.table({"member_id": ["m"], "subscribed": [["a"]]}),
        pa.table({"topic": ["a"], "partitions": [3]}),
        pa.table(
            {"member_id": ["old"], "topic": ["a"], "first_partition": [0], "partition_count": [2]}
        ),
    )
    group = GroupSpec.from_arrow(*tables)
    report = quality.report(group, get_assignor("uniform").assign(group))
    rows = [
        (r["first_partition"], r["from_member_id"], r["reason"]) for r in report.changes.to_pylist()
    ]
    assert rows == [(0, "old", "owner left"), (2, None, "nobody owned it")]


@given(st.integers(0, 2**32), st.sampled_from(["range", "uniform", "sticky"]))
def test_the_tables_add_up(seed, name):
    spec = twins.random_spec(seed)
    group, ranges, report = solve(spec, name)
    assert report.valid
    assert report.moved == twins.moves(spec, ranges.to_dict())
    assert report.moved_lower_bound <= report.moved
    assert report.orphans == group.orphan_count()
    gained = sum(report.members["gained"].to_pylist())
    assert (
        gained
        == report.moved + report.orphans
        == sum(report.changes["partition_count"].to_pylist())
    )
    assert sum(report.members["lost"].to_pylist()) == report.moved
    assert sum(report.reasons().values()) == gained
    for row in report.members.to_pylist():
        assert row["owned"] - row["lost"] == row["kept"] == row["load"] - row["gained"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([("m1", "a", 0, 4)], "2 partitions have no owner"),
        ([("m1", "a", 0, 4), ("m2", "a", 3, 3)], "partition 3 of 'a' has two owners"),
        (
            [("m1", "a", 0, 6), ("m2", "b", 0, 1)],
            "'m2' owns partitions of 'b', to which it does not",
        ),
        ([("m1", "a", 0, 7)], "a range lies outside its topic"),
        ([("m1", "a", 5, -6)], "a range lies outside its topic"),
    ],
)
def test_invalid_assignments_are_named(rows, problem):
    spec = {"topics": {"a": 6, "b": 1}, "members": members(m1=[], m2=[])}
    group = GroupSpec.from_dict(spec)
    names = ["member_id", "topic", "first_partition", "partition_count"]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    ranges = PartitionRanges.from_arrow(group.member_ids, group.topics, table)
    report = quality.report(group, ranges)
    assert not report.valid
    assert problem in "; ".join(report.problems)


@pytest.mark.parametrize("size", [2, 1000])  # few places for so many runs, and many
def test_the_first_partition_with_two_owners_is_named(size):
    spec = {"topics": {"a": 4 * size}, "members": members(m1=[], m2=[])}
    group = GroupSpec.from_dict(spec)
    first = np.array([0, 3 * size, size, 2 * size - 1], dtype=np.int32)
    count = np.full(4, size, dtype=np.int32)
    nothing = np.zeros(4, dtype=np.int32)
    ranges = PartitionRanges(
        group.member_ids, group.topics, np.array([0, 0, 1, 1]), nothing, first, count
    )
    found = [f"partition {2 * size - 1} of 'a' has two owners"]
    assert quality.find_problems(group, ranges) == found


def test_a_partial_target_says_so():
    spec = {"topics": {"a": 6}, "members": members(m1=[0, 1, 2, 3, 4, 5], m2=[])}
    _, ranges, report = solve(spec, "sticky", max_moves=1)
    assert ranges.partial
    assert report.totals()["partial"]
    assert (report.moved, report.moved_minimum, report.spread) == (1, 3, 4)
