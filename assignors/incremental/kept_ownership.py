"""Who owns what where classes share topics: members are counted by the kind of what they own.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from assignors.arrays import Bools, Longs, offsets_of, sum_by
from assignors.compressed_problem import Cells
from assignors.incremental.equal_members import EqualMembers
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.ownership import ClassTotals, compress_ownership
from assignors.plan import CompressedOwnership, OwnershipSource
from assignors.water_level import Histogram


@dataclass(frozen=True, slots=True, eq=False)
class KindsSeen:
    """The kinds of each class, seen through the cells of a plan.

    Attributes
    ----------
    merged
        (topic classes,) those of the cells.
    inside
        (rows, topic classes) whether it lies in the cell of the class.
    load
        (rows,) how much one member owns within its cell.
    owned, outside
        (rows, topic classes of the cells) how much of each, within its cell and beyond.
    """

    merged: Longs
    inside: Bools
    load: Longs
    owned: Longs
    outside: Longs


class KeptOwnership(OwnershipSource):
    """Answers to the plan from members counted by kind, a row for each kind of a class.

    Parameters
    ----------
    classes
        The members of each class, in the order of first members; for `loads` they have kinds.
    topic_class
        The topic class of each topic by name, before it is seen through cells.
    """

    def __init__(
        self, classes: Sequence[EqualMembers], kinds: OwnedKinds, topic_class: Longs
    ) -> None:
        self.classes, self.kinds = classes, kinds
        levels = [one.order.counts.loads for one in classes]
        self.starts = offsets_of(np.array([len(some) for some in levels], dtype=np.int64))
        self.class_ = np.repeat(np.arange(len(classes)), np.diff(self.starts))
        self.kind = np.array([*chain.from_iterable(levels)], dtype=np.int64)
        members = [one.order.counts.members for one in classes]
        self.members = np.array([*chain.from_iterable(members)], dtype=np.int64)
        self.vectors = kinds.vectors[self.kind]
        known = np.flatnonzero(topic_class >= 0)
        self._heads = known[np.unique(topic_class[known], return_index=True)[1]]
        self._seen: list[tuple[Cells, KindsSeen]] = []
        self._types: list[tuple[CompressedOwnership, list[Longs]]] = []

    def rows_of(self, class_: int) -> slice:
        """Return the rows of a class."""
        return slice(int(self.starts[class_]), int(self.starts[class_ + 1]))

    def seen(self, cells: Cells) -> KindsSeen:
        """Return the kinds seen through `cells`, worked out once."""
        for known, found in self._seen:
            if known is cells:
                return found
        merged = cells.problem.topic_class[self._heads]
        inside = cells.of_topics[merged] == cells.of_class[self.class_][:, np.newaxis]
        within = np.where(inside, self.vectors, 0)
        joined = np.zeros((len(merged), len(cells.problem.partitions)), dtype=np.int64)
        joined[np.arange(len(merged)), merged] = 1
        found = KindsSeen(
            merged, inside, within.sum(axis=1), within @ joined, (self.vectors - within) @ joined
        )
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
        return int((self.seen(cells).outside.sum(axis=1) * self.members).sum())

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> CompressedOwnership | None:
        """See `OwnershipSource`."""
        seen, class_, problem = self.seen(cells), self.class_, cells.problem
        competing = ~cells.alone[cells.of_class[class_]]
        over_low = competing & (seen.load > cells.low[class_])
        typed = over_low & (seen.load > above[class_])
        classes, width = len(problem.size), max(len(problem.partitions), 1)
        pairs = problem.pair_topic * classes + problem.pair_class
        row, topic = np.nonzero(seen.owned * (competing & ~over_low)[:, np.newaxis])
        pair = np.searchsorted(pairs, topic * classes + class_[row])
        below = sum_by(pair, seen.owned[row, topic] * self.members[row], len(pairs))
        types = self._list_types(seen, np.flatnonzero(typed))
        heads = np.array([rows[0] for rows in types], dtype=np.int64)
        entry, topics = np.nonzero(seen.owned[heads])
        if len(entry) > entries_max:
            return None
        row, topic = np.nonzero(seen.owned * (over_low & ~typed)[:, np.newaxis])
        distinct, inverse = np.unique(class_[row] * width + topic, return_inverse=True)
        amount = sum_by(inverse, seen.owned[row, topic] * self.members[row], len(distinct))
        held = compress_ownership(
            cells,
            below,
            class_[heads],
            np.array([self.members[rows].sum() for rows in types], dtype=np.int64),
            offsets_of(np.bincount(entry, minlength=len(types))),
            topics,
            seen.owned[heads][entry, topics],
            ClassTotals.of_loads(
                self.loads(cells), cells, above, distinct // width, distinct % width, amount
            ),
        )
        self._types.append((held, types))
        return held

    def _list_types(self, seen: KindsSeen, rows: Longs) -> list[Longs]:
        """Return the rows of each type, by class and first member: kinds that own alike."""
        if not len(rows):
            return []
        alike = np.column_stack([self.class_[rows], seen.owned[rows]])
        _, label = np.unique(alike, axis=0, return_inverse=True)
        order = np.argsort(label.reshape(-1), kind="stable")
        bounds = np.flatnonzero(np.diff(label.reshape(-1)[order])) + 1
        types = np.split(rows[order], bounds)
        first = [self._first_of(some) for some in types]
        return [types[at] for at in sorted(range(len(types)), key=first.__getitem__)]

    def _first_of(self, rows: Longs) -> tuple[int, int]:
        """Return the class of some rows, and the place of their first member."""
        class_ = int(self.class_[rows[0]])
        return class_, int(self.classes[class_].order.first_of(1, np.sort(self.kind[rows]))[0])

    def types_of(self, held: CompressedOwnership) -> list[Longs]:
        """Return the rows of each type of a compression given out before."""
        return next(types for known, types in self._types if known is held)
