"""The next plan of members that subscribe alike: only what moves is looked at.

See docs/design/algorithm.md#the-next-plan. The steps are those of `assignors.relinquish` and
`assignors.materialize`, for members with a load above or below the level instead of all; the twin
that must give the same rows is the plan from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assignors.arrays import (
    LINE_BITS,
    Bools,
    Ints,
    Longs,
    offsets_of,
    sort_distinct,
    sum_by,
)
from assignors.incremental.block_column import Places
from assignors.incremental.equal_members import EqualMembers, Newcomers, Owned
from assignors.incremental.held_ranges import HeldRanges
from assignors.incremental.member_order import MemberOrder
from assignors.incremental.subscribed_topics import SubscribedTopics
from assignors.materialize import PartitionLine
from assignors.partition_ranges import cut_at, merge_touching, overlay
from assignors.plan import ABOVE_ALL

Bounds = Callable[[int, int], tuple[int, int]]
"""From partitions and members to the least and the greatest load that a member may have."""


@dataclass(frozen=True, slots=True, eq=False)
class NextPlan:
    """A plan made from the last one.

    Attributes
    ----------
    held
        The group after it.
    touched
        Members whose ranges the plan changed, and what they own.
    moved
        Partitions taken from members that stay.
    """

    held: EqualMembers
    touched: Owned
    moved: int


@dataclass(frozen=True, slots=True)
class _Drops:
    """Members that give: places, loads, how much each keeps, and what it keeps and gives.

    Attributes
    ----------
    level
        All keep so much, the first of them one more; None: no one gives.
    """

    level: tuple[int, int] | None
    places: Longs
    at: Places
    loads: Longs
    keeps: Longs
    kept: HeldRanges
    given: HeldRanges


def plan_next(
    held: EqualMembers, left: Longs, joined: Newcomers, topics: SubscribedTopics, bounds: Bounds
) -> NextPlan:
    """Make the plan after some members left and others joined, and topics are others.

    Parameters
    ----------
    left
        Places of members, ascending.
    joined
        Who is new.
    topics
        What every member subscribes to from now on.
    """
    pool = [held.ranges_of(held.order.numbers_at(left))[1]] if len(left) else []
    ends = None
    if topics is not held.topics:
        pool, ends = _change_topics(held.topics, topics, pool)
        held = replace(held, topics=topics)
    order = held.order.changed(left, *joined)
    clipped = left[:0]
    if ends is not None:
        clipped = held.holders_beyond(order, ends)
        held, order = _clip(held, order, clipped, ends)
    total = topics.line.length
    drops = _find_drops(held, order, total, *bounds(total, len(order)))
    pool.append([drops.given.topic, drops.given.first, drops.given.count])
    start, length = _lay_pool(topics.line, pool)
    order, takers, wants = _find_wants(order, drops, int(length.sum()))
    held, places, owned = _give(held, order, drops, (takers, wants), (start, length))
    if len(clipped):
        owned = held.owned_at(join_places(places, clipped))
    return NextPlan(held, owned, int(drops.given.count.sum()))


def _change_topics(
    had: SubscribedTopics, has: SubscribedTopics, pool: list[list[Ints]]
) -> tuple[list[list[Ints]], Longs | None]:
    """Return a pool after topics changed, and where topics end; None if all grow.

    What a topic grows by is in the pool. What it no longer has is not.
    """
    size = len(has.partitions)
    before, after = had.sizes(size), has.sizes(size)
    grown = np.flatnonzero(after > before)
    ends = np.where(after < before, after, ABOVE_ALL) if (after < before).any() else None
    if ends is not None:
        pool = [clip_ranges(part, ends) for part in pool]
    return [*pool, [grown, before[grown], (after - before)[grown]]], ends


def clip_ranges(ranges: list[Ints], ends: Longs) -> list[Ints]:
    """Return what topics still have of ranges; what is empty stays."""
    topic, first, count = ranges
    return [topic, first, np.clip(ends[topic] - first, 0, count)]


def _clip(
    held: EqualMembers, order: MemberOrder, places: Longs, ends: Longs
) -> tuple[EqualMembers, MemberOrder]:
    """Take from members what topics no longer have."""
    if not len(places):
        return held, order
    versions = order.numbers_at(places)
    lengths, ranges = held.ranges_of(versions)
    topic, first, count = clip_ranges(ranges, ends)
    some = np.flatnonzero(count)
    who = np.repeat(np.arange(len(places)), lengths)[some]
    columns = tuple(column[some].astype(np.int32) for column in (topic, first, count))
    lengths = np.bincount(who, minlength=len(places))
    order = order.put(places, sum_by(who, columns[2], len(places)), held.next_versions(lengths))
    held = held.with_ranges(order, lengths, columns)
    return held, order


def _find_drops(held: EqualMembers, order: MemberOrder, total: int, low: int, high: int) -> _Drops:
    """Find who is above the level; each keeps its longest ranges, and of the last one the head."""
    counts, none = order.counts, np.zeros(0, dtype=np.int64)
    needed = counts.count_drops(low, high, total)
    if not needed:
        nothing = HeldRanges.none()
        return _Drops(None, none, order.at(none), none, none, nothing, nothing)
    height, first = counts.lower(needed)
    above = counts.count_above(height)
    last = order.last_within(above - first, height + 1, ABOVE_ALL)
    above_it = order.all_within(height + 2, ABOVE_ALL)
    places = join_places(last, above_it)
    at = order.at(places)
    versions, load = order.read(at)
    keeps = np.full(len(places), height + 1)
    keeps[_find_in(places, last)] = height
    ranges = HeldRanges.of(*held.ranges_of(versions))
    parts = ranges.keep_longest(ranges.who, keeps)
    return _Drops((height, first), places, at, load, keeps, *parts)


def _lay_pool(line: PartitionLine, parts: list[list[Ints]]) -> tuple[Longs, Longs]:
    """Return what members get, as pieces of the line: the longest first, then by place."""
    start, length = lay_pieces(line, parts)
    longest = (-length).argsort(kind="stable")
    return start[longest], length[longest]


def lay_pieces(line: PartitionLine, parts: list[list[Ints]]) -> tuple[Longs, Longs]:
    """Join ranges of topics to pieces of the line, cut where topics end; by place."""
    topic, first, count = map(_join, zip(*parts, strict=True))
    if not count.all():
        topic, first, count = (column[count > 0] for column in (topic, first, count))
    start, length = line.start[topic] + first, count.astype(np.int64)
    by_place = start.argsort(kind="stable")
    start, length = start[by_place], length[by_place]
    begins = np.ones(len(start), dtype=np.bool_)
    np.not_equal(start[1:], (start + length)[:-1], out=begins[1:])
    head = begins.nonzero()[0]
    if len(head) < len(start):
        start, length = start[head], np.add.reduceat(length, head)
    before = line.ends.searchsorted(start, side="right")
    if (before == line.ends.searchsorted(start + length)).all():  # no topic ends within a piece
        return start, length
    return cut_at(start, length, line.ends)


def _find_wants(order: MemberOrder, drops: _Drops, amount: int) -> tuple[MemberOrder, Longs, Longs]:
    """Fill the emptiest members: places, ascending, and how much each gets.

    The order has what givers keep only if one of them may get something.
    """
    height, more = order.counts.fill(amount, drops.level)
    fullest = height if more else height - 1
    if drops.level is not None and drops.level[0] <= fullest:
        order = order.put(drops.at, drops.keeps, had=drops.loads)
    first = order.first_within(more, 0, height)
    places = join_places(first, order.all_within(0, height - 1))
    load = order.loads_at(places)
    wants = np.maximum(height - load, 0)
    wants[_find_in(places, first)] += 1
    return order, places, wants


def _give(
    held: EqualMembers,
    order: MemberOrder,
    drops: _Drops,
    wants: tuple[Longs, Longs],
    pool: tuple[Longs, Longs],
) -> tuple[EqualMembers, Longs, Owned]:
    """Lay pool and wants beside each other; write what touched members have then.

    Returns
    -------
    held, places, touched
        The members then, and the places of touched ones, ascending, with what they own.
    """
    takers, amount = wants
    touched = join_places(drops.places, takers)
    if not len(touched):
        held = replace(held, order=order)
        return held, touched, held.owned_at(touched)
    giver = _find_in(touched, drops.places)
    at = order.at(touched)
    keys, versions = order.read_members(at)
    gives_nothing = np.ones(len(touched), dtype=np.bool_)
    gives_nothing[giver] = False
    others = gives_nothing.nonzero()[0]
    lengths, (topic, first, count) = held.ranges_of(versions[others])
    greatest = (-amount).argsort(kind="stable")
    piece, want, first_of, size = overlay(pool[1], amount[greatest], int(amount.sum()))
    start = pool[0][piece] + first_of - offsets_of(pool[1])[:-1][piece]
    line = held.topics.line
    new = line.topics[line.ends.searchsorted(start, side="right")]
    kept = drops.kept
    taker = _find_in(touched, takers)[greatest][want]
    who = np.concatenate((giver[kept.who], others.repeat(lengths), taker))
    topic = np.concatenate((kept.topic, topic, new))
    first = np.concatenate((kept.first, first, start - line.start[new]))
    count = np.concatenate((kept.count, count, size))
    by_place = ((who << LINE_BITS) + line.by_name[topic] + first).argsort(kind="stable")
    rows = merge_touching(*(column[by_place] for column in (who, topic, first, count)))
    lengths = np.bincount(rows[0], minlength=len(touched))
    order = order.put(at, sum_by(rows[0], rows[3], len(touched)), held.next_versions(lengths))
    return held.with_ranges(order, lengths, rows[1:]), touched, Owned(keys, lengths, [*rows[1:]])


def _join(columns: Sequence[Ints]) -> Ints:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _find_in(values: Longs, some: Longs) -> Longs:
    """Return where some of the values, which ascend, are."""
    return np.arange(len(some)) if len(some) == len(values) else values.searchsorted(some)


def join_places(some: Longs, more: Longs) -> Longs:
    """Return the values of both, which ascend, once each."""
    if not len(more):
        return some
    return sort_distinct(np.concatenate([some, more])) if len(some) else more


def are_in(values: Longs, some: Longs) -> Bools:
    """Tell which values are among some, which ascend."""
    if not len(some):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(some.searchsorted(values), len(some) - 1)
    return np.asarray(some[at] == values)
