"""From plan to ranges: what is kept, what goes to the pool, who gets it.

See docs/design/algorithm.md#keep and #hand-out.

Prefix sums and sorted merges over arrays; the DataFrame twin, which must give the same rows, is
`spark_jobs/assignors/materialize.py`. Every choice is made by a total order: members in member
order, topic classes by first topic, partitions by number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import LINE_BITS, Ints, Longs, expand_runs, offsets_of, sum_by
from assignors.group_spec import GroupSpec
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
from assignors.relinquish import Relinquishment, relinquish, select_first_of_class
from assignors.water_level import fill_loads


def materialize(
    group: GroupSpec, plan: Plan, owned: ArrayOwnership, max_moves: int | None = None
) -> PartitionRanges:
    """Carry out a plan.

    Parameters
    ----------
    max_moves
        Most partitions to take from live owners; None for as many as the plan says.
    """
    holdings = owned.holdings(plan.cells)
    line = PartitionLine.of(plan.cells.problem.topic_class, group.partitions)
    drops, new = relinquish(holdings, plan, owned)
    kept, load = _count_kept(holdings, drops), _count_loads(holdings, drops)
    pool = _build_pool(group, line, kept)
    shares = _share_pools(plan, pool, new)
    gained = _match_demand(
        _split_by_class(plan, pool, shares), _find_demand(holdings, load, shares)
    )
    partial = False
    if max_moves is not None and int(drops.amount.sum()) > max_moves:
        partial = True
        surplus = load + sum_by(drops.member, drops.amount, len(load)) - holdings.low
        gained = _limit_moves(group, line, gained, surplus, max_moves)
    columns = _merge_ranges(group, line, kept, gained)
    verdict = Verdict(partial, plan.moved, plan.exact)
    return PartitionRanges(group.member_ids, group.topics, *columns, verdict)


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


def _count_kept(holdings: Ownership, drops: Relinquishment) -> Ints:
    """Return how much of each owned range stays: the longest ranges first, the last one cut."""
    group = holdings.group
    if not len(drops.member):
        return group.count
    topics = np.int64(max(len(holdings.cells.problem.partitions), 1))
    member = drops.member[np.append(True, drops.member[1:] != drops.member[:-1])]
    lengths = np.diff(group.member_ranges)[member]
    rows = expand_runs(group.member_ranges[member], lengths)
    keys = drops.member * topics + drops.topic_class
    wanted = group.member[rows] * topics + holdings.topic_class[rows]
    entry = np.searchsorted(keys, wanted)
    ours = keys[np.minimum(entry, len(keys) - 1)] == wanted
    rows, entry = rows[ours], entry[ours]
    count = group.count[rows].astype(np.int64)
    order = np.lexsort((-count, entry))
    rows, entry, count = rows[order], entry[order], count[order]
    before = offsets_of(count)[:-1]
    before -= before[np.searchsorted(entry, entry)]
    kept = group.count.copy()
    kept[rows] = np.clip((drops.owned - drops.amount)[entry] - before, 0, count)
    return kept


def _build_pool(group: GroupSpec, line: PartitionLine, kept: Ints) -> Pool:
    """Return what no member keeps, in line order, cut at topic ends."""
    order = _order_on_line(group, line)
    length = kept[order].astype(np.int64)
    start = line.start[group.topic[order]] + group.first[order]
    if kept is not group.count and not length.all():
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


def _share_pools(plan: Plan, pool: Pool, new: Longs) -> Longs:
    """Return per pair what the class gets of the topic class's pool: alone in its cell, all."""
    problem = plan.cells.problem
    topic = np.searchsorted(np.cumsum(problem.partitions), pool.start, side="right")
    sizes = sum_by(topic, pool.length, len(problem.partitions))
    alone = plan.cells.alone[plan.cells.of_class[problem.pair_class]]
    return np.where(alone, sizes[problem.pair_topic], new)


def _count_loads(holdings: Ownership, drops: Relinquishment) -> Longs:
    """Return what each member still has, shape (members,)."""
    group, load = holdings.group, holdings.load
    if holdings.crossing:
        load = sum_by(group.member, group.count, group.member_count)
    if not len(drops.member):
        return load
    return load - sum_by(drops.member, drops.amount, len(load))


def _find_demand(holdings: Ownership, load: Longs, shares: Longs) -> Demand:
    """Fill the emptiest members of each class."""
    group = holdings.group
    class_ = holdings.class_
    amount = sum_by(holdings.cells.problem.pair_class, shares, group.class_count)
    level = fill_loads(holdings.histogram(load), amount)
    height = level.height[class_] if group.class_count != 1 else level.height[0]
    wants = np.maximum(height - load, 0)
    wants[select_first_of_class(holdings, load <= height, level.first)] += 1
    who = np.flatnonzero(wants)
    if group.class_count == 1:
        order = np.argsort(-wants[who], kind="stable")
    else:
        order = np.lexsort((who, -wants[who], class_[who]))
    return Demand(who[order], wants[who[order]])


def _split_by_class(plan: Plan, pool: Pool, shares: Longs) -> Pool:
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


def _match_demand(pool: Pool, wants: Demand) -> NewRanges:
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
    group: GroupSpec, line: PartitionLine, kept: Ints, gained: NewRanges
) -> tuple[Ints, Ints, Ints, Ints]:
    """Join what is kept with what is new, in canonical order."""
    topic = line.topics[np.searchsorted(line.ends, gained.start, side="right")]
    fresh = (gained.member, topic, gained.start - line.start[topic], gained.count)
    old = [group.member, group.topic, group.first, kept]
    if kept is not group.count and not kept.all():
        old = [column[kept > 0] for column in old]
    member, topic, first, count = (
        np.concatenate([a, b.astype(np.int32)]) for a, b in zip(old, fresh, strict=True)
    )
    key = (member.astype(np.int64) << LINE_BITS) + line.by_name[topic] + first
    order = np.argsort(key, kind="stable")  # sorted runs: a merge
    return merge_touching(member[order], topic[order], first[order], count[order])
