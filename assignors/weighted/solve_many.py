"""Solve many small problems side by side: keep, shed, place and repair, as `solve` does for one.

Each is a group whose members may have everything, and a few of whose units have no owner. Members
and units of all groups lie end to end, each with its group. What is worked out for one member
never looks at another group, and what is for a group is done by rows. So each group gets what it
gets alone; a group in which more is to be done than this gets no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assignors.arrays import Bools, Longs, sum_by
from assignors.weighted.exchange import improve_by_exchange
from assignors.weighted.fill import ROUNDS
from assignors.weighted.fill_many import fill_many
from assignors.weighted.levels import levels_of, room_under
from assignors.weighted.place import are_few
from assignors.weighted.placement import Placement
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.shed import choose_surplus
from assignors.weighted.solve import REPAIRS, UNLIMITED

_NO_ROOM = -(2**62)


@dataclass(slots=True, eq=False)
class ManyProblems:
    """Groups end to end.

    Attributes
    ----------
    members, units
        int64 (groups + 1,): where those of each group begin.
    capacity
        int64 (members,).
    weight
        int64 (units,), above 0.
    owner
        int64 (units,): a member of all, or −1.
    goal
        int64 (groups,): the level to be reached.
    """

    members: Longs
    units: Longs
    capacity: Longs
    weight: Longs
    owner: Longs
    goal: Longs
    group_of_member: Longs = field(init=False)
    group_of_unit: Longs = field(init=False)
    room: Longs = field(init=False)
    load: Longs = field(init=False)
    left_out: Bools = field(init=False)

    def __post_init__(self) -> None:
        """Find what follows."""
        groups = np.arange(len(self.goal))
        self.group_of_member = np.repeat(groups, np.diff(self.members))
        self.group_of_unit = np.repeat(groups, np.diff(self.units))
        self.room = room_under(self.goal[self.group_of_member], self.capacity)
        held = self.owner >= 0
        self.load = sum_by(self.owner[held], self.weight[held], len(self.capacity))
        self.left_out = np.zeros(len(groups), dtype=np.bool_)

    def level(self) -> Longs:
        """Return the greatest level of each group."""
        levels = levels_of(self.load, self.capacity)
        return np.asarray(np.maximum.reduceat(levels, self.members[:-1]))

    def excess(self) -> Longs:
        """Return by how much members of each group are above their rooms, in all."""
        above = np.maximum(self.load - self.room, 0)
        return np.asarray(np.add.reduceat(above, self.members[:-1]))

    def take(self, unit: Longs) -> None:
        """Take units from their owners."""
        self.load -= sum_by(self.owner[unit], self.weight[unit], len(self.load))
        self.owner[unit] = -1

    def put(self, unit: Longs, member: Longs) -> None:
        """Give units to members."""
        self.owner[unit] = member
        self.load += sum_by(member, self.weight[unit], len(self.load))

    def rows(self, values: Longs, fill: int) -> Longs:
        """Return values of members as a row for each group, with `fill` behind them."""
        size = np.diff(self.members)
        out = np.full((len(size), int(size.max())), fill)
        out[np.arange(out.shape[1]) < size[:, None]] = values
        return out


def solve_many(many: ManyProblems) -> tuple[Longs, Bools]:
    """Give every unit an owner, at the level of the goal.

    Returns
    -------
    owner, met
        int64 (units,); bool (groups,): whether the goal is met, as `solve` would meet it at once.
        Others are to be solved alone.
    """
    _shed(many, np.flatnonzero(many.owner >= 0))
    _place(many)
    best, level = _repair(many)
    for at in np.flatnonzero((level > many.goal) & ~many.left_out).tolist():
        own = slice(int(many.units[at]), int(many.units[at + 1]))
        best[own], level[at] = _exchange(many, at, best[own])
    return best, (level <= many.goal) & ~many.left_out


def _shed(many: ManyProblems, unit: Longs) -> None:
    """Take from members what exceeds their rooms, as `solve` does."""
    over = many.load > many.room
    unit = unit[over[many.owner[unit]]]
    largest = np.maximum.reduceat(many.capacity, many.members[:-1])
    roomy = room_under(many.goal, largest)[many.group_of_unit[unit]]
    weight = many.weight[unit]
    misfit = (weight > many.room[many.owner[unit]]) & (weight <= roomy)
    if misfit.any():
        many.take(unit[misfit])
        unit = unit[~misfit]
    weight = many.weight
    many.take(choose_surplus(unit, many.owner, weight, weight, many.load, many.room))


def _place(many: ManyProblems) -> None:
    """Give units without an owner to members with room, as `place_few` does."""
    pool = np.flatnonzero(many.owner < 0)
    if not len(pool):
        return
    group = many.group_of_unit[pool]
    order = np.lexsort((pool, -many.weight[pool], group))
    pool, group = pool[order], group[order]
    groups = len(many.goal)
    count = np.bincount(group, minlength=groups)
    amount, held = (
        sum_by(group, many.weight[pool], groups),
        np.add.reduceat(many.load, many.members[:-1]),
    )
    size = np.diff(many.members)
    many.left_out |= (count > 0) & ~are_few(count, amount, size, held)
    least = np.minimum.reduceat(many.room, many.members[:-1])
    heavy = many.weight[pool] > (least >> 1)[group]
    heavies = np.bincount(group[heavy], minlength=groups)
    row = np.flatnonzero((heavies > 0) & ~many.left_out)
    if len(row):
        _fill_heavy(many, row, pool[heavy & ~many.left_out[group]], heavies[row])
    light = ~heavy | many.left_out[group]
    rest = pool[light]
    many.put(rest, _match_rooms(many, rest))


def _fill_heavy(many: ManyProblems, group: Longs, unit: Longs, count: Longs) -> None:
    """Give units to the members that they lift least, so many in each of some groups."""
    own = np.arange(int(count.max())) < count[:, None]
    weight = np.zeros(own.shape, dtype=np.int64)
    weight[own] = many.weight[unit]
    capacity, load = many.rows(many.capacity, 1)[group], many.rows(many.load, 0)[group]
    chosen, _ = fill_many(weight, count, capacity, np.diff(many.members)[group], load)
    many.put(unit, np.repeat(many.members[group], count) + chosen[own])


def _match_rooms(many: ManyProblems, unit: Longs) -> Longs:
    """Choose a member for each unit, given by group and the heaviest first, as `match_rooms`."""
    out = np.empty(len(unit), dtype=np.int64)
    room = many.rows(many.room - many.load, _NO_ROOM)
    group = many.group_of_unit[unit]
    ends = np.cumsum(np.bincount(group, minlength=len(many.goal)))
    at = np.append(0, ends[:-1])
    most = np.maximum(np.diff(many.members) // ROUNDS, 1)
    row = np.flatnonzero(at < ends)
    while len(row):
        step = np.minimum(ends[row] - at[row], most[row])
        wide = int(step.max())
        order = np.argsort(-room[row], axis=1, kind="stable")[:, :wide]
        real = np.arange(wide) < step[:, None]
        place = (at[row][:, None] + np.arange(wide))[real]
        chosen = order[real]
        whose = np.repeat(row, step)
        out[place] = many.members[whose] + chosen
        room[whose, chosen] -= many.weight[unit[place]]
        at[row] += step
        row = row[at[row] < ends[row]]
    return out


def _repair(many: ManyProblems) -> tuple[Longs, Longs]:
    """Exchange what exceeds rooms for lighter units; return the best owners, and their levels."""
    best, level = many.owner.copy(), many.level()
    excess = many.excess()
    active = ~many.left_out
    for _ in range(REPAIRS):
        active &= (level > many.goal) & ~many.left_out
        if not active.any():
            break
        light = _find_light(many)
        over = many.load > many.room
        unit = np.flatnonzero(active[many.group_of_unit] & over[many.owner])
        group = many.group_of_unit[unit]
        lighter = many.weight[unit] <= light[group]
        some = np.bincount(group[lighter], minlength=len(active)) > 0
        _shed(many, unit[lighter | ~some[group]])
        _place(many)
        after, left = many.level(), many.excess()
        better = active & (after < level)
        level[better] = after[better]
        rows = better[many.group_of_unit]
        best[rows] = many.owner[rows]
        active &= left < excess
        excess = left
    return best, level


def _find_light(many: ManyProblems) -> Longs:
    """Return what `find_light` returns, of each group."""
    rooms = many.room - many.load
    rows = many.rows(np.where(rooms > 0, rooms, UNLIMITED), UNLIMITED)
    rows.sort(axis=1)
    count = np.add.reduceat((rooms > 0).astype(np.int64), many.members[:-1])
    found = rows[np.arange(len(rows)), np.minimum(count * 9 // 10, rows.shape[1] - 1)]
    return np.where(count > 0, found, UNLIMITED)


def _exchange(many: ManyProblems, at: int, owner: Longs) -> tuple[Longs, int]:
    """Move and swap single units of one group; return its owners, and its level."""
    own = slice(int(many.members[at]), int(many.members[at + 1]))
    weight = many.weight[many.units[at] : many.units[at + 1]]
    capacity, none = many.capacity[own], np.zeros(len(weight), dtype=np.int64)
    some = np.zeros(len(capacity), dtype=np.int64)
    problem = WeightedProblem(
        place=none, unit=None, weight=weight, cost=weight, count=none + 1, owner=owner,
        type=none, apart=none - 1, capacity=capacity, cell=some, most=some,
        allowed=np.ones((1, 1), dtype=np.bool_), distant=np.zeros((1, 1), dtype=np.bool_),
        limited=False,
    )  # fmt: skip
    placed = Placement.of(problem, owner - own.start)
    before = int(levels_of(placed.load, capacity).max())
    improve_by_exchange(problem, placed, int(many.goal[at]))
    after = int(levels_of(placed.load, capacity).max())
    return (placed.owner + own.start, after) if after < before else (owner, before)
