"""Choose what members above a level give up: about the excess, heaviest first, each in bulk."""

from __future__ import annotations

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of

_KEY_BITS = 42
_TRIES = 2
_PAIRS = 8
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
    and so on; then, for what is left, the lightest unit that covers it (`_cover_rest`). Where two
    units come closer to the excess, it gives these (`_choose_pairs`).
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
    _choose_pairs(key, weight, chosen, excess, start, end)
    return chosen


def _choose_pairs(
    key: Longs, weight: Longs, chosen: Bools, excess: Longs, start: Longs, end: Longs
) -> None:
    """Choose two units instead where they exceed by less: a heavy one, and what covers the rest.

    The heavy one is one of the heaviest few that fit.
    """
    given = offsets_of(np.where(chosen, weight, 0))
    least = given[end] - given[start] - excess
    members = np.flatnonzero(least > 0)
    least, wanted, low, high = (of[members] for of in (least, excess, start, end))
    weight = np.append(weight, 0)
    head = np.searchsorted(key, (members << _KEY_BITS) | wanted, side="right")
    heavy = np.maximum(head - np.arange(1, _PAIRS + 1)[:, None], low)  # (tries, members)
    rest = wanted - weight[heavy]
    other = np.searchsorted(key, (members << _KEY_BITS) | np.maximum(rest, 0))
    other = np.where(other == heavy, other + 1, other)
    over = weight[heavy] + weight[np.minimum(other, len(key))] - wanted
    over = np.where((rest > 0) & (other < high), over, _NEVER)
    best = np.argmin(over, axis=0), np.arange(len(members))
    found = over[best] < least
    change = np.zeros(len(key) + 1, dtype=np.int64)
    np.add.at(change, low[found], 1)
    np.add.at(change, high[found], -1)
    chosen &= np.cumsum(change[:-1]) == 0
    chosen[heavy[best][found]] = chosen[other[best][found]] = True


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
