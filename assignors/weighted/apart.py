"""Place units that must be apart: at most one of each label on a member.

Small labels on few members are matched exactly, one label after the other. Where that would be
many pairs, a label that most members have one of is laid along them, and units of other labels go
where others go, and change places where two of one label meet (`settle`).
"""

from __future__ import annotations

import numpy as np

from assignors import solvers
from assignors.arrays import Longs, offsets_of, sum_by
from assignors.errors import SpecError
from assignors.weighted.levels import levels_of, room_under
from assignors.weighted.placement import Placement, sort_heaviest
from assignors.weighted.problem import WeightedProblem
from assignors.weighted.settle import settle_units

_FORBIDDEN = 2.0**80
_PAIRS, _STEPS = 2**22, 2**27
"""Most pairs of units and members that are matched exactly, and most steps that it may take."""
_WIDE = 8  # a wide label has a unit for one member in eight


def place_apart(problem: WeightedProblem, placed: Placement, pool: Longs, level: int) -> Longs:
    """Give units that must be apart to members, heaviest label first; return those to come later.

    Parameters
    ----------
    pool
        int64: units with a label and without owner, ascending.

    Returns
    -------
    int64
        Units to place with those without a label, and then to settle.

    Raises
    ------
    SpecError
        There are fewer members than units of a label.
    """
    label = problem.apart[pool]
    names, inverse = np.unique(label, return_inverse=True)
    total = sum_by(inverse, problem.weight[pool], len(names))
    everyone = np.flatnonzero(problem.apart >= 0)
    everyone = everyone[np.argsort(problem.apart[everyone], kind="stable")]
    edges = np.searchsorted(problem.apart[everyone], np.stack([names, names + 1]))
    own = pool[np.argsort(inverse, kind="stable")]
    start = offsets_of(np.bincount(inverse, minlength=len(names)))
    members = int(np.count_nonzero(problem.cell >= 0))
    turn = np.argsort(-total, kind="stable")
    later = np.zeros(len(pool), dtype=np.bool_)
    bulk = len(pool) * members > _PAIRS or _count_steps(np.diff(start), members) > _STEPS
    if bulk:
        wide = np.diff(start) * _WIDE > members
        if problem.limited:
            joined = sum_by(inverse, problem.count[pool], len(names)) > np.diff(start)
            wide |= joined
        turn = turn[wide[turn]]
        later = ~wide[inverse]
    for at in turn.tolist():
        mine, all_ = own[start[at] : start[at + 1]], everyone[edges[0, at] : edges[1, at]]
        if bulk and _count_steps(len(mine), members) > _STEPS // len(turn):
            _lay_label(problem, placed, mine, all_, level)
        else:
            _place_label(problem, placed, mine, all_)
    return pool[later]


def _count_steps(units: Longs | int, members: int) -> int:
    """Return about how many steps it takes to match labels of some numbers of units."""
    return int(np.sum(np.square(units)) * members)


def _place_label(problem: WeightedProblem, placed: Placement, unit: Longs, everyone: Longs) -> None:
    """Place units of one label; if that is impossible, place all its units again."""
    if not _match_label(problem, placed, unit, everyone):
        placed.take(problem, everyone[placed.owner[everyone] >= 0])
        if not _match_label(problem, placed, everyone, everyone):
            _refuse(len(everyone))


def _refuse(units: int) -> None:
    raise SpecError(
        f"{units} partitions must be apart by anti_affinity, but "
        "too few members may own them: drop the constraint, or add members"
    )


def _match_label(problem: WeightedProblem, placed: Placement, unit: Longs, everyone: Longs) -> bool:
    """Match units of one label with members that have none of it; False where that cannot be."""
    member = _find_free(problem, placed, everyone)
    if len(unit) > len(member):
        return False
    lifted = (placed.load[member] + problem.weight[unit][:, None]) / problem.capacity[member]
    open_ = problem.admits(unit[:, None], member)
    if problem.limited:
        used = placed.used[member] + problem.count[unit][:, None]
        open_ = open_ & (used <= problem.most[member])
    rows, columns = solvers.linear_sum_assignment(np.where(open_, lifted, _FORBIDDEN))
    if not open_[rows, columns].all():
        return False
    placed.put(problem, unit[rows], member[columns])
    return True


def _find_free(problem: WeightedProblem, placed: Placement, everyone: Longs) -> Longs:
    """Return members that may have something, and have no unit of a label."""
    free = problem.cell >= 0
    holders = placed.owner[everyone]
    free[holders[holders >= 0]] = False
    return np.flatnonzero(free)


def _lay_label(
    problem: WeightedProblem, placed: Placement, unit: Longs, everyone: Longs, level: int
) -> None:
    """Give units of a wide label to the members that are lowest with one: heavy ones where room is.

    Matching two sorted rows is what exceeds rooms least in all.
    """
    unit = sort_heaviest(problem.weight, _send_home(problem, placed, unit, everyone))
    if not len(unit):
        return
    member = _find_free(problem, placed, everyone)
    if problem.limited:
        most = int(problem.count[unit].max())
        member = member[placed.used[member] + most <= problem.most[member]]
    mean = int(problem.weight[unit].sum()) // len(unit)
    ends = levels_of(placed.load[member] + mean, problem.capacity[member])
    member = member[np.argsort(ends, kind="stable")[: len(unit)]]
    room = room_under(level, problem.capacity[member]) - placed.load[member]
    member = member[np.argsort(-room, kind="stable")]
    first, rest = unit[: len(member)], unit[len(member) :]
    placed.put(problem, first, member)
    wrong = not problem.admits(first, member).all()  # none of the label was on these members
    left = settle_units(problem, placed, first, first[:0]) if wrong else first[:0]
    for one in np.concatenate([left, rest]).tolist():
        place_one_apart(problem, placed, one)


def _send_home(problem: WeightedProblem, placed: Placement, unit: Longs, everyone: Longs) -> Longs:
    """Put units that only one member may have there, where none of the label is; return the others.

    With rules on numbers it takes a chain to see whether there is room.
    """
    if problem.home is None or problem.limited:
        return unit
    free = np.zeros(problem.member_count, dtype=np.bool_)
    free[_find_free(problem, placed, everyone)] = True
    home = problem.home[unit]
    sure = np.flatnonzero((home >= 0) & free[home])
    _, first = np.unique(home[sure], return_index=True)
    sure = sure[first]
    placed.put(problem, unit[sure], home[sure])
    return np.delete(unit, sure)


def place_one_apart(problem: WeightedProblem, placed: Placement, unit: int) -> None:
    """Give one unit to a member without its label; others of the label make way, in a chain.

    The shortest chain is found by breadth first. Without any, no assignment of the label is
    possible where the other units are.

    Raises
    ------
    SpecError
        No chain exists.
    """
    members = np.arange(problem.member_count)
    everyone = np.flatnonzero((problem.apart == problem.apart[unit]) & (placed.owner >= 0))
    holder = np.full(problem.member_count, -1, dtype=np.int64)
    holder[placed.owner[everyone]] = everyone
    leaves = np.where(holder >= 0, problem.count[holder], 0)
    came = np.full(problem.member_count, -1, dtype=np.int64)
    queue = [unit]
    for moving in queue:
        open_ = problem.admits(np.array([moving]), members) & (came < 0)
        if problem.limited:
            open_ &= placed.used - leaves + problem.count[moving] <= problem.most
        came[open_] = moving
        free = np.flatnonzero(open_ & (holder < 0))
        if len(free):
            lifted = levels_of(placed.load[free] + problem.weight[moving], problem.capacity[free])
            _make_way(problem, placed, came, int(free[np.argmin(lifted)]))
            return
        queue += holder[open_].tolist()
    _refuse(int((problem.apart == problem.apart[unit]).sum()))


def _make_way(problem: WeightedProblem, placed: Placement, came: Longs, member: int) -> None:
    """Carry out a chain, from its end."""
    while member >= 0:
        moving = came[[member]]
        source = int(placed.owner[moving[0]])
        if source >= 0:
            placed.take(problem, moving)
        placed.put(problem, moving, np.array([member]))
        member = source
