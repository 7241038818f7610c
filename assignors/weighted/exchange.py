"""Improve a small group by single moves and swaps with the member of the greatest level."""

from __future__ import annotations

import numpy as np

from assignors.arrays import Bools, Longs
from assignors.weighted.levels import SMALL, levels_of
from assignors.weighted.placement import Placement
from assignors.weighted.problem import WeightedProblem

_STEPS_MAX = 400
_NEVER = np.iinfo(np.int64).max


def improve_by_exchange(problem: WeightedProblem, placed: Placement, goal: int) -> None:
    """Move or swap units of the fullest member while that lowers it, until the goal is met.

    Does nothing in groups whose pairs of units are many: there, filling is fine enough.
    """
    fit = np.flatnonzero(problem.cell >= 0)
    if not len(fit) or len(placed.owner) > SMALL:
        return
    units, members = np.arange(len(placed.owner)), np.arange(problem.member_count)
    may_go = problem.admits(units[:, None], members)
    for _ in range(_STEPS_MAX):
        level = levels_of(placed.load, problem.capacity)
        full = int(np.argmax(level))
        own = np.flatnonzero((placed.owner == full) & (problem.apart < 0))
        if int(level[full]) <= goal or not len(own):
            return
        moved, gain = _find_move(problem, placed, own, full, may_go)
        swapped, swap_gain = _find_swap(problem, placed, own, full, may_go)
        if min(gain, swap_gain) >= int(level[full]):
            return
        unit, other = moved if gain <= swap_gain else swapped
        target = other if gain <= swap_gain else int(placed.owner[other])
        placed.take(problem, np.array([unit]))
        placed.put(problem, np.array([unit]), np.array([target]))
        if gain > swap_gain:
            placed.take(problem, np.array([other]))
            placed.put(problem, np.array([other]), np.array([full]))


def _find_move(
    problem: WeightedProblem, placed: Placement, own: Longs, full: int, may_go: Bools
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, member), and the greater level of the two afterwards."""
    weight, capacity = problem.weight[own][:, None], problem.capacity
    there = levels_of(placed.load[None, :] + weight, capacity)
    here = levels_of(placed.load[full] - weight, capacity[full])
    open_ = may_go[own]
    if problem.limited:
        open_ = open_ & (placed.used + problem.count[own][:, None] <= problem.most)
    after = np.where(open_, np.maximum(there, here), _NEVER)
    after[:, full] = _NEVER
    at = int(np.argmin(after))
    row, member = divmod(at, after.shape[1])
    return (int(own[row]), member), int(after[row, member])


def _find_swap(
    problem: WeightedProblem, placed: Placement, own: Longs, full: int, may_go: Bools
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, other unit), and the greater level of the two owners afterwards."""
    others = np.flatnonzero((placed.owner != full) & (problem.apart < 0))
    if not len(others):
        return (0, 0), int(_NEVER)
    whose, capacity = placed.owner[others], problem.capacity
    more = problem.weight[own][:, None] - problem.weight[others]
    there = levels_of(placed.load[whose] + more, capacity[whose])
    here = levels_of(placed.load[full] - more, capacity[full])
    open_ = may_go[own][:, whose] & may_go[others, full]
    if problem.limited:
        extra = problem.count[own][:, None] - problem.count[others]
        fits = placed.used[whose] + extra <= problem.most[whose]
        open_ = open_ & fits & (placed.used[full] - extra <= problem.most[full])
    after = np.where(open_, np.maximum(there, here), _NEVER)
    at = int(np.argmin(after))
    row, column = divmod(at, after.shape[1])
    return (int(own[row]), int(others[column])), int(after[row, column])
