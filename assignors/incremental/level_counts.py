"""How many members of each block have each load: a load whose members change is copied alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, count_by
from assignors.water_level import Histogram

FEW = 100
"""To call Arrow, or NumPy a few times, takes as long as a loop over so many rows."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelCounts:
    """Counts of members by load and block; a count is replaced, never written to.

    Attributes
    ----------
    loads
        Those that members have, ascending.
    blocks
        By load, how many members of each block have it.
    members
        By load, how many have it in all.
    """

    loads: list[int]
    blocks: list[Longs]
    members: list[int]

    @classmethod
    def of(cls, block: Longs, loads: Ints, width: int) -> LevelCounts:
        """Count members in so many blocks."""
        levels, level = np.unique(loads, return_inverse=True)
        counts = count_by(level * width + block, len(levels) * width).reshape(len(levels), width)
        return cls(levels.tolist(), [*counts], counts.sum(axis=1).tolist())

    @property
    def size(self) -> int:
        """How many counts there are."""
        return len(self.blocks) * len(self.blocks[0]) if self.blocks else 0

    def histogram(self) -> Histogram:
        """Count members by load, as one class."""
        loads = np.array(self.loads, dtype=np.int64)
        offsets = np.array([0, len(loads)], dtype=np.int64)
        members = np.array(self.members, dtype=np.int64)
        return Histogram(offsets, np.zeros_like(loads), loads, members)

    def count_drops(self, low: int, high: int, partitions: int) -> int:
        """Return what `water_level.count_drops_needed` returns for one class."""
        owned = excess = lack = 0
        for load, number in zip(self.loads, self.members, strict=True):
            owned += load * number
            excess += max(load - high, 0) * number
            lack += max(low - load, 0) * number
        return max(excess, lack - (partitions - owned), 0)

    def count_above(self, height: int) -> int:
        """Count members with a load above this."""
        return sum(self.members[bisect_right(self.loads, height) :])

    def lower(self, drops: int) -> tuple[int, int]:
        """Return height and first of what `water_level.lower_loads` returns for one class."""
        above = owned = 0
        for load, number in zip(reversed(self.loads), reversed(self.members), strict=True):
            if owned - above * load > drops:
                break
            above, owned = above + number, owned + number * load
        return divmod(owned - drops, above) if above else (0, 0)

    def fill(self, amount: int, lowered: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return height and first of what `water_level.fill_loads` returns for one class.

        Parameters
        ----------
        lowered
            To what `lower` returned, members are lowered first.
        """
        below = owned = 0
        rows = zip(self.loads, self.members, strict=True)
        for load, number in rows if lowered is None else self._lowered(*lowered):
            if below * load - owned > amount:
                break
            below, owned = below + number, owned + number * load
        return divmod(amount + owned, below) if below else (0, 0)

    def _lowered(self, height: int, first: int) -> list[tuple[int, int]]:
        """Return loads and how many members have each, lowered to a height, `first` one higher."""
        end, above = bisect_left(self.loads, height), self.count_above(height)
        there = sum(self.members[end : bisect_right(self.loads, height)])
        rows = [*zip(self.loads[:end], self.members[:end], strict=True)]
        return [*rows, (height, there + above - first), (height + 1, first)]

    def within(self, least: int, most: int) -> Longs | None:
        """Return by block how many members have a load in [least, most]; None: none has."""
        low, high = bisect_left(self.loads, least), bisect_left(self.loads, most + 1)
        return _sum_up(self.blocks[low:high])

    def among(self, loads: Longs) -> Longs | None:
        """Return by block how many members have one of these loads; None: none has."""
        some = np.isin(self.loads, loads).nonzero()[0].tolist()
        return _sum_up([self.blocks[at] for at in some])

    def first_block(self, level: int) -> int:
        """Return the first block in which a member has a load, given as a row of these counts."""
        counts = self.blocks[level]
        return int((counts > 0).argmax()) if len(counts) > 1 else 0

    def changed(self, *parts: tuple[Longs, Longs, int]) -> LevelCounts:
        """Return counts with more members, or fewer where the sign is −1: block, load, sign."""
        fresh: dict[int, Longs] = {}
        more: dict[int, int] = {}
        known = dict(zip(self.loads, self.blocks, strict=True))
        width = len(self.blocks[0]) if self.blocks else 0
        for block, loads, sign in parts:
            if len(loads) < FEW:
                for load, at in zip(loads.tolist(), block.tolist(), strict=True):
                    if load not in fresh:
                        fresh[load] = _copy(known.get(load), width)
                    fresh[load][at] += sign
                    more[load] = more.get(load, 0) + sign
                continue
            for load, rows in _by_load(loads):
                if load not in fresh:
                    fresh[load] = _copy(known.get(load), width)
                counts, some = fresh[load], block[rows]
                if len(some) < width:
                    np.add.at(counts, some, sign)
                else:
                    counts += sign * count_by(some, width)
                more[load] = more.get(load, 0) + sign * len(some)
        return self._with(known, fresh, more)

    def _with(
        self, known: dict[int, Longs], fresh: dict[int, Longs], more: dict[int, int]
    ) -> LevelCounts:
        members = dict(zip(self.loads, self.members, strict=True))
        known |= fresh
        for load, number in more.items():
            members[load] = members.get(load, 0) + number
        loads = sorted(load for load, number in members.items() if number)
        return LevelCounts(
            loads, [known[load] for load in loads], [members[load] for load in loads]
        )

    def recut(self, parts: Longs, places: Longs, loads: list[Longs]) -> LevelCounts:
        """Cut each block into as many parts as it says, given the loads in those at `places`."""
        counts = np.repeat(np.array(self.blocks), parts, axis=1)
        levels = np.array(self.loads, dtype=np.int64)
        for at, some in zip(places.tolist(), loads, strict=True):
            counts[:, at] = np.bincount(levels.searchsorted(some), minlength=len(levels))
        return LevelCounts(self.loads, [*counts], self.members)


def _by_load(loads: Ints) -> Iterator[tuple[int, slice | Longs]]:
    """Yield each load, and the rows that have it."""
    least, most = int(loads.min()), int(loads.max())
    if least == most:
        yield least, slice(None)
        return
    order = loads.argsort(kind="stable")
    ordered = loads[order]
    starts = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist()]
    for low, high in zip(starts, [*starts[1:], len(loads)], strict=True):
        yield int(ordered[low]), order[low:high]


def _copy(counts: Longs | None, width: int) -> Longs:
    return np.zeros(width, dtype=np.int64) if counts is None else counts.copy()


def _sum_up(counts: list[Longs]) -> Longs | None:
    if not counts:
        return None
    return counts[0] if len(counts) == 1 else np.asarray(np.sum(counts, axis=0))
