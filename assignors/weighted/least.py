"""Give members that have far less than their share a part of what the fullest ones have.

The makespan does not ask for it: with 64 equal partitions a ninth member may have none, since
another has eight either way.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of
from assignors.errors import SpecError
from assignors.weighted.bounds import LowerBound
from assignors.weighted.levels import BITS, levels_of, room_under
from assignors.weighted.place import place_units
from assignors.weighted.placement import Placement
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.shed import choose_surplus
from assignors.weighted.solve import Solution, solve

_ROUNDS = 16
"""Most times that members are given more, and that the answer is judged again."""


def solve_evenly(
    problem: WeightedProblem,
    bound: LowerBound,
    tolerance: Fraction,
    improvement: Fraction,
    share: Fraction,
) -> Solution:
    """Solve, and give members at least a share of an even division, where partitions allow it.

    Parameters
    ----------
    share
        Of what a member would have if weight could be divided by capacity exactly.
    """
    found = solve(problem, bound, tolerance, improvement)
    for _ in range(_ROUNDS if share else 0):
        raised = raise_least(problem, found, share)
        if raised is found:
            break
        again = solve(replace(problem, owner=raised.owner), bound, tolerance, improvement)
        if np.array_equal(again.owner, raised.owner):
            return raised
        found = Solution.of(problem, again.owner, Placement.of(problem, again.owner).load)
    return found


def raise_least(problem: WeightedProblem, found: Solution, share: Fraction) -> Solution:
    """Give members that lack weight what they lack, as far as it can be had.

    Returns
    -------
    Solution
        With no greater level, and no more weight without a replica in its member's rack.
    """
    for _ in range(_ROUNDS):
        after = _raise_once(problem, found, share)
        if after is None:
            break
        found = after
    return found


def find_lack(problem: WeightedProblem, load: Longs, share: Fraction) -> Longs:
    """Return the weight that each member lacks of its share, (members,)."""
    total = int(problem.weight.sum())
    return measure_lack(total, problem.capacity, problem.cell >= 0, load, share)


def measure_lack(total: int, capacity: Longs, open_: Bools, load: Longs, share: Fraction) -> Longs:
    """Return the same, from the weight in all and which members may have something."""
    least = total * share
    size = int(capacity[open_].sum()) or 1
    level = (least.numerator << BITS) // (least.denominator * size)
    return np.where(open_, np.maximum(room_under(level, capacity) - load, 0), 0)


def _raise_once(problem: WeightedProblem, found: Solution, share: Fraction) -> Solution | None:
    """Move units to members that lack weight; None where that does not help."""
    placed = Placement.of(problem, found.owner.copy())
    lack = find_lack(problem, placed.load, share)
    wanted = int(lack.sum())
    if not wanted:
        return None
    level = _find_giving_level(placed.load, problem.capacity, wanted)
    chosen = _choose_gifts(problem, placed, lack, level)
    if not len(chosen):
        return None
    owner = _give(problem, placed.owner, chosen, lack > 0, level)
    if owner is None:
        return None
    placed = Placement.of(problem, owner)
    after = Solution.of(problem, placed.owner, placed.load)
    if after.level > found.level or after.distant > found.distant:
        return None
    return after if int(find_lack(problem, placed.load, share).sum()) < wanted else None


def _give(
    problem: WeightedProblem, owner: Longs, unit: Longs, receives: Bools, level: int
) -> Longs | None:
    """Return owners after units went to those that receive; None where rules forbid it."""
    theirs = Placement.of(problem, np.where(receives[owner], owner, -1))
    open_ = np.isin(np.arange(problem.allowed.shape[1]), problem.cell[receives])
    receivers = replace(
        problem, cell=np.where(receives, problem.cell, -1), allowed=problem.allowed & open_
    )
    try:
        place_units(receivers, theirs, np.sort(unit), level)
    except SpecError:
        return None
    return np.where(theirs.owner >= 0, theirs.owner, owner)


def _find_giving_level(load: Longs, capacity: Longs, wanted: int) -> int:
    """Return the highest level above which members have as much as is wanted."""
    low, high = 0, int(levels_of(load, capacity).max())
    while low < high:
        middle = (low + high + 1) // 2
        above = int(np.maximum(load - room_under(middle, capacity), 0).sum())
        low, high = (middle, high) if above >= wanted else (low, middle - 1)
    return low


def _choose_gifts(problem: WeightedProblem, placed: Placement, lack: Longs, level: int) -> Longs:
    """Return units of the fullest members, about as much as others lack."""
    room = room_under(level, problem.capacity)
    unit = problem.find_free(np.flatnonzero((placed.load > room)[placed.owner]))
    unit = unit[_may_be_given(problem, unit, placed.load, lack, room)]
    chosen = choose_surplus(unit, placed.owner, problem.weight, problem.cost, placed.load, room)
    height = levels_of(placed.load, problem.capacity)[placed.owner[chosen]]
    chosen = chosen[np.lexsort((chosen, -height))]
    before = offsets_of(problem.weight[chosen])[:-1]
    return np.asarray(chosen[before < int(lack.sum())])


def _may_be_given(
    problem: WeightedProblem, unit: Longs, load: Longs, lack: Longs, room: Longs
) -> Bools:
    """Tell which units some member that lacks weight may have without being among the fullest."""
    low = np.flatnonzero(lack > 0)
    widest = int((room - load)[low].max())
    cells = np.unique(problem.cell[low])
    fine = problem.allowed[problem.type[unit]][:, cells].any(axis=1)
    weight = problem.weight[unit]
    return np.asarray(fine & (weight > 0) & (weight <= widest) & (problem.apart[unit] < 0))
