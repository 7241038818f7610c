"""Put units on members: those that must be apart first, then cell by cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from assignors.arrays import Longs, sum_by
from assignors.errors import SpecError
from assignors.network_flow import ArcBlocks
from assignors.weighted.fill import fill_members, match_rooms
from assignors.weighted.idle import count_idle, find_idle
from assignors.weighted.levels import levels_of, room_under
from assignors.weighted.problem import WeightedProblem

_FLOW_BITS = 28
_NEW, _DISTANT, _OVER = 1, 16, 4096
"""Costs of weight in a flow: new to the cell; far from its replicas; above the level."""
_FORBIDDEN = 2.0**80
_FEW, _LITTLE = 4, 8  # units a member; share of the load


@dataclass(slots=True)
class Placement:
    """Who has which unit, while it is being worked out.

    Attributes
    ----------
    owner
        int64 (units,): −1 for nobody yet.
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


def place_units(problem: WeightedProblem, placed: Placement, pool: Longs, level: int) -> None:
    """Give the units of the pool to members, as low as can be.

    Parameters
    ----------
    pool
        int64: units without owner, ascending.
    level
        Which cells may be filled up to, where it matters who gets what.

    Raises
    ------
    SpecError
        Rules leave a unit no member.
    """
    idle = find_idle(problem, pool)
    if idle.any():
        place_units(problem, placed, pool[~idle], level)
        _place_idle(problem, placed, pool[idle])
        return
    apart = problem.apart[pool] >= 0
    if apart.any():
        _place_apart(problem, placed, pool[apart])
        pool = pool[~apart]
    if problem.limited:
        joined = problem.count[pool] > 1
        for unit in sort_heaviest(problem.weight, pool[joined]):
            _place_one(problem, placed, int(unit))
        pool = pool[~joined]
    pool = sort_heaviest(problem.weight, pool)
    while len(pool):
        cell = split_pool(problem, placed, pool, level)
        pool = _fill_cells(problem, placed, pool, cell, level)
        for unit in pool:
            _place_one(problem, placed, int(unit))
        pool = pool[:0]


def _place_idle(problem: WeightedProblem, placed: Placement, pool: Longs) -> None:
    """Give units that weigh nothing to members that have the fewest of them, by capacity."""
    counted, level = count_idle(problem)
    place_units(counted, Placement.of(counted, placed.owner), pool, level)
    after = Placement.of(problem, placed.owner)
    placed.load, placed.used = after.load, after.used


def _fill_cells(
    problem: WeightedProblem, placed: Placement, pool: Longs, cell: Longs, level: int
) -> Longs:
    """Fill each cell with its units; return those that found no room by number."""
    rest = []
    cells = np.unique(cell)
    members = np.argsort(problem.cell, kind="stable")
    edges = np.searchsorted(problem.cell[members], np.arange(problem.allowed.shape[1] + 1))
    order = np.argsort(cell, kind="stable") if len(cells) > 1 else np.arange(len(pool))
    ends = np.searchsorted(cell[order], cells, side="right")
    begin = 0
    for one, end in zip(cells.tolist(), ends.tolist(), strict=True):
        mine, own = pool[order[begin:end]], members[edges[one] : edges[one + 1]]
        begin, left = end, None
        if problem.limited:
            left = np.maximum(problem.most[own] - placed.used[own], 0)
            fits = int(left.sum())
            rest.append(mine[fits:])
            own, left, mine = own[left > 0], left[left > 0], mine[:fits]
        if len(mine):
            _fill_cell(problem, placed, mine, own, left, level)
    return np.concatenate(rest) if rest else pool[:0]


def _fill_cell(
    problem: WeightedProblem,
    placed: Placement,
    mine: Longs,
    own: Longs,
    left: Longs | None,
    level: int,
) -> None:
    """Give units, heaviest first, to members of one cell.

    Few units, against what is there, go where there is room under the level, so that few others
    have to leave; but those that are heavy for the smallest member go where they lift least.
    """
    load, capacity, weight = placed.load[own], problem.capacity[own], problem.weight[mine]
    if is_few(len(mine), int(weight.sum()), load):
        chosen = place_few(weight, load, capacity, left, level)
    else:
        chosen = fill_members(weight, load, capacity, left)
    placed.put(problem, mine, own[chosen])


def is_few(units: int, weight: int, load: Longs) -> bool:
    """Tell whether units are few and light, against what members have."""
    return units <= _FEW * len(load) and weight * _LITTLE <= int(load.sum())


def place_few(weight: Longs, load: Longs, capacity: Longs, left: Longs | None, level: int) -> Longs:
    """Choose a member for each of a few units, heaviest first, as `_fill_cell` says."""
    room = room_under(level, capacity)
    heavy = int(np.searchsorted(-weight, -(int(room.min()) >> 1)))
    chosen = fill_members(weight[:heavy], load, capacity, left)
    if heavy == len(weight):
        return chosen
    if left is not None:
        left = left - np.bincount(chosen, minlength=len(load))
    load = load + sum_by(chosen, weight[:heavy], len(load))
    rest = match_rooms(weight[heavy:], room - load, left)
    return np.concatenate([chosen, rest])


def _place_one(problem: WeightedProblem, placed: Placement, unit: int) -> None:
    """Give one unit to the member that it lifts least."""
    cell = problem.cell
    open_ = np.flatnonzero(
        (cell >= 0)
        & problem.allowed[problem.type[unit], cell]
        & (placed.used + problem.count[unit] <= problem.most if problem.limited else True)
    )
    if not len(open_):
        member = _make_room(problem, placed, unit)
        if member is None:
            raise SpecError(
                "max_partitions leaves no room for all partitions: raise it, or add a member"
            )
        open_ = np.array([member])
    lifted = levels_of(placed.load[open_] + problem.weight[unit], problem.capacity[open_])
    placed.put(problem, np.array([unit]), open_[[int(np.argmin(lifted))]])


def _make_room(problem: WeightedProblem, placed: Placement, unit: int) -> int | None:
    """Move units in a chain, each to the next one's member, until some member has room for `unit`.

    The shortest chain is found by breadth first; without any, the numbers that members may have
    leave no room. Only units of one partition that need not be apart are moved.

    Returns
    -------
    int or None
        The member that may now have the unit.
    """
    if problem.count[unit] != 1:
        return None
    labels = np.bincount(problem.apart + 1)
    light = (problem.count == 1) & ((problem.apart < 0) | (labels[problem.apart + 1] == 1))
    came: dict[int, tuple[int, int]] = {}  # member: the unit that would come, and its member
    queue = [(unit, -1)]
    for moving, source in queue:
        fits = (problem.cell >= 0) & problem.allowed[problem.type[moving], problem.cell]
        for member in np.flatnonzero(fits).tolist():
            if member in came or member == source:
                continue
            came[member] = (moving, source)
            if placed.used[member] < problem.most[member]:
                return _move_chain(problem, placed, came, member)
            held = np.flatnonzero((placed.owner == member) & light)
            _, first = np.unique(problem.type[held], return_index=True)
            queue += [(int(held[at]), member) for at in first]
    return None


def _move_chain(
    problem: WeightedProblem, placed: Placement, came: dict[int, tuple[int, int]], member: int
) -> int:
    """Carry out a chain, from its end; return the member of its beginning."""
    while came[member][1] >= 0:
        moving, source = came[member]
        one = np.array([moving])
        placed.take(problem, one)
        placed.put(problem, one, np.array([member]))
        member = source
    return member


def _place_apart(problem: WeightedProblem, placed: Placement, pool: Longs) -> None:
    """Give units that must be apart to members, one label after the other, heaviest label first."""
    label = problem.apart[pool]
    names, inverse = np.unique(label, return_inverse=True)
    total = sum_by(inverse, problem.weight[pool], len(names))
    for name in names[np.argsort(-total, kind="stable")]:
        if not _match_apart(problem, placed, pool[label == name], int(name)):
            everyone = np.flatnonzero(problem.apart == name)
            placed.take(problem, everyone[placed.owner[everyone] >= 0])
            if not _match_apart(problem, placed, everyone, int(name)):
                raise SpecError(
                    f"{len(everyone)} partitions must be apart by anti_affinity, and there are "
                    "too few members that may have them: drop the rule, or add members"
                )


def _match_apart(problem: WeightedProblem, placed: Placement, unit: Longs, label: int) -> bool:
    """Match units of one label with members that have none of it; False where that cannot be."""
    cell = problem.cell
    holders = placed.owner[(problem.apart == label) & (placed.owner >= 0)]
    free = cell >= 0
    free[holders] = False
    member = np.flatnonzero(free)
    if len(unit) > len(member):
        return False
    lifted = (placed.load[member] + problem.weight[unit][:, None]) / problem.capacity[member]
    open_ = problem.allowed[problem.type[unit]][:, cell[member]]
    if problem.limited:
        used = placed.used[member] + problem.count[unit][:, None]
        open_ = open_ & (used <= problem.most[member])
    rows, columns = linear_sum_assignment(np.where(open_, lifted, _FORBIDDEN))
    if not open_[rows, columns].all():
        return False
    placed.put(problem, unit[rows], member[columns])
    return True


def split_pool(problem: WeightedProblem, placed: Placement, pool: Longs, level: int) -> Longs:
    """Choose a cell for each unit, (units of the pool,), so that cells fill up to the level."""
    types, cells = problem.allowed.shape
    if cells == 1:
        return np.zeros(len(pool), dtype=np.int64)
    kept = weigh_cells(problem, placed)
    wanted = sum_by(problem.type[pool], problem.weight[pool], types)
    share = np.maximum(find_shares(problem, kept, wanted, level) - kept, 0)
    out = np.empty(len(pool), dtype=np.int64)
    type_ = problem.type[pool]
    order = np.argsort(type_, kind="stable")
    ends = np.searchsorted(type_[order], np.arange(types), side="right")
    begin = 0
    for one in np.flatnonzero(wanted > 0).tolist():
        rows = order[begin : ends[one]]
        begin = int(ends[one])
        open_ = np.flatnonzero((share[one] > 0) & problem.allowed[one])
        if not len(open_):
            open_ = np.flatnonzero(problem.allowed[one])
        size = np.maximum(share[one, open_], 1)
        size = np.maximum(size >> max(int(size.max()).bit_length() - 20, 0), 1)
        nothing = np.zeros(len(open_), dtype=np.int64)
        out[rows] = open_[fill_members(problem.weight[pool[rows]], nothing, size)]
    return out


def weigh_cells(problem: WeightedProblem, placed: Placement) -> Longs:
    """Add up what each cell has of each type, (types, cells)."""
    types, cells = problem.allowed.shape
    held = np.flatnonzero(placed.owner >= 0)
    key = problem.type[held] * cells + problem.cell[placed.owner[held]]
    return sum_by(key, problem.weight[held], types * cells).reshape(types, cells)


def find_shares(problem: WeightedProblem, kept: Longs, wanted: Longs, level: int) -> Longs:
    """Return how much of each type each cell is to have at a level, (types, cells): cheapest flow.

    Parameters
    ----------
    kept
        What each cell has now, which costs nothing but where it is distant.
    wanted
        What has no cell yet.
    """
    types, cells = problem.allowed.shape
    total = kept.sum(axis=1) + wanted
    unit = max(1, int(total.sum()) >> _FLOW_BITS)
    supply, held = -(-total // unit), kept // unit
    open_ = problem.cell >= 0
    rooms = sum_by(problem.cell[open_], room_under(level, problem.capacity)[open_] // unit, cells)
    pair_type, pair_cell = np.nonzero(problem.allowed)
    distant = problem.distant[pair_type, pair_cell]
    own = held[pair_type, pair_cell]
    node = types + np.arange(cells)
    source, sink, spill = types + 2 * cells, types + 2 * cells + 1, types + 2 * cells + 2
    arcs, amount = ArcBlocks(), int(supply.sum())
    arcs.add("supply", source, np.arange(types), supply)
    for far in (False, True):
        rows = np.flatnonzero(distant == far)
        cost = _DISTANT if far else 0
        arcs.add(f"kept {far}", pair_type[rows], node[pair_cell[rows]], own[rows], cost=cost)
        arcs.add(
            f"new {far}", pair_type[rows], cells + node[pair_cell[rows]], supply[pair_type[rows]],
            cost=cost + _NEW,
        )  # fmt: skip
    arcs.add("enter", node + cells, node, amount)
    arcs.add("room", node, sink, rooms)
    arcs.add("above", node, spill, amount, cost=_OVER)
    arcs.add("spill", np.array([spill]), sink, amount)
    flow = arcs.find_cheapest_flow(spill + 1, source, sink, amount)
    out = np.zeros((types, cells), dtype=np.int64)
    for far in (False, True):
        rows = np.flatnonzero(distant == far)
        out[pair_type[rows], pair_cell[rows]] += flow[f"kept {far}"] + flow[f"new {far}"]
    return out * unit
