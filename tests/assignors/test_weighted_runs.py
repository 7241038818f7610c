"""Units counted by weight are placed like units one by one, and a grid of weights is fine enough."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assignors.arrays import sum_by
from assignors.weighted.fill import fill_members
from assignors.weighted.levels import round_to_grid
from assignors.weighted.place import is_few, place_few
from assignors.weighted.runs import Pool, fill_runs, place_pool


@given(
    st.integers(0, 2**32), st.integers(1, 600), st.integers(1, 30), st.sampled_from([0, 0.5, 2]),
    st.booleans(),
)  # fmt: skip
def test_runs_are_what_places_units_one_by_one(seed, units, members, sigma, empty):
    random = np.random.default_rng(seed)
    weight = np.maximum(random.lognormal(8, sigma, units).astype(np.int64), 1)
    weight = -np.sort(-round_to_grid(weight))
    capacity = random.choice([1, 2, 4], members) * 2 ** random.integers(0, 18)
    load = random.integers(0, 1 if empty else 9 * int(weight.sum()), members)
    pool = Pool.of(*np.unique(weight, return_counts=True))

    def spread(runs):
        return np.repeat(runs.member, np.diff(runs.end, prepend=0))

    runs, after = fill_runs(pool, load, capacity)
    wanted = fill_members(weight, load, capacity)
    assert spread(runs).tolist() == wanted.tolist()
    assert after.tolist() == (load + sum_by(wanted, weight, members)).tolist()
    level = int(random.integers(0, 2**40))
    if is_few(units, int(weight.sum()), load):
        wanted = place_few(weight, load, capacity, None, level)
    runs, after = place_pool(pool, load, capacity, level)
    assert spread(runs).tolist() == wanted.tolist()
    assert after.tolist() == (load + sum_by(wanted, weight, members)).tolist()


@given(st.lists(st.integers(1, 2**42), min_size=1))
def test_the_grid_keeps_order_and_a_2048th(values):
    weight = np.array(sorted(values))
    found = round_to_grid(weight)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found - weight) * 2048 <= weight).all()
    assert (round_to_grid(found) == found).all()
    small = weight < 2048
    assert (found[small] == weight[small]).all()
