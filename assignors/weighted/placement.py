"""Who has which unit, while it is being worked out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, sum_by
from assignors.weighted.problem import WeightedProblem


@dataclass(slots=True)
class Placement:
    """Who has which unit, while it is being worked out.

    Attributes
    ----------
    owner
        int64 (units,): −1 for no owner yet.
    load, used
        int64 (members,): weight, and partitions.
    """

    owner: Longs
    load: Longs
    used: Longs

    @classmethod
    def of(cls, problem: WeightedProblem, owner: Longs) -> Placement:
        """Add up what members have."""
        held = np.flatnonzero(owner >= 0) if (owner < 0).any() else slice(None)
        whose, size = owner[held], problem.member_count
        load = sum_by(whose, problem.weight[held], size)
        used = sum_by(whose, problem.count[held], size) if problem.limited else load
        return cls(owner, load, used)

    def put(self, problem: WeightedProblem, unit: Longs, member: Longs) -> None:
        """Give units to members."""
        self.owner[unit] = member
        size = problem.member_count
        self.load += sum_by(member, problem.weight[unit], size)
        if problem.limited:
            self.used += sum_by(member, problem.count[unit], size)

    def move(self, problem: WeightedProblem, unit: int, member: int) -> None:
        """Give one unit that has a member to another one."""
        source = self.owner[unit]
        self.owner[unit] = member
        self.load[source] -= problem.weight[unit]
        self.load[member] += problem.weight[unit]
        if problem.limited:
            self.used[source] -= problem.count[unit]
            self.used[member] += problem.count[unit]

    def take(self, problem: WeightedProblem, unit: Longs) -> None:
        """Take units from their members."""
        whose, size = self.owner[unit], problem.member_count
        self.load -= sum_by(whose, problem.weight[unit], size)
        if problem.limited:
            self.used -= sum_by(whose, problem.count[unit], size)
        self.owner[unit] = -1


def sort_heaviest(weight: Longs, unit: Longs) -> Longs:
    """Sort units by weight, descending; ties in order."""
    if len(unit) < 2:  # noqa: PLR2004 - nothing to sort
        return unit
    heaviest = weight[unit]
    bits = len(unit).bit_length()
    top = int(heaviest.max())
    if top.bit_length() + bits > 63:  # noqa: PLR2004 - of an int64
        return np.asarray(unit[np.argsort(-heaviest, kind="stable")])
    key = ((top - heaviest) << bits) | np.arange(len(unit))
    key.sort()
    return np.asarray(unit[key & ((1 << bits) - 1)])
