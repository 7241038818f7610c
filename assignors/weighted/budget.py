"""Keep to a budget of moves: those from the fullest members are done first, soft rules last."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs, sum_by
from assignors.group_spec import GroupSpec
from assignors.loads.load_spec import LoadSpec
from assignors.weighted.levels import find_heights, levels_of, room_under
from assignors.weighted.placement import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem, find_places
from assignors.weighted.solve import Solution, find_forced, solve_somehow

KEEP_ALL = 2**62


@dataclass(frozen=True, slots=True)
class Budget:
    """Most partitions and most cost of moves; a value beyond int64 means no limit."""

    count: int
    cost: int


def make_budget(
    max_moves: int | None, max_moved_weight: float | None, weight_unit: float
) -> Budget | None:
    """Return the budget that options give; None without any."""
    if max_moves is None and max_moved_weight is None:
        return None
    cost = KEEP_ALL
    if max_moved_weight is not None:
        cost = int(min(max_moved_weight / weight_unit, float(KEEP_ALL)))
    return Budget(KEEP_ALL if max_moves is None else max_moves, cost)


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """What a budget counts: partitions, also those of one unit that had several owners.

    Attributes
    ----------
    owner, cost
        int64 (partitions,): previous owner, and what a move costs as given: what is planned with
        may be rounded.
    """

    problem: WeightedProblem
    owner: Longs
    cost: Longs

    @classmethod
    def of(cls, problem: WeightedProblem, group: GroupSpec, loads: LoadSpec) -> Partitions:
        """Read owners and costs."""
        owner = problem.owner if problem.unit is None else find_places(group)[2]
        return cls(problem, owner, loads.move_cost[problem.place])

    def sum_moves(self, owner: Longs) -> tuple[Longs, Longs]:
        """Return how many partitions of each unit move to its owner, and their cost, (units,)."""
        unit = self.problem.unit
        now = owner if unit is None else owner[unit]
        moved = (self.owner >= 0) & (self.owner != now)
        cost = np.where(moved, self.cost, 0)
        if unit is None:
            return moved.astype(np.int64), cost
        size = len(owner)
        return sum_by(unit, moved.astype(np.int64), size), sum_by(unit, cost, size)


def keep_budget(
    problem: WeightedProblem, solution: Solution, budget: Budget, partitions: Partitions
) -> tuple[Longs, bool]:
    """Undo moves beyond the budget; return the owners, and whether any was undone.

    Moves are done in one order for every budget, so a tighter one never moves more. What rules
    force is moved first. With rules on numbers or on partitions apart, moves depend on each other:
    then either all are done or only those that rules force.
    """
    count, cost = partitions.sum_moves(solution.owner)
    if count.sum() <= budget.count and cost.sum() <= budget.cost:
        return solution.owner, False
    moved = (problem.owner >= 0) & (problem.owner != solution.owner)
    forced = moved & ~problem.may_stay()
    forced[find_forced(problem, np.where(problem.may_stay(), problem.owner, -1))] = True
    if problem.limited or bool((problem.apart >= 0).any()):
        return solve_somehow(problem, KEEP_ALL, KEEP_ALL).owner, True
    unit = _sort_moves(problem, moved & ~forced)
    owner = solution.owner.copy()
    owner[unit] = problem.owner[unit]
    done = unit[_find_within(partitions, owner, solution.owner, unit, budget)]
    owner[done] = solution.owner[done]
    return owner, len(done) < len(unit)


def _find_within(
    partitions: Partitions, owner: Longs, wanted: Longs, unit: Longs, budget: Budget
) -> Bools:
    """Tell which moves of units, done one after the other, keep within a budget, (moves,)."""
    (count, cost), more = partitions.sum_moves(owner), partitions.sum_moves(wanted)
    counts, costs = (
        int(there.sum()) + np.cumsum(np.maximum(then - there, 0)[unit])
        for there, then in zip((count, cost), more, strict=True)
    )
    return np.asarray((counts <= budget.count) & (costs <= budget.cost))


def _sort_moves(problem: WeightedProblem, moved: Bools) -> Longs:
    """Return the units that move, those first whose previous owner is fullest before each move."""
    unit = np.flatnonzero(moved)
    before = Placement.of(problem, np.where(problem.may_stay(), problem.owner, -1))
    unit = unit[np.lexsort((unit, -problem.weight[unit], problem.owner[unit]))]
    height = find_heights(problem.owner[unit], problem.weight[unit], before.load, problem.capacity)
    return np.asarray(unit[np.argsort(-height, kind="stable")])


def soften(
    problem: WeightedProblem,
    decided: tuple[Longs, bool],
    wanted: Longs,
    budget: Budget,
    partitions: Partitions,
    tolerance: Fraction,
) -> tuple[Longs, bool]:
    """Go from an assignment to one in which soft rules hold, as far as a budget allows.

    All of it is done where that is within the budget. Otherwise what has another owner than before
    in any case goes first, which costs nothing; then, with what the assignment left of the budget,
    come moves, those from the fullest members first. No step is done that leaves a level above the
    tolerance, and with rules on numbers or on partitions apart none but all.

    Parameters
    ----------
    decided
        Owners without soft rules, within the budget, and whether moves were left out.
    wanted
        Owners with them.

    Returns
    -------
    owner, partial
        Whether the budget left moves out that the next assignment makes.
    """
    owner, partial = decided
    previous = problem.owner
    count, cost = partitions.sum_moves(wanted)
    if count.sum() <= budget.count and cost.sum() <= budget.cost:
        return wanted, False
    if problem.limited or bool((problem.apart >= 0).any()):
        return owner, partial or _goes_on(previous, owner, wanted)
    differs, stays = owner != wanted, owner == previous
    now = partitions.sum_moves(owner)
    costless = (count <= now[0]) & (cost <= now[1]) & (wanted != previous)
    free = sort_heaviest(problem.weight, np.flatnonzero(differs & ~stays & costless))
    steps = free
    if not partial:
        paid = _sort_moves(problem, differs & stays)
        within = _find_within(partitions, owner, wanted, paid, budget)
        steps, partial = np.concatenate([free, paid[within]]), not bool(within.all())
    room = _find_room(problem, owner, tolerance)
    last = _count_steps(problem, owner, wanted, steps, room)
    owner = owner.copy()
    owner[steps[:last]] = wanted[steps[:last]]
    partial = decided[1] or (partial and last == len(steps))
    return owner, partial or _goes_on(previous, owner, wanted)


def _goes_on(previous: Longs, owner: Longs, wanted: Longs) -> bool:
    """Tell whether the next assignment may come nearer to what is wanted: this one came nearer."""
    return bool((owner != wanted).any() and (owner != previous).any())


def _find_room(problem: WeightedProblem, owner: Longs, tolerance: Fraction) -> Longs:
    """Return what each member may have so that the greatest level rises by the tolerance only."""
    load = Placement.of(problem, owner).load
    level = int(levels_of(load, problem.capacity).max(initial=0))
    return room_under(int(level * (1 + tolerance)), problem.capacity)


def _count_steps(
    problem: WeightedProblem, owner: Longs, wanted: Longs, steps: Longs, room: Longs
) -> int:
    """Return how many steps are done: the most after which no member has more than its room."""
    size, whose = len(steps), np.concatenate([owner[steps], wanted[steps]])
    change = np.concatenate([-problem.weight[steps], problem.weight[steps]])
    when = np.tile(np.arange(size), 2)
    order = np.lexsort((when, whose))
    whose, change, when = whose[order], change[order], when[order]
    run = np.cumsum(change)
    start = np.searchsorted(whose, whose)
    load = Placement.of(problem, owner).load[whose] + run - (run - change)[start]
    over = load > room[whose]
    before = np.append(False, over[:-1]) & (start != np.arange(2 * size))
    crowded = np.zeros(size, dtype=np.int64)  # members above their room after each step
    np.add.at(crowded, when, over.astype(np.int64) - before)
    fine = np.flatnonzero(np.cumsum(crowded) == 0)
    return int(fine[-1]) + 1 if len(fine) else 0
