"""Lowering the fullest and filling the emptiest, against one partition at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assignors.water_level import Histogram, count_drops_needed, fill_loads, lower_loads

groups = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=4)


def histogram(loads):
    class_ = np.repeat(np.arange(len(loads)), [len(row) for row in loads])
    return Histogram.of(len(loads), class_, np.array([x for row in loads for x in row]))


@given(groups, st.integers(0, 60))
def test_fill_raises_the_emptiest(loads, amount):
    level = fill_loads(histogram(loads), np.full(len(loads), amount))
    for class_, row in enumerate(loads):
        expected = sorted(row)
        for _ in range(amount):
            expected[0] += 1
            expected.sort()
        height, first, got = level.height[class_], level.first[class_], []
        for load in row:
            low = load <= height
            got.append((height + (first > 0)) if low else load)
            first -= low
        assert sorted(got) == expected


@given(groups, st.integers(0, 60))
def test_lower_cuts_the_fullest(loads, amount):
    drops = np.array([min(amount, sum(row)) for row in loads])
    level = lower_loads(histogram(loads), drops)
    for class_, row in enumerate(loads):
        expected = sorted(row)
        for _ in range(drops[class_]):
            expected[-1] -= 1
            expected.sort()
        height, first, got = level.height[class_], level.first[class_], []
        for load in row:
            high = load > height
            got.append((height + (first > 0)) if high else load)
            first -= high
        assert sorted(got) == expected


@given(groups, st.integers(0, 5), st.integers(0, 5), st.integers(0, 30))
def test_drops_needed(loads, low, width, orphans):
    high = low + width
    total = np.array([sum(row) + orphans for row in loads])
    bounds = (np.full(len(loads), low), np.full(len(loads), high))
    needed = count_drops_needed(histogram(loads), *bounds, total)
    for class_, row in enumerate(loads):
        over = sum(max(0, x - high) for x in row)
        under = sum(max(0, low - x) for x in row) - orphans
        assert needed[class_] == max(over, under, 0)


def test_a_histogram_of_nothing():
    none = np.zeros(0, dtype=np.int64)
    empty = Histogram.of(0, none, none)
    assert len(fill_loads(empty, none).height) == len(lower_loads(empty, none).height) == 0
