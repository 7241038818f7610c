"""Swaps for longer ranges: within their budget, with the same loads, and named in the report."""

from __future__ import annotations

import random

import numpy as np
import pytest

from assignors import SpecError, get_assignor
from assignors.long_ranges.defragment import swap_ranges
from assignors.long_ranges.keep_long import LineRanges
from assignors.quality import SWAPPED, count_moved, find_problems, report
from assignors.sticky import StickyAssignor
from assignors.uniform import UniformAssignor
from tests.assignors.long_ranges.test_keep_long import SEEDS, RandomGroup, loads_by_class


def list_ranges(owners, topics):
    """Return who owns what as ranges: owner, start, count, topic."""
    rows = []
    for at, (owner, topic) in enumerate(zip(owners, topics, strict=True)):
        if rows and rows[-1][0] == owner and rows[-1][3] == topic:
            rows[-1][2] += 1
        else:
            rows.append([owner, at, 1, topic])
    return rows


def list_owners(ranges):
    return np.repeat(ranges.whose, ranges.count).tolist()


def swapped(owners, most, classes=None, topics=None):
    classes = np.zeros(max(owners) + 1, dtype=np.int64) if classes is None else classes
    rows = list_ranges(owners, topics or [0] * len(owners))
    return swap_ranges(LineRanges(*np.array(rows, dtype=np.int64).T), classes, most)


@pytest.mark.parametrize(
    ("before", "most", "after"),
    [
        ([0, 1, 0, 0, 1], 2, [0, 0, 0, 1, 1]),  # an end goes to the other side
        ([0, 1, 0, 2, 1, 0, 1], 2, [0, 0, 0, 2, 1, 1, 1]),
        ([0, 1, 0, 2, 1, 0, 1], 1, [0, 1, 0, 2, 1, 0, 1]),
        ([0, 0, 1, 1, 0, 0, 2, 1, 1, 0, 0, 1, 1], 4, [0] * 6 + [2] + [1] * 6),
        ([0, 1, 2], 9, [0, 1, 2]),
    ],
)
def test_swaps(before, most, after):
    assert list_owners(swapped(before, most)) == after


def test_no_load_changes_and_the_budget_is_kept():
    for seed in SEEDS:
        rng = random.Random(seed)
        members, owners = rng.randrange(1, 8), []
        topics = sorted(rng.randrange(3) for _ in range(rng.randrange(1, 80)))
        while len(owners) < len(topics):
            owners += [rng.randrange(members)] * rng.choice([1, 1, 1, 2, 3, 5])
        del owners[len(topics) :]
        classes = np.array([rng.randrange(2) for _ in range(members)])
        most = rng.choice([0, 1, 2, 3, 10, 1_000])
        found = swapped(owners, most, classes, topics)
        after = list_owners(found)
        assert sorted(after) == sorted(owners)
        assert sum(old != new for old, new in zip(owners, after, strict=True)) <= most
        assert classes[after].tolist() == classes[owners].tolist()
        assert len(list_ranges(after, topics)) == len(found.whose)
        assert after == owners or len(found.whose) < len(list_ranges(owners, topics))


def test_a_group_is_as_fair_with_few_moves_more():
    gained = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        group = RandomGroup(rng, rng.choice([1, 2]), rng.choice([0, 2])).spec()
        options = rng.choice([{}, {"imbalance": 1}, {"max_moves": 9}])
        make = StickyAssignor if options else UniformAssignor
        most = rng.choice([2, 5, 1_000])
        before, after = (make(**options, defragment=n).assign(group) for n in (0, most))
        assert loads_by_class(group, before) == loads_by_class(group, after)
        assert not find_problems(group, after)
        moved = [int(count_moved(group, ranges).sum()) for ranges in (before, after)]
        assert moved[1] <= moved[0] + most
        assert moved[1] <= options.get("max_moves", moved[1])
        assert after.verdict.moved_minimum == before.verdict.moved_minimum
        assert (len(after) < len(before)) is after.verdict.swapped
        assert after.verdict.swapped or after == before
        gained += len(before) - len(after)
    assert gained > len(SEEDS)


def test_reports_say_why():
    for seed in SEEDS:
        group = RandomGroup(random.Random(seed)).spec()
        plain, swaps = (report(group, UniformAssignor(defragment=n).assign(group)) for n in (0, 99))
        assert SWAPPED not in plain.reasons()
        if swaps.moved > plain.moved:
            break
    assert 0 < swaps.reasons()[SWAPPED] <= swaps.moved


def test_it_comes_to_an_end():
    drawn = RandomGroup(random.Random(5))
    assignor, ranges = UniformAssignor(defragment=2), None
    for _ in range(99):
        before, ranges = ranges, assignor.assign(drawn.spec())
        if ranges == before:
            break
        drawn.owned = [tuple(row.values()) for row in ranges.to_arrow().to_pylist()]
    assert ranges == before
    assert not ranges.verdict.swapped


@pytest.mark.parametrize("value", [-1, 1.5, "3", True])
@pytest.mark.parametrize("name", ["uniform", "sticky"])
def test_a_budget_is_a_number(name, value):
    with pytest.raises(SpecError, match=r"defragment is .*: give a whole number of partitions"):
        get_assignor(name, defragment=value)
