"""Ranges of some members, and the rule by which members that give keep the longest of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, keep_longest


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

    @classmethod
    def none(cls) -> HeldRanges:
        """Return no ranges."""
        return cls(*np.zeros((4, 0), dtype=np.int64))

    def keep_longest(self, entry: Longs, keeps: Longs) -> tuple[HeldRanges, HeldRanges]:
        """Return what is kept, as `assignors.arrays.keep_longest`, and the rest."""
        kept = keep_longest(entry, self.count, keeps)
        some, rest = kept > 0, kept < self.count
        head = HeldRanges(self.who[some], self.topic[some], self.first[some], kept[some])
        tail = HeldRanges(
            self.who[rest],
            self.topic[rest],
            (self.first + kept)[rest],
            (self.count - kept)[rest],
        )
        return head, tail
