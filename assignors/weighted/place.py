"""Put units on members: those that must be apart first, then cell by cell."""

from __future__ import annotations

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of, sum_by
from assignors.errors import SpecError
from assignors.network_flow import ArcBlocks
from assignors.weighted.apart import place_apart, place_one_apart
from assignors.weighted.fill import fill_members, match_rooms
from assignors.weighted.idle import count_idle, find_idle
from assignors.weighted.levels import levels_of, room_under
from assignors.weighted.placement import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.settle import settle_units

_FLOW_BITS = 28
_NEW, _DISTANT, _OVER = 1, 16, 4096
"""Costs of weight in a flow: new to the cell; far from its replicas; above the level."""
NO_ROOM = "max_partitions leaves no room for all partitions: raise it, or add a member"
_FEW, _LITTLE = 4, 8  # units a member; share of the load


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
    if problem.named is not None:
        pool = _send_home(problem, placed, pool)
    idle = find_idle(problem, pool)
    if idle.any():
        place_units(problem, placed, pool[~idle], level)
        _place_idle(problem, placed, pool[idle])
        return
    apart = problem.apart[pool] >= 0
    later = pool[:0]
    if apart.any():
        later = place_apart(problem, placed, pool[apart], level)
        some = problem.weight[later] > 0
        pool, later = np.sort(np.concatenate([pool[~apart], later[some]])), later[~some]
    if problem.limited:
        joined = problem.count[pool] > 1
        for unit in sort_heaviest(problem.weight, pool[joined]):
            _place_one(problem, placed, int(unit))
        pool = pool[~joined]
    pool = sort_heaviest(problem.weight, pool)
    if len(pool):
        cell = split_pool(problem, placed, pool, level)
        rest = _fill_cells(problem, placed, pool, cell, level)
        _settle(problem, placed, pool[placed.owner[pool] >= 0])
        for unit in rest:
            _place_one(problem, placed, int(unit))
    if len(later):
        _place_idle(problem, placed, later)


def _send_home(problem: WeightedProblem, placed: Placement, pool: Longs) -> Longs:
    """Put units that only one member may have there; return the others, and what makes room."""
    assert problem.named is not None
    home = problem.named.home[pool]
    sure = (home >= 0) & (problem.apart[pool] < 0)
    placed.put(problem, pool[sure], home[sure])
    pool = pool[~sure]
    if not problem.limited or not (placed.used > problem.most).any():
        return pool
    excess = placed.used - problem.most
    held = np.flatnonzero((placed.owner >= 0) & (problem.named.home < 0))
    held = held[excess[placed.owner[held]] > 0]
    whose = placed.owner[held]
    order = np.lexsort((problem.weight[held], whose))
    held, whose = held[order], whose[order]
    before = offsets_of(problem.count[held])[:-1]
    before -= before[np.searchsorted(whose, whose)]
    gone = held[before < excess[whose]]
    placed.take(problem, gone)
    if (placed.used > problem.most).any():
        raise SpecError(NO_ROOM)
    return np.sort(np.concatenate([pool, gone]))


def _settle(problem: WeightedProblem, placed: Placement, unit: Longs) -> None:
    """Exchange what is where lists and labels forbid it, and place what is left by itself."""
    marked = problem.apart[unit] >= 0
    if problem.named is not None:
        marked |= problem.named.mark[unit] >= 0
    if not marked.any():
        return
    left = settle_units(problem, placed, unit[marked], unit[~marked])
    apart = problem.apart[left] >= 0
    for one in left[apart].tolist():
        place_one_apart(problem, placed, one)
    left = left[~apart]
    if problem.limited or problem.named is None:
        for one in left.tolist():
            _place_one(problem, placed, one)
        return
    kind = _kinds_of(problem, left)
    for type_, mark in np.unique(kind, axis=1).T.tolist():
        alike = left[(kind[0] == type_) & (kind[1] == mark)]
        own = np.flatnonzero(problem.admits(alike[:1], np.arange(problem.member_count)))
        chosen = fill_members(problem.weight[alike], placed.load[own], problem.capacity[own])
        placed.put(problem, alike, own[chosen])


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


def are_few(units: Longs, weight: Longs, members: Longs, held: Longs) -> Bools:
    """Tell the same of many groups, from how many members they have, and how much in all."""
    return np.asarray((units <= _FEW * members) & (weight * _LITTLE <= held))


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
    open_ = problem.admits(np.array([unit]), np.arange(problem.member_count))
    if problem.limited:
        open_ &= placed.used + problem.count[unit] <= problem.most
    able = np.flatnonzero(open_)
    if not len(able):
        member = _make_room(problem, placed, unit)
        if member is None:
            raise SpecError(NO_ROOM)
        able = np.array([member])
    lifted = levels_of(placed.load[able] + problem.weight[unit], problem.capacity[able])
    placed.put(problem, np.array([unit]), able[[int(np.argmin(lifted))]])


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
        fits = problem.admits(np.array([moving]), np.arange(problem.member_count))
        for member in np.flatnonzero(fits).tolist():
            if member in came or member == source:
                continue
            came[member] = (moving, source)
            if placed.used[member] < problem.most[member]:
                return _move_chain(problem, placed, came, member)
            held = np.flatnonzero((placed.owner == member) & light)
            _, first = np.unique(_kinds_of(problem, held), axis=1, return_index=True)
            queue += [(int(held[at]), member) for at in first]
    return None


def _kinds_of(problem: WeightedProblem, unit: Longs) -> Longs:
    """Return what tells units apart that different members may have, (2, units)."""
    mark = unit * 0 if problem.named is None else problem.named.mark[unit]
    return np.stack([problem.type[unit], mark])


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
