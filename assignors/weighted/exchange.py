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
    if not (problem.cell >= 0).any() or len(placed.owner) > SMALL:
        return
    movable, free = problem.apart < 0, problem.is_free
    level = levels_of(placed.load, problem.capacity)
    for _ in range(_STEPS_MAX):
        full = int(level.argmax())
        top = int(level[full])
        own = ((placed.owner == full) & movable).nonzero()[0]
        if top <= goal or not len(own):
            return
        moved, gain = _find_move(problem, placed, own, top, free=free)
        swapped, swap_gain = _find_swap(problem, placed, own, min(top, gain), free=free)
        if min(gain, swap_gain) == _NEVER:
            return
        unit, other = moved if gain <= swap_gain else swapped
        target = other if gain <= swap_gain else int(placed.owner[other])
        placed.move(problem, unit, target)
        if gain > swap_gain:
            placed.move(problem, other, full)
        both = [full, target]
        level[both] = levels_of(placed.load[both], problem.capacity[both])


def _find_move(
    problem: WeightedProblem, placed: Placement, own: Longs, top: int, *, free: bool
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, member), and the greater level of the two afterwards.

    Parameters
    ----------
    own
        Units of the fullest member.
    top
        Only what leads to a lower level than this is looked at.
    free
        Every unit may be on every member.
    """
    full = int(placed.owner[own[0]])
    weight, bound = problem.weight[own], room_under(top - 1, problem.capacity)
    fits = weight[:, None] <= bound - placed.load
    fits[weight < placed.load[full] - bound[full]] = False
    fits[:, full] = False
    row, member = np.nonzero(fits)
    unit = own[row]
    if not free:
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
    problem: WeightedProblem, placed: Placement, own: Longs, top: int, *, free: bool
) -> tuple[tuple[int, int], int]:
    """Return the best (unit, other unit), and the greater level of the two owners afterwards.

    Parameters
    ----------
    own, top, free
        As for `_find_move`.
    """
    full = int(placed.owner[own[0]])
    others = ((placed.owner != full) & (problem.apart < 0)).nonzero()[0]
    whose, more = placed.owner[others], problem.weight[own][:, None] - problem.weight[others]
    if free:
        some = slice(None, None, _SAMPLED)
        after = _lift(problem, placed, full, whose[some], more[:, some])
        top = min(top, int(after.min(initial=top)) + 1)  # the best is not above the best of some
    bound = room_under(top - 1, problem.capacity)
    least = placed.load[full] - bound[full]
    row, column = np.nonzero((more >= least) & (more <= (bound - placed.load)[whose]))
    unit, other, member = own[row], others[column], whose[column]
    if not free:
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
