"""Solve a weighted problem: keep, shed, place, and repair, at one level after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeVar

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of, rank_in_runs, sum_by
from assignors.errors import SpecError
from assignors.weighted.bounds import LowerBound, find_lower_bound
from assignors.weighted.exchange import improve_by_exchange
from assignors.weighted.idle import find_idle
from assignors.weighted.levels import SMALL, levels_of, room_under
from assignors.weighted.place import find_shares, place_units, weigh_cells
from assignors.weighted.placement import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.shed import choose_surplus

REPAIRS = 12
_STEPS = tuple(map(Fraction, ("0", "1/50", "1/20", "1/10", "1/5", "2/5", "1", "3")))
"""Shares above the goal that are tried as levels when the goal is out of reach."""
LARGE_STEPS = _STEPS[:5]
"""Those of a large group."""
UNLIMITED = 2**62


class _Levelled(Protocol):
    """A solution of either engine."""

    @property
    def level(self) -> int:
        """Greatest level."""


S = TypeVar("S", bound=_Levelled)


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Who has what, and what it is worth.

    Attributes
    ----------
    owner
        int64 (units,).
    level
        Greatest level.
    distant
        Weight that is without a replica in its member's rack.
    cost
        Cost of the moves from live owners.
    """

    owner: Longs
    level: int
    distant: int
    cost: int

    @classmethod
    def of(cls, problem: WeightedProblem, owner: Longs, load: Longs) -> Solution:
        """Judge an assignment of all units."""
        moved = (problem.owner >= 0) & (problem.owner != owner)
        distant = 0
        if problem.distant.any():
            far = problem.distant[problem.type, problem.cell[owner]]
            distant = int(problem.weight[far].sum())
        level = int(levels_of(load, problem.capacity).max(initial=0))
        return cls(owner, level, distant, int(problem.cost[moved].sum()))


def find_bound(problem: WeightedProblem) -> LowerBound:
    """Return the lower bound of a problem."""
    return find_lower_bound(
        problem.weight, problem.type, problem.capacity, problem.cell, problem.allowed, problem.home
    )


def solve(
    problem: WeightedProblem, bound: LowerBound, tolerance: Fraction, improvement: Fraction
) -> Solution:
    """Return an assignment whose greatest level is within the tolerance of the best one found.

    What is in order stays as it is, unless the greatest level falls by more than `improvement`.
    """
    current = find_current(problem)
    if current is not None and _is_near(problem, current, bound, improvement):
        return current
    best = _choose(problem, bound, tolerance)
    if current is not None and not _pays(problem, current, best, improvement):
        return current
    # Solve again from the result until that would keep it: assigning it again moves nothing.
    for _ in range(16):
        if _is_near(problem, best, bound, improvement):
            break
        again = _choose(_with_owner(problem, best.owner), bound, tolerance)
        if not _pays(problem, best, again, improvement):
            break
        load = Placement.of(problem, again.owner).load
        best = Solution.of(problem, again.owner, load)
    return best


def _is_near(
    problem: WeightedProblem, found: Solution, bound: LowerBound, improvement: Fraction
) -> bool:
    """Tell whether no other assignment can be enough better."""
    return found.level <= bound.level(improvement) and not problem.distant.any()


def find_current(problem: WeightedProblem) -> Solution | None:
    """Return what members have now, when that is a whole assignment that breaks no rule."""
    if len(problem.owner) and bool((problem.owner < 0).any()):
        return None
    if not problem.may_stay().all() or len(find_forced(problem, problem.owner)):
        return None
    placed = Placement.of(problem, problem.owner)
    return Solution.of(problem, problem.owner, placed.load)


def _pays(problem: WeightedProblem, old: Solution, new: Solution, improvement: Fraction) -> bool:
    """Tell whether the new assignment is enough better."""
    if is_better(old.level, new.level, improvement):
        return True
    if new.level > old.level * (1 + improvement):
        return False
    return old.distant - new.distant > improvement * int(problem.weight.sum())


def is_better(old: int, new: int, improvement: Fraction) -> bool:
    """Tell whether a greatest level is lower by more than a share of the new one."""
    return old * improvement.denominator > new * (improvement.denominator + improvement.numerator)


def _with_owner(problem: WeightedProblem, owner: Longs) -> WeightedProblem:
    columns = {name: getattr(problem, name) for name in problem.__slots__}
    return WeightedProblem(**columns | {"owner": owner})


def _choose(problem: WeightedProblem, bound: LowerBound, tolerance: Fraction) -> Solution:
    """Return the solution with the fewest moves among those within the tolerance of the best."""
    goal = bound.level(tolerance)
    found = _candidates(problem, goal)
    return choose_within(found, goal, tolerance, lambda one: (one.distant, one.cost, one.level))


def choose_within(
    candidates: Iterable[S], goal: int, tolerance: Fraction, cost: Callable[[S], tuple[int, ...]]
) -> S:
    """Return the cheapest candidate within the tolerance of the best; one at the goal is the last.

    Parameters
    ----------
    cost
        Of a candidate; asked only where there are two to choose from.
    """
    found: list[S] = []
    for one in candidates:
        found.append(one)
        if one.level <= goal:
            break
    least = min(one.level for one in found)
    enough = max(goal, least + least * tolerance.numerator // tolerance.denominator)
    good = [one for one in found if one.level <= enough]
    return good[0] if len(good) == 1 else min(good, key=cost)


def _candidates(problem: WeightedProblem, goal: int) -> Iterator[Solution]:
    """Yield solutions at the goal, at levels above it, and one from nothing."""
    small = len(problem.weight) <= SMALL
    fresh = not len(problem.owner) or int(problem.owner.max()) < 0
    for step in _STEPS[:1] if fresh else _STEPS if small else LARGE_STEPS:
        yield solve_somehow(problem, int(goal * (1 + step)), goal)
    if small and not fresh:
        rests = find_idle(problem, np.arange(len(problem.owner))) & (not problem.limited)
        nothing = _with_owner(problem, np.where(rests, problem.owner, -1))
        free = solve_at(nothing, goal, goal)
        yield Solution.of(problem, free.owner, Placement.of(problem, free.owner).load)


def solve_somehow(problem: WeightedProblem, level: int, goal: int) -> Solution:
    """Solve at a level; from nothing, where what stays leaves others no member.

    Raises
    ------
    SpecError
        Rules on numbers, or on partitions apart, leave a unit no member either way.
    """
    try:
        return solve_at(problem, level, goal)
    except SpecError:
        nothing = _with_owner(problem, np.full(len(problem.owner), -1, dtype=np.int64))
        owner = solve_at(nothing, level, goal).owner
        return Solution.of(problem, owner, Placement.of(problem, owner).load)


def solve_at(problem: WeightedProblem, level: int, goal: int) -> Solution:
    """Keep what is below a level, place the rest, and repair what exceeds the level."""
    owner = np.where(problem.may_stay(), problem.owner, -1)
    owner[find_forced(problem, owner)] = -1
    placed = Placement.of(problem, owner)
    movable = problem.owner >= 0
    if level < UNLIMITED:
        _shed(problem, placed, np.flatnonzero(placed.owner >= 0), level)
        _shed_between_cells(problem, placed, level)
    place_units(problem, placed, np.flatnonzero(placed.owner < 0), level)
    best = Solution.of(problem, placed.owner.copy(), placed.load)
    if level >= UNLIMITED or not movable.any():
        improve_by_exchange(problem, placed, goal)
        after = Solution.of(problem, placed.owner, placed.load)
        return after if after.level < best.level else best
    best = _repair(problem, placed, level, best)
    if best.level > goal:
        placed = Placement.of(problem, best.owner.copy())
        improve_by_exchange(problem, placed, goal)
        after = Solution.of(problem, placed.owner, placed.load)
        best = after if after.level < best.level else best
    return best


def _repair(problem: WeightedProblem, placed: Placement, level: int, best: Solution) -> Solution:
    """Exchange what exceeds the level for lighter units, while the excess falls.

    What leaves is light enough for the rooms that are there, so that it displaces nothing more.
    """
    room = room_under(level, problem.capacity)
    excess = int(np.maximum(placed.load - room, 0).sum())
    for _ in range(REPAIRS):
        if best.level <= level:
            break
        light = find_light(room, placed.load, problem.cell >= 0)
        over = placed.load > room
        unit = np.flatnonzero(over[placed.owner] & (problem.weight > 0))
        lighter = unit[problem.weight[unit] <= light]
        _shed(problem, placed, lighter if len(lighter) else unit, level)
        place_units(problem, placed, np.flatnonzero(placed.owner < 0), level)
        after = Solution.of(problem, placed.owner.copy(), placed.load)
        left = int(np.maximum(placed.load - room, 0).sum())
        if after.level < best.level:
            best = after
        if left >= excess:
            break
        excess = left
    return best


def find_light(room: Longs, load: Longs, open_: Bools) -> int:
    """Return what is light enough for the rooms that are there: nine tenths of them are smaller."""
    rooms = (room - load)[open_ & (load < room)]
    return int(np.sort(rooms)[len(rooms) * 9 // 10]) if len(rooms) else UNLIMITED


def find_forced(problem: WeightedProblem, owner: Longs) -> Longs:
    """Return units that must leave their owner: twice on a member of a label, or over its most."""
    gone = np.zeros(len(owner), dtype=np.bool_)
    apart = np.flatnonzero((problem.apart >= 0) & (owner >= 0))
    if len(apart):
        apart = sort_heaviest(problem.weight, apart)
        key = problem.apart[apart] * problem.member_count + owner[apart]
        order = np.argsort(key, kind="stable")
        gone[apart[order[rank_in_runs(key[order]) > 0]]] = True
    if problem.limited:
        held = np.flatnonzero((owner >= 0) & ~gone)
        used = sum_by(owner[held], problem.count[held], problem.member_count)
        held = sort_heaviest(problem.weight, held[(used > problem.most)[owner[held]]])
        held = held[np.argsort(owner[held], kind="stable")]
        before = offsets_of(problem.count[held])
        start = np.searchsorted(owner[held], owner[held])
        until = before[1:] - before[start]
        gone[held[until > problem.most[owner[held]]]] = True
    return np.flatnonzero(gone)


def _shed(problem: WeightedProblem, placed: Placement, unit: Longs, level: int) -> None:
    """Take from members what exceeds a level."""
    room = room_under(level, problem.capacity)
    over = placed.load > room
    if not over.any():
        return
    unit = problem.find_free(unit[over[placed.owner[unit]] & (problem.weight[unit] > 0)])
    best = _largest(problem)
    heavy = problem.weight[unit] > room[placed.owner[unit]]
    misfits = unit[heavy]
    roomy = room_under(level, best)[problem.type[misfits]]
    misfits = misfits[problem.weight[misfits] <= roomy]
    if len(misfits):
        placed.take(problem, misfits)
        unit = unit[placed.owner[unit] >= 0]
    chosen = choose_surplus(unit, placed.owner, problem.weight, problem.cost, placed.load, room)
    placed.take(problem, chosen)


def _largest(problem: WeightedProblem) -> Longs:
    """Return the capacity of the largest member that may have each type, (types,)."""
    largest = np.zeros(problem.allowed.shape[1], dtype=np.int64)
    open_ = problem.cell >= 0
    np.maximum.at(largest, problem.cell[open_], problem.capacity[open_])
    return np.asarray(np.maximum(np.where(problem.allowed, largest, 0).max(axis=1), 1))


def _shed_between_cells(problem: WeightedProblem, placed: Placement, level: int) -> None:
    """Take from cells what the cheapest flow gives to other cells, from the fullest members."""
    types, cells = problem.allowed.shape
    if cells == 1 or not problem.weight.any():
        return
    kept = weigh_cells(problem, placed)
    pool = np.flatnonzero(placed.owner < 0)
    wanted = np.zeros(types, dtype=np.int64)
    np.add.at(wanted, problem.type[pool], problem.weight[pool])
    surplus = (kept - find_shares(problem, kept, wanted, level)).ravel()
    least = int(problem.weight.sum()) >> 24  # what rounding for the flow may hide
    surplus[surplus < least] = 0
    if not (surplus > 0).any():
        return
    unit = np.flatnonzero((placed.owner >= 0) & (problem.weight > 0))
    key = problem.type[unit] * cells + problem.cell[placed.owner[unit]]
    wide = surplus[key] > 0
    unit, key = unit[wide], key[wide]
    height = levels_of(placed.load, problem.capacity)[placed.owner[unit]]
    order = np.lexsort((-problem.weight[unit], -height, key))
    unit, key = unit[order], key[order]
    before = offsets_of(problem.weight[unit])
    start = np.searchsorted(key, key)
    until = before[1:] - before[start]
    placed.take(problem, unit[until <= surplus[key] + least])
