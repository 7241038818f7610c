"""Improve a small group by single moves and swaps with the member of the greatest level."""

from __future__ import annotations

import numpy as np

from assignors.arrays import Longs
from assignors.weighted.levels import SMALL, levels_of, room_under
from assignors.weighted.placement import Placement
from assignors.weighted.problem import WeightedProblem

_STEPS_MAX = 400
_SAMPLED = 16
"""One in so many units is swapped by way of trial; only what is no worse is then looked at."""
_NEVER = int(np.iinfo(np.int64).max)


def improve_by_exchange(problem: WeightedProblem, placed: Placement, goal: int) -> None:
    """Move or swap units of the fullest member while that lowers it, until the goal is met.

    Does nothing in groups whose pairs of units are many: there, filling is fine enough.
    """
    fit = np.flatnonzero(problem.cell >= 0)
    if not len(fit) or len(placed.owner) > SMALL:
        return
    for _ in range(_STEPS_MAX):
        level = levels_of(placed.load, problem.capacity)
        full = int(np.argmax(level))
        own = np.flatnonzero((placed.owner == full) & (problem.apart < 0))
        if int(level[full]) <= goal or not len(own):
            return
        moved, gain = _find_move(problem, placed, own, full, int(level[full]))
        swapped, swap_gain = _find_swap(problem, placed, own, full, int(level[full]))
        if min(gain, swap_gain) == _NEVER:
            return
        unit, other = moved if gain <= swap_gain else swapped
        target = other if gain <= swap_gain else int(placed.owner[other])
        placed.take(problem, np.array([unit]))
        placed.put(problem, np.array([unit]), np.array([target]))
        if gain > swap_gain:
            placed.take(problem, np.array([other]))
            placed.put(problem, np.array([other]), np.array([full]))


def _find_move(
    problem: WeightedProblem, placed: Placement, own: Longs, full: int, top: int
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, member), and the greater level of the two afterwards.

    Parameters
    ----------
    top
        The level of the fullest member: only what leads below it is looked at.
    """
    weight, bound = problem.weight[own], room_under(top - 1, problem.capacity)
    fits = weight[:, None] <= bound - placed.load
    fits[weight < placed.load[full] - bound[full]] = False
    fits[:, full] = False
    row, member = np.nonzero(fits)
    unit = own[row]
    if not problem.is_free:
        fine = problem.admits(unit, member)
        if problem.limited:
            fine &= placed.used[member] + problem.count[unit] <= problem.most[member]
        unit, member = unit[fine], member[fine]
    if not len(unit):
        return (0, 0), _NEVER
    after = _lift(problem, placed, full, member, problem.weight[unit])
    at = int(np.argmin(after))
    return (int(unit[at]), int(member[at])), int(after[at])


def _find_swap(
    problem: WeightedProblem, placed: Placement, own: Longs, full: int, top: int
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, other unit), and the greater level of the two owners afterwards.

    Parameters
    ----------
    top
        As for `_find_move`.
    """
    others = np.flatnonzero((placed.owner != full) & (problem.apart < 0))
    whose = placed.owner[others]
    if problem.is_free:
        some = slice(None, None, _SAMPLED)
        lifts = problem.weight[own][:, None] - problem.weight[others[some]]
        after = _lift(problem, placed, full, whose[some], lifts)
        top = min(top, int(after.min(initial=top)) + 1)  # the best is not above the best of some
    bound = room_under(top - 1, problem.capacity)
    more = problem.weight[own][:, None] - problem.weight[others]
    least = placed.load[full] - bound[full]
    row, column = np.nonzero((more >= least) & (more <= (bound - placed.load)[whose]))
    unit, other, member = own[row], others[column], whose[column]
    if not problem.is_free:
        fine = problem.admits(unit, member) & problem.admits(other, np.array([full]))
        if problem.limited:
            extra = problem.count[unit] - problem.count[other]
            fine &= placed.used[member] + extra <= problem.most[member]
            fine &= placed.used[full] - extra <= problem.most[full]
        unit, other, member = unit[fine], other[fine], member[fine]
    if not len(unit):
        return (0, 0), _NEVER
    lifts = problem.weight[unit] - problem.weight[other]
    after = _lift(problem, placed, full, member, lifts)
    at = int(np.argmin(after))
    return (int(unit[at]), int(other[at])), int(after[at])


def _lift(
    problem: WeightedProblem, placed: Placement, full: int, member: Longs, more: Longs
) -> Longs:
    """Return the greater level of two members after the fullest has given the other so much."""
    there = levels_of(placed.load[member] + more, problem.capacity[member])
    return np.maximum(there, levels_of(placed.load[full] - more, problem.capacity[full]))
