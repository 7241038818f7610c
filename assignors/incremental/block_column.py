"""A column of int32 in blocks: few rows change few blocks, many rows change one array.

A block is replaced, never written to, so that older versions of the column stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from assignors.arrays import Bools, Ints, Longs, offsets_of

INDEX_BITS = 32
INDEX = (1 << INDEX_BITS) - 1
"""A place is (block << INDEX_BITS) | index within the block."""
_MANY = 16
"""Where one in so many blocks is looked at, all are read and written end to end."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockColumn:
    """A column in blocks.

    Attributes
    ----------
    blocks
        Its parts.
    whole
        All of it, if the blocks are views of one array.
    """

    blocks: list[Ints]
    whole: Ints | None

    @classmethod
    def cut(cls, values: Ints, starts: Longs) -> BlockColumn:
        """Cut values into blocks, given where they start, and the end."""
        whole: Ints = values.astype(np.int32, copy=False)
        return cls([whole[low:high] for low, high in pairwise(starts.tolist())], whole)

    def starts(self) -> Longs:
        """Return where each block starts, and the end."""
        return offsets_of(np.fromiter(map(len, self.blocks), np.int64, len(self.blocks)))

    def end_to_end(self) -> Ints:
        """Return all values."""
        if self.whole is not None:
            return self.whole
        return np.concatenate(self.blocks) if self.blocks else np.zeros(0, dtype=np.int32)

    def take(self, places: Places) -> Longs:
        """Return the values at places."""
        if places.starts is not None:
            return self.end_to_end()[places.index].astype(np.int64)
        found = [self.blocks[block][places.index[rows]] for block, rows in places.split]
        if len(found) == 1:
            return found[0].astype(np.int64)
        return np.concatenate(found, dtype=np.int64) if found else np.zeros(0, dtype=np.int64)

    def put(self, places: Places, values: Longs) -> BlockColumn:
        """Return a column with other values at places."""
        if places.starts is not None:
            whole = self.end_to_end()
            whole = whole.copy() if whole is self.whole else whole
            whole[places.index] = values
            return BlockColumn.cut(whole, places.starts)
        blocks = [*self.blocks]
        for block, rows in places.split:
            blocks[block] = blocks[block].copy()
            blocks[block][places.index[rows]] = values[rows]
        return BlockColumn(blocks, None)

    def exchange_one(self, block: int, at: int, gone: int, new: Ints) -> Ints:
        """Return a block without so many rows at `at`, and new ones there."""
        had = self.blocks[block]
        return np.concatenate((had[:at], new.astype(np.int32), had[at + gone :]))

    def put_blocks(self, blocks: dict[int, Ints]) -> BlockColumn:
        """Return a column with some other blocks."""
        out = [*self.blocks]
        for at, values in blocks.items():
            out[at] = values
        return BlockColumn(out, None)

    def recut(self, parts: Longs) -> BlockColumn:
        """Cut each block into as many parts as it says: none, one or more."""
        blocks = [
            part
            for rows, count in zip(self.blocks, parts.tolist(), strict=True)
            for part in (np.array_split(rows, count) if count > 1 else [rows] * count)
        ]
        return BlockColumn(blocks, None)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Rows of columns that have the same blocks, ascending.

    Attributes
    ----------
    block
        Of each row.
    split
        Each block with the rows that are in it; empty where `starts` are known.
    index
        Within the block; where `starts` are known, from the first block on.
    starts
        Where blocks start, and the end, if so many are looked at that they are read end to end.
    """

    block: Longs
    split: list[tuple[int, slice]]
    index: Longs
    starts: Longs | None

    @classmethod
    def of(cls, places: Longs, column: BlockColumn) -> Places:
        """Split places by block."""
        block, index = places >> INDEX_BITS, places & INDEX
        if not are_many(_count_blocks(block, column), column):
            return cls(block, split_blocks(block), index, None)
        starts = column.starts()
        return cls(block, [], starts[block] + index, starts)

    def __len__(self) -> int:
        return len(self.block)


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Rows that go and come.

    Attributes
    ----------
    stays
        Which of the old rows stay; None, all do.
    new
        Where new rows are then.
    is_old
        Which rows are old then.
    """

    stays: Bools | None
    new: Longs
    is_old: Bools

    @classmethod
    def of(cls, size: int, out: Longs, into: Longs) -> Exchange:
        """Take out the rows at `out`, and put new ones before those at `into`; both ascend."""
        stays, at = None, into + np.arange(len(into))
        if len(out):
            stays = np.ones(size, dtype=np.bool_)
            stays[out] = False
            at = at - out.searchsorted(into)
        is_old = np.ones(size - len(out) + len(into), dtype=np.bool_)
        is_old[at] = False
        return cls(stays, at, is_old)

    def apply(self, had: Ints, new: Ints) -> Ints:
        """Exchange the rows of one column."""
        if self.stays is not None:
            had = had[self.stays]
        if not len(new):
            return had
        rows = np.empty(len(self.is_old), dtype=had.dtype)
        rows[self.is_old] = had
        rows[self.new] = new
        return rows


def split_blocks(block: Longs) -> list[tuple[int, slice]]:
    """Return each block with the rows that are in it, given rows in the order of blocks."""
    if not len(block):
        return []
    if block[0] == block[-1]:
        return [(int(block[0]), slice(0, len(block)))]
    starts = [0, *((block[1:] != block[:-1]).nonzero()[0] + 1).tolist()]
    rows = map(slice, starts, [*starts[1:], len(block)])
    return list(zip(block[starts].tolist(), rows, strict=True))


def _count_blocks(block: Longs, column: BlockColumn) -> int:
    """Count different blocks, given rows in the order of blocks; where rows are few, these."""
    if not are_many(len(block), column):
        return len(block)
    return int(np.count_nonzero(block[1:] != block[:-1])) + 1


def are_many(blocks: int, column: BlockColumn) -> bool:
    """Tell whether so many blocks are better read end to end with all others."""
    return blocks * _MANY > len(column.blocks)
