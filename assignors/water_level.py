"""Water levels: lower the fullest members, fill the emptiest, on histograms of load.

Both are exact, and both engines solve them here: a histogram has at most √2³¹ distinct loads a
class, however many members there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, floor_div, offsets_of, sum_by, sum_segments


@dataclass(frozen=True, slots=True)
class Histogram:
    """Members by load: `members` of class `class_` have load `load`; sorted by (class, load).

    Attributes
    ----------
    offsets
        Class c's rows are offsets[c]:offsets[c + 1].
    """

    offsets: Longs
    class_: Longs
    load: Longs
    members: Longs

    @classmethod
    def of(
        cls, classes: int, class_: Longs, load: Longs, members: Longs | None = None
    ) -> Histogram:
        """Count rows (or sum `members`) by (class, load)."""
        if members is None and len(load):
            width = int(load.max()) + 1
            if classes * width <= 4 * len(load):
                counts = np.bincount(class_ * width + load if classes > 1 else load)
                key = np.flatnonzero(counts)
                return cls._of_keys(classes, key // width, key % width, counts[key])
        width = int(load.max(initial=0)) + 1
        key, inverse = np.unique(class_ * width + load, return_inverse=True)
        weight = np.ones(len(load), dtype=np.int64) if members is None else members
        counts = sum_by(inverse, weight, len(key))
        return cls._of_keys(classes, key // width, key % width, counts)

    @classmethod
    def _of_keys(cls, classes: int, class_: Longs, load: Longs, members: Longs) -> Histogram:
        offsets = np.searchsorted(class_, np.arange(classes + 1))
        return cls(offsets, class_, load, members.astype(np.int64))

    def sum(self, amount: Longs) -> Longs:
        """Sum `amount` × members per class."""
        return sum_segments(amount * self.members, self.offsets)

    def excess(self, level: Longs) -> Longs:
        """Sum per class what lies above the class's level."""
        return self.sum(np.maximum(self.load - level[self.class_], 0))

    def lack(self, level: Longs) -> Longs:
        """Sum per class what is missing below the class's level."""
        return self.sum(np.maximum(level[self.class_] - self.load, 0))

    def total(self) -> Longs:
        """Sum the loads of each class."""
        return self.sum(self.load)


@dataclass(frozen=True, slots=True)
class WaterLevel:
    """A level per class: members are cut or filled to `height`, the first `first` one higher."""

    height: Longs
    first: Longs


def count_drops_needed(loads: Histogram, low: Longs, high: Longs, partitions: Longs) -> Longs:
    """Return per class the fewest partitions its members must give up.

    No member may keep more than `high`, and partitions without an owner must lift all to `low`.
    """
    orphans = partitions - loads.total()
    return np.maximum(np.maximum(loads.excess(high), loads.lack(low) - orphans), 0)


def lower_loads(loads: Histogram, drops: Longs) -> WaterLevel:
    """Take `drops` partitions from the fullest members of each class.

    A member whose load is above `height` keeps `height`, the first `first` such members one more.
    """
    start, end = loads.offsets[:-1], loads.offsets[1:]
    weight = loads.load * loads.members
    members, sums = offsets_of(loads.members), offsets_of(weight)
    after = end[loads.class_]
    at = np.arange(len(loads.load))
    above_members = members[after] - members[at + 1]
    cost = (sums[after] - sums[at + 1]) - above_members * loads.load
    fits = cost <= drops[loads.class_]
    row = np.minimum(end - _count_flags(fits, loads.offsets), len(loads.load) - 1)
    some = end > start
    row = np.where(some, row, 0)
    if not len(loads.load):
        return WaterLevel(np.zeros_like(drops), np.zeros_like(drops))
    top = above_members[row] + loads.members[row]
    left = drops - cost[row]
    deeper, odd = floor_div(left, top), np.where(top > 0, left % np.maximum(top, 1), 0)
    height = loads.load[row] - deeper - (odd > 0)
    return WaterLevel(np.where(some, height, 0), np.where(some & (odd > 0), top - odd, 0))


def fill_loads(loads: Histogram, amount: Longs) -> WaterLevel:
    """Give `amount` partitions to the emptiest members of each class.

    A member whose load is at most `height` gets `height`, the first `first` such members one more.
    """
    start, end = loads.offsets[:-1], loads.offsets[1:]
    if not len(loads.load):
        return WaterLevel(np.zeros_like(amount), np.zeros_like(amount))
    members, sums = offsets_of(loads.members), offsets_of(loads.load * loads.members)
    before = start[loads.class_]
    at = np.arange(len(loads.load))
    below_members = members[at] - members[before]
    cost = below_members * loads.load - (sums[at] - sums[before])
    fits = cost <= amount[loads.class_]
    some = end > start
    row = np.where(some, start + _count_flags(fits, loads.offsets) - 1, 0)
    bottom = below_members[row] + loads.members[row]
    left = amount - cost[row]
    higher, odd = floor_div(left, bottom), np.where(bottom > 0, left % np.maximum(bottom, 1), 0)
    return WaterLevel(np.where(some, loads.load[row] + higher, 0), np.where(some, odd, 0))


def _count_flags(flags: np.ndarray, offsets: Longs) -> Longs:
    return sum_segments(flags.astype(np.int64), offsets)
