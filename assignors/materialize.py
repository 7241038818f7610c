"""From plan to ranges: what is kept, what goes to the pool, who gets it.

See docs/design/algorithm.md#keep, #hand-out and #ranges-stay-long.

Prefix sums and sorted merges over arrays; `assignors.blocks`, which must give the same rows, does
it block by block. Every choice is made by a total order: members in member order, topic classes by
first topic, partitions by number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from assignors.arrays import (
    LINE_BITS,
    Ints,
    Longs,
    count_by,
    expand_runs,
    keep_longest,
    offsets_of,
    sum_by,
)
from assignors.group_spec import GroupSpec
from assignors.long_ranges.defragment import swap_ranges
from assignors.long_ranges.keep_long import (
    SCATTERED,
    Givers,
    LineRanges,
    Pieces,
    Takers,
    complete_windows,
    give_windows,
    join_ranges,
    keeps_long,
    take_ends,
)
from assignors.option_values import LONG_RANGES
from assignors.ownership import ArrayOwnership, Ownership
from assignors.partition_ranges import (
    PartitionRanges,
    Verdict,
    complement,
    cut_at,
    merge_touching,
    overlay,
)
from assignors.plan import Plan
from assignors.relinquish import (
    Relinquishment,
    find_only_topics,
    relinquish,
    select_first_of_class,
)
from assignors.water_level import fill_loads, lower_loads


def materialize(
    group: GroupSpec,
    plan: Plan,
    owned: ArrayOwnership,
    max_moves: int | None = None,
    long_ranges: int = LONG_RANGES,
    defragment: int = 0,
) -> PartitionRanges:
    """Carry out a plan.

    Parameters
    ----------
    max_moves
        Most partitions to take from live owners; None for as many as the plan says.
    long_ranges
        Partitions of the largest group whose ranges are kept long.
    defragment
        Of such a group, how many partitions more may be moved for fewer ranges.
    """
    holdings = owned.holdings(plan.cells)
    line = PartitionLine.of(plan.cells.problem.topic_class, group.partitions)
    long = keeps_long(group.member_count, line.length, long_ranges)
    columns, given = _hand_over(holdings, plan, owned, line, max_moves, 0 if long else None)
    verdict = Verdict(max_moves is not None and given > max_moves, plan.moved, plan.exact)
    most = defragment if max_moves is None else min(defragment, max_moves - given)
    if most > 0 and long and not verdict.partial:
        found, more = _hand_over(holdings, plan, owned, line, max_moves, most)
        if len(found[0]) >= len(columns[0]):
            found, more = columns, given
        found = _swap_ranges(line, holdings.class_, found, most - (more - given))
        verdict = replace(verdict, swapped=found is not columns)
        columns = found
    return PartitionRanges(group.member_ids, group.topics, *columns, verdict)


def _hand_over(
    holdings: Ownership,
    plan: Plan,
    owned: ArrayOwnership,
    line: PartitionLine,
    max_moves: int | None,
    lent: int | None,
) -> tuple[_Columns, int]:
    """Return who has what, and how many partitions are given up.

    At most `lent` of them are lent for longer ranges; None if ranges are not kept long.
    """
    group, long = holdings.group, lent is not None
    if lent is not None:
        stays, drops, new = _give_ends(holdings, plan, owned, line, lent)
    else:
        drops, new = relinquish(holdings, plan, owned)
        stays = Stays(group.first, group.count)
    stays = take_off(holdings, stays, drops)
    before = _count_loads(holdings)
    load = sum_by(group.member, stays.count, len(before)) if long else drops.subtract(before)
    pool = _build_pool(group, line, stays)
    takers = _find_takers(holdings, load, share_pools(plan, pool, new))
    ends, completing = NewRanges.none(), np.zeros(0, dtype=np.int64)
    if long:
        pool, ends, completing = _take_ends(holdings, plan, line, stays, pool, takers)
    wants = _rank_wants(holdings, takers, completing)
    gained = ends.and_(match_demand(split_by_class(plan, pool, takers.shares), wants))
    given = int((before - load).sum())
    if max_moves is not None and given > max_moves:
        gained = _limit_moves(group, line, gained, before - holdings.low, max_moves)
    return _merge_ranges(group, line, stays, gained), given


_Columns: TypeAlias = tuple[Ints, Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Stays:
    """What stays with its owner: of each range of the group, where it begins and how much."""

    first: Ints
    count: Ints


@dataclass(frozen=True, slots=True)
class Pool:
    """Partitions no member keeps, as pieces of the line, and the class of each, once known."""

    start: Longs
    length: Longs
    class_: Longs


@dataclass(frozen=True, slots=True)
class Demand:
    """How many partitions more members get, by (class, greatest want, member order)."""

    member: Longs
    amount: Longs


@dataclass(frozen=True, slots=True)
class NewRanges:
    """What members get from the pool: ranges of the line."""

    member: Longs
    start: Longs
    count: Longs

    @classmethod
    def none(cls) -> NewRanges:
        """Return no ranges."""
        return cls(*np.zeros((3, 0), dtype=np.int64))

    def and_(self, other: NewRanges) -> NewRanges:
        """Return these, and others after them."""
        if not len(self.member):
            return other
        return NewRanges(
            np.concatenate([self.member, other.member]),
            np.concatenate([self.start, other.start]),
            np.concatenate([self.count, other.count]),
        )


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """All partitions in one row: by topic class, then topic, then number.

    Attributes
    ----------
    start
        (T,) where each topic starts; meaningless for topics without subscribers.
    topics
        Topics on the line, in its order.
    ends
        Where each of them ends.
    by_name
        (T,) where each topic starts when topics are laid out by name.
    """

    start: Longs
    topics: Longs
    ends: Longs
    by_name: Longs

    @classmethod
    def of(cls, topic_class: Longs, partitions: Longs) -> PartitionLine:
        """Lay out the topics that have a class."""
        used = topic_class >= 0
        order = np.flatnonzero(used)
        order = order[np.argsort(topic_class[order], kind="stable")]
        ends = np.cumsum(partitions[order])
        start = np.zeros(len(partitions), dtype=np.int64)
        start[order] = ends - partitions[order]
        return cls(start, order, ends, offsets_of(np.where(used, partitions, 0))[:-1])

    @property
    def length(self) -> int:
        """Partitions on the line."""
        return int(self.ends[-1]) if len(self.ends) else 0


def _give_ends(
    holdings: Ownership, plan: Plan, owned: ArrayOwnership, line: PartitionLine, lent: int
) -> tuple[Stays, Relinquishment, Longs]:
    """Bring a plan's drops down to members so that ranges stay long.

    Returns
    -------
    stays, drops, new
        What stays of ranges whose ends are given up; what is given up besides; and as `relinquish`.
        At most `lent` partitions are of members that need not give any; the pool has as many more.
    """
    group, class_ = holdings.group, holdings.class_
    fixed, new = relinquish(holdings, replace(plan, drops=np.zeros_like(plan.drops)), owned)
    level, lowered = lower_loads(plan.loads, plan.drops), plan.drops > 0
    above = np.where(lowered[class_], holdings.load - level.height[class_], 0)
    over = np.flatnonzero(above > 0)
    free = count_by(class_[over], group.class_count) - level.first
    stays = Stays(group.first, group.count)
    if not len(over) and not len(fixed.member):
        return stays, fixed, new
    spare = np.zeros(0, dtype=np.int64)
    if lent:
        spare = np.flatnonzero(lowered[class_] & (above <= 0) & (holdings.load == holdings.low))
    ours = np.append(over, spare)
    member = np.concatenate([fixed.member, ours])
    topic = np.concatenate([fixed.topic_class, find_only_topics(plan.cells)[class_[ours]]])
    had = np.concatenate([fixed.owned, holdings.load[ours]])
    certain = np.concatenate([fixed.amount, above[over] - 1, np.zeros_like(spare)])
    order = np.lexsort((topic, member))
    member, topic, had, certain = member[order], topic[order], had[order], certain[order]
    lends = order >= len(fixed.member) + len(over)
    may = (order >= len(fixed.member)) & ~lends
    if lent:
        lends |= may & (holdings.load[member] - certain == holdings.low[member] + 1)
    rows = _order_on_line(group, line)
    giver = _find_rows(holdings, member, topic, rows)
    rows, giver = rows[giver >= 0], giver[giver >= 0]
    ranges = replace(_place_ranges(group, line, stays, rows), whose=giver)
    givers = Givers(certain, may, class_[member], np.where(lowered, free, 0), lends, lent)
    given = give_windows(ranges, givers)
    first, count = group.first.copy(), group.count.copy()
    first[rows] += given.head.astype(first.dtype)
    count[rows] -= (given.head + given.tail).astype(count.dtype)
    had = had - sum_by(giver, given.head + given.tail, len(had))
    some = given.give > 0
    drops = Relinquishment(member[some], topic[some], had[some], given.give[some])
    return Stays(first, count), drops, new


def _find_rows(holdings: Ownership, member: Longs, topic: Longs, rows: Longs) -> Longs:
    """Return which (member, topic class), sorted, each of some ranges belongs to; -1 for none."""
    topics = np.int64(max(len(holdings.cells.problem.partitions), 1))
    keys = member * topics + topic
    wanted = holdings.group.member[rows] * topics + holdings.topic_class[rows]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def _place_ranges(group: GroupSpec, line: PartitionLine, stays: Stays, rows: Longs) -> LineRanges:
    """Return what stays of some ranges, as places on the line."""
    topic = group.topic[rows].astype(np.int64)
    return LineRanges(
        group.member[rows].astype(np.int64),
        line.start[topic] + stays.first[rows],
        stays.count[rows].astype(np.int64),
        topic,
    )


def take_off(holdings: Ownership, stays: Stays, drops: Relinquishment) -> Stays:
    """Take off what is given up: members keep their longest ranges, the last one is cut."""
    group = holdings.group
    if not len(drops.member):
        return stays
    member = drops.member[np.append(True, drops.member[1:] != drops.member[:-1])]
    lengths = np.diff(group.member_ranges)[member]
    rows = expand_runs(group.member_ranges[member], lengths)
    entry = _find_rows(holdings, drops.member, drops.topic_class, rows)
    rows, entry = rows[entry >= 0], entry[entry >= 0]
    count = stays.count[rows].astype(np.int64)
    kept = stays.count.copy()
    kept[rows] = keep_longest(entry, count, drops.owned - drops.amount)
    return Stays(stays.first, kept)


def _build_pool(group: GroupSpec, line: PartitionLine, stays: Stays) -> Pool:
    """Return what no member keeps, in line order, cut at topic ends."""
    order = _order_on_line(group, line)
    length = stays.count[order].astype(np.int64)
    start = line.start[group.topic[order]] + stays.first[order]
    if stays.count is not group.count and not length.all():
        start, length = start[length > 0], length[length > 0]
    start, length = cut_at(*complement(start, length, line.length), line.ends)
    return Pool(start, length, np.zeros(len(start), dtype=np.int64))


def _order_on_line(group: GroupSpec, line: PartitionLine) -> Longs:
    """Return the permutation that sorts the owned ranges by their place on the line."""
    if len(line.topics) <= 1 or (np.diff(line.topics) > 0).all():
        return group.line_order
    sizes = np.bincount(group.topic, minlength=len(line.start))  # topics are moved as blocks
    starts = offsets_of(sizes)[:-1]
    return group.line_order[expand_runs(starts[line.topics], sizes[line.topics])]


def share_pools(plan: Plan, pool: Pool, new: Longs) -> Longs:
    """Return per pair what the class gets of the topic class's pool: alone in its cell, all."""
    problem = plan.cells.problem
    topic = np.searchsorted(np.cumsum(problem.partitions), pool.start, side="right")
    sizes = sum_by(topic, pool.length, len(problem.partitions))
    alone = plan.cells.alone[plan.cells.of_class[problem.pair_class]]
    return np.where(alone, sizes[problem.pair_topic], new)


def _count_loads(holdings: Ownership) -> Longs:
    """Return what each member owns, also in other cells, shape (members,)."""
    group = holdings.group
    if holdings.crossing:
        return sum_by(group.member, group.count, group.member_count)
    return holdings.load


def _find_takers(holdings: Ownership, load: Longs, shares: Longs) -> Takers:
    """Fill the emptiest members of each class."""
    class_, classes = holdings.class_, holdings.group.class_count
    amount = sum_by(holdings.cells.problem.pair_class, shares, classes)
    level = fill_loads(holdings.histogram(load), amount)
    height = level.height[class_] if classes != 1 else level.height[0]
    return Takers(np.maximum(height - load, 0), load <= height, level.first, class_, shares)


def _take_ends(
    holdings: Ownership, plan: Plan, line: PartitionLine, stays: Stays, pool: Pool, takers: Takers
) -> tuple[Pool, NewRanges, Longs]:
    """Give ends of pieces to their neighbours, and choose who gets one more best.

    Returns
    -------
    pool, ends, completing
        What is left; what neighbours got; and of those who may get one more, who should.
    """
    group, topic_class = holdings.group, holdings.cells.problem.topic_class
    rows = _order_on_line(group, line)
    ranges = _place_ranges(group, line, stays, rows[stays.count[rows] > 0])
    topic = line.topics[np.searchsorted(line.ends, pool.start, side="right")]
    who, got, left = take_ends(
        ranges,
        Pieces(pool.start, pool.length, topic),
        takers,
        lambda topic, class_: holdings.pair(topic_class[topic], class_),
    )
    old = (ranges.whose, ranges.start, ranges.count, ranges.topic)
    new = (who, got.start, got.count, got.topic)
    columns = (np.concatenate(both) for both in zip(old, new, strict=True))
    scattered = _count_scattered(plan, topic_class[left.topic], left.count)
    completing = complete_windows(join_ranges(*columns), takers, scattered)
    pool = Pool(left.start, left.count, np.zeros_like(left.start))
    return pool, NewRanges(who, got.start, got.count), completing


def _count_scattered(plan: Plan, topic_class: Longs, count: Longs) -> Longs:
    """Return per class how many partitions the short pieces of its pool have; 0 in shared cells."""
    problem, cells, classes = plan.cells.problem, plan.cells, len(plan.cells.of_class)
    alone = np.flatnonzero(cells.alone[cells.of_class[problem.pair_class]])
    short = np.where(count <= SCATTERED, count, 0)
    of_topic = sum_by(topic_class, short, len(problem.partitions))
    return sum_by(problem.pair_class[alone], of_topic[problem.pair_topic[alone]], classes)


def _rank_wants(holdings: Ownership, takers: Takers, completing: Longs) -> Demand:
    """Return who gets how much of the pool, the greatest wants of each class first.

    Those who complete windows come last, and so get the shortest pieces.
    """
    wants, may = takers.want.copy(), takers.may.copy()
    may[completing] = False
    more = takers.more - count_by(takers.class_[completing], len(takers.more))
    wants[select_first_of_class(holdings, may, more)] += 1
    wants[completing] += 1
    who = np.flatnonzero(wants)
    if holdings.group.class_count == 1 and not len(completing):
        order = np.argsort(-wants[who], kind="stable")
    else:
        late = np.zeros(len(wants), dtype=np.bool_)
        late[completing] = True
        order = np.lexsort((who, late[who], -wants[who], holdings.class_[who]))
    return Demand(who[order], wants[who[order]])


def split_by_class(plan: Plan, pool: Pool, shares: Longs) -> Pool:
    """Cut the pool among the classes; each class's pieces with the longest first.

    Long pieces then meet great wants, and ranges stay long.
    """
    some = np.flatnonzero(shares)
    start, length, class_ = pool.start, pool.length, pool.class_
    if len(some) > 1:
        total = int(length.sum())
        place = offsets_of(length)[:-1]
        piece, share, at, length = overlay(length, shares[some], total)
        start = start[piece] + at - place[piece]
        class_ = plan.cells.problem.pair_class[some][share]
        order = np.lexsort((start, -length, class_))
    else:
        order = np.argsort(-length, kind="stable")
    return Pool(start[order], length[order], class_[order])


def match_demand(pool: Pool, wants: Demand) -> NewRanges:
    """Lay pool and wants, class by class, beside each other."""
    piece, taker, at, count = overlay(pool.length, wants.amount, int(wants.amount.sum()))
    start = pool.start[piece] + at - offsets_of(pool.length)[:-1][piece]
    return NewRanges(wants.member[taker], start, count)


def _limit_moves(
    group: GroupSpec, line: PartitionLine, gained: NewRanges, surplus: Longs, most: int
) -> NewRanges:
    """Leave all but `most` partitions of live owners where they are.

    The owner with the greatest surplus gives first, then the line decides. What stays is one step
    of the way to the same target, so assigning again goes on and comes to an end.
    """
    order, by_line = np.argsort(gained.start), _order_on_line(group, line)
    owned_start = line.start[group.topic[by_line]] + group.first[by_line]
    owned_end = owned_start + group.count[by_line]
    edges = np.concatenate([owned_start, owned_end])
    start, count = cut_at(gained.start[order], gained.count[order], edges)
    taker = gained.member[order][np.searchsorted(gained.start[order], start, side="right") - 1]
    at = np.searchsorted(owned_start, start, side="right") - 1
    moves = (at >= 0) & (start < owned_end[at])
    owner = np.where(moves, group.member[by_line][at], taker)
    rank = np.lexsort((start, -surplus[owner], ~moves))[: int(moves.sum())]
    goes = np.zeros(len(start), dtype=np.int64)
    goes[~moves] = count[~moves]
    goes[rank] = np.clip(most - offsets_of(count[rank])[:-1], 0, count[rank])
    stays = count - goes
    moved, left = np.flatnonzero(goes), np.flatnonzero(stays)
    return NewRanges(
        np.concatenate([taker[moved], owner[left]]),
        np.concatenate([start[moved], (start + goes)[left]]),
        np.concatenate([goes[moved], stays[left]]),
    )


def _merge_ranges(
    group: GroupSpec, line: PartitionLine, stays: Stays, gained: NewRanges
) -> tuple[Ints, Ints, Ints, Ints]:
    """Join what is kept with what is new, in canonical order."""
    topic = line.topics[np.searchsorted(line.ends, gained.start, side="right")]
    fresh = (gained.member, topic, gained.start - line.start[topic], gained.count)
    old = [group.member, group.topic, stays.first, stays.count]
    if stays.count is not group.count and not stays.count.all():
        old = [column[stays.count > 0] for column in old]
    member, topic, first, count = (
        np.concatenate([a, b.astype(np.int32)]) for a, b in zip(old, fresh, strict=True)
    )
    key = (member.astype(np.int64) << LINE_BITS) + line.by_name[topic] + first
    order = np.argsort(key, kind="stable")  # sorted runs: a merge
    return merge_touching(member[order], topic[order], first[order], count[order])


def _swap_ranges(line: PartitionLine, class_: Longs, columns: _Columns, most: int) -> _Columns:
    """Swap ranges of members that subscribe alike; return the same columns if none is swapped."""
    member, topic, first, count = (column.astype(np.int64) for column in columns)
    order = np.argsort(line.start[topic] + first)
    member, topic, first, count = member[order], topic[order], first[order], count[order]
    found = swap_ranges(LineRanges(member, line.start[topic] + first, count, topic), class_, most)
    if len(found.whose) == len(member):
        return columns
    first = found.start - line.start[found.topic]
    order = np.argsort((found.whose << LINE_BITS) + line.by_name[found.topic] + first)
    rows = (found.whose, found.topic, first, found.count)
    return merge_touching(*(column[order].astype(np.int32) for column in rows))
