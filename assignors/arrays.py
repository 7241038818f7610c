"""Operations on integer arrays that several modules of this room share.

Everything here is exact, total-ordered and free of Python loops over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Values = TypeVar("Values", Ints, Longs)

PARTITIONS_MAX = 2**30
"""Partitions of one group at the most: scipy's maximum flow counts in int32 and wraps silently."""

LINE_BITS = 31
"""Bits of a position on the partition line inside a packed (member, position) key."""

PIECE = 1 << 20
"""Rows of which temporary columns take little memory, however many rows there are."""

_SALTS = range(16)
_WEYL, _MIX_A, _MIX_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def pieces(count: int, size: int = PIECE) -> Iterator[slice]:
    """Yield the parts of so many rows, to work on one after the other."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def offsets_of(counts: Ints) -> Longs:
    """Return the running total of `counts` with a leading 0: where each run starts, and the end."""
    out = np.empty(len(counts) + 1, dtype=np.int64)
    out[0] = 0
    counts.cumsum(out=out[1:])
    return out


def count_by(key: Ints, size: int) -> Longs:
    """Count rows per key in 0 … size − 1."""
    if len(key) <= PIECE:
        return np.bincount(key, minlength=size).astype(np.int64, copy=False)
    totals = np.zeros(size, dtype=np.int64)
    for some in pieces(len(key)):  # else the key would be copied, to int64
        totals += np.bincount(key[some], minlength=size)
    return totals


def sum_by(key: Ints, amount: Ints, size: int) -> Longs:
    """Sum `amount` per key in 0 … size − 1 (exact: every total of a group is far below 2⁵³)."""
    if len(key) == 0:  # bincount of nothing would be float and is not worth the call
        return np.zeros(size, dtype=np.int64)
    if len(key) <= PIECE:
        return np.bincount(key, weights=amount, minlength=size).astype(np.int64)
    totals = np.zeros(size, dtype=np.int64)
    for some in pieces(len(key)):  # else both columns would be copied, to 64 bits
        totals += sum_by(key[some], amount[some], size)
    return totals


def expand_runs(starts: Ints, counts: Ints) -> Longs:
    """Concatenate the index runs [start, start + count), in the order given."""
    offsets = offsets_of(counts)
    return np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], counts)


def sum_pairs(row: Ints, column: Ints, amount: Ints, width: int) -> tuple[Longs, Longs, Longs]:
    """Sum `amount` by (row, column), sorted; columns lie in 0 … width − 1."""
    key: Longs = row.astype(np.int64) * width + column
    sums: Longs = amount.astype(np.int64)
    if len(key) and (key[1:] < key[:-1]).any():
        order = key.argsort(kind="stable")
        key, sums = key[order], sums[order]
    head = np.flatnonzero(rank_in_runs(key) == 0)
    if len(head) < len(key):
        sums = np.add.reduceat(sums, head)
    return key[head] // width, key[head] % width, sums


def sum_segments(values: Ints, offsets: Longs) -> Longs:
    """Sum each segment values[offsets[s]:offsets[s + 1]]; an empty segment sums to 0."""
    totals = offsets_of(values)
    return totals[offsets[1:]] - totals[offsets[:-1]]


def sort_distinct(values: Longs) -> Longs:
    """Return the different values, ascending: faster than numpy's hashing where many differ."""
    values = np.sort(values)
    begins = np.append(True, values[1:] != values[:-1])[: len(values)]
    return np.asarray(values[begins])


def rank_in_runs(key: Ints) -> Longs:
    """Return each row's place within its run of equal, adjacent keys."""
    if len(key) == 0:
        return np.zeros(0, dtype=np.int64)
    at = np.arange(len(key), dtype=np.int64)
    head = np.empty(len(key), dtype=np.bool_)
    head[0] = True
    np.not_equal(key[1:], key[:-1], out=head[1:])
    return at - np.maximum.accumulate(np.where(head, at, 0))


def floor_div(top: Longs, bottom: Longs) -> Longs:
    """Integer quotient where the divisor may be 0, which gives 0."""
    return np.where(bottom > 0, top // np.maximum(bottom, 1), 0)


def label_lists(offsets: Longs, values: Ints, key: Ints | None = None) -> tuple[Longs, Longs]:
    """Label equal lists alike, numbered by first appearance.

    Parameters
    ----------
    offsets, values
        List r is values[offsets[r]:offsets[r + 1]], sorted within the list.
    key
        One more integer per list that must be equal too.

    Returns
    -------
    labels, representatives
        The label of each list, and per label the first list that has it.

    Notes
    -----
    Lists are grouped by a 64-bit sum and then compared in full with their representative, so the
    result never depends on the hash; a collision only costs another round with another salt.
    """
    rows = len(offsets) - 1
    if rows <= 1:  # most groups have one subscription
        return np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    lengths = np.diff(offsets)
    for salt in _SALTS:
        digest = _mix(values, salt)
        sums = sum_segments_wrapping(digest, offsets) ^ _mix(lengths, salt + 101)
        if key is not None:
            sums ^= _mix(key, salt + 202)
        _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        labels, heads = rank[inverse], first[order]
        if _have_same_lists(offsets, values, key, heads[labels]):
            return labels, heads
    raise AssertionError("16 salts collide: the label digest is broken")


def sum_segments_wrapping(values: npt.NDArray[np.uint64], offsets: Longs) -> npt.NDArray[np.uint64]:
    """Sum segments modulo 2⁶⁴."""
    totals = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=totals[1:])
    return totals[offsets[1:]] - totals[offsets[:-1]]


def _mix(values: Ints, salt: int) -> npt.NDArray[np.uint64]:
    """Spread integers over 64 bits (the finaliser of splitmix64)."""
    mixed = values.astype(np.uint64)
    mixed += np.uint64(_WEYL * (2 * salt + 1) % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_MIX_A)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_MIX_B)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _have_same_lists(offsets: Longs, values: Ints, key: Ints | None, other: Longs) -> bool:
    """Tell whether every list r equals list other[r]."""
    lengths = np.diff(offsets)
    if key is not None and not np.array_equal(key, key[other]):
        return False
    if not np.array_equal(lengths, lengths[other]):
        return False
    if len(values) == 0:
        return True
    theirs = expand_runs(offsets[:-1][other], lengths)
    return bool(np.array_equal(values, values[theirs]))


def take_lists(offsets: Longs, values: Values, rows: Longs) -> tuple[Longs, Values]:
    """Take whole lists in the order of `rows`."""
    lengths = np.diff(offsets)[rows]
    return offsets_of(lengths), values[expand_runs(offsets[:-1][rows], lengths)]


def sort_lists(offsets: Longs, values: Ints, size: int) -> tuple[Longs, Ints]:
    """Sort each list and leave out repeats; values lie in 0 … size − 1."""
    ascending = np.diff(values) > 0
    starts = offsets[:-1][(np.diff(offsets) > 0) & (offsets[:-1] > 0)]
    ascending[starts - 1] = True  # between two lists any step is fine
    if ascending.all():
        return offsets, values
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    packed = sort_distinct(row * size + values)
    lengths = np.bincount(packed // size, minlength=len(offsets) - 1)
    return offsets_of(lengths), packed % size


def keep_longest(entry: Ints, count: Longs, keeps: Longs) -> Longs:
    """Return how much is kept of each range: the longest of an entry first, of the last the head.

    Parameters
    ----------
    entry
        Of each range, what it belongs to: a member, or a member on a topic class.
    keeps
        How many partitions each entry keeps.
    """
    if (entry[1:] > entry[:-1]).all():  # one range each
        return np.clip(keeps[entry], 0, count)
    return cut_in_order(np.lexsort((-count, entry)), count, entry, keeps)


def cut_in_order(order: Longs, size: Longs, kind: Ints, most: Longs) -> Longs:
    """Return sizes, of which those of each kind add up to at most `most` of it.

    Parameters
    ----------
    order
        Of the sizes, kind by kind: the first ones are kept whole.
    """
    sizes, ordered = size[order], kind[order]
    before = offsets_of(sizes)[:-1]
    before -= before[np.searchsorted(ordered, ordered)]
    cut = np.empty_like(size)
    cut[order] = np.clip(most[ordered] - before, 0, sizes)
    return cut
