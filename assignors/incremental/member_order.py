"""Members in order, in blocks, with how many have each load: who is first, who is last.

A block is replaced, never written to, so that older versions of the order stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from assignors.arrays import Bools, Longs, expand_runs, offsets_of
from assignors.water_level import Histogram

Texts = npt.NDArray[np.object_]
"""Python's texts, or None where there is none."""
Rows = TypeVar("Rows", Longs, Texts)

BLOCK = 1024
"""Members of a block."""
_INDEX_BITS = 32
_INDEX = (1 << _INDEX_BITS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class MemberOrder:
    """Members in order, each with a number and a load.

    A *place* is (block << 32) | index within the block: places sort as members do. It is valid in
    one version of the order, and in those that `put` makes of it.

    Attributes
    ----------
    keys, numbers, loads
        Per block: texts that sort as members do, numbers, and loads of its members.
    heads
        The first key of each block.
    levels, counts
        The loads that members have, ascending; and per load and block, how many have it.
    block
        Members of a new block; one with more than twice as many is cut.
    """

    keys: list[Texts]
    numbers: list[Longs]
    loads: list[Longs]
    heads: Texts
    levels: Longs
    counts: Longs
    block: int

    @classmethod
    def of(cls, keys: Texts, numbers: Longs, loads: Longs, block: int = BLOCK) -> MemberOrder:
        """Cut members, given in order, into blocks."""
        starts = np.arange(0, len(keys), block)
        levels, level = np.unique(loads, return_inverse=True)
        cell = level * len(starts) + np.arange(len(keys)) // block
        counts = np.bincount(cell, minlength=len(levels) * len(starts))
        return cls(
            [keys[at : at + block] for at in starts.tolist()],
            [numbers[at : at + block] for at in starts.tolist()],
            [loads[at : at + block] for at in starts.tolist()],
            keys[starts],
            levels,
            counts.reshape(len(levels), len(starts)),
            block,
        )

    def __len__(self) -> int:
        return int(self.counts.sum())

    def histogram(self) -> Histogram:
        """Count members by load, as one class."""
        offsets = np.array([0, len(self.levels)], dtype=np.int64)
        return Histogram(offsets, np.zeros_like(self.levels), self.levels, self.counts.sum(axis=1))

    def read(self, places: Longs) -> tuple[Longs, Longs]:
        """Return numbers and loads at places, which ascend."""
        blocks = _Blocks.of(self, places >> _INDEX_BITS)
        at = blocks.positions(places)
        return blocks.joined(self.numbers)[at], blocks.joined(self.loads)[at]

    def read_keys(self, places: Longs) -> Texts:
        """Return keys at places, which ascend."""
        blocks = _Blocks.of(self, places >> _INDEX_BITS)
        return blocks.joined(self.keys)[blocks.positions(places)]

    def all(self) -> tuple[Texts, Longs]:
        """Return keys and numbers of all members."""
        return np.concatenate(self.keys), np.concatenate(self.numbers)

    def all_within(self, least: int, most: int) -> Longs:
        """Return the places of all members with a load in [least, most], ascending."""
        return self._places_within(np.flatnonzero(self._counts_within(least, most)), least, most)

    def first_within(self, wanted: int, least: int, most: int) -> Longs:
        """Return the first `wanted` places of members with a load in [least, most]."""
        some = self._counts_within(least, most)
        end = int(np.searchsorted(np.cumsum(some), wanted)) + 1 if wanted else 0
        return self._places_within(np.flatnonzero(some[:end]), least, most)[:wanted]

    def last_within(self, wanted: int, least: int, most: int) -> Longs:
        """Return the last `wanted` places of members with a load in [least, most]."""
        some = self._counts_within(least, most)
        skipped = int(some.sum()) - wanted
        start = int(np.searchsorted(np.cumsum(some), skipped, side="right"))
        found = self._places_within(start + np.flatnonzero(some[start:]), least, most)
        return found[len(found) - wanted :]

    def find(self, keys: Texts) -> tuple[Longs, Bools]:
        """Return where each key, ascending, is or belongs, and whether it is there."""
        if not len(keys):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        block = np.maximum(np.searchsorted(self.heads, keys, side="right") - 1, 0)
        at, there = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.bool_)
        ends = np.append(np.flatnonzero(block[1:] != block[:-1]) + 1, len(keys)).tolist()
        for low, high in zip([0, *ends[:-1]], ends, strict=True):  # a block, not a member
            ours, some = self.keys[block[low]], slice(low, high)
            at[some] = np.searchsorted(ours, keys[some])
            there[some] = ours[np.minimum(at[some], len(ours) - 1)] == keys[some]
        return (block << _INDEX_BITS) | at, there

    def put(self, places: Longs, loads: Longs, numbers: Longs | None = None) -> MemberOrder:
        """Give the members at places, which ascend, other loads, and perhaps other numbers."""
        if not len(places):
            return self
        block = places >> _INDEX_BITS
        blocks = _Blocks.of(self, block)
        at, had = blocks.positions(places), blocks.joined(self.loads)
        levels, counts = self._recounted((block, had[at], -1), (block, loads, 1))
        had[at] = loads
        out = replace(self, levels=levels, counts=counts, loads=blocks.cut(had, self.loads))
        if numbers is None:
            return out
        ours = blocks.joined(self.numbers)
        ours[at] = numbers
        return replace(out, numbers=blocks.cut(ours, self.numbers))

    def changed(self, gone: Longs, before: Longs, keys: Texts, numbers: Longs) -> MemberOrder:
        """Take out the members at places `gone` and put new ones, without a load, before others.

        Parameters
        ----------
        gone
            Places, ascending.
        before, keys, numbers
            Where new members belong, as `find` says, and who they are, in order.
        """
        if not len(gone) + len(before):
            return self
        blocks = _Blocks.of(self, np.sort(np.concatenate([gone, before])) >> _INDEX_BITS)
        out, into = blocks.positions(gone), blocks.positions(before)
        had = blocks.joined(self.loads)
        new = np.zeros(len(before), dtype=np.int64)
        levels, counts = self._recounted(
            (gone >> _INDEX_BITS, had[out], -1), (before >> _INDEX_BITS, new, 1)
        )
        width = len(blocks.number)
        leave, come = (
            np.bincount(blocks.ranks(rows >> _INDEX_BITS), minlength=width)
            for rows in (gone, before)
        )
        after = replace(blocks, starts=offsets_of(np.diff(blocks.starts) - leave + come))
        fresh = MemberOrder(
            after.cut(_exchange(blocks.joined(self.keys), out, into, keys), self.keys),
            after.cut(_exchange(blocks.joined(self.numbers), out, into, numbers), self.numbers),
            after.cut(_exchange(had, out, into, new), self.loads),
            self.heads.copy(),
            levels,
            counts,
            self.block,
        )
        sizes = np.diff(after.starts)
        for at in blocks.number[sizes > 0].tolist():
            fresh.heads[at] = fresh.keys[at][0]
        odd = blocks.number[(sizes > 2 * self.block) | (sizes == 0)]
        return fresh._recut(odd) if len(odd) else fresh

    def _recut(self, odd: Longs) -> MemberOrder:
        """Cut blocks that are too long, and leave out those that are empty."""
        parts = np.ones(len(self.keys), dtype=np.int64)
        lengths = np.array([len(self.keys[at]) for at in odd.tolist()], dtype=np.int64)
        parts[odd] = -(-lengths // self.block)
        keys, numbers = _cut_rows(self.keys, parts), _cut_rows(self.numbers, parts)
        loads = _cut_rows(self.loads, parts)
        counts = np.repeat(self.counts, parts, axis=1)
        for at in expand_runs(offsets_of(parts)[odd], parts[odd]).tolist():
            level = np.searchsorted(self.levels, loads[at])
            counts[:, at] = np.bincount(level, minlength=len(self.levels))
        heads = np.array([rows[0] for rows in keys], dtype=np.object_)
        return MemberOrder(keys, numbers, loads, heads, self.levels, counts, self.block)

    def _counts_within(self, least: int, most: int) -> Longs:
        """Return per block how many members have a load in [least, most]."""
        low, high = np.searchsorted(self.levels, [least, most + 1])
        return np.asarray(self.counts[low:high].sum(axis=0))

    def _places_within(self, some: Longs, least: int, most: int) -> Longs:
        if not len(some):
            return np.zeros(0, dtype=np.int64)
        blocks = _Blocks.of(self, some)
        loads = blocks.joined(self.loads)
        at = np.flatnonzero((loads >= least) & (loads <= most))
        rank = np.searchsorted(blocks.starts, at, side="right") - 1
        return (blocks.number[rank] << _INDEX_BITS) | (at - blocks.starts[rank])

    def _recounted(self, *parts: tuple[Longs, Longs, int]) -> tuple[Longs, Longs]:
        """Return levels and counts with (block, load) pairs more or fewer."""
        levels, counts, width = self.levels, self.counts.copy(), len(self.keys)
        for block, load, sign in parts:
            new = load[np.append(levels, -1)[np.searchsorted(levels, load)] != load]
            if len(new):
                wider = np.union1d(levels, new)
                grown = np.zeros((len(wider), width), dtype=np.int64)
                grown[np.searchsorted(wider, levels)] = counts
                levels, counts = wider, grown
            cell = np.searchsorted(levels, load) * width + block
            np.add.at(counts.reshape(-1), cell, sign)
        some = counts.any(axis=1)
        return (levels, counts) if some.all() else (levels[some], counts[some])


def _cut_rows(column: list[Rows], parts: Longs) -> list[Rows]:
    """Cut each block into as many parts as it says: none, one or more."""
    return [
        part
        for rows, count in zip(column, parts.tolist(), strict=True)
        for part in (np.array_split(rows, count) if count > 1 else [rows] * count)
    ]


def _exchange(values: Rows, out: Longs, into: Longs, new: Rows) -> Rows:
    """Take out the values at `out`, and put new ones before those at `into`; both ascend."""
    stays = np.ones(len(values) + len(into), dtype=np.bool_)
    stays[out + np.searchsorted(into, out, side="right")] = False
    fresh = np.insert(values, into, new) if len(into) else values
    return fresh[stays] if len(out) else fresh


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Some blocks of an order, one after another.

    Attributes
    ----------
    number
        Which blocks, ascending.
    starts
        Where each begins among the rows, and the end.
    """

    number: Longs
    starts: Longs

    @classmethod
    def of(cls, order: MemberOrder, blocks: Longs) -> _Blocks:
        """Take blocks, which ascend and may repeat."""
        number = blocks[np.append(True, blocks[1:] != blocks[:-1])[: len(blocks)]]
        return cls(number, offsets_of(np.array([len(order.keys[at]) for at in number], np.int64)))

    def joined(self, column: list[Rows]) -> Rows:
        """Copy the rows of these blocks."""
        if not len(self.number):
            return column[0][:0]
        return np.concatenate([column[at] for at in self.number.tolist()])

    def cut(self, rows: Rows, column: list[Rows]) -> list[Rows]:
        """Put rows in place of those of these blocks, in a copy of the list."""
        out: list[Rows] = list(column)
        ends = self.starts.tolist()
        for at, low, high in zip(self.number.tolist(), ends[:-1], ends[1:], strict=True):
            out[at] = rows[low:high]
        return out

    def ranks(self, block: Longs) -> Longs:
        """Return which of these blocks each is."""
        return np.searchsorted(self.number, block)

    def positions(self, places: Longs) -> Longs:
        """Return where places are among the rows."""
        return self.starts[self.ranks(places >> _INDEX_BITS)] + (places & _INDEX)
