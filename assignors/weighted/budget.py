"""Undo moves beyond a budget: those from the fullest members are done first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, sum_by
from assignors.loads.load_spec import LoadSpec
from assignors.weighted.levels import find_heights
from assignors.weighted.place import Placement
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
    unit = np.flatnonzero(moved & ~forced)
    before = Placement.of(problem, np.where(problem.may_stay(), problem.owner, -1))
    whose = problem.owner[unit]
    unit = unit[np.lexsort((unit, -problem.weight[unit], whose))]
    height = find_heights(problem.owner[unit], problem.weight[unit], before.load, problem.capacity)
    unit = unit[np.argsort(-height, kind="stable")]
    counts = int(problem.count[forced].sum()) + np.cumsum(problem.count[unit])
    costs = int(cost[forced].sum()) + np.cumsum(cost[unit])
    undone = unit[(counts > budget.count) | (costs > budget.cost)]
    owner = solution.owner.copy()
    owner[undone] = problem.owner[undone]
    return owner, bool(len(undone))
