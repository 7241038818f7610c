"""Units that weigh nothing: they stay where they are, and new ones are spread by their number.

Weights do not say where they are to be, but they may wake: so each member has its share of them.
What has an owner moves only where a rule makes it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assignors.arrays import Bools, Longs
from assignors.weighted.bounds import find_lower_bound
from assignors.weighted.levels import IDLE_BITS
from assignors.weighted.problem import WeightedProblem


def find_idle(problem: WeightedProblem, unit: Longs) -> Bools:
    """Tell which units weigh nothing, and need not be apart from units that weigh something."""
    idle = problem.weight[unit] == 0
    label = problem.apart[unit]
    if idle.any() and (label >= 0).any():
        idle &= ~np.isin(label, problem.apart[(problem.apart >= 0) & (problem.weight > 0)])
    return np.asarray(idle)


def count_idle(problem: WeightedProblem) -> tuple[WeightedProblem, int]:
    """Return the problem in which only what weighs nothing counts, by number, and its level."""
    counted = replace(problem, weight=np.where(problem.weight > 0, 0, problem.count << IDLE_BITS))
    bound = find_lower_bound(
        counted.weight, problem.type, problem.capacity, problem.cell, problem.allowed
    )
    return counted, bound.level()
