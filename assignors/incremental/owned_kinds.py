"""Kinds of what members own, where classes share topics.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from assignors.arrays import (
    LINE_BITS,
    Bools,
    Ints,
    Longs,
    count_by,
    expand_runs,
    label_lists,
    offsets_of,
    rank_in_runs,
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
        By the number of each topic; −1, no one subscribes to it, or it has no partitions. Topics
        that became alike since all members were counted may still be in several.
    width
        Numbers of topic classes are below it.
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

    def covers(self, topics: int) -> Bools:
        """Tell by the number of so many topics whether members own them."""
        found = np.zeros(topics, dtype=np.bool_)
        found[: len(self.topic_class)] = self.topic_class >= 0
        return found

    def recut(self, topic_class: Longs) -> tuple[OwnedKinds, Bools]:
        """Return kinds in which no topic class has topics that are not alike any longer.

        Of the topics of one class, those that are most of them keep its number.

        Parameters
        ----------
        topic_class
            Of each topic now, numbered in any way.

        Returns
        -------
        kinds, cut
            And for each topic whether it was in a class with others that are not like it.
        """
        had = np.full(len(topic_class), -1, dtype=np.int64)
        had[: len(self.topic_class)] = self.topic_class
        some = np.flatnonzero(topic_class >= 0)
        width = int(topic_class.max(initial=0)) + 1
        pairs, inverse, size = np.unique(
            (had[some] + 1) * width + topic_class[some], return_inverse=True, return_counts=True
        )
        of = pairs // width - 1
        order = np.lexsort((-size, of))
        stays = np.zeros(len(pairs), dtype=np.bool_)
        stays[order[rank_in_runs(of[order]) == 0]] = True
        stays &= of >= 0
        number = self.width + np.cumsum(~stays) - 1
        number[stays] = of[stays]
        now = np.full(len(topic_class), -1, dtype=np.int64)
        now[some] = number[inverse]
        kinds = replace(self, topic_class=now, width=self.width + int((~stays).sum()))
        return kinds, (had >= 0) & (now >= 0) & (had != now)

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
