"""What an engine's tasks do with blocks of a large group's line, before any partition has an owner.

A block is so many consecutive places of the line, packed into arrays, so that a table has a row for
each million partitions rather than for each. Which member gets a partition follows from its rank in
the pool: heaviest first, ties by place. How many of each weight come before a block is known to all
tasks, so each finds the ranks of its own partitions, and no row moves between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from assignors.arrays import Bools, Longs, offsets_of, rank_in_runs
from assignors.loads.load_spec import Floats, scale_weights
from assignors.weighted.levels import raise_to_floor, round_to_grid
from assignors.weighted.unit_tasks import RANGES, Shared, make_batch

Batches = Iterable[pa.RecordBatch]
PACKED = {"block": pa.int64(), "given": pa.binary(), "rough": pa.int64(), "whole": pa.bool_()}
WEIGHED = {
    "block": pa.int64(), "weight": pa.binary(), "count": pa.binary(),
    "least": pa.int64(), "most": pa.int64(), "sum": pa.int64(),
}  # fmt: skip
SUMMED = {"sum": pa.int64()}
ENDS = ("first_owner", "first_count", "first_exact", "last_owner")
FILLED = {
    "block": pa.int64(), "owner": pa.binary(), "at": pa.binary(), "exact": pa.binary(),
    "runs": pa.int64(), **dict.fromkeys(ENDS, pa.int64()),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """How weights become integers (`load_spec.quantise_weights`, `levels.round_to_grid`).

    Attributes
    ----------
    shift
        A weight of 2^-shift counts as 1.
    floor
        The least that a partition counts for which weighs something.
    """

    shift: int
    floor: int = 0

    def weigh(self, given: Floats) -> Longs:
        """Return weights as integers."""
        return scale_weights(given, self.shift)

    def plan(self, exact: Longs) -> Longs:
        """Return what integers count for in the plan."""
        return round_to_grid(raise_to_floor(exact, self.floor))


@dataclass(frozen=True, slots=True)
class PackBlocks:
    """Pack rows of place and given weight; a task has all of a block.

    Attributes
    ----------
    width, places
        Places of a block, and of all.
    rough
        With what `rough`, the sum of a block's weights, is made.
    """

    width: int
    places: int
    rough: Scale

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `PACKED`; a block that lacks a place, or has one twice, is not whole."""
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        rows = pa.Table.from_batches(kept)
        place, given = np.asarray(rows["place"]), np.asarray(rows["given"])
        block = place // self.width
        for one in np.unique(block).tolist():
            mine = block == one
            low = one * self.width
            size = min(self.width, self.places - low)
            packed, seen = np.zeros(size), np.zeros(size, dtype=np.bool_)
            packed[place[mine] - low], seen[place[mine] - low] = given[mine], True
            whole = bool(seen.all()) and int(np.count_nonzero(mine)) == size
            sum_ = int(self.rough.weigh(packed).sum())
            yield _row(PACKED, one, packed.tobytes(), sum_, whole)


@dataclass(frozen=True, slots=True)
class SumBlocks:
    """Add up the weights of packed blocks."""

    scale: Scale

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `SUMMED`: the sum of each block."""
        for _, given in _unpack(batches):
            yield _row(SUMMED, int(self.scale.weigh(given).sum()))


@dataclass(frozen=True, slots=True)
class WeighBlocks:
    """Count the partitions of packed blocks by weight."""

    scale: Scale

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `WEIGHED`: weights of the plan, how many have each; and of the exact ones."""
        for block, given in _unpack(batches):
            exact = self.scale.weigh(given)
            weight, count = np.unique(self.scale.plan(exact), return_counts=True)
            sums = int(exact.min()), int(exact.max()), int(exact.sum())
            yield _row(WEIGHED, block, weight.tobytes(), count.tobytes(), *sums)


@dataclass(frozen=True, slots=True)
class FillBlocks:
    """Give the partitions of packed blocks to members.

    Attributes
    ----------
    width
        Places of a block.
    start
        int64 (topics + 1,): where each topic begins on the line.
    shared
        Weights, descending, int64 (weights,); how many partitions come before those of a weight in
        a block, int64 (blocks, weights); member and end of each run (`runs.Runs`).
    """

    scale: Scale
    width: int
    start: Longs
    shared: Shared

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `FILLED`: owner, first place in the block and weight of each range, packed."""
        for block, given in _unpack(batches):
            exact = self.scale.weigh(given)
            owner = self._choose(block, self.scale.plan(exact))
            low = block * self.width
            head = np.ones(len(owner), dtype=np.bool_)
            np.not_equal(owner[1:], owner[:-1], out=head[1:])
            edges = self.start[(self.start >= low) & (self.start < low + len(owner))]
            head[edges - low] = True
            at = np.flatnonzero(head)
            weight = np.add.reduceat(exact, at)
            ends = int(owner[0]), int(np.append(at, len(owner))[1]), int(weight[0]), int(owner[-1])
            packed = owner[at].astype(np.int32), at.astype(np.int32), weight
            yield _row(FILLED, block, *(one.tobytes() for one in packed), len(at), *ends)

    def _choose(self, block: int, weight: Longs) -> Longs:
        """Return the member of each partition of a block."""
        weights, before, member, end = self.shared.value
        kind = np.searchsorted(-weights, -weight)
        if len(weights) < 2**16:
            kind = kind.astype(np.uint16)  # sorted by digits
        order = np.argsort(kind, kind="stable")
        kind = kind[order]
        rank = before[block][kind] + rank_in_runs(kind)
        owner = np.empty(len(weight), dtype=np.int64)
        owner[order] = member[np.searchsorted(end, rank, side="right")]
        return owner


@dataclass(frozen=True, slots=True)
class Seams:
    """Where a range goes on in the next block.

    Attributes
    ----------
    begun
        bool (blocks,): the first range of a block began before it.
    more_count, more_exact
        int64 (blocks,): what later blocks add to the last range of a block.
    """

    begun: Bools
    more_count: Longs
    more_exact: Longs

    @classmethod
    def of(cls, filled: pa.Table, width: int, start: Longs) -> Self:
        """Find them from the ends of all blocks, in the order of blocks."""
        runs, owner, count, exact, last = (
            np.asarray(filled[name]) for name in ("runs", *ENDS)
        )  # fmt: skip
        size = len(runs)
        begun = np.zeros(size, dtype=np.bool_)
        begun[1:] = (owner[1:] == last[:-1]) & ~np.isin(np.arange(1, size) * width, start)
        more_count, more_exact = np.zeros((2, size + 1), dtype=np.int64)
        for at in range(size - 2, -1, -1):  # of blocks, which are few
            if begun[at + 1]:
                through = int(runs[at + 1] == 1)
                more_count[at] = count[at + 1] + through * more_count[at + 1]
                more_exact[at] = exact[at + 1] + through * more_exact[at + 1]
        return cls(begun, more_count[:-1], more_exact[:-1])


@dataclass(frozen=True, slots=True)
class ListRanges:
    """Make rows of filled blocks.

    Attributes
    ----------
    width, places
        Places of a block, and of all.
    start
        int64 (topics + 1,): where each topic begins on the line.
    """

    width: int
    places: int
    start: Longs
    seams: Seams

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `RANGES`: each range is listed by the block where it begins."""
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("block", "owner", "at", "exact"))
            for block, owner, at, exact in zip(*columns, strict=True):
                yield self._list(
                    block,
                    np.frombuffer(owner, np.int32).astype(np.int64),
                    np.frombuffer(at, np.int32).astype(np.int64),
                    np.frombuffer(exact, np.int64).copy(),
                )

    def _list(self, block: int, owner: Longs, at: Longs, exact: Longs) -> pa.RecordBatch:
        low = block * self.width
        count = np.diff(at, append=min(self.width, self.places - low))
        count[-1] += self.seams.more_count[block]
        exact[-1] += self.seams.more_exact[block]
        topic = np.searchsorted(self.start, low + at, side="right") - 1
        rows = slice(int(self.seams.begun[block]), None)
        columns = owner, topic, low + at - self.start[topic], count, exact
        return make_batch(RANGES, [column[rows] for column in columns])


def find_ranks(weights: list[Longs], counts: list[Longs]) -> tuple[Longs, Longs, Longs]:
    """Combine the counts of all blocks.

    Parameters
    ----------
    weights, counts
        Different weights of each block, ascending, and how many partitions have each.

    Returns
    -------
    weight, count, before
        All weights, descending, and how many have each; and how many partitions come before those
        of a weight in a block, int64 (blocks, weights).
    """
    every = np.unique(np.concatenate(weights))[::-1]
    inside = np.zeros((len(weights), len(every)), dtype=np.int64)
    for block, (weight, count) in enumerate(zip(weights, counts, strict=True)):
        inside[block, np.searchsorted(-every, -weight)] = count
    count = inside.sum(axis=0)
    before = np.cumsum(inside, axis=0) - inside + offsets_of(count)[:-1]
    return every, count, before


def _unpack(batches: Batches) -> Iterator[tuple[int, Floats]]:
    """Yield packed blocks and their weights."""
    for batch in batches:
        for block, given in zip(batch["block"].to_pylist(), batch["given"], strict=True):
            yield block, np.frombuffer(given.as_buffer(), np.float64)


def _row(columns: dict[str, pa.DataType], *values: object) -> pa.RecordBatch:
    arrays = [pa.array([value], kind) for kind, value in zip(columns.values(), values, strict=True)]
    return pa.record_batch(arrays, names=list(columns))
