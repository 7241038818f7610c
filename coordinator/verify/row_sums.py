"""Sums of the hashes of rows, a column at a time: equal rows in any order have equal sums."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from assignors.arrays import offsets_of
from coordinator.core.state.member_rows import RecordRows
from coordinator.core.state.records import ComputationPrepared, Record
from coordinator.storage.record_encoder import encode_records

Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

BYTES = 8
PLACE = ("position", "at_ms", "at", "coordinator_epoch")
"""Where and when a row was written: not what it says."""
AT_ONCE = 65_536
"""Records that are encoded at once."""
NOTHING = np.uint64(0)
"""Of a value that is null: a column that a file lacks is one that is null in all its rows."""


@dataclass(slots=True)
class RowSums:
    """The number of rows by kind and group, and the sum of their hashes.

    Computations are not counted, as in a `StateDigest`.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if not len(rows):
            return
        hashes = _hash_rows(rows)
        codes, names = np.zeros(len(rows), np.int64), []
        for name in ("kind", "group_id"):
            column = _whole(rows, name).dictionary_encode(null_encoding="encode")
            names.append(column.dictionary.to_pylist())
            codes = codes * len(names[-1]) + column.indices.to_numpy()
        found, inverse = np.unique(codes, return_inverse=True)
        sums = np.zeros(len(found), np.uint64)
        np.add.at(sums, inverse, hashes)
        counts = np.bincount(inverse)
        for code, count, total in zip(*map(np.ndarray.tolist, (found, counts, sums)), strict=True):
            what = (str(names[0][code // len(names[1])]), names[1][code % len(names[1])] or "")
            if what[0] != ComputationPrepared.kind:
                self.counts[what] += count
                self.sums[what] = (self.sums.get(what, 0) + total) % (1 << 8 * BYTES)

    def add_records(self, runs: Iterable[Iterable[Record]]) -> None:
        """Add the rows of records."""
        for run in runs:
            for some in _cut(run):
                self.add(encode_records(some, 1, 0, 0))


def _cut(run: Iterable[Record]) -> Iterable[Sequence[Record]]:
    if isinstance(run, RecordRows):
        return (run.part(slice(at, at + AT_ONCE)) for at in range(0, len(run), AT_ONCE))
    records = iter(run)
    return iter(lambda: list(islice(records, AT_ONCE)), [])


def _whole(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(len(rows), pa.string())
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _hash_rows(rows: pa.Table) -> Hashes:
    names = [name for name in rows.column_names if name not in PLACE]
    return _hash_fields([(name, _whole(rows, name)) for name in names], len(rows))


def _hash_fields(fields: Iterable[tuple[str, pa.Array]], size: int) -> Hashes:
    total = np.zeros(size, np.uint64)
    for name, array in fields:
        found = _hash(array)
        total += np.where(found == NOTHING, NOTHING, _mix(found + _hash_bytes(name.encode())))
    return total


def _hash(array: pa.Array) -> Hashes:
    """Return the hash of each value; NOTHING where there is none."""
    kind, found = array.type, np.zeros(0, np.uint64)
    if pa.types.is_dictionary(kind):
        codes = array.indices.fill_null(len(array.dictionary)).to_numpy()
        found = np.append(_hash(array.dictionary), NOTHING)[codes]
    elif pa.types.is_string(kind):
        coded = array.dictionary_encode()
        words = [int(_hash_bytes(word.encode())) for word in coded.dictionary.to_pylist()]
        found = np.array([*words, 0], np.uint64)[coded.indices.fill_null(len(words)).to_numpy()]
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        found = _mix(numbers.view(np.uint64) + _hash_bytes(b"number"))
    elif pa.types.is_list(kind):
        found = _hash_lists(array)
    elif pa.types.is_struct(kind):
        names = [one.name for one in kind]
        found = _mix(_hash_fields(zip(names, array.flatten(), strict=True), len(array)))
    else:
        found = _hash_each(array)
    if array.null_count:
        found = found.copy()
        found[array.is_null().to_numpy(zero_copy_only=False)] = NOTHING
    return found


def _hash_lists(array: pa.ListArray) -> Hashes:
    counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = offsets_of(counts)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    each = _mix(_hash(array.flatten()) + _mix(place.astype(np.uint64)))
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])
    sums = totals[offsets[1:]] - totals[offsets[:-1]]
    return _mix(sums + _mix(counts.astype(np.uint64)))


def _hash_each(array: pa.Array) -> Hashes:
    """Return the hashes of values of any type, one by one: of settings and loads, which are few."""
    each = [int(_hash_bytes(repr(value).encode())) for value in array.to_pylist()]
    return np.array(each, np.uint64)


def _hash_bytes(content: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(content, digest_size=BYTES).digest()))


def _mix(values: Hashes) -> Hashes:
    """Return numbers of which each bit depends on all bits of the one before (splitmix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
