"""Who owns what where classes share topics: members are counted by the kind of what they own.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from assignors.arrays import (
    LINE_BITS,
    Bools,
    Longs,
    count_by,
    expand_runs,
    label_lists,
    offsets_of,
    sum_by,
    sum_pairs,
    sum_segments,
    take_lists,
)
from assignors.compressed_problem import Cells
from assignors.incremental.block_column import split_blocks
from assignors.incremental.equal_members import EqualMembers
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.ownership import ClassTotals, compress_ownership
from assignors.plan import CompressedOwnership, OwnershipSource
from assignors.water_level import Histogram


class RowAmounts(NamedTuple):
    """What one member of a row owns of topic classes, sorted by (row, topic class)."""

    row: Longs
    topic: Longs
    owned: Longs


@dataclass(frozen=True, slots=True, eq=False)
class KindsSeen:
    """The kinds of each class, seen through the cells of a plan.

    Attributes
    ----------
    load
        (rows,) how much one member owns within its cell.
    inside, outside
        How much of each topic class of the cells, within its cell and beyond.
    """

    load: Longs
    inside: RowAmounts
    outside: RowAmounts

    def owned_of(self, rows: slice, topic: int) -> Longs:
        """Return what one member of each of some rows owns of a topic class, within its cell."""
        row, topics, owned = self.inside
        low, high = np.searchsorted(row, (rows.start, rows.stop)).tolist()
        some = low + np.flatnonzero(topics[low:high] == topic)
        found = np.zeros(rows.stop - rows.start, dtype=np.int64)
        found[row[some] - rows.start] = owned[some]
        return found


class TypeRows(NamedTuple):
    """The rows of each type: kinds that own alike within their cell, by class and first member.

    Attributes
    ----------
    rows, offsets
        Type t has rows[offsets[t]:offsets[t + 1]].
    """

    rows: Longs
    offsets: Longs


class KeptOwnership(OwnershipSource):
    """Answers to the plan from members counted by kind, a row for each kind of a class.

    Parameters
    ----------
    classes
        The members of each class, in the order of first members; for `loads` they have kinds.
    heads
        By topic class of the kinds: a topic of it, as a place in the order of names.
    """

    def __init__(self, classes: Sequence[EqualMembers], kinds: OwnedKinds, heads: Longs) -> None:
        self.classes, self.kinds = classes, kinds
        levels = [one.order.counts.loads for one in classes]
        self.starts = offsets_of(np.array([len(some) for some in levels], dtype=np.int64))
        self.class_ = np.repeat(np.arange(len(classes)), np.diff(self.starts))
        self.kind = np.array([*chain.from_iterable(levels)], dtype=np.int64)
        members = [one.order.counts.members for one in classes]
        self.members = np.array([*chain.from_iterable(members)], dtype=np.int64)
        lengths = np.diff(kinds.amounts.offsets)[self.kind]
        at = expand_runs(kinds.amounts.offsets[self.kind], lengths)
        self._row = np.repeat(np.arange(len(self.kind)), lengths)
        self._head, self._owned = heads[kinds.amounts.topic[at]], kinds.amounts.owned[at]
        self._seen: list[tuple[Cells, KindsSeen]] = []
        self._types: list[tuple[CompressedOwnership, TypeRows]] = []

    def rows_of(self, class_: int) -> slice:
        """Return the rows of a class."""
        return slice(int(self.starts[class_]), int(self.starts[class_ + 1]))

    def seen(self, cells: Cells) -> KindsSeen:
        """Return the kinds seen through `cells`, worked out once."""
        for known, found in self._seen:
            if known is cells:
                return found
        width = max(len(cells.problem.partitions), 1)
        topic = cells.problem.topic_class[self._head]
        inside = cells.of_topics[topic] == cells.of_class[self.class_[self._row]]
        within, beyond = (
            RowAmounts(*sum_pairs(self._row[some], topic[some], self._owned[some], width))
            for some in (inside, ~inside)
        )
        found = KindsSeen(sum_by(within.row, within.owned, len(self.kind)), within, beyond)
        self._seen.append((cells, found))
        return found

    def loads(self, cells: Cells) -> Histogram:
        """See `OwnershipSource`."""
        return self.histogram(self.seen(cells).load)

    def histogram(self, load: Longs) -> Histogram:
        """Count members by class and `load`, given by row."""
        return Histogram.of(len(self.classes), self.class_, load, self.members)

    def crossing(self, cells: Cells) -> int:
        """See `OwnershipSource`."""
        row, _, owned = self.seen(cells).outside
        return int((owned * self.members[row]).sum())

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> CompressedOwnership | None:
        """See `OwnershipSource`."""
        seen, class_, problem = self.seen(cells), self.class_, cells.problem
        competing = ~cells.alone[cells.of_class[class_]]
        over_low = competing & (seen.load > cells.low[class_])
        typed = over_low & (seen.load > above[class_])
        classes, width = len(problem.size), max(len(problem.partitions), 1)
        pairs = problem.pair_topic * classes + problem.pair_class
        row, topic, amount = self._among(seen.inside, competing & ~over_low)
        pair = np.searchsorted(pairs, topic * classes + class_[row])
        below = sum_by(pair, amount * self.members[row], len(pairs))
        types, entries = self._list_types(seen, np.flatnonzero(typed))
        if len(entries.topic) > entries_max:
            return None
        row, topic, amount = self._among(seen.inside, over_low & ~typed)
        lump_class, lump_topic, lump = sum_pairs(
            class_[row], topic, amount * self.members[row], width
        )
        held = compress_ownership(
            cells,
            below,
            class_[types.rows[types.offsets[:-1]]],
            sum_segments(self.members[types.rows], types.offsets),
            offsets_of(count_by(entries.row, len(types.offsets) - 1)),
            entries.topic,
            entries.owned,
            ClassTotals.of_loads(self.loads(cells), cells, above, lump_class, lump_topic, lump),
        )
        self._types.append((held, types))
        return held

    def _among(self, amounts: RowAmounts, rows: Bools) -> RowAmounts:
        some = np.flatnonzero(rows[amounts.row])
        return RowAmounts(*(column[some] for column in amounts))

    def _list_types(self, seen: KindsSeen, rows: Longs) -> tuple[TypeRows, RowAmounts]:
        """Return the types of some rows, and what one member of each type owns, by its number."""
        starts = offsets_of(count_by(seen.inside.row, len(self.kind)))
        packed = (seen.inside.topic << LINE_BITS) | seen.inside.owned
        offsets, owned = take_lists(starts, packed, rows)
        label, heads = label_lists(offsets, owned, self.class_[rows])
        class_ = self.class_[rows[heads]]
        first = np.zeros(len(heads), dtype=np.int64)
        several = count_by(class_, len(self.classes))[class_] > 1  # one type comes first anyway
        some = np.flatnonzero(several[label])
        if len(some):
            first[several] = np.iinfo(np.int64).max
            np.minimum.at(first, label[some], self._find_first(rows[some]))
        number = np.argsort(np.lexsort((first, class_)))  # of each label
        order = np.argsort(number[label], kind="stable")
        types = TypeRows(rows[order], offsets_of(count_by(number[label], len(heads))))
        by_number = np.empty_like(heads)
        by_number[number] = heads
        offsets, owned = take_lists(offsets, owned, by_number)
        type_ = np.repeat(np.arange(len(heads)), np.diff(offsets))
        return types, RowAmounts(type_, owned >> LINE_BITS, owned & ((1 << LINE_BITS) - 1))

    def _find_first(self, rows: Longs) -> Longs:
        """Return the place of the first member of each row; rows ascend."""
        found = [
            self.classes[class_].order.first_of_each(rows[some] - self.starts[class_])
            for class_, some in split_blocks(self.class_[rows])
        ]
        return np.concatenate(found)

    def types_of(self, held: CompressedOwnership) -> TypeRows:
        """Return the types of a compression given out before."""
        return next(types for known, types in self._types if known is held)
