"""Swap partitions of members that subscribe alike, so that they have fewer ranges.

See docs/design/algorithm.md#defragment. A swap moves as much to a member as from it, so no load
changes. Each costs moves that fairness does not need, which is why they have a budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Bools, Longs
from assignors.long_ranges.keep_long import LineRanges, join_ranges


@dataclass(frozen=True, slots=True)
class _Offers:
    """Whole ranges, each for the owner of a neighbour; or ends that a longer range could give.

    Attributes
    ----------
    row
        The range.
    giver, taker
        Its owner, and that of the neighbour.
    beside
        The neighbour.
    size
        How long the range is.
    gain
        How many ranges fewer there are if the neighbour's owner has it.
    """

    row: Longs
    giver: Longs
    taker: Longs
    beside: Longs
    size: Longs
    gain: Longs

    def take(self, rows: Longs) -> _Offers:
        """Return some of these."""
        columns = (self.row, self.giver, self.taker, self.beside, self.size, self.gain)
        return _Offers(*(column[rows] for column in columns))


def swap_ranges(ranges: LineRanges, class_: Longs, most: int) -> LineRanges:
    """Swap ranges until that gains nothing, or `most` partitions have been moved.

    Parameters
    ----------
    ranges
        All ranges, in line order; those of one owner do not touch.
    class_
        The class of each member.
    """
    while most > 1 and len(ranges.whose) > 1:
        offers = _list_offers(ranges, class_)
        swaps = _find_swaps(ranges, offers, most)
        if swaps is None:
            break
        given, taken, is_end = swaps
        most -= 2 * int(given.size.sum())
        ranges = _carry_out(ranges, given, taken, is_end)
    return ranges


def _list_offers(ranges: LineRanges, class_: Longs) -> _Offers:
    """Return each range once for each neighbour of its class."""
    whose, start, count = ranges.whose, ranges.start, ranges.count
    touch = (start[1:] == (start + count)[:-1]) & (ranges.topic[1:] == ranges.topic[:-1])
    touch &= class_[whose[1:]] == class_[whose[:-1]]
    left = np.flatnonzero(touch)
    row, beside = np.concatenate([left, left + 1]), np.concatenate([left + 1, left])
    before, after = np.append(False, touch), np.append(touch, False)
    at = np.arange(len(whose))
    closes = before & after & (whose[np.maximum(at - 1, 0)] == whose[np.minimum(at + 1, at[-1])])
    return _Offers(row, whose[row], whose[beside], beside, count[row], 1 + closes[row])


def _find_swaps(
    ranges: LineRanges, offers: _Offers, most: int
) -> tuple[_Offers, _Offers, Bools] | None:
    """Return swaps that do not meet: what is given, for what, and whether for an end only."""
    order = np.lexsort((offers.row, -offers.gain, offers.size, offers.taker, offers.giver))
    offers = offers.take(order)
    members = int(ranges.whose.max()) + 1
    pair, back = offers.giver * members + offers.taker, offers.taker * members + offers.giver
    number = _number(pair, offers.size, pair, offers.size)
    other = _number(pair, offers.size, back, offers.size)
    whole = np.searchsorted(number, other)
    there = (whole < len(number)) & (number[np.minimum(whole, len(number) - 1)] == other)
    whole = np.where(there, whole, 0)
    is_whole = there & (np.abs(offers.row - offers.row[whole]) > 1)
    # the longest range that could give an end comes last of its pair
    last = np.maximum(np.searchsorted(pair, back, side="right") - 1, 0)
    last = np.maximum(last - (offers.beside[last] == offers.row), 0)  # not beside this one
    is_end = ~is_whole & (pair[last] == back) & (offers.size[last] > offers.size)
    is_end &= offers.beside[last] != offers.row
    some = np.flatnonzero((is_whole | is_end) & (2 * offers.size <= most))
    if not len(some):
        return None
    given, taken = offers.take(some), offers.take(np.where(is_whole, whole, last)[some])
    ends = is_end[some]
    gain = given.gain + np.where(ends, 0, taken.gain)
    best = np.lexsort((taken.row, given.row, given.size, -gain))
    given, taken, ends = given.take(best), taken.take(best), ends[best]
    kept = _are_apart(len(ranges.whose), given, taken, ends)
    kept &= np.cumsum(np.where(kept, 2 * given.size, 0)) <= most
    rows = np.flatnonzero(kept)
    return (given.take(rows), taken.take(rows), ends[rows]) if len(rows) else None


def _number(pair: Longs, size: Longs, wanted: Longs, wanted_size: Longs) -> Longs:
    """Return numbers that sort as (pair, size) do."""
    pairs, sizes = np.unique(pair), np.unique(size)
    at = np.searchsorted(pairs, wanted)
    there = pairs[np.minimum(at, len(pairs) - 1)] == wanted
    return np.where(there, at * len(sizes) + np.searchsorted(sizes, wanted_size), -1)


def _are_apart(ranges: int, given: _Offers, taken: _Offers, ends: Bools) -> Bools:
    """Tell which swaps are the best for all ranges that they look at."""
    rank = np.arange(len(given.row))
    looked = [given.row, given.row - 1, given.row + 1, taken.row, taken.beside]
    looked += [np.where(ends, taken.row, taken.row + step) for step in (-1, 1)]
    looked = [np.clip(one, 0, ranges - 1) for one in looked]
    best = np.full(ranges, len(rank), dtype=np.int64)
    for one in looked:
        np.minimum.at(best, one, rank)
    apart = np.ones(len(rank), dtype=np.bool_)
    for one in looked:
        apart &= best[one] == rank
    return apart


def _carry_out(ranges: LineRanges, given: _Offers, taken: _Offers, is_end: Bools) -> LineRanges:
    """Return the ranges after some swaps, those that touch as one."""
    whose, start, count = ranges.whose.copy(), ranges.start.copy(), ranges.count.copy()
    whose[given.row] = given.taker
    whole = ~is_end
    whose[taken.row[whole]] = given.giver[whole]
    row, size, owner = taken.row[is_end], given.size[is_end], given.giver[is_end]
    at_tail = taken.beside[is_end] > row
    count[row] -= size
    cut = start[row] + np.where(at_tail, count[row], 0)
    start[row[~at_tail]] += size[~at_tail]
    whose = np.concatenate([whose, owner])
    start, count = np.concatenate([start, cut]), np.concatenate([count, size])
    topic = np.concatenate([ranges.topic, ranges.topic[row]])
    return join_ranges(whose, start, count, topic)
