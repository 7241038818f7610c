"""Kinds of what members own, where classes share topics.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from assignors.arrays import (
    LINE_BITS,
    Ints,
    Longs,
    count_by,
    expand_runs,
    label_lists,
    offsets_of,
    sum_pairs,
    sum_segments,
)
from assignors.incremental.level_counts import FEW


class OwnedAmounts(NamedTuple):
    """How many partitions of which topics members own, a list for each member.

    Attributes
    ----------
    offsets
        Member j's list is offsets[j]:offsets[j + 1].
    topic, owned
        Topic classes, ascending within a list, and how many partitions; never 0.
    """

    offsets: Longs
    topic: Longs
    owned: Longs


@dataclass(frozen=True, slots=True, eq=False)
class OwnedKinds:
    """The kinds of what members own: how many partitions of each topic class; 0 is nothing.

    Attributes
    ----------
    topic_class
        By the number of each topic; −1, no one subscribes to it, or it has no partitions.
    width
        How many topic classes there are.
    amounts
        What a member of each kind owns.
    loads
        How much that is.
    number_of
        By what a kind owns.
    """

    topic_class: Longs
    width: int
    amounts: OwnedAmounts
    loads: Longs
    number_of: dict[bytes, int]

    @classmethod
    def of(cls, topic_class: Longs) -> OwnedKinds:
        """Begin with the kind that owns nothing."""
        none = np.zeros(0, dtype=np.int64)
        nothing = OwnedAmounts(np.zeros(2, dtype=np.int64), none, none)
        width = int(topic_class.max(initial=-1)) + 1
        return cls(topic_class, width, nothing, np.zeros(1, dtype=np.int64), {b"": 0})

    def sum_ranges(self, members: int, who: Ints, topic: Ints, count: Ints) -> OwnedAmounts:
        """Return what each member owns of each topic class, given its ranges."""
        found = sum_pairs(who, self.topic_class[topic], count, max(self.width, 1))
        return OwnedAmounts(offsets_of(count_by(found[0], members)), *found[1:])

    def find(self, amounts: OwnedAmounts) -> tuple[OwnedKinds, Longs]:
        """Return the kinds with those of such members among them, and the kind of each member."""
        offsets = amounts.offsets
        rows = len(offsets) - 1
        packed = (amounts.topic << LINE_BITS) | amounts.owned
        labels = heads = np.arange(rows)
        if rows >= FEW:
            labels, heads = label_lists(offsets, packed)
        some = zip(offsets[heads].tolist(), offsets[heads + 1].tolist(), strict=True)
        keys = [packed[low:high].tobytes() for low, high in some]
        fresh: dict[bytes, int] = {}
        new = []
        for at, key in enumerate(keys):
            if key not in self.number_of and key not in fresh:
                fresh[key] = len(self) + len(fresh)
                new.append(at)
        known = self.number_of | fresh if fresh else self.number_of
        kinds = self._with(amounts, heads[new], known) if fresh else self
        return kinds, np.array([known[key] for key in keys], dtype=np.int64)[labels]

    def _with(self, amounts: OwnedAmounts, new: Longs, number_of: dict[bytes, int]) -> OwnedKinds:
        had = self.amounts
        lengths = np.diff(amounts.offsets)[new]
        at = expand_runs(amounts.offsets[new], lengths)
        more = OwnedAmounts(
            np.append(had.offsets, had.offsets[-1] + np.cumsum(lengths)),
            np.append(had.topic, amounts.topic[at]),
            np.append(had.owned, amounts.owned[at]),
        )
        loads = sum_segments(amounts.owned[at], offsets_of(lengths))
        return OwnedKinds(
            self.topic_class, self.width, more, np.append(self.loads, loads), number_of
        )

    def __len__(self) -> int:
        return len(self.loads)
