"""The search of `assignors.weighted.solve`, with partitions as rows (`weighted_units.py`).

Twin of `solve.py` for a large group whose partitions may all be on all active members: levels,
rooms, and who gets how much, are arrays of members on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs
from assignors.weighted.bounds import LowerBound
from assignors.weighted.budget import Budget
from assignors.weighted.levels import levels_of, room_under
from assignors.weighted.runs import Pool, Runs, place_idle, place_pool
from assignors.weighted.solve import (
    LARGE_STEPS,
    REPAIRS,
    UNLIMITED,
    choose_within,
    find_light,
    is_better,
)
from spark_jobs.assignors.weighted_units import Units


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Who has what, and what each member has: `place.Placement` and `solve.Solution` in one.

    Attributes
    ----------
    units
        The rows.
    load, capacity
        int64 (members,).
    active
        bool (members,): may have partitions.
    partial
        Whether a budget left moves undone.
    """

    units: Units
    load: Longs
    capacity: Longs
    active: Bools
    partial: bool = False

    @property
    def level(self) -> int:
        """Greatest level."""
        return int(levels_of(self.load, self.capacity).max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What is searched for, and where it starts.

    Attributes
    ----------
    capacity
        int64 (members,).
    active
        bool (members,).
    bound
        What no greatest level is below.
    tolerance, improvement
        Options of `WeightedAssignor`.
    """

    capacity: Longs
    active: Bools
    bound: LowerBound
    tolerance: Fraction
    improvement: Fraction

    def solve(self, units: Units) -> Placed:
        """Do what `solve.solve` does."""
        start = self._place_none(units)
        whole = units.is_whole()
        best = self._choose(start)
        if whole and not is_better(start.level, best.level, self.improvement):
            return start
        for _ in range(16):
            if best.level <= self.bound.level(self.improvement):
                break
            again = self._choose(self._place_none(best.units.begin_again()))
            if not is_better(best.level, again.level, self.improvement):
                break
            best = again
        if best.units.begun_again:
            best = replace(best, units=best.units.restore_owners(units))
        return best

    def keep_budget(self, placed: Placed, budget: Budget, start: Units) -> Placed:
        """Do what `budget.keep_budget` does.

        Parameters
        ----------
        start
            Who had what before the search.
        """
        before = start.sum_loads(len(self.capacity))
        units = placed.units.undo_moves(budget, before, self.capacity, self.active)
        if units is placed.units:
            return placed
        return replace(placed, units=units, partial=True)

    def _place_none(self, units: Units) -> Placed:
        load = units.sum_loads(len(self.capacity), of="prev" if units.fresh else "owner")
        return Placed(units, load, self.capacity, self.active)

    def _choose(self, start: Placed) -> Placed:
        """Do what `solve._choose` does."""
        goal = self.bound.level(self.tolerance)
        found = self._candidates(start, goal)
        return choose_within(
            found, goal, self.tolerance, lambda one: (one.units.sum_moved()[1], one.level)
        )

    def _candidates(self, start: Placed, goal: int) -> Iterator[Placed]:
        fresh = start.units.is_fresh()
        for step in LARGE_STEPS[:1] if fresh else LARGE_STEPS:
            yield self._solve_at(start, int(goal * (1 + step)), repair=not fresh)

    def _solve_at(self, start: Placed, level: int, *, repair: bool) -> Placed:
        """Do what `solve.solve_at` does."""
        placed = self._place(self._shed(start, level, None), level)
        return self._repair(placed, level) if repair else placed

    def _shed(self, placed: Placed, level: int, lightest: int | None) -> Placed:
        """Do what `solve._shed` does; `lightest`: take no heavier units, if there are lighter."""
        room = room_under(level, self.capacity)
        over = np.flatnonzero(placed.load > room)
        if not len(over):
            return placed
        most = UNLIMITED
        if lightest is not None and placed.units.find_lightest(over) <= lightest:
            most = lightest
        largest = np.array([self.capacity[self.active].max()])
        roomy = int(room_under(level, largest)[0])
        units = placed.units.shed(over, placed.load, room, roomy, most)
        return replace(placed, units=units, load=units.sum_loads(len(room)))

    def _place(self, placed: Placed, level: int) -> Placed:
        """Do what `place.place_units` does."""
        pool = placed.units.count_pool()
        if not pool.units:
            return placed
        runs, load = self._place_pool(pool, placed.load, level, placed.units)
        return replace(placed, units=placed.units.place(pool, runs), load=load)

    def fill(self, units: Units, pool: Pool) -> tuple[Runs, Placed]:
        """Do the first step of `solve` for members that have nothing; the rows stay as they are."""
        nothing = np.zeros(len(self.capacity), dtype=np.int64)
        level = self.bound.level(self.tolerance)
        runs, load = self._place_pool(pool, nothing, level, units)
        return runs, Placed(units, load, self.capacity, self.active)

    def _place_pool(self, pool: Pool, load: Longs, level: int, units: Units) -> tuple[Runs, Longs]:
        """Choose active members for a pool; return what all have afterwards as well.

        Parameters
        ----------
        units
            Who has what.
        """
        own = np.flatnonzero(self.active)
        pool, idle = pool.without_idle()
        runs, after = place_pool(pool, load[own], self.capacity[own], level)
        if idle:
            of = "prev" if units.fresh else "owner"
            held = units.sum_loads(len(load), "int(weight = 0)", of)
            runs = place_idle(runs, idle, held[own], self.capacity[own])
        load = load.copy()
        load[own] = after
        return replace(runs, member=own[runs.member]), load

    def _repair(self, placed: Placed, level: int) -> Placed:
        """Do what `solve._repair` does."""
        best = placed
        room = room_under(level, self.capacity)
        excess = int(np.maximum(placed.load - room, 0).sum())
        for _ in range(REPAIRS):
            if best.level <= level:
                break
            light = find_light(room, placed.load, self.active)
            placed = self._place(self._shed(placed, level, light), level)
            left = int(np.maximum(placed.load - room, 0).sum())
            if placed.level < best.level:
                best = placed
            if left >= excess:
                break
            excess = left
        return best
