"""Exchange units that were given to members that rules forbid them.

Units are given out in bulk as if any member of a cell could have them. Those on a member that a
list or a label forbids change places among each other, neighbours by weight, so that loads stay as
they are; what then is left is returned.
"""

from __future__ import annotations

import numpy as np

from assignors.arrays import Bools, Longs, rank_in_runs, sort_distinct
from assignors.weighted.placement import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem

_SHIFTS = (1, 0, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)


def settle_units(problem: WeightedProblem, placed: Placement, unit: Longs, others: Longs) -> Longs:
    """Exchange those of the units that are where rules forbid them; return what is left, taken.

    Parameters
    ----------
    unit
        Units with owners. No other unit is where it must not be.
    others
        Units with owners that may be exchanged, too, heaviest first, none of them in `unit`.
    """
    wrong = ~problem.admits(unit, placed.owner[unit])
    wrong |= _find_doubles(problem, placed, unit, wrong)
    bad = sort_heaviest(problem.weight, unit[wrong])
    if not len(bad):
        return bad
    bad = np.concatenate([bad, _find_alike(problem, bad, others)])
    bad = sort_heaviest(problem.weight, bad)
    slot = placed.owner[bad]
    placed.take(problem, bad)
    single = np.ones(len(bad), dtype=np.bool_)
    if problem.limited:
        single = problem.count[bad] == 1
    return np.concatenate([bad[~single], _exchange(problem, placed, bad[single], slot[single])])


def _find_alike(problem: WeightedProblem, unit: Longs, others: Longs) -> Longs:
    """Return for each unit, heaviest first, another one of about its weight, each once."""
    at = np.searchsorted(-problem.weight[others], -problem.weight[unit])
    turn = np.arange(len(unit))
    at = np.maximum.accumulate(at - turn) + turn
    return others[at[at < len(others)]]


def _find_doubles(problem: WeightedProblem, placed: Placement, unit: Longs, wrong: Bools) -> Bools:
    """Tell for each unit whether its owner has another of its label that is there before it."""
    out = np.zeros(len(unit), dtype=np.bool_)
    mine = np.flatnonzero((problem.apart[unit] >= 0) & ~wrong)
    if not len(mine):
        return out
    others = _list_held(problem, placed, unit[mine], but=unit)
    whose = np.concatenate([others, unit[mine]])
    key = problem.apart[whose] * problem.member_count + placed.owner[whose]
    heavy = np.concatenate([np.zeros(len(others), dtype=np.int64), -problem.weight[unit[mine]]])
    own = np.arange(len(whose)) >= len(others)
    order = np.lexsort((heavy, own, key))
    double = order[rank_in_runs(key[order]) > 0] - len(others)
    out[mine[double[double >= 0]]] = True
    return out


def _list_held(problem: WeightedProblem, placed: Placement, unit: Longs, *, but: Longs) -> Longs:
    """Return units with owners that have the label of some of the units, without `but`."""
    labels = np.zeros(int(problem.apart.max()) + 1, dtype=np.bool_)
    labels[problem.apart[unit]] = True
    out = np.flatnonzero((problem.apart >= 0) & (placed.owner >= 0))
    out = out[labels[problem.apart[out]]]
    return np.setdiff1d(out, but, assume_unique=True)


def _exchange(problem: WeightedProblem, placed: Placement, unit: Longs, slot: Longs) -> Longs:
    """Give units the members of each other; return those that none of them may have.

    Parameters
    ----------
    unit, slot
        Units without owners, heaviest first, and the members that had them.
    """
    size = problem.weight[unit]
    for shift in _SHIFTS:
        if not len(unit):
            break
        goes, room = np.roll(slot, shift), np.roll(size, shift)
        fine = problem.admits(unit, goes)
        fine &= ~_find_taken(problem, placed, unit, goes)
        placed.put(problem, unit[fine], goes[fine])
        unit, slot, size = unit[~fine], goes[~fine], room[~fine]
        order = np.argsort(-size, kind="stable")
        slot, size = slot[order], size[order]
    return unit


def _find_taken(problem: WeightedProblem, placed: Placement, unit: Longs, member: Longs) -> Bools:
    """Tell for pairs whether the member has the unit's label, or gets it in an earlier pair."""
    out = np.zeros(len(unit), dtype=np.bool_)
    apart = np.flatnonzero(problem.apart[unit] >= 0)
    if not len(apart):
        return out
    key = problem.apart[unit[apart]] * problem.member_count + member[apart]
    held = _list_held(problem, placed, unit[apart], but=unit)
    taken = sort_distinct(problem.apart[held] * problem.member_count + placed.owner[held])
    order = np.argsort(key, kind="stable")
    again = np.zeros(len(key), dtype=np.bool_)
    again[order] = rank_in_runs(key[order]) > 0
    out[apart] = again | np.isin(key, taken)
    return out
