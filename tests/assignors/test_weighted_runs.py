"""Units counted by weight are placed like units one by one; a grid of weights is fine enough; and
members give up little more than what exceeds.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assignors.arrays import sum_by
from assignors.weighted.fill import fill_members
from assignors.weighted.levels import BITS, levels_of, round_to_grid
from assignors.weighted.place import is_few, place_few
from assignors.weighted.runs import Pool, fill_runs, place_pool
from assignors.weighted.shed import choose_surplus


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


def test_no_member_gets_what_many_rooms_lack_by_fractions():
    """A million members once gave the last one a quarter more than its share."""
    random = np.random.default_rng(1)
    capacity = random.choice([1, 2, 4], 3_000) << 17
    weight = -np.sort(-random.integers(1, 9, 300_000))
    owner = fill_members(weight, np.zeros(len(capacity), dtype=np.int64), capacity)
    level = levels_of(sum_by(owner, weight, len(capacity)), capacity)
    assert level.max() * int(capacity.sum()) <= 1.02 * (int(weight.sum()) << BITS)


@given(st.lists(st.integers(1, 2**42), min_size=1))
def test_the_grid_keeps_order_and_a_2048th(values):
    weight = np.array(sorted(values))
    found = round_to_grid(weight)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found - weight) * 2048 <= weight).all()
    assert (round_to_grid(found) == found).all()
    small = weight < 2048
    assert (found[small] == weight[small]).all()


def give_up(weights, excess):
    """Return what members give up, each its own list of weights, by member."""
    weight = np.array([one for of in weights for one in of], dtype=np.int64)
    owner = np.repeat(np.arange(len(weights)), [len(of) for of in weights])
    load = sum_by(owner, weight, len(weights))
    unit = np.arange(len(weight))
    chosen = choose_surplus(unit, owner, weight, weight, load, load - np.array(excess))
    return [sorted(weight[chosen[owner[chosen] == at]].tolist()) for at in range(len(weights))]


def test_members_give_up_two_units_where_these_come_closest():
    # alone, the heaviest that fits needs another one, or the next heavier one: 10 at the least
    weights = [[10, 7, 5, 4], [10, 7, 5, 4], [9, 2], [3]]
    assert give_up(weights, [9, 0, 9, 1]) == [[4, 5], [], [9], [3]]


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5))
def test_members_give_up_at_least_what_exceeds(seed, units, members):
    random = np.random.default_rng(seed)
    weights = [random.integers(1, 40, random.integers(1, units + 1)) for _ in range(members)]
    excess = [int(random.integers(0, of.sum() + 1)) for of in weights]
    for of, least, gives in zip(weights, excess, give_up(weights, excess), strict=True):
        assert sum(gives) >= least
        pairs = [a + b for at, a in enumerate(of) for b in of[at + 1 :] if a + b >= least]
        alone = [a for a in of if a >= least]
        if least and max(of) <= least and len(of) <= 8:  # all heavy ones are tried
            assert sum(gives) <= min([*pairs, *alone, sum(of)])
