"""Give weights to members so that the greatest level stays low: heaviest first, in bulk.

What is done one by one in words (the heaviest next, to whom it lifts least) is done here in
chunks: weights that are nearly alike go to the lowest slots at once, and weights that are light
against what is left are laid along the line of members' rooms. Each chunk starts from the loads as
they are, so lighter ones level what heavier ones left uneven.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from assignors.arrays import Longs, offsets_of
from assignors.weighted.levels import (
    BITS,
    find_water_level,
    levels_of,
    room_under,
    room_up_to,
)

Number = TypeVar("Number", int, Longs)
_ALIKE_SHIFT = 4  # weights of a chunk of slots differ by 1/16 at the most
ROUNDS = 16
LIGHT = 4  # light: the least member's share of what is left is so many times the weight


def fill_members(weight: Longs, load: Longs, capacity: Longs, left: Longs | None = None) -> Longs:
    """Choose a member for each weight.

    Parameters
    ----------
    weight
        int64 (units,), descending, above 0.
    load, capacity
        int64 (members,): what they have, and may be compared by.
    left
        int64 (members,): how many more units each may have, in all enough; None for any number.

    Returns
    -------
    int64 (units,)
        Index of each unit's member.
    """
    out = np.empty(len(weight), dtype=np.int64)
    if len(capacity) == 1:
        out[:] = 0
        return out
    load, before, lighter = load.copy(), offsets_of(weight), -weight
    left = None if left is None else left.copy()
    shares = count_shares(capacity)
    at, rest = 0, int(before[-1])
    while at < len(weight):
        heaviest = int(weight[at])
        if left is None and is_light(heaviest, rest, shares):
            end = int(np.searchsorted(before, before[at] + rest // 2, side="right")) - 1
            end = max(end, at + 1)
            chosen = _lay_on_line(weight[at:end], load, capacity)
        else:
            end = int(lighter.searchsorted(-find_lightest(heaviest), side="right"))
            chosen = np.repeat(*take_slots(end - at, heaviest, load, capacity, left))
            if left is not None:
                left -= np.bincount(chosen, minlength=len(load))
        out[at:end] = chosen
        load += np.bincount(chosen, weights=weight[at:end], minlength=len(load)).astype(np.int64)
        at, rest = end, int(before[-1] - before[end])
    return out


def count_shares(capacity: Longs) -> int:
    """Return how many times the smallest member is in all of them."""
    return int(capacity.sum()) // int(capacity.min()) + 1


def is_light(heaviest: int, rest: int, shares: int) -> bool:
    """Tell whether a weight is light against what is left for each member."""
    return rest >= LIGHT * heaviest * shares


def find_lightest(heaviest: Number) -> Number:
    """Return the lightest weight that is given slots of the heaviest one."""
    return heaviest - (heaviest >> _ALIKE_SHIFT)


def match_rooms(weight: Longs, room: Longs, left: Longs | None = None) -> Longs:
    """Choose a member for each of a few weights, so that rooms are exceeded by little.

    In rounds the heaviest weights go to the largest rooms, one each: matching two sorted rows is
    what exceeds least in all.

    Parameters
    ----------
    weight
        int64 (units,), descending.
    room
        int64 (members,): what each may take; below 0 when it has too much.
    left
        As in `fill_members`.
    """
    out = np.empty(len(weight), dtype=np.int64)
    room, at = room.copy(), 0
    left = None if left is None else left.copy()
    while at < len(weight):
        open_ = np.arange(len(room)) if left is None else np.flatnonzero(left > 0)
        step = min(len(weight) - at, max(len(open_) // ROUNDS, 1))
        chosen = open_[np.argsort(-room[open_], kind="stable")[:step]]
        out[at : at + step] = chosen
        room[chosen] -= weight[at : at + step]
        if left is not None:
            left[chosen] -= 1
        at += step
    return out


def _lay_on_line(weight: Longs, load: Longs, capacity: Longs) -> Longs:
    """Lay weights end to end along the rooms up to the water level; their middles decide."""
    before = offsets_of(weight)
    ends, last = find_room_ends(load, capacity, int(before[-1]))
    found = np.searchsorted(ends, before[:-1] + (weight >> 1), side="right")
    return np.asarray(np.minimum(found, last))


def find_room_ends(load: Longs, capacity: Longs, amount: int) -> tuple[Longs, int]:
    """Return where each member's room ends on a line of all, and the last member with room.

    Rooms are rounded up: what a million members lack by a fraction each, the last one would get.
    """
    level = find_water_level(load, capacity, amount)
    ends = np.cumsum(np.maximum(room_up_to(level, capacity) - load, 0))
    return ends, int(np.searchsorted(ends, ends[-1]))


def take_slots(
    count: int, size: int, load: Longs, capacity: Longs, left: Longs | None
) -> tuple[Longs, Longs]:
    """Choose the `count` slots of one size that end lowest.

    Returns
    -------
    member, slots
        Members, and how many slots of each, in the order in which they take units.
    """
    if left is None and count <= len(load):
        found = _take_one_each(count, size, load, capacity)
        if found is not None:
            return found

    def slots_under(level: int) -> Longs:
        slots = np.maximum(room_under(level, capacity) - load, 0) // size
        return np.asarray(slots if left is None else np.minimum(slots, left))

    low = int(levels_of(load, capacity).min())
    step = max((size << BITS) // int(capacity.max()), 1)
    high = low + step
    while int((slots := slots_under(high)).sum()) < count:
        low, step = high, step * 2
        high = low + step
    fine = max((size << BITS) // int(capacity.max()) >> 6, 1)
    while high - low > fine and int(slots.sum()) > count:
        middle = (low + high) // 2
        fewer = slots_under(middle)
        if int(fewer.sum()) >= count:
            high, slots = middle, fewer
        else:
            low = middle
    surplus = int(slots.sum()) - count
    while surplus > 0:
        taken = np.flatnonzero(slots)
        order = np.argsort(-levels_of((load + slots * size)[taken], capacity[taken]), kind="stable")
        slots[taken[order[:surplus]]] -= 1
        surplus = int(slots.sum()) - count
    order = np.argsort(levels_of(load, capacity), kind="stable")
    return order, slots[order]


def _take_one_each(
    count: int, size: int, load: Longs, capacity: Longs
) -> tuple[Longs, Longs] | None:
    """Choose the lowest slots if no member takes two of them; None if one does."""
    ends = levels_of(load + size, capacity)
    member = ends.argsort(kind="stable")[:count]
    if (
        count > 1
        and (levels_of(load[member] + 2 * size, capacity[member]) < ends[member[-1]]).any()
    ):
        return None
    return member, np.ones(count, dtype=np.int64)
