"""Columns to which versions of a group add rows, and which nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assignors.arrays import Longs

_RATIO = 4
"""Layers are joined until each has more than so many times the rows of the next."""


@dataclass(frozen=True, slots=True, eq=False)
class LayeredColumns:
    """Columns in layers of falling size, of which adding rows copies only the last ones.

    A row is copied about log₄ (all rows) times while it lives. Versions share layers, so that two
    of them can follow the same one.

    Attributes
    ----------
    layers
        The columns of each layer.
    starts
        The first row of each layer, and the end.
    """

    layers: tuple[tuple[np.ndarray, ...], ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, *columns: np.ndarray) -> LayeredColumns:
        """Begin with one layer."""
        return cls((columns,), (0, len(columns[0])))

    def __len__(self) -> int:
        return self.starts[-1]

    def extended(self, *columns: np.ndarray) -> LayeredColumns:
        """Return a version with more rows."""
        first, end = len(self.layers), len(self) + len(columns[0])
        while first and (self.starts[first] - self.starts[first - 1]) <= _RATIO * (
            end - self.starts[first]
        ):
            first -= 1
        parts = [*self.layers[first:], columns]
        joined = tuple(
            np.concatenate(column).astype(column[0].dtype, copy=False)
            for column in zip(*parts, strict=True)
        )
        return LayeredColumns((*self.layers[:first], joined), (*self.starts[: first + 1], end))

    def rows(self, at: Longs) -> list[Any]:
        """Return all columns at these rows."""
        if len(self.layers) == 1:
            return [column[at] for column in self.layers[0]]
        layer = np.searchsorted(np.array(self.starts), at, side="right") - 1
        out = [np.empty(len(at), dtype=column.dtype) for column in self.layers[0]]
        for number in np.flatnonzero(np.bincount(layer)).tolist():
            mine = np.flatnonzero(layer == number)
            inside = at[mine] - self.starts[number]
            for column, values in zip(out, self.layers[number], strict=True):
                column[mine] = values[inside]
        return out
