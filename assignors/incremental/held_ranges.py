"""Ranges of some members, and the rule by which members that give keep the longest of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, offsets_of


@dataclass(frozen=True, slots=True)
class HeldRanges:
    """Ranges of members: who, by rank among some places; and topic, first, count."""

    who: Longs
    topic: Ints
    first: Ints
    count: Longs

    @classmethod
    def of(cls, lengths: Longs, columns: list[Ints]) -> HeldRanges:
        """Take what `EqualMembers.ranges_of` returns."""
        topic, first, count = columns
        who = np.repeat(np.arange(len(lengths)), lengths)
        return cls(who, topic, first, count.astype(np.int64))

    def keep_longest(self, entry: Longs, keeps: Longs) -> tuple[HeldRanges, HeldRanges]:
        """Return what is kept, the longest ranges first and the head of the last one; and the rest.

        Parameters
        ----------
        entry
            Of each range, what it belongs to: a member, or a member on a topic class.
        keeps
            How many partitions each entry keeps.
        """
        rank = np.lexsort((-self.count, entry))
        ranked = entry[rank]
        before = offsets_of(self.count[rank])[:-1]
        before -= before[np.searchsorted(ranked, ranked)]
        kept = np.empty_like(self.count)
        kept[rank] = np.clip(keeps[ranked] - before, 0, self.count[rank])
        some, rest = kept > 0, kept < self.count
        head = HeldRanges(self.who[some], self.topic[some], self.first[some], kept[some])
        tail = HeldRanges(
            self.who[rest],
            self.topic[rest],
            (self.first + kept)[rest],
            (self.count - kept)[rest],
        )
        return head, tail
