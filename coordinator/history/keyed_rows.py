"""Operations on ordered rows: encode keys, keep the last row of each key.

A row is an index into a table whose rows are in the log's order; -1 means no row. `Longs` are int64
arrays and `Bools` are boolean arrays, both of one dimension.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, offsets_of


def encode_keys(*columns: pa.Array) -> Longs:
    """Return a number for each row: equal if all columns are equal. Null is a value like others."""
    out = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        coded = column
        if not pa.types.is_dictionary(column.type) or column.null_count:
            coded = column.dictionary_encode(null_encoding="encode")
        out = join_keys(out, coded.indices.to_numpy().astype(np.int64))
    return out


def join_keys(*keys: Ints) -> Longs:
    """Combine the keys of each row into one number, 0 … distinct − 1, in lexicographic order."""
    out = keys[0].astype(np.int64)
    for key in keys[1:]:
        width = int(key.max(initial=0)) + 1
        out = np.unique(out * width + key, return_inverse=True)[1].astype(np.int64)
    return out


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def to_mask(column: pa.Array | pa.ChunkedArray) -> Bools:
    """Convert a boolean column to NumPy; null becomes false."""
    found: Bools = pc.fill_null(combine_chunks(column), fill_value=False).to_numpy(
        zero_copy_only=False
    )
    return found


def to_numbers(column: pa.Array | pa.ChunkedArray, otherwise: int = -1) -> Longs:
    """Convert an integer column to NumPy; null becomes `otherwise`."""
    filled = pc.fill_null(combine_chunks(column).cast(pa.int64()), otherwise)
    found: Longs = filled.to_numpy(zero_copy_only=False)
    return found


def is_kind(rows: pa.Table, *kinds: str) -> Bools:
    """Return a mask of the rows that have one of these kinds."""
    return to_mask(pc.is_in(rows["kind"], value_set=pa.array(kinds, pa.string())))


def pick(column: pa.Array | pa.ChunkedArray, rows: Longs) -> pa.Array:
    """Return the values at some rows; null where the row is -1."""
    return combine_chunks(column).take(pa.array(rows, pa.int64(), mask=rows < 0))


def pick_lists(column: pa.Array | pa.ChunkedArray, rows: Longs) -> pa.Array:
    """Return the lists at some rows; empty where the row is -1 or the list is null."""
    lists = combine_chunks(column)
    nothing = pa.array([[]], lists.type)
    empty = (rows < 0) | ~to_mask(pc.is_valid(lists))[rows] if len(lists) else rows < 0
    both = pa.concat_arrays([lists, nothing])
    return both.take(pa.array(np.where(empty, len(lists), rows)))


def flatten(lists: pa.ListArray) -> tuple[Longs, pa.Array]:
    """Return all elements of a column of lists, and the row of each element, row numbers first."""
    lengths = to_numbers(pc.list_value_length(lists), 0)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def number_runs(first: Longs, count: Longs) -> tuple[Longs, Longs]:
    """Expand runs first … first + count − 1: return the run of each element, and the elements."""
    run = np.repeat(np.arange(len(first)), count)
    start = offsets_of(count)[:-1]
    return run, np.arange(len(run)) - start[run] + first[run]


def find_last(keys: Longs, rows: Longs, size: int) -> Longs:
    """Return the last of `rows`, which are sorted, for each key 0 … size − 1; -1 if none."""
    last = np.full(size, -1, dtype=np.int64)
    last[keys[rows]] = rows  # NumPy keeps the last value for a repeated index
    return last


def find_places(places: Longs, wanted: Longs) -> Longs:
    """Return where each number is among others, which are sorted; -1 of one below 0, or missing."""
    found = np.searchsorted(places, wanted)
    there = (wanted >= 0) & (np.append(places, -1)[found] == wanted)
    return np.where(there, found, -1)


class Timeline:
    """Selected rows of a table by key: finds the newest one at a row, and the next one after it.

    Parameters
    ----------
    keys
        The key of every row of the table, from 0 on.
    rows
        The selected rows, sorted.
    """

    def __init__(self, keys: Longs, rows: Longs) -> None:
        self._keys, self._size = keys, max(len(keys), 1)
        self._rows = rows[np.argsort(keys[rows], kind="stable")]
        self._line = keys[self._rows] * self._size + self._rows

    def newest(self, rows: Longs) -> Longs:
        """Return, for each row, the last selected row of its key that is not after it; else -1."""
        keys = self._keys[rows]
        return self._of(keys, np.searchsorted(self._line, keys * self._size + rows, "right") - 1)

    def next(self, keys: Longs, rows: Longs) -> Longs:
        """Return, for each key and row, the first selected row of the key after it; else -1."""
        return self._of(keys, np.searchsorted(self._line, keys * self._size + rows, "right"))

    def _of(self, keys: Longs, found: Longs) -> Longs:
        """Return the rows at some places of the timeline, or -1 where the key is another."""
        row = np.append(self._rows, -1)[found]  # index -1 and the one past the end are not rows
        there = row >= 0
        there[there] = self._keys[row[there]] == keys[there]
        return np.where(there, row, -1)


def null_empty(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return texts with null for those that are empty."""
    column = combine_chunks(column)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def find_changes(*keys: npt.NDArray[np.generic]) -> Bools:
    """Return a mask of the rows that differ from the row before in any key; the first row does."""
    new = np.zeros(len(keys[0]), dtype=np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return new


def count_runs(lines: Longs, values: Longs) -> Longs:
    """Return the running sum of values along each line, in order."""
    order = np.argsort(lines, kind="stable")
    total = np.cumsum(values[order])
    first = np.flatnonzero(find_changes(lines[order]))
    begun = np.repeat((total - values[order])[first], np.diff(np.append(first, len(order))))
    found = np.empty(len(order), np.int64)
    found[order] = total - begun
    return found
