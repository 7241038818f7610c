"""Counts of members by load and block: as counting all again, and levels as `water_level` has."""

from __future__ import annotations

import random

import numpy as np
import pytest

from assignors.incremental.level_counts import LevelCounts
from assignors.water_level import Histogram, count_drops_needed, fill_loads, lower_loads
from tests.support.longer import EVERY

BLOCKS = 7


@pytest.mark.parametrize("seed", range(200 if EVERY else 20))
@pytest.mark.parametrize("most", [1, 30, 300])
def test_counts_that_change_are_those_counted_again(seed, most):
    """Members get other loads, few at a time or many, and the counts before stay as they were."""
    draw = np.random.default_rng(seed)
    block, loads = draw.integers(0, BLOCKS, 400), draw.integers(0, 9, 400)
    counts = LevelCounts.of(block, loads, BLOCKS)
    for _ in range(5):
        some = draw.choice(400, draw.integers(0, most + 1), replace=False)
        after = loads.copy()
        after[some] = draw.integers(0, draw.integers(1, 12), len(some))
        changed = counts.changed((block[some], loads[some], -1), (block[some], after[some], 1))
        assert shown(counts) == shown(LevelCounts.of(block, loads, BLOCKS))
        assert shown(changed) == shown(LevelCounts.of(block, after, BLOCKS))
        counts, loads = changed, after


@pytest.mark.parametrize("seed", range(500 if EVERY else 50))
def test_levels_are_those_of_histograms(seed):
    """How many are given up, to which level, and up to which level others are filled."""
    draw = random.Random(seed)
    drawn = [draw.randint(0, draw.choice([3, 40])) for _ in range(draw.randint(0, 30))]
    loads = np.array(drawn, dtype=np.int64)
    counts = LevelCounts.of(np.zeros_like(loads), loads, 1)
    histogram = counts.histogram()
    for _ in range(10):
        low = draw.randint(0, 20)
        asked = low, low + draw.randint(0, 20), int(loads.sum()) + draw.randint(0, 50)
        needed = count_drops_needed(histogram, *(np.array([one]) for one in asked))
        assert counts.count_drops(*asked) == needed[0]
        drops, amount = draw.randint(0, int(loads.sum())), draw.randint(0, 500)
        lowered = lower_loads(histogram, np.array([drops]))
        assert counts.lower(drops) == (lowered.height[0], lowered.first[0])
        assert counts.count_above(int(lowered.height[0])) == (loads > lowered.height[0]).sum()
        filled = fill_loads(histogram, np.array([amount]))
        assert counts.fill(amount) == (filled.height[0], filled.first[0])
        height, first = counts.lower(drops)
        above = loads > height
        less = np.where(above, height + (above.cumsum() <= first), loads)
        filled = fill_loads(Histogram.of(1, np.zeros_like(less), less), np.array([amount]))
        assert counts.fill(amount, (height, first)) == (filled.height[0], filled.first[0])


def shown(counts):
    return counts.loads, [one.tolist() for one in counts.blocks], counts.members
