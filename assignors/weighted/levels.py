"""Levels: loads divided by capacity, as integers.

A level is (load · 2²⁰) / capacity. With weights that add up to less than 2⁴² and capacities of at
most 2²⁰, every product fits int64.
"""

from __future__ import annotations

import numpy as np

from assignors.arrays import Longs, offsets_of

BITS = 20
SMALL = 1024
"""Most units of a small group: its weights stay as they are, and all pairs of units are tried."""
_TOP = np.int64(2**62)
GRID_BITS = 11
"""Significant bits of weights on the grid."""
IDLE_BITS = 11
"""A partition that weighs nothing counts for 2¹¹ among its like: so levels tell one from two."""


def room_under(level: int | Longs, capacity: Longs) -> Longs:
    """Return the load that each member may have at a level, (members,) or (groups, members).

    Parameters
    ----------
    level
        Of all members; or int64 (groups, 1).
    """
    return np.asarray(_scale_up(level, capacity) >> BITS)


def room_up_to(level: int | Longs, capacity: Longs) -> Longs:
    """Return the load that each member has at a level, rounded up; else as `room_under`."""
    return np.asarray(-(-_scale_up(level, capacity) >> BITS))


def _scale_up(level: int | Longs, capacity: Longs) -> Longs:
    """Return levels times capacities, cut to what an int64 holds."""
    level = min(level, int(_TOP)) if isinstance(level, int) else level
    return np.asarray(np.minimum(level, _TOP // capacity) * capacity)


def levels_of(load: Longs, capacity: Longs) -> Longs:
    """Return the level of each member, rounded up, (members,)."""
    return -((-load << BITS) // capacity)


def find_water_level(load: Longs, capacity: Longs, amount: int) -> int:
    """Return the level to which members rise when `amount` is poured on them, rounded up."""
    level = levels_of(load, capacity)
    order = np.argsort(level, kind="stable")
    wet, wide = np.cumsum(load[order]), np.cumsum(capacity[order])
    filled = -((-(wet + amount) << BITS) // wide)
    covers = filled <= np.append(level[order][1:], np.iinfo(np.int64).max)
    return int(filled[np.argmax(covers)])


def find_heights(whose: Longs, weight: Longs, load: Longs, capacity: Longs) -> Longs:
    """Return the level at which a member is before each of its moves.

    Parameters
    ----------
    whose, weight
        int64 (moves,): previous owner, ascending, and weight, a member's heaviest first.
    load, capacity
        int64 (members,): before any move.
    """
    run = offsets_of(weight)[:-1]
    given = run - run[np.searchsorted(whose, whose)]
    return levels_of(load[whose] - given, capacity[whose])


def raise_to_floor(weight: Longs, floor: int | Longs) -> Longs:
    """Return what weights count for in a plan: a floor at least, where they are anything."""
    return np.where(weight > 0, np.maximum(weight, floor), 0)


def round_to_grid(weight: Longs) -> Longs:
    """Round weights to 11 significant bits: to 1 in 2,048 at most, and a few different ones."""
    shift = np.maximum(np.frexp(weight.astype(np.float64))[1] - GRID_BITS, 0).astype(np.int64)
    return np.asarray((weight + ((np.int64(1) << shift) >> 1)) >> shift << shift)
