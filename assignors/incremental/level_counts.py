"""How many members of each block have each load: a load whose members change is copied alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, count_by
from assignors.water_level import Histogram


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
    def of(cls, block: Longs, loads: Longs, width: int) -> LevelCounts:
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

    def within(self, least: int, most: int) -> Longs | None:
        """Return by block how many members have a load in [least, most]; None: none has."""
        low, high = bisect_left(self.loads, least), bisect_left(self.loads, most + 1)
        return _sum_up(self.blocks[low:high])

    def among(self, loads: Longs) -> Longs | None:
        """Return by block how many members have one of these loads; None: none has."""
        some = np.isin(self.loads, loads).nonzero()[0].tolist()
        return _sum_up([self.blocks[at] for at in some])

    def changed(self, *parts: tuple[Longs, Longs, int]) -> LevelCounts:
        """Return counts with more members, or fewer where the sign is −1: block, load, sign."""
        fresh: dict[int, Longs] = {}
        more: dict[int, int] = {}
        known = dict(zip(self.loads, self.blocks, strict=True))
        width = len(self.blocks[0]) if self.blocks else 0
        for block, loads, sign in parts:
            for load, rows in _by_load(loads):
                counts = fresh.get(load)
                if counts is None:
                    had = known.get(load)
                    counts = np.zeros(width, dtype=np.int64) if had is None else had.copy()
                    fresh[load] = counts
                some = block[rows]
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
        for load, number in more.items():
            members[load] = members.get(load, 0) + number
            known[load] = fresh[load]
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
    if not len(loads):
        return
    least, most = int(loads.min()), int(loads.max())
    if least == most:
        yield least, slice(None)
        return
    order = loads.argsort(kind="stable")
    ordered = loads[order]
    starts = [0, *((ordered[1:] != ordered[:-1]).nonzero()[0] + 1).tolist()]
    for low, high in zip(starts, [*starts[1:], len(loads)], strict=True):
        yield int(ordered[low]), order[low:high]


def _sum_up(counts: list[Longs]) -> Longs | None:
    if not counts:
        return None
    return counts[0] if len(counts) == 1 else np.asarray(np.sum(counts, axis=0))
