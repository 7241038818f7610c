"""Members in order, in blocks, with how many have each load: who is first, who is last.

A block is replaced, never written to, so that older versions of the order stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        Per block: texts that sort as members do, numbers, and loads of its members; or, instead of
        loads, the kinds of what they own.
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
        at, split = places & _INDEX, _split(places >> _INDEX_BITS)
        return _take_split(self.numbers, at, split), _take_split(self.loads, at, split)

    def numbers_at(self, places: Longs) -> Longs:
        """Return numbers at places, which ascend."""
        return _take(self.numbers, places)

    def loads_at(self, places: Longs) -> Longs:
        """Return loads at places, which ascend."""
        return _take(self.loads, places)

    def read_keys(self, places: Longs) -> Texts:
        """Return keys at places, which ascend."""
        return _take(self.keys, places)

    def all(self) -> tuple[Texts, Longs]:
        """Return keys and numbers of all members."""
        return np.concatenate(self.keys), np.concatenate(self.numbers)

    def all_places(self) -> tuple[Longs, Longs]:
        """Return the places of all members, ascending, and their numbers."""
        lengths = np.array([len(keys) for keys in self.keys], dtype=np.int64)
        starts = np.arange(len(lengths), dtype=np.int64) << _INDEX_BITS
        return expand_runs(starts, lengths), np.concatenate(self.numbers)

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

    def all_of(self, loads: Longs) -> Longs:
        """Return the places of all members with one of these loads, ascending."""
        return self._places_of(np.flatnonzero(self._counts_of(loads)), loads)

    def first_of(self, wanted: int, loads: Longs) -> Longs:
        """Return the first `wanted` places of members with one of these loads."""
        some = self._counts_of(loads)
        end = int(np.searchsorted(np.cumsum(some), wanted)) + 1 if wanted else 0
        return self._places_of(np.flatnonzero(some[:end]), loads)[:wanted]

    def last_of(self, wanted: int, loads: Longs) -> Longs:
        """Return the last `wanted` places of members with one of these loads."""
        some = self._counts_of(loads)
        skipped = int(some.sum()) - wanted
        start = int(np.searchsorted(np.cumsum(some), skipped, side="right"))
        found = self._places_of(start + np.flatnonzero(some[start:]), loads)
        return found[len(found) - wanted :]

    def find(self, keys: Texts) -> tuple[Longs, Bools]:
        """Return where each key, ascending, is or belongs, and whether it is there."""
        at, there = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        if not self.keys:
            return at, there
        if len(keys) < len(self.heads):
            block = np.maximum(np.searchsorted(self.heads, keys, side="right") - 1, 0)
        else:  # fewer comparisons of texts
            bounds = np.searchsorted(keys, self.heads[1:])
            block = np.repeat(
                np.arange(len(self.heads)), np.diff(bounds, prepend=0, append=len(keys))
            )
        for number, rows in _split(block):
            ours, wanted = self.keys[number], keys[rows]
            found = np.searchsorted(ours, wanted)
            at[rows] = found
            there[rows] = ours[np.minimum(found, len(ours) - 1)] == wanted
        return (block << _INDEX_BITS) | at, there

    def put(
        self,
        places: Longs,
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
        block, at = places >> _INDEX_BITS, places & _INDEX
        split = _split(block)
        if had is None:
            had = _take_split(self.loads, at, split)
        levels, counts = self._recounted((block, had, -1), (block, loads, 1))
        column = self.numbers
        if numbers is not None:
            column = _put_split(column, at, split, numbers)
        return MemberOrder(
            self.keys, column, _put_split(self.loads, at, split, loads), self.heads, levels, counts,
            self.block,
        )  # fmt: skip

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
        new = np.zeros(len(before), dtype=np.int64)
        levels, counts = self._recounted(
            (gone >> _INDEX_BITS, _take(self.loads, gone), -1), (before >> _INDEX_BITS, new, 1)
        )
        columns = ([*self.keys], [*self.numbers], [*self.loads])
        fresh = MemberOrder(*columns, self.heads.copy(), levels, counts, self.block)
        out, into = gone & _INDEX, before & _INDEX
        leaving = dict(_split(gone >> _INDEX_BITS))
        coming = dict(_split(before >> _INDEX_BITS))
        none, odd = slice(0, 0), np.zeros(len(self.keys), dtype=np.bool_)
        for at in sorted(leaving.keys() | coming.keys()):
            leave, come = out[leaving.get(at, none)], coming.get(at, none)
            change = _Exchange.of(len(self.keys[at]), leave, into[come])
            fresh.keys[at] = change.apply(self.keys[at], keys[come])
            fresh.numbers[at] = change.apply(self.numbers[at], numbers[come])
            fresh.loads[at] = change.apply(self.loads[at], new[come])
            size = len(fresh.keys[at])
            if size:
                fresh.heads[at] = fresh.keys[at][0]
            odd[at] = not 0 < size <= 2 * self.block
        return fresh._recut(np.flatnonzero(odd)) if odd.any() else fresh

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

    def _counts_of(self, loads: Longs) -> Longs:
        """Return per block how many members have one of these loads."""
        return np.asarray(self.counts[np.isin(self.levels, loads)].sum(axis=0))

    def _places_of(self, blocks: Longs, loads: Longs) -> Longs:
        found = [
            (at << _INDEX_BITS) | np.flatnonzero(np.isin(self.loads[at], loads))
            for at in blocks.tolist()
        ]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _places_within(self, blocks: Longs, least: int, most: int) -> Longs:
        found = [
            (at << _INDEX_BITS) | np.flatnonzero((loads >= least) & (loads <= most))
            for at in blocks.tolist()
            for loads in (self.loads[at],)
        ]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _recounted(self, *parts: tuple[Longs, Longs, int]) -> tuple[Longs, Longs]:
        """Return levels and counts with (block, load) pairs more or fewer."""
        levels, counts, width = self.levels, self.counts.copy(), len(self.keys)
        for block, load, sign in parts:
            at = levels.searchsorted(load)
            new = load[levels[np.minimum(at, len(levels) - 1)] != load]
            if len(new):
                wider = np.union1d(levels, new)
                grown = np.zeros((len(wider), width), dtype=np.int64)
                grown[np.searchsorted(wider, levels)] = counts
                levels, counts = wider, grown
                at = levels.searchsorted(load)
            cell = at * width + block
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


def _split(block: Longs) -> list[tuple[int, slice]]:
    """Return each block with the rows that are in it, given rows in the order of blocks."""
    if not len(block):
        return []
    starts = [0, *((block[1:] != block[:-1]).nonzero()[0] + 1).tolist()]
    rows = map(slice, starts, [*starts[1:], len(block)])
    return list(zip(block[starts].tolist(), rows, strict=True))


def _take(column: list[Rows], places: Longs) -> Rows:
    """Return the rows at places."""
    return _take_split(column, places & _INDEX, _split(places >> _INDEX_BITS))


def _take_split(column: list[Rows], at: Longs, split: list[tuple[int, slice]]) -> Rows:
    """Return the rows at indexes within blocks."""
    found = [column[block][at[rows]] for block, rows in split]
    return np.concatenate(found) if found else column[0][:0]


def _put_split(
    column: list[Longs], at: Longs, split: list[tuple[int, slice]], values: Longs
) -> list[Longs]:
    """Return a copy of the list, with other rows at indexes within blocks."""
    out = [*column]
    for block, rows in split:
        out[block] = out[block].copy()
        out[block][at[rows]] = values[rows]
    return out


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Rows of one block that go and come: which of the old and then the new rows, in order."""

    rows: Longs

    @classmethod
    def of(cls, size: int, out: Longs, into: Longs) -> _Exchange:
        """Take out the rows at `out`, and put new ones before those at `into`; both ascend."""
        count = len(into)
        rows = np.empty(size + count, dtype=np.int64)
        new = into + np.arange(count)
        old = np.ones(size + count, dtype=np.bool_)
        old[new] = False
        rows[new] = np.arange(size, size + count)
        rows[old] = np.arange(size)
        if not len(out):
            return cls(rows)
        old[new] = True
        old[out + np.searchsorted(into, out, side="right")] = False
        return cls(rows[old])

    def apply(self, had: Rows, new: Rows) -> Rows:
        """Exchange the rows of one column."""
        return np.concatenate([had, new])[self.rows]
