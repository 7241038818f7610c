"""Columns to which versions of a group add rows, and which nothing changes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, SupportsInt, TypeAlias

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints, Longs

Column: TypeAlias = np.ndarray | pa.Array

_RATIO = 4
"""Layers are joined until each has more than so many times the rows of the next."""
_ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class LayeredColumns:
    """Columns in layers of falling size, of which adding rows copies only the last ones.

    A row is copied about log₄ (all rows) times while it lives. Versions share layers, so that two
    of them can follow the same one.

    Attributes
    ----------
    layers
        The columns of each layer: arrays, or Arrow's for texts.
    starts
        The first row of each layer, and the end.
    """

    layers: tuple[tuple[Column, ...], ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, *columns: Column) -> LayeredColumns:
        """Begin with one layer."""
        return cls((columns,), (0, len(columns[0])))

    def __len__(self) -> int:
        return self.starts[-1]

    def extended(self, *columns: Column) -> LayeredColumns:
        """Return a version with more rows."""
        first, end = len(self.layers), len(self) + len(columns[0])
        while first and (self.starts[first] - self.starts[first - 1]) <= _RATIO * (
            end - self.starts[first]
        ):
            first -= 1
        parts = [*self.layers[first:], columns]
        joined = tuple(map(_join, zip(*parts, strict=True)))
        return LayeredColumns((*self.layers[:first], joined), (*self.starts[: first + 1], end))

    def rows(self, at: Ints, columns: slice = _ALL) -> list[Any]:
        """Return all columns, or some, at these rows."""
        if len(self.layers) == 1 or not len(at):
            return self._rows_of(0, at, columns)
        least, most = (bisect_right(self.starts, row) - 1 for row in (at.min(), at.max()))
        if least == most:
            return self._rows_of(least, at, columns)
        layers = range(least, most + 1)
        places = [
            np.flatnonzero((at >= self.starts[layer]) & (at < self.starts[layer + 1]))
            for layer in layers
        ]
        found = [
            self._rows_of(layer, at[mine], columns)
            for layer, mine in zip(layers, places, strict=True)
        ]
        order = np.concatenate(places)
        return [_put_back(parts, order) for parts in zip(*found, strict=True)]

    def _rows_of(self, layer: int, at: Ints, columns: slice) -> list[Any]:
        inside = at - self.starts[layer] if layer else at
        return [_take(column, inside) for column in self.layers[layer][columns]]

    def texts(self, at: Ints) -> list[str]:
        """Return the first column at a few rows, of texts."""
        return [self.text(row) for row in at.tolist()]

    def text(self, row: SupportsInt) -> str:
        """Return the first column at one row, a text."""
        at = int(row)
        if at < self.starts[1]:  # most rows
            return self.layers[0][0][at].as_py()  # type: ignore[no-any-return]
        layer = bisect_right(self.starts, at) - 1
        return self.layers[layer][0][at - self.starts[layer]].as_py()  # type: ignore[no-any-return]


def _join(parts: tuple[Column, ...]) -> Column:
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return np.concatenate(parts).astype(parts[0].dtype, copy=False)


def _take(column: Column, at: Ints) -> Column:
    return column.take(pa.array(at)) if isinstance(column, pa.Array) else column[at]


def _put_back(parts: tuple[Any, ...], order: Longs) -> Column:
    """Return rows in their order, given parts of them, and the order of these."""
    if isinstance(parts[0], pa.Array):
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))
    out = np.empty(len(order), dtype=parts[0].dtype)
    out[order] = np.concatenate(parts)
    return out
