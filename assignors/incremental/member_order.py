"""Members in order, in blocks, with how many have each load: who is first, who is last.

A block is replaced, never written to, so that older versions of the order stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, expand_runs, offsets_of, sort_distinct
from assignors.incremental.block_column import (
    INDEX,
    INDEX_BITS,
    BlockColumn,
    Exchange,
    Places,
    are_many,
    split_blocks,
)
from assignors.incremental.layered_columns import LayeredColumns
from assignors.incremental.level_counts import FEW, LevelCounts
from assignors.water_level import Histogram

Keys: TypeAlias = pa.LargeStringArray
"""Texts that sort as members do."""
Texts = npt.NDArray[np.object_]
"""Python's texts, or None where there is none."""
_Rows = tuple[Ints, Ints, Ints]
_AreSome = Callable[[Ints], Bools]
_KEYS = slice(1)
_NONE = np.zeros(0, dtype=np.int64)

BLOCK = 1024
"""Members of a block."""


@dataclass(frozen=True, slots=True, eq=False)
class MemberOrder:
    """Members in order, each with a number and a load.

    A *place* is (block << 32) | index within the block: places sort as members do. It is valid in
    one version of the order, and in those that `put` makes of it.

    Attributes
    ----------
    names
        Columns: the texts that sort as members do, of these and of others; and their racks, if
        they are kept. No row of it ever changes.
    keys, numbers, loads
        Rows of `names`, numbers, and loads of members; or, instead of loads, the kinds of what
        they own.
    heads
        The first text of each block.
    counts
        By load and block, how many members have it.
    block
        Members of a new block; one with more than twice as many is cut.
    """

    names: LayeredColumns
    keys: BlockColumn
    numbers: BlockColumn
    loads: BlockColumn
    heads: list[str]
    counts: LevelCounts
    block: int

    @classmethod
    def of(
        cls,
        names: Keys,
        numbers: Longs,
        loads: Ints,
        block: int = BLOCK,
        racks: Texts | None = None,
    ) -> MemberOrder:
        """Cut members, given in order, into blocks."""
        starts = np.append(np.arange(0, len(names), block), len(names))
        return cls(
            LayeredColumns.of(*_pair(names, racks)),
            BlockColumn.cut(np.arange(len(names)), starts),
            BlockColumn.cut(numbers, starts),
            BlockColumn.cut(loads, starts),
            names.take(pa.array(starts[:-1])).to_pylist(),
            LevelCounts.of(np.arange(len(names)) // block, loads, len(starts) - 1),
            block,
        )

    def __len__(self) -> int:
        return sum(self.counts.members)

    def histogram(self) -> Histogram:
        """Count members by load, as one class."""
        return self.counts.histogram()

    def at(self, places: Longs) -> Places:
        """Split places, which ascend, by block, to read and write several columns there."""
        return Places.of(places, self.keys)

    def _at(self, places: Longs | Places) -> Places:
        return places if isinstance(places, Places) else Places.of(places, self.keys)

    def read(self, places: Longs | Places) -> tuple[Longs, Longs]:
        """Return numbers and loads at places, which ascend."""
        at = self._at(places)
        return self.numbers.take(at), self.loads.take(at)

    def numbers_at(self, places: Longs | Places) -> Longs:
        """Return numbers at places, which ascend."""
        return self.numbers.take(self._at(places))

    def loads_at(self, places: Longs | Places) -> Longs:
        """Return loads at places, which ascend."""
        return self.loads.take(self._at(places))

    def read_members(self, places: Longs | Places) -> tuple[Keys, Longs]:
        """Return texts and numbers at places, which ascend."""
        at = self._at(places)
        return self._read_names(self.keys.take(at)), self.numbers.take(at)

    def _read_names(self, rows: Ints) -> Keys:
        if len(rows) < FEW:
            return pa.array(self.names.texts(rows), pa.large_string())
        return self.names.rows(rows, _KEYS)[0]

    def all(self) -> tuple[Keys, Longs]:
        """Return texts and numbers of all members."""
        return self._read_names(self.keys.end_to_end()), self._all_numbers()

    def _all_numbers(self) -> Longs:
        return self.numbers.end_to_end().astype(np.int64)

    def racks_at(self, places: Longs) -> Texts:
        """Return racks at places, which ascend."""
        return self._read_racks(self.keys.take(self._at(places)))

    def all_racks(self) -> Texts:
        """Return the racks of all members."""
        return self._read_racks(self.keys.end_to_end())

    def _read_racks(self, rows: Ints) -> Texts:
        racks: Texts = self.names.rows(rows, slice(1, 2))[0]
        return racks

    def all_places(self) -> tuple[Longs, Longs]:
        """Return the places of all members, ascending, and their numbers."""
        lengths = np.diff(self.keys.starts())
        starts = np.arange(len(lengths), dtype=np.int64) << INDEX_BITS
        return expand_runs(starts, lengths), self._all_numbers()

    def all_within(self, least: int, most: int) -> Longs:
        """Return the places of all members with a load in [least, most], ascending."""
        return self._all(self.counts.within(least, most), partial(_are_within, least, most))

    def first_within(self, wanted: int, least: int, most: int) -> Longs:
        """Return the first `wanted` places of members with a load in [least, most]."""
        return self._first(
            wanted, self.counts.within(least, most), partial(_are_within, least, most)
        )

    def last_within(self, wanted: int, least: int, most: int) -> Longs:
        """Return the last `wanted` places of members with a load in [least, most]."""
        return self._last(
            wanted, self.counts.within(least, most), partial(_are_within, least, most)
        )

    def all_of(self, loads: Longs) -> Longs:
        """Return the places of all members with one of these loads, ascending."""
        return self._all(self.counts.among(loads), partial(_are_among, loads))

    def first_of(self, wanted: int, loads: Longs) -> Longs:
        """Return the first `wanted` places of members with one of these loads."""
        return self._first(wanted, self.counts.among(loads), partial(_are_among, loads))

    def last_of(self, wanted: int, loads: Longs) -> Longs:
        """Return the last `wanted` places of members with one of these loads."""
        return self._last(wanted, self.counts.among(loads), partial(_are_among, loads))

    def first_of_each(self, levels: Longs) -> Longs:
        """Return the first place of a member with each of some loads, given as rows of `counts`."""
        blocks = [self.counts.first_block(level) for level in levels.tolist()]
        loads = [self.counts.loads[level] for level in levels.tolist()]
        if len(set(blocks)) < len(blocks) > FEW:
            return self._first_of_many(np.array(blocks), np.array(loads))
        found = [
            (block << INDEX_BITS) | int((self.loads.blocks[block] == load).argmax())
            for block, load in zip(blocks, loads, strict=True)
        ]
        return np.array(found, dtype=np.int64)

    def _first_of_many(self, blocks: Longs, loads: Longs) -> Longs:
        found = np.empty_like(loads)
        order = np.argsort(blocks, kind="stable")
        for block, rows in split_blocks(blocks[order]):
            levels, first = np.unique(self.loads.blocks[block], return_index=True)
            some = order[rows]
            found[some] = (block << INDEX_BITS) | first[np.searchsorted(levels, loads[some])]
        return found

    def _all(self, counts: Longs | None, are_some: _AreSome) -> Longs:
        return _NONE if counts is None else self._places_where(counts.nonzero()[0], are_some)

    def _first(self, wanted: int, counts: Longs | None, are_some: _AreSome) -> Longs:
        if counts is None or not wanted:
            return _NONE
        end = int(counts.cumsum().searchsorted(wanted)) + 1
        return self._places_where(counts[:end].nonzero()[0], are_some)[:wanted]

    def _last(self, wanted: int, counts: Longs | None, are_some: _AreSome) -> Longs:
        if counts is None or not wanted:
            return _NONE
        total = counts.cumsum()
        start = int(total.searchsorted(total[-1] - wanted, side="right"))
        found = self._places_where(start + counts[start:].nonzero()[0], are_some)
        return found[len(found) - wanted :]

    def find(self, keys: Keys) -> tuple[Longs, Bools]:
        """Return where each key, ascending, is or belongs, and whether it is there."""
        if not self.keys.blocks:
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        return self._find_few(keys) if len(keys) < FEW else self._find_many(keys)

    def _find_few(self, keys: Keys) -> tuple[Longs, Bools]:
        at, there = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        for number, key in enumerate(keys.to_pylist()):
            block = max(bisect_right(self.heads, key) - 1, 0)
            rows = self.keys.blocks[block]
            found = bisect_left(rows, key, key=self.names.text)
            at[number] = (block << INDEX_BITS) | found
            there[number] = found < len(rows) and self.names.text(rows[found]) == key
        return at, there

    def _find_many(self, keys: Keys) -> tuple[Longs, Bools]:
        """Halve the blocks of all keys at once."""
        texts = keys.to_pylist()
        bounds = np.array([bisect_left(texts, head) for head in self.heads[1:]], dtype=np.int64)
        block = np.repeat(np.arange(len(self.heads)), np.diff(bounds, prepend=0, append=len(keys)))
        starts, rows = self.keys.starts(), self.keys.end_to_end()
        low, high = starts[block], starts[block + 1]
        open_ = np.arange(len(keys))
        while len(open_):
            middle = (low[open_] + high[open_]) >> 1
            names = self.names.rows(rows[middle], _KEYS)[0]
            wanted = keys if len(open_) == len(keys) else keys.take(pa.array(open_))
            less = pc.less(names, wanted).to_numpy(zero_copy_only=False)
            low[open_[less]] = middle[less] + 1
            high[open_[~less]] = middle[~less]
            open_ = open_[low[open_] < high[open_]]
        there = low < starts[block + 1]
        some = np.flatnonzero(there)
        names = self.names.rows(rows[low[some]], _KEYS)[0]
        there[some] = pc.equal(names, keys.take(pa.array(some))).to_numpy(zero_copy_only=False)
        return (block << INDEX_BITS) | (low - starts[block]), there

    def put(
        self,
        places: Longs | Places,
        loads: Longs,
        numbers: Longs | None = None,
        had: Longs | None = None,
    ) -> MemberOrder:
        """Give the members at places, which ascend, other loads, and perhaps other numbers.

        Parameters
        ----------
        had
            The loads that they had, if they are known.
        """
        if not len(places):
            return self
        at = self._at(places)
        if had is None:
            had = self.loads.take(at)
        counts = self.counts.changed((at.block, had, -1), (at.block, loads, 1))
        column = self.numbers if numbers is None else self.numbers.put(at, numbers)
        loads_then = self.loads.put(at, loads)
        return MemberOrder(
            self.names, self.keys, column, loads_then, self.heads, counts, self.block
        )

    def changed(
        self,
        gone: Longs,
        before: Longs,
        keys: Keys,
        numbers: Longs,
        racks: Texts | None = None,
    ) -> MemberOrder:
        """Take out the members at places `gone` and put new ones, without a load, before others.

        Parameters
        ----------
        gone
            Places, ascending.
        before, keys, numbers, racks
            Where new members belong, as `find` says, and who they are, in order.
        """
        if not len(gone) + len(before):
            return self
        names = self.names.extended(*_pair(keys, racks)) if len(keys) else self.names
        rows = (len(self.names) + np.arange(len(keys)), numbers, np.zeros_like(numbers))
        leaving, coming = gone >> INDEX_BITS, before >> INDEX_BITS
        had = self.loads_at(gone)
        counts = self.counts.changed((leaving, had, -1), (coming, rows[2], 1))
        touched = _join_blocks(leaving, coming)
        exchange = self._exchange_all if are_many(len(touched), self.keys) else self._exchange
        columns, heads = exchange(gone, before, rows, names)
        row, number, load = columns
        fresh = MemberOrder(names, row, number, load, heads, counts, self.block)
        lengths = np.array([len(columns[0].blocks[at]) for at in touched.tolist()])
        odd = touched[(lengths == 0) | (lengths > 2 * self.block)]
        return fresh._recut(odd) if len(odd) else fresh

    def _exchange(
        self, gone: Longs, before: Longs, new: _Rows, names: LayeredColumns
    ) -> tuple[list[BlockColumn], list[str]]:
        """Return columns and heads with members exchanged in the blocks where some go or come."""
        out, into = gone & INDEX, before & INDEX
        leaving = dict(split_blocks(gone >> INDEX_BITS))
        coming = dict(split_blocks(before >> INDEX_BITS))
        none, heads = slice(0, 0), [*self.heads]
        columns = (self.keys, self.numbers, self.loads)
        fresh: list[dict[int, Ints]] = [{}, {}, {}]
        for at in leaving.keys() | coming.keys():
            leave, come = out[leaving.get(at, none)], coming.get(at, none)
            place = into[come]
            if len(leave) + len(place) == 1:
                row = int(place[0] if len(place) else leave[0])
                for blocks, column, rows in zip(fresh, columns, new, strict=True):
                    blocks[at] = column.exchange_one(at, row, len(leave), rows[come])
            else:
                change = Exchange.of(len(self.keys.blocks[at]), leave, place)
                for blocks, column, rows in zip(fresh, columns, new, strict=True):
                    blocks[at] = change.apply(column.blocks[at], rows[come])
            if len(fresh[0][at]):
                heads[at] = names.text(fresh[0][at][0])
        return [
            column.put_blocks(blocks) for column, blocks in zip(columns, fresh, strict=True)
        ], heads

    def _exchange_all(
        self, gone: Longs, before: Longs, new: _Rows, names: LayeredColumns
    ) -> tuple[list[BlockColumn], list[str]]:
        """Return the same, by exchanging members of all blocks end to end."""
        starts, count = self.keys.starts(), len(self.keys.blocks)
        leaving, coming = gone >> INDEX_BITS, before >> INDEX_BITS
        change = Exchange.of(
            int(starts[-1]), starts[leaving] + (gone & INDEX), starts[coming] + (before & INDEX)
        )
        more = np.bincount(coming, minlength=count) - np.bincount(leaving, minlength=count)
        starts = offsets_of(np.diff(starts) + more)
        done = [
            BlockColumn.cut(change.apply(column.end_to_end(), rows), starts)
            for column, rows in zip((self.keys, self.numbers, self.loads), new, strict=True)
        ]
        some = np.flatnonzero(np.diff(starts))  # an empty block is left out afterwards
        heads = [*self.heads]
        for at, row in zip(some.tolist(), done[0].end_to_end()[starts[some]].tolist(), strict=True):
            heads[at] = names.text(row)
        return done, heads

    def _recut(self, odd: Longs) -> MemberOrder:
        """Cut blocks that are too long, and leave out those that are empty."""
        parts = np.ones(len(self.keys.blocks), dtype=np.int64)
        lengths = np.array([len(self.keys.blocks[at]) for at in odd.tolist()], dtype=np.int64)
        parts[odd] = -(-lengths // self.block)
        keys, numbers, loads = (
            column.recut(parts) for column in (self.keys, self.numbers, self.loads)
        )
        heads = [head for head, times in zip(self.heads, parts.tolist(), strict=True)
                 for _ in range(times)]  # fmt: skip
        cut = expand_runs(offsets_of(parts)[odd], parts[odd])
        for at in cut.tolist():
            heads[at] = self.names.text(keys.blocks[at][0])
        counts = self.counts.recut(parts, cut, [loads.blocks[at] for at in cut.tolist()])
        return replace(self, keys=keys, numbers=numbers, loads=loads, heads=heads, counts=counts)

    def _places_where(self, blocks: Longs, are_some: _AreSome) -> Longs:
        """Return the places in blocks of members whose loads are some."""
        if not len(blocks):
            return _NONE
        if are_many(len(blocks), self.loads):
            starts = self.loads.starts()[blocks[0] : blocks[-1] + 2]
            low, starts = int(starts[0]), starts - starts[0]
            at = np.flatnonzero(are_some(self.loads.end_to_end()[low : low + int(starts[-1])]))
            block = np.repeat(np.arange(len(starts) - 1), np.diff(at.searchsorted(starts)))
            places: Longs = ((block + blocks[0]) << INDEX_BITS) | (at - starts[block])
            return places
        found = [
            are_some(self.loads.blocks[at]).nonzero()[0] + (at << INDEX_BITS)
            for at in blocks.tolist()
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)


def _pair(names: Keys, racks: Texts | None) -> list[Keys | Texts]:
    return [names] if racks is None else [names, racks]


def _join_blocks(some: Longs, more: Longs) -> Longs:
    """Return different blocks, ascending."""
    if len(some) + len(more) < FEW:
        return np.array(sorted({*some.tolist(), *more.tolist()}), dtype=np.int64)
    return sort_distinct(np.concatenate([some, more]))


def _are_within(least: int, most: int, loads: Ints) -> Bools:
    """Tell which loads are in [least, most]."""
    if least == most:
        return np.equal(loads, most)
    return np.logical_and(loads >= least, loads <= most)


def _are_among(some: Longs, loads: Ints) -> Bools:
    """Tell which loads are among some."""
    return np.isin(loads, some)
