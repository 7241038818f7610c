"""What an engine's tasks do with the partitions of one large group: steps of `solve`, by batches.

An engine that cuts a group into tasks keeps its partitions as rows and its members' sums as arrays.
A task is given rows as batches of Arrow columns, and answers with such. What it does with them is
what `solve.py` does, so the result is the same. Rows of units have the columns `UNITS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs, rank_in_runs
from assignors.weighted.levels import find_heights
from assignors.weighted.shed import choose_surplus

UNITS = ("place", "exact", "weight", "prev", "owner")
"""int64 each: place on the line of the group's topics, weight as given, weight on the grid, index
of the member that had it and of the one that has it, or -1."""
RANGES = ("owner", "topic", "first_partition", "partition_count", "exact")
"""int64 each: index of the member, of the line's topic; and the weight as given, in all."""


class Shared(Protocol):
    """Arrays that all tasks have: a broadcast of the engine's."""

    @property
    def value(self) -> Any:  # noqa: ANN401 - what a task says
        """Return them."""


@dataclass(frozen=True, slots=True)
class ShedUnits:
    """Take from members what exceeds their rooms, as `solve` does; a task has all of a member.

    Attributes
    ----------
    members
        Of them: load and room, int64 (members,) each.
    roomy
        Above this weight, a unit is too heavy for every member.
    lightest
        Only units up to this weight may be taken; none that weighs nothing.
    """

    members: Shared
    roomy: int
    lightest: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `UNITS`, those that were taken without an owner."""
        rows = _read_all(batches)
        if rows is None:
            return
        load, room = self.members.value
        rows = rows.sort_by("place")
        place, exact, weight, prev, owner = (_column(rows, name) for name in UNITS)
        who, whose = np.unique(owner, return_inverse=True)
        load, room = load[who].copy(), room[who]
        unit = np.flatnonzero((weight > 0) & (weight <= self.lightest))
        misfit = unit[(weight[unit] > room[whose[unit]]) & (weight[unit] <= self.roomy)]
        np.subtract.at(load, whose[misfit], weight[misfit])
        unit = np.setdiff1d(unit, misfit, assume_unique=True)
        taken = choose_surplus(unit, whose, weight, weight, load, room)
        owner = owner.copy()
        owner[misfit] = owner[taken] = -1
        yield make_batch(UNITS, (place, exact, weight, prev, owner))


@dataclass(frozen=True, slots=True)
class PlaceUnits:
    """Give units to the members of runs, the heaviest first; a task has all of a bucket.

    Attributes
    ----------
    runs
        Of all units: member and end of each run (`runs.Runs`), and how many are in the buckets
        before each one, int64.
    """

    runs: Shared

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `UNITS` of rows that also have a `bucket`; buckets follow the order."""
        rows = _read_all(batches)
        if rows is None:
            return
        member, end, before = self.runs.value
        order = np.lexsort((_column(rows, "place"), -_column(rows, "weight")))
        bucket = _column(rows, "bucket")[order]
        rank = before[bucket] + rank_in_runs(bucket)
        owner = member[np.searchsorted(end, rank, side="right")]
        yield make_batch(UNITS, [*(_column(rows, name)[order] for name in UNITS[:-1]), owner])


@dataclass(frozen=True, slots=True)
class RankMoves:
    """Say how high each move starts, as `budget.keep_budget` does; a task has all of a member.

    Attributes
    ----------
    members
        Of them: load before any move, and capacity, int64 (members,) each.
    """

    members: Shared

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `UNITS` and `height`, the level of the previous owner before the move."""
        rows = _read_all(batches)
        if rows is None:
            return
        load, capacity = self.members.value
        columns = [_column(rows, name) for name in UNITS]
        place, _, weight, prev, _ = columns
        order = np.lexsort((place, -weight, prev))
        columns = [column[order] for column in columns]
        height = find_heights(columns[3], columns[2], load, capacity)
        batch = make_batch(UNITS, columns)
        yield batch.append_column("height", pa.array(height, pa.int64()))


@dataclass(frozen=True, slots=True)
class JoinRanges:
    """Make ranges of places; a task has all of a member.

    Attributes
    ----------
    start
        int64 (topics + 1,): where each topic begins on the line.
    """

    start: Longs

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `RANGES`."""
        rows = _read_all(batches)
        if rows is None:
            return
        place, owner, exact = (_column(rows, name) for name in ("place", "owner", "exact"))
        order = np.lexsort((place, owner))
        place, owner, exact = place[order], owner[order], exact[order]
        topic = np.searchsorted(self.start, place, side="right") - 1
        head = np.ones(len(place), dtype=np.bool_)
        head[1:] = (np.diff(place) != 1) | (np.diff(owner) != 0) | (np.diff(topic) != 0)
        at = np.flatnonzero(head)
        count = np.diff(at, append=len(place))
        first = place[at] - self.start[topic[at]]
        columns = owner[at], topic[at], first, count, np.add.reduceat(exact, at)
        yield make_batch(RANGES, columns)


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> Any:  # noqa: ANN401 - of its type
    return np.asarray(rows[name])


def _read_all(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    kept = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(kept).combine_chunks() if kept else None


def make_batch(names: Sequence[str], columns: Sequence[Longs]) -> pa.RecordBatch:
    """Return columns of int64 as a batch."""
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.record_batch(arrays, names=list(names))
