"""Of choices that move equally much, take those that keep ranges long.

See docs/design/algorithm.md#ranges-stay-long. How many partitions members give and get is decided
elsewhere; here, which members at the level do, and which partitions. Both rules look at the line
a few times and are total orders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assignors.arrays import Bools, Longs, count_by, cut_in_order, rank_in_runs, sum_by
from assignors.option_values import LONG_RANGES_A_MEMBER

WORTH = 3
"""Of the least window: 1 for each cell, 2 for a whole range or where one gives several, 3 for a
whole range that is given freely."""
ANY_SIZE = 1 << 62
"""So many partitions at the most: ranges of groups of any size are kept long."""
WINDOW_ROUNDS = 8
"""How often windows are looked for, each time among what the windows before left."""
SCATTERED = 6
"""Free pieces of up to so many partitions are for who completes a window, as windows are longer."""
ROUNDS = 3
"""How often neighbours are offered the ends of each free piece."""


def keeps_long(members: int, partitions: int, most: int) -> bool:
    """Tell whether a group's ranges are kept long: to look at all of them is then quick.

    Parameters
    ----------
    partitions
        Of the topics that members subscribe to.
    most
        So many at the most, and one member for every `LONG_RANGES_A_MEMBER` of these.
    """
    return partitions <= most and members * LONG_RANGES_A_MEMBER <= most


@dataclass(frozen=True, slots=True)
class LineRanges:
    """Ranges in line order: whose each is, where it begins and ends, and on which topic."""

    whose: Longs
    start: Longs
    count: Longs
    topic: Longs


@dataclass(frozen=True, slots=True)
class Givers:
    """Who gives what. A giver is a member on one topic class.

    Attributes
    ----------
    certain
        Per giver, how much it gives for certain.
    may
        Per giver, whether it may give one more.
    class_
        The class of each giver.
    more
        Per class, how many of those that may give one more.
    lends
        Per giver, whether it has nothing to give, but may lend: it gets as much back.
    lent
        How many partitions may be lent.
    """

    certain: Longs
    may: Bools
    class_: Longs
    more: Longs
    lends: Bools
    lent: int


@dataclass(frozen=True, slots=True)
class Given:
    """What is given up at the ends of ranges.

    Attributes
    ----------
    head, tail
        Per range, how much goes at its beginning, and at its end.
    give
        Per giver, what it has to give besides.
    """

    head: Longs
    tail: Longs
    give: Longs


@dataclass(frozen=True, slots=True)
class _Cells:
    """What can go: a whole range, or a partition at an end of one."""

    row: Longs
    size: Longs
    is_tail: Bools
    is_whole: Bools

    def take(self, rows: Longs) -> _Cells:
        """Return some of these."""
        return _Cells(self.row[rows], self.size[rows], self.is_tail[rows], self.is_whole[rows])


def give_windows(ranges: LineRanges, givers: Givers) -> Given:
    """Choose what goes, of ranges of givers: the best windows, then the best that are left."""
    whose, class_ = ranges.whose, givers.class_
    certain, may, more = givers.certain.copy(), givers.may.copy(), givers.more.copy()
    lends, lent = givers.lends.copy(), givers.lent
    freely = np.zeros(len(may), dtype=np.bool_)
    amount = sum_by(class_, certain, len(more)) + more
    head, tail = np.zeros((2, len(whose)), dtype=np.int64)
    end = np.full(len(certain), -1, dtype=np.int64)  # of each giver, the end that it gave
    for _ in range(WINDOW_ROUNDS):
        able = (certain > 0) | (may & (more[class_] > 0)) | (lends & (lent > 0))
        able &= (end < 0) & (amount[class_] > 0)
        left = np.flatnonzero(able[whose] & (head == 0))
        now = Givers(certain, may, class_, more, lends, lent)
        cells = _choose_cells(ranges, left, now, amount)
        if not len(cells.row):
            break
        giver = whose[cells.row]
        amount = amount - sum_by(class_[giver], cells.size, len(amount))
        sure = certain[giver] > 0
        certain[giver[sure]] -= cells.size[sure]
        free = ~sure & may[giver]
        free &= _find_first(free, class_[giver], more)  # others lend
        lent -= int((~sure & ~free).sum())
        freely[giver[free]] = True
        may[giver[~sure]] = lends[giver[~sure]] = False
        more = more - count_by(class_[giver[free]], len(more))
        head[cells.row] = np.where(cells.is_tail, 0, cells.size)
        tail[cells.row] = np.where(cells.is_tail, cells.size, 0)
        ends = ~cells.is_whole
        end[giver[ends]] = 2 * cells.row[ends] + cells.is_tail[ends]
    certain += _find_last(givers, freely)
    ends = end >= 0  # there it gives the rest, too
    row, is_tail = end[ends] // 2, end[ends] % 2 == 1
    rest = np.minimum(certain[ends], ranges.count[row] - head[row] - tail[row])
    certain[ends] -= rest
    head[row] += np.where(is_tail, 0, rest)
    tail[row] += np.where(is_tail, rest, 0)
    return Given(head, tail, certain)


def _choose_cells(ranges: LineRanges, rows: Longs, givers: Givers, amount: Longs) -> _Cells:
    """Return what windows of some ranges give, one cell of each giver at most."""
    certain, class_ = givers.certain, givers.class_
    cells = _list_cells(ranges, rows, np.maximum(certain, 1))
    only_lends = givers.lends & (certain == 0) & ~(givers.may & (givers.more[class_] > 0))
    cells = cells.take(np.flatnonzero(cells.is_whole | ~only_lends[ranges.whose[cells.row]]))
    whose = ranges.whose[cells.row]
    chosen, window = _choose_windows(ranges, cells, givers, amount)
    if len(chosen):
        is_whole, sure = cells.is_whole[chosen], certain[whose[chosen]]
        worth = np.where(is_whole & (sure == 0), WORTH, 1 + (is_whole | (sure > 1)))
        chosen = chosen[np.bincount(window, weights=worth)[window] >= WORTH]
    return cells.take(chosen)


def _list_cells(ranges: LineRanges, rows: Longs, most: Longs) -> _Cells:
    """Return in line order each of some ranges if its owner can give it whole, or its two ends."""
    is_whole = ranges.count[rows] <= most[ranges.whose[rows]]
    row = np.concatenate([rows, rows[~is_whole]])
    is_tail = np.arange(len(row)) >= len(rows)
    is_whole = np.append(is_whole, np.zeros(len(row) - len(rows), dtype=np.bool_))
    size = np.where(is_whole, ranges.count[row], 1)
    order = np.lexsort((is_tail, row))
    return _Cells(row, size, is_tail, is_whole).take(order)


def _find_last(givers: Givers, freely: Bools) -> Bools:
    """Return who gives one more because too few have given one freely: the last of each class."""
    left = givers.more - count_by(givers.class_[freely], len(givers.more))
    others = np.flatnonzero(givers.may & ~freely)[::-1]
    last = np.zeros(len(freely), dtype=np.bool_)
    every = np.ones(len(others), dtype=np.bool_)
    last[others[_find_first(every, givers.class_[others], left)]] = True
    return last


def _find_first(free: Bools, class_: Longs, most: Longs) -> Bools:
    """Return which rows are not free, or among the first `most` free ones of their class."""
    at = np.flatnonzero(free)
    at = at[np.argsort(class_[at], kind="stable")]
    fits = ~free
    fits[at] = rank_in_runs(class_[at]) < most[class_[at]]
    return fits


def _choose_windows(
    ranges: LineRanges, cells: _Cells, givers: Givers, amount: Longs
) -> tuple[Longs, Longs]:
    """Return cells that make long runs, one of each giver at most; and the run of each.

    Runs of adjacent cells are cut into the longest windows without a giver twice, and with at most
    `more` givers of a class that are free. Each giver picks the best window that it is in: that of
    most cells, then one that ends with whole ranges, then the first. Windows that all their givers
    pick are taken, the best one first, as long as there are no more free ones.
    """
    whose = ranges.whose[cells.row]
    if not len(whose):
        return (np.zeros(0, dtype=np.int64),) * 2
    at_end = np.where(cells.is_tail, ranges.count[cells.row] - cells.size, 0)
    start, topic = ranges.start[cells.row] + at_end, ranges.topic[cells.row]
    of_class, most, lent = givers.class_[whose], givers.more, givers.lent
    is_sure, may, lends = givers.certain[whose] > 0, givers.may[whose], givers.lends[whose]
    at = np.arange(len(whose))
    low = np.maximum(at - amount[of_class] + 1, _cut(~is_sure, most[of_class] + lent))
    if lent:
        low = np.maximum(low, _cut(~is_sure & may & ~lends, most[of_class]))
        low = np.maximum(low, _cut(~is_sure & ~may, np.full(len(whose), lent)))
    chosen, window = _find_windows(whose, start, cells.size, topic, cells.is_whole, low)
    of_class, free = of_class[chosen], (~is_sure & may)[chosen]
    fits = _find_first(free, of_class, most)
    if lent:
        others = ~is_sure[chosen] & ~(free & fits)
        fits = ~others | ((lends[chosen] & others) & (np.cumsum(others) <= lent))
        size = cells.size[chosen]
        fits &= cut_in_order(np.argsort(of_class, kind="stable"), size, of_class, amount) == size
    whole = np.bincount(window, weights=~fits)[window] == 0  # others may fit later, if shorter
    return chosen[whole], window[whole]


def _cut(some: Bools, most: Longs) -> Longs:
    """Return where the longest windows begin that end at each cell, with so many of some."""
    so_far = np.cumsum(some)
    return np.where(so_far > most, np.searchsorted(so_far, so_far - most) + 1, 0)


def _find_windows(
    whose: Longs, start: Longs, size: Longs, topic: Longs, is_whole: Bools, low: Longs
) -> tuple[Longs, Longs]:
    """Return the cells of windows that all their givers pick; and the window of each."""
    cells = len(start)
    at = np.arange(cells)
    begins = np.append(True, (start[1:] != (start + size)[:-1]) | (np.diff(topic) != 0))
    by_giver = np.argsort(whose, kind="stable")
    before = np.full(cells, -1, dtype=np.int64)
    same = whose[by_giver[1:]] == whose[by_giver[:-1]]
    before[by_giver[1:][same]] = by_giver[:-1][same]
    low = np.maximum.accumulate(np.maximum.reduce([np.where(begins, at, 0), before + 1, low]))
    last = np.flatnonzero(np.append(begins[1:] | (low[1:] > low[:-1]), True))
    first, length = low[last], last - low[last] + 1
    whole = is_whole[first].astype(np.int64) + is_whole[last]
    best = np.lexsort((first, -whole, -length))  # windows, the best one first
    rank = np.empty_like(best)
    rank[best] = np.arange(len(best))
    # a cell lies in the windows that end at it or later, and begin at it or before
    of_cell = _least_between(
        rank, np.searchsorted(last, at), np.searchsorted(first, at, side="right")
    )
    pick = np.full(int(whose.max()) + 1, len(best), dtype=np.int64)
    np.minimum.at(pick, whose, of_cell)
    window = best[pick[whose]]
    inside = (first[window] <= at) & (at <= last[window])
    votes = np.bincount(window[inside], minlength=len(best))
    chosen = np.flatnonzero(inside & (votes[window] == length[window]))
    chosen = chosen[np.lexsort((chosen, pick[whose[chosen]]))]
    return chosen, window[chosen]


def _least_between(values: Longs, start: Longs, end: Longs) -> Longs:
    """Return the least value of each run [start, end), none of which is empty."""
    tables = [values]
    while 2 ** len(tables) <= len(values):
        half = 2 ** (len(tables) - 1)
        tables.append(np.minimum(tables[-1][:-half], tables[-1][half:]))
    level = np.frexp(end - start)[1] - 1
    found = np.empty(len(start), dtype=np.int64)
    for number, table in enumerate(tables):
        ours = np.flatnonzero(level == number)
        found[ours] = np.minimum(table[start[ours]], table[end[ours] - 2**number])
    return found


@dataclass(slots=True)
class Takers:
    """Who still gets something from the pool.

    Attributes
    ----------
    want
        Per member, what it gets for certain.
    may
        Per member, whether it may get one more.
    more
        Per class, how many of those do.
    class_
        The class of each member.
    shares
        Per pair of topic class and class, how much of the one's pool the other gets.
    """

    want: Longs
    may: Bools
    more: Longs
    class_: Longs
    shares: Longs


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of the pool, in line order: where each begins, how long it is, and on which topic."""

    start: Longs
    count: Longs
    topic: Longs


PairOf = Callable[[Longs, Longs], Longs]
"""From topics and classes to pairs of `Takers.shares`."""


def take_ends(
    ranges: LineRanges, pieces: Pieces, takers: Takers, pair_of: PairOf
) -> tuple[Longs, Pieces, Pieces]:
    """Give the ends of free pieces to the neighbours that get something anyway.

    In each round, a member gets of one piece as much as it lacks, or one partition freely: first
    of those that close a gap between two ranges of its own, then of others that it takes whole,
    then of short ones, then by place.

    Parameters
    ----------
    ranges
        What members keep.
    takers
        Who gets how much; what is given here is taken off.

    Returns
    -------
    member, got, left
        Who got what; and what is left of the pieces.
    """
    start, count = pieces.start.copy(), pieces.count.copy()
    left, right = _find_neighbours(ranges, pieces)
    none = np.zeros(0, dtype=np.int64)
    got = [(none,) * 4]
    for _ in range(ROUNDS):
        offers = _offer(Pieces(start, count, pieces.topic), left, right, takers, pair_of)
        who, piece, is_right, size, pair = _settle(offers, count, takers)
        if not len(who):
            break
        free = takers.want[who] == 0
        takers.want[who[~free]] -= size[~free]
        takers.may[who[free]] = False
        takers.more = takers.more - count_by(takers.class_[who[free]], len(takers.more))
        takers.shares = takers.shares - sum_by(pair, size, len(takers.shares))
        place = start[piece] + np.where(is_right, count[piece] - size, 0)
        got.append((who, place, size, pieces.topic[piece]))
        np.add.at(start, piece[~is_right], size[~is_right])
        np.subtract.at(count, piece, size)
    some = count > 0
    who, *columns = (np.concatenate(column) for column in zip(*got, strict=True))
    return who, Pieces(*columns), Pieces(start[some], count[some], pieces.topic[some])


def complete_windows(ranges: LineRanges, takers: Takers, scattered: Longs) -> Longs:
    """Return who gets one more best, of those who may: members who complete windows.

    All owners of such a window then have one more than others, so it can go to one member later.

    Parameters
    ----------
    ranges
        What members have, in line order; those of one member do not touch.
    scattered
        Per class, how many partitions the pieces have that are too short to be a window.
    """
    class_, found = takers.class_, [np.zeros(0, dtype=np.int64)]
    most = np.minimum(scattered, takers.more)
    able, lends = takers.want == 0, np.zeros(len(class_), dtype=np.bool_)
    one = np.ones(len(class_), dtype=np.int64)
    no_limit = np.full(len(most), ANY_SIZE)
    for _ in range(WINDOW_ROUNDS):
        able &= (most > 0)[class_]
        cells = _list_cells(ranges, np.flatnonzero(able[ranges.whose]), one)
        givers = Givers((~takers.may).astype(np.int64), takers.may, class_, most, lends, 0)
        chosen, window = _choose_windows(ranges, cells, givers, no_limit)
        if len(chosen):
            chosen = chosen[np.bincount(window)[window] >= WORTH]
        if not len(chosen):
            break
        who = ranges.whose[cells.row[chosen]]
        able[who] = False
        found.append(who[takers.may[who]])
        most = most - count_by(class_[found[-1]], len(most))
    return np.concatenate(found)


def join_ranges(whose: Longs, start: Longs, count: Longs, topic: Longs) -> LineRanges:
    """Return ranges in line order, those that touch as one."""
    order = np.argsort(start)
    whose, start, count, topic = whose[order], start[order], count[order], topic[order]
    begins = np.append(True, (start[1:] != (start + count)[:-1]) | (whose[1:] != whose[:-1]))
    begins[1:] |= topic[1:] != topic[:-1]
    head = np.flatnonzero(begins[: len(start)])
    return LineRanges(whose[head], start[head], np.add.reduceat(count, head), topic[head])


def _find_neighbours(ranges: LineRanges, pieces: Pieces) -> tuple[Longs, Longs]:
    """Return who owns what is before and after each piece on its topic; -1 for no one.

    The owner of a single partition, who has a longer range as well, counts only where it closes a
    gap between two of its own: the partition may go as a whole in a later window.
    """
    start, topic = pieces.start, pieces.topic
    if not len(ranges.whose):
        return np.full(len(start), -1), np.full(len(start), -1)
    is_long = np.zeros(int(ranges.whose.max()) + 1, dtype=np.bool_)
    is_long[ranges.whose[ranges.count > 1]] = True
    stays_one = (ranges.count == 1) & is_long[ranges.whose]
    ends = ranges.start + ranges.count
    at = np.clip(np.searchsorted(ends, start), 0, len(ends) - 1)
    left = np.where((ends[at] == start) & (ranges.topic[at] == topic), ranges.whose[at], -1)
    after = start + pieces.count
    to = np.clip(np.searchsorted(ranges.start, after), 0, len(ends) - 1)
    touches = (ranges.start[to] == after) & (ranges.topic[to] == topic)
    right = np.where(touches, ranges.whose[to], -1)
    apart = left != right
    return (
        np.where(apart & stays_one[at], -1, left),
        np.where(apart & stays_one[to], -1, right),
    )


Offers = tuple[Longs, Longs, Bools, Longs, Longs]
"""Members, pieces, whether it is the end of the piece, how much, and the pair of topic class and
class; the best one first."""


def _offer(pieces: Pieces, left: Longs, right: Longs, takers: Takers, pair_of: PairOf) -> Offers:
    """Offer each end to its neighbour; of these, each member takes its best offer."""
    count = pieces.count
    piece = np.concatenate([np.arange(len(count))] * 2)
    who = np.concatenate([left, right])
    is_right = np.arange(len(piece)) >= len(count)
    lacks = takers.want + (
        (takers.want == 0) & takers.may & (takers.more > 0)[takers.class_]
    )  # fmt: skip
    ours = np.flatnonzero((who >= 0) & (count[piece] > 0))
    ours = ours[lacks[who[ours]] > 0]
    piece, who, is_right = piece[ours], who[ours], is_right[ours]
    pair = pair_of(pieces.topic[piece], takers.class_[who])
    size = np.minimum(np.minimum(lacks[who], count[piece]), takers.shares[pair])
    closes = size == count[piece]
    kind = np.where(closes & (left[piece] == right[piece]), 0, np.where(closes, 1, 2))
    order = np.lexsort((is_right, who, pieces.start[piece], count[piece], kind))
    order = order[size[order] > 0]
    order = order[np.sort(np.unique(who[order], return_index=True)[1])]
    return who[order], piece[order], is_right[order], size[order], pair[order]


def _settle(offers: Offers, count: Longs, takers: Takers) -> Offers:
    """Cut offers to what there is of each piece, class and pair; the best one comes first."""
    who, piece, is_right, size, pair = offers
    size = cut_in_order(np.argsort(piece, kind="stable"), size, piece, count)
    size = cut_in_order(np.argsort(pair, kind="stable"), size, pair, takers.shares)
    free = takers.want[who] == 0
    fits = (size > 0) & _find_first(free & (size > 0), takers.class_[who], takers.more)
    return who[fits], piece[fits], is_right[fits], size[fits], pair[fits]
