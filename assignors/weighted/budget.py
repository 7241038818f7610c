"""Keep to a budget of moves: those from the fullest members are done first, soft rules last."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs, sum_by
from assignors.loads.load_spec import LoadSpec
from assignors.weighted.levels import find_heights, levels_of, room_under
from assignors.weighted.place import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.solve import Solution, find_forced, solve_somehow

KEEP_ALL = 2**62


@dataclass(frozen=True, slots=True)
class Budget:
    """Most partitions and most cost of moves; what is beyond int64 is no limit."""

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


def sum_costs(problem: WeightedProblem, loads: LoadSpec) -> Longs:
    """Return what a move of each unit costs, as given: what is planned with may be rounded."""
    costs = loads.move_cost[problem.place]
    return costs if problem.unit is None else sum_by(problem.unit, costs, len(problem.weight))


def keep_budget(
    problem: WeightedProblem, solution: Solution, budget: Budget, cost: Longs
) -> tuple[Longs, bool]:
    """Undo moves beyond the budget; return the owners, and whether any was undone.

    Moves are done in one order, whatever the budget, so a tighter one never moves more. What rules
    force is moved first. With rules on numbers or on partitions apart, moves depend on each other:
    then either all are done or only those that rules force.
    """
    moved = (problem.owner >= 0) & (problem.owner != solution.owner)
    if problem.count[moved].sum() <= budget.count and cost[moved].sum() <= budget.cost:
        return solution.owner, False
    forced = moved & ~problem.may_stay()
    forced[find_forced(problem, np.where(problem.may_stay(), problem.owner, -1))] = True
    if problem.limited or bool((problem.apart >= 0).any()):
        return solve_somehow(problem, KEEP_ALL, KEEP_ALL).owner, True
    unit = _sort_moves(problem, moved & ~forced)
    counts = int(problem.count[forced].sum()) + np.cumsum(problem.count[unit])
    costs = int(cost[forced].sum()) + np.cumsum(cost[unit])
    undone = unit[(counts > budget.count) | (costs > budget.cost)]
    owner = solution.owner.copy()
    owner[undone] = problem.owner[undone]
    return owner, bool(len(undone))


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
    cost: Longs,
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
    moved = (previous >= 0) & (previous != wanted)
    if problem.count[moved].sum() <= budget.count and cost[moved].sum() <= budget.cost:
        return wanted, False
    if problem.limited or bool((problem.apart >= 0).any()):
        return owner, partial
    differs, stays = owner != wanted, owner == previous
    free = sort_heaviest(problem.weight, np.flatnonzero(differs & ~stays & (wanted != previous)))
    steps, done = free, (previous >= 0) & ~stays
    if not partial:
        paid = _sort_moves(problem, differs & stays)
        counts = int(problem.count[done].sum()) + np.cumsum(problem.count[paid])
        costs = int(cost[done].sum()) + np.cumsum(cost[paid])
        within = (counts <= budget.count) & (costs <= budget.cost)
        steps, partial = np.concatenate([free, paid[within]]), not bool(within.all())
    room = _find_room(problem, owner, tolerance)
    last = _count_steps(problem, owner, wanted, steps, room)
    owner = owner.copy()
    owner[steps[:last]] = wanted[steps[:last]]
    return owner, decided[1] or (partial and last == len(steps))


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
