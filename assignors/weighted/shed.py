"""Choose what members above a level give up: about the excess, heaviest first, each in bulk."""

from __future__ import annotations

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of

_KEY_BITS = 42
_TRIES = 2
_NEVER = np.iinfo(np.int64).max


def choose_surplus(
    unit: Longs, owner: Longs, weight: Longs, cost: Longs, load: Longs, room: Longs
) -> Longs:
    """Return units that members give up so that no load is above its room.

    Parameters
    ----------
    unit
        Units that may be given up.
    owner, weight, cost
        (units of the group,).
    load, room
        (members,).

    Returns
    -------
    int64
        The chosen units.

    Notes
    -----
    A member gives the heaviest unit that fits its excess, then as many next lighter ones as fit,
    and so on; then, for what is left, the lightest unit that covers it (`_cover_rest`).
    Where moves have costs of their own, the cheapest by weight go first instead.
    """
    excess = load - room
    over = np.flatnonzero(excess > 0)
    unit = unit[excess[owner[unit]] > 0]
    if not len(unit):
        return unit
    place = np.zeros(len(load), dtype=np.int64)
    place[over] = np.arange(len(over))
    whose = place[owner[unit]]
    if cost is weight:
        key = (whose << _KEY_BITS) | weight[unit]
        order = np.argsort(key, kind="stable")
        return unit[order][
            _choose_heaviest(key[order], whose[order], weight[unit[order]], excess[over])
        ]
    price = (cost[unit].astype(np.float64)) / weight[unit]
    order = np.lexsort((-weight[unit], price, whose))
    unit, whose = unit[order], whose[order]
    before = offsets_of(weight[unit])[:-1]
    start = np.searchsorted(whose, np.arange(len(over)))
    begun = before[np.minimum(start, len(unit) - 1)]
    return unit[before - begun[whose] < excess[over][whose]]


def _choose_heaviest(key: Longs, whose: Longs, weight: Longs, excess: Longs) -> Bools:
    """Choose rows, sorted by (member, weight), as the note of `choose_surplus` says."""
    members = np.arange(len(excess))
    start = np.searchsorted(whose, members)
    end = np.searchsorted(whose, members, side="right")
    before = offsets_of(weight)
    change = np.zeros(len(weight) + 1, dtype=np.int64)
    left, high = excess.copy(), end.copy()
    while len(members):
        fits = np.searchsorted(key, (members << _KEY_BITS) | left[members], side="right")
        top = np.minimum(fits, high[members])
        low = np.searchsorted(before, before[top] - left[members], side="left")
        low = np.minimum(np.maximum(low, start[members]), top)
        np.add.at(change, low, 1)
        np.add.at(change, top, -1)
        left[members] -= before[top] - before[low]
        high[members] = low
        members = members[(left[members] > 0) & (low > start[members]) & (top > low)]
    chosen = np.cumsum(change[:-1]) > 0
    _cover_rest(key, weight, chosen, left, high, end)
    return chosen


def _cover_rest(
    key: Longs, weight: Longs, chosen: Bools, left: Longs, low: Longs, end: Longs
) -> None:
    """For members that still exceed, choose the lightest unit that covers what is left.

    Where that is less, they give it instead of one of the lightest that were chosen.

    Parameters
    ----------
    left, low, end
        (members,): what is left, and rows of the member: none before `low` is chosen.
    """
    short = np.flatnonzero(left > 0)
    if not len(short):
        return
    free, taken = _find_next(~chosen), _find_next(chosen)
    weight = np.append(weight, 0)
    least = np.full(len(short), _NEVER)
    kept = added = np.full(len(short), len(chosen))
    back, begin = kept, low[short]
    for _ in range(_TRIES):
        first = free[np.searchsorted(key, (short << _KEY_BITS) | (left[short] + weight[back]))]
        price = np.where(first < end[short], weight[first] - weight[back], _NEVER)
        less = price < least
        least = np.where(less, price, least)
        kept, added = np.where(less, back, kept), np.where(less, first, added)
        back = taken[begin]
        back = np.where(back < end[short], back, len(chosen))
        begin = np.minimum(back + 1, len(chosen))
    chosen[kept[kept < len(chosen)]] = False
    chosen[added[added < len(chosen)]] = True


def _find_next(rows: Bools) -> Longs:
    """Return for each row the first one from it on that is true; their number where none is."""
    count = len(rows)
    at = np.append(np.where(rows, np.arange(count), count), count)
    return np.asarray(np.minimum.accumulate(at[::-1])[::-1])
