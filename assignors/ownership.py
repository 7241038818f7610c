"""Who owns what within the cells of a plan; answers what the plan asks, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from assignors.arrays import (
    Bools,
    Longs,
    count_by,
    expand_runs,
    label_lists,
    offsets_of,
    rank_in_runs,
    sum_by,
    sum_pairs,
    sum_segments,
)
from assignors.compressed_problem import Cells
from assignors.plan import CompressedOwnership, OwnershipSource
from assignors.water_level import Histogram

if TYPE_CHECKING:
    from assignors.group_spec import GroupSpec


@dataclass
class Ownership:
    """The owned ranges of a group, seen through one set of cells.

    Attributes
    ----------
    group, cells
        What is looked at.
    times
        How many members each member of the group stands for; None: itself.
    """

    group: GroupSpec
    cells: Cells
    times: Longs | None = None

    @cached_property
    def simple(self) -> bool:
        """Whether there is only one class, so that nothing lies across a border."""
        return self.group.class_count <= 1

    @cached_property
    def class_(self) -> Longs:
        """Class of each member, shape (members,)."""
        return self.group.member_class.astype(np.int64)

    @cached_property
    def topic_class(self) -> Longs:
        """Topic class of each owned range, shape (ranges,)."""
        return self.cells.problem.topic_class[self.group.topic]

    @cached_property
    def inside(self) -> Bools:
        """Whether each owned range lies in its owner's cell."""
        group, cells = self.group, self.cells
        own = cells.of_class[group.member_class[group.member]]
        return np.asarray(cells.of_topics[self.topic_class] == own)

    @cached_property
    def load(self) -> Longs:
        """Partitions each member owns within its cell, shape (members,)."""
        group = self.group
        count = group.count if self.simple else np.where(self.inside, group.count, 0)
        if (np.diff(group.member_ranges) == 1).all():  # one range each: nothing to add up
            return count.astype(np.int64)
        return sum_by(group.member, count, group.member_count)

    @property
    def low(self) -> Longs:
        """The least load each member may have, shape (members,)."""
        return self.cells.low[self.class_]

    def histogram(self, load: Longs) -> Histogram:
        """Count members by class and `load`."""
        return Histogram.of(self.group.class_count, self.class_, load, self.times)

    def count_owned(self, rows: Longs) -> Longs:
        """Return the partitions of some owned ranges, of all members that own such."""
        owned = self.group.count[rows].astype(np.int64)
        return owned if self.times is None else owned * self.times[self.group.member[rows]]

    @cached_property
    def crossing(self) -> int:
        """Owned partitions that lie in another cell than their owner."""
        return 0 if self.simple else int(self.count_owned(np.flatnonzero(~self.inside)).sum())

    @cached_property
    def competing(self) -> Bools:
        """Whether each member's class shares its cell with others."""
        return ~self.cells.alone[self.cells.of_class[self.class_]]

    def entries(self, rows: Longs) -> tuple[Longs, Longs, Longs]:
        """Sum owned ranges by (member, topic class), sorted: (member, topic class, owned)."""
        group = self.group
        topics = max(len(self.cells.problem.partitions), 1)
        return sum_pairs(group.member[rows], self.topic_class[rows], group.count[rows], topics)

    def pair(self, topic_class: Longs, class_: Longs) -> Longs:
        """Look up eligible (topic class, class) pairs; every pair given must be one."""
        problem = self.cells.problem
        classes = len(problem.size)
        keys = problem.pair_topic * classes + problem.pair_class
        wanted = topic_class * classes + class_
        if len(problem.partitions) * classes <= max(len(wanted), 1 << 16):
            table = np.zeros(len(problem.partitions) * classes, dtype=np.int64)
            table[keys] = np.arange(len(keys))
            return np.asarray(table[wanted])
        return np.asarray(np.searchsorted(keys, wanted))

    def compress(
        self, above: Longs, entries_max: int
    ) -> tuple[CompressedOwnership | None, MemberTypes]:
        """Do as `OwnershipSource.compress`; also say who belongs to which type."""
        group, cells, class_ = self.group, self.cells, self.class_
        over_low = self.competing & (self.load > cells.low[class_])
        typed = over_low & (self.load > above[class_])
        lumped = over_low & ~typed
        ours = self.inside & self.competing[group.member]
        low_rows = np.flatnonzero(ours & ~over_low[group.member])
        pairs = len(cells.problem.pair_class)
        pair = self.pair(self.topic_class[low_rows], class_[group.member[low_rows]])
        below = sum_by(pair, self.count_owned(low_rows), pairs)
        member, topic, owned = self.entries(np.flatnonzero(ours & typed[group.member]))
        types = MemberTypes.of(member, topic, owned, class_)
        if types.entry_count > entries_max:
            return None, types
        between = np.flatnonzero(ours & lumped[group.member])
        topics = max(len(cells.problem.partitions), 1)
        key = class_[group.member[between]] * topics + self.topic_class[between]
        distinct, inverse = np.unique(key, return_inverse=True)
        lumps = ClassTotals.of_loads(
            self.histogram(self.load),
            cells,
            above,
            distinct // topics,
            distinct % topics,
            sum_by(inverse, self.count_owned(between), len(distinct)),
        )
        at = expand_runs(types.offsets[:-1][types.heads], np.diff(types.offsets)[types.heads])
        held = compress_ownership(
            cells,
            below,
            class_[types.member[types.heads]],
            self.count_members(types),
            offsets_of(np.diff(types.offsets)[types.heads]),
            types.entry_topic[at],
            types.entry_owned[at],
            lumps,
        )
        return held, types

    def count_members(self, types: MemberTypes) -> Longs:
        """Count the members of each type."""
        if self.times is None:
            return count_by(types.type, len(types.heads))
        return sum_by(types.type, self.times[types.member], len(types.heads))


@dataclass(frozen=True, slots=True)
class ClassTotals:
    """Members of a class taken together: totals per class, entries by (class, topic class)."""

    members: Longs
    base: Longs
    extra: Longs
    entry_class: Longs
    entry_topic: Longs
    entry_owned: Longs

    @classmethod
    def of_loads(
        cls,
        loads: Histogram,
        cells: Cells,
        above: Longs,
        entry_class: Longs,
        entry_topic: Longs,
        entry_owned: Longs,
    ) -> ClassTotals:
        """Take together the members of flow cells with a load in (low, above]."""
        class_, load = loads.class_, loads.load
        low, high = cells.low[class_], cells.high[class_]
        competing = ~cells.alone[cells.of_class[class_]]
        members = np.where(competing & (load > low) & (load <= above[class_]), loads.members, 0)
        return cls(
            sum_segments(members, loads.offsets),
            sum_segments(members * np.minimum(load, low), loads.offsets),
            sum_segments(members * (np.minimum(load, high) - low), loads.offsets),
            entry_class,
            entry_topic,
            entry_owned,
        )


@dataclass(frozen=True, slots=True)
class MemberTypes:
    """Members that own alike.

    Attributes
    ----------
    member, type, rank
        Typed members in member order, the type of each and its place among the members of it.
    entry_topic, entry_owned
        What each of them owns, laid end to end by member.
    heads
        Per type its first member, as a place in `member`; types are numbered by (class, first
        member).
    offsets
        Where the entries of each member start.
    """

    member: Longs
    type: Longs
    rank: Longs
    entry_topic: Longs
    entry_owned: Longs
    heads: Longs
    offsets: Longs

    @classmethod
    def of(cls, member: Longs, topic: Longs, owned: Longs, class_: Longs) -> MemberTypes:
        """Group entries, sorted by (member, topic class), by class and owned vector."""
        first = np.flatnonzero(rank_in_runs(member) == 0)
        who, offsets = member[first], np.append(first, len(member))
        labels, heads = label_lists(offsets, (topic << 31) | owned, class_[who])
        by_class = np.argsort(class_[who[heads]], kind="stable")
        number = np.empty_like(by_class)
        number[by_class] = np.arange(len(by_class))
        labels, heads = number[labels], heads[by_class]
        order = np.argsort(labels, kind="stable")
        rank = np.empty_like(labels)
        rank[order] = rank_in_runs(labels[order])
        return cls(who, labels, rank, topic, owned, heads, offsets)

    @property
    def entry_count(self) -> int:
        """Entries of all types, each type counted once."""
        return int(np.diff(self.offsets)[self.heads].sum())


def compress_ownership(
    cells: Cells,
    below: Longs,
    type_class: Longs,
    type_members: Longs,
    type_entries: Longs,
    entry_topic: Longs,
    entry_owned: Longs,
    lumps: ClassTotals,
) -> CompressedOwnership:
    """Put the nodes together: types by (class, first member), then lumped classes."""
    lumped = np.flatnonzero(lumps.members)
    lump_entries = count_by(lumps.entry_class, len(lumps.members))[lumped]
    low, span = cells.low[type_class], (cells.high - cells.low)[type_class]
    return CompressedOwnership(
        below=below,
        node_class=np.concatenate([type_class, lumped]),
        node_members=np.concatenate([type_members, lumps.members[lumped]]),
        node_base=np.concatenate([type_members * low, lumps.base[lumped]]),
        node_extra=np.concatenate([type_members * span, lumps.extra[lumped]]),
        typed=np.arange(len(type_class) + len(lumped)) < len(type_class),
        node_entries=offsets_of(np.concatenate([np.diff(type_entries), lump_entries])),
        entry_topic=np.concatenate([entry_topic, lumps.entry_topic]),
        entry_owned=np.concatenate([entry_owned, lumps.entry_owned]),
    )


class ArrayOwnership(OwnershipSource):
    """NumPy's answers to the plan, remembering the last ones for the expansion.

    Parameters
    ----------
    times
        How many members each member of the group stands for; None: itself.
    """

    def __init__(self, group: GroupSpec, times: Longs | None = None) -> None:
        self.group, self.times = group, times
        self.seen: list[tuple[Cells, Ownership]] = []
        self.types: list[tuple[CompressedOwnership, MemberTypes]] = []

    def holdings(self, cells: Cells) -> Ownership:
        """Return the group seen through `cells`, worked out once."""
        for known, holdings in self.seen:
            if known is cells:
                return holdings
        self.seen.append((cells, Ownership(self.group, cells, self.times)))
        return self.seen[-1][1]

    def loads(self, cells: Cells) -> Histogram:
        """See `OwnershipSource`."""
        holdings = self.holdings(cells)
        return holdings.histogram(holdings.load)

    def crossing(self, cells: Cells) -> int:
        """See `OwnershipSource`."""
        return self.holdings(cells).crossing

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> CompressedOwnership | None:
        """See `OwnershipSource`."""
        held, types = self.holdings(cells).compress(above, entries_max)
        if held is not None:
            self.types.append((held, types))
        return held

    def find_types(self, held: CompressedOwnership) -> MemberTypes:
        """Return who belongs to the types of a compression given out before."""
        return next(types for known, types in self.types if known is held)
