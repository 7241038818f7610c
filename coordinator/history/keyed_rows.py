"""Operations on ordered rows: encode keys, keep the last row of each key.

A row is known by its place in a table whose rows are in the order of the log. -1 is no row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, offsets_of


def encode_keys(*columns: pa.Array) -> Longs:
    """Return a number for each row, equal where all columns are; null is a value."""
    out = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        coded = column
        if not pa.types.is_dictionary(column.type) or column.null_count:
            coded = column.dictionary_encode(null_encoding="encode")
        out = join_keys(out, coded.indices.to_numpy().astype(np.int64))
    return out


def join_keys(*keys: Ints) -> Longs:
    """Return several numbers of each row as one, 0 … distinct − 1, in their lexical order."""
    out = keys[0].astype(np.int64)
    for key in keys[1:]:
        width = int(key.max(initial=0)) + 1
        out = np.unique(out * width + key, return_inverse=True)[1].astype(np.int64)
    return out


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def to_mask(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Return a column of booleans; null is false."""
    found: Bools = pc.fill_null(combine_chunks(column), fill_value=False).to_numpy(
        zero_copy_only=False
    )
    return found


def to_numbers(column: pa.Array | pa.ChunkedArray, otherwise: int = -1) -> Longs:
    """Return a column of whole numbers, with another one in place of null."""
    filled = pc.fill_null(combine_chunks(column).cast(pa.int64()), otherwise)
    found: Longs = filled.to_numpy(zero_copy_only=False)
    return found


def is_kind(rows: pa.Table, *kinds: str) -> Bools:
    """Return which rows are of some kinds."""
    return to_mask(pc.is_in(rows["kind"], value_set=pa.array(kinds, pa.string())))


def pick(column: pa.Array | pa.ChunkedArray, rows: Longs) -> pa.Array:
    """Return the values of some rows, null for no row."""
    return combine_chunks(column).take(pa.array(rows, pa.int64(), mask=rows < 0))


def pick_lists(column: pa.Array | pa.ChunkedArray, rows: Longs) -> pa.Array:
    """Return the lists of some rows, an empty one for no row or null."""
    lists = combine_chunks(column)
    nothing = pa.array([[]], lists.type)
    empty = (rows < 0) | ~to_mask(pc.is_valid(lists))[rows] if len(lists) else rows < 0
    both = pa.concat_arrays([lists, nothing])
    return both.take(pa.array(np.where(empty, len(lists), rows)))


def flatten(lists: pa.ListArray) -> tuple[Longs, pa.Array]:
    """Return which row each element of a column of lists is of, and the elements."""
    lengths = to_numbers(pc.list_value_length(lists), 0)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def number_runs(first: Longs, count: Longs) -> tuple[Longs, Longs]:
    """Return, for runs first … first + count − 1: which run each element is of, and the element."""
    run = np.repeat(np.arange(len(first)), count)
    start = offsets_of(count)[:-1]
    return run, np.arange(len(run)) - start[run] + first[run]


def find_last(keys: Longs, rows: Longs, size: int) -> Longs:
    """Return the last of some rows for each key 0 … size − 1; the rows are in order."""
    last = np.full(size, -1, dtype=np.int64)
    last[keys[rows]] = rows  # of a key that comes again the last stays
    return last


class Timeline:
    """Some rows of a table by key, to ask what was the newest at another row, and what came next.

    Parameters
    ----------
    keys
        Of every row of the table, 0 … some bound.
    rows
        Those that count, in order.
    """

    def __init__(self, keys: Longs, rows: Longs) -> None:
        self._keys, self._size = keys, max(len(keys), 1)
        self._rows = rows[np.argsort(keys[rows], kind="stable")]
        self._line = keys[self._rows] * self._size + self._rows

    def newest(self, rows: Longs) -> Longs:
        """Return, for each of these rows, the last that counts of its key, at it or before it."""
        keys = self._keys[rows]
        return self._of(keys, np.searchsorted(self._line, keys * self._size + rows, "right") - 1)

    def next(self, keys: Longs, rows: Longs) -> Longs:
        """Return the first row that counts of each of these keys, after each of these rows."""
        return self._of(keys, np.searchsorted(self._line, keys * self._size + rows, "right"))

    def _of(self, keys: Longs, found: Longs) -> Longs:
        """Return rows by their place on the line, where they are of these keys."""
        row = np.append(self._rows, -1)[found]  # a place before the first or after the last is none
        there = row >= 0
        there[there] = self._keys[row[there]] == keys[there]
        return np.where(there, row, -1)


def find_changes(*keys: npt.NDArray[np.generic]) -> Bools:
    """Return where a row begins that differs in some key from the one before it; the first does."""
    new = np.zeros(len(keys[0]), dtype=np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return new
