"""What is wanted and what is free, laid end to end over each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, expand_runs, offsets_of, rank_in_runs


@dataclass(frozen=True, slots=True)
class Lots:
    """Lots of a class, largest first, laid end to end: what is wanted, or what is free.

    A row is so many lots of one class and size in one block. Rows are sorted by (class, largest
    size, block), as the lots lie.

    Attributes
    ----------
    block, class_, size, count
        (rows,) each.
    start
        (rows + 1,) where each begins.
    """

    block: Longs
    class_: Longs
    size: Longs
    count: Longs
    start: Longs

    @classmethod
    def of(cls, block: Longs, class_: Longs, size: Longs, count: Longs) -> Lots:
        """Sort rows, join equal ones, and lay them end to end; what has no size is left out."""
        order = np.lexsort((block, -size, class_))
        order = order[size[order] > 0]
        block, class_, size, count = block[order], class_[order], size[order], count[order]
        head = np.append(True, np.diff(block) | np.diff(class_) | np.diff(size)) != 0
        at = np.flatnonzero(head[: len(block)])
        count = np.add.reduceat(count, at) if len(at) else count
        block, class_, size = block[at], class_[at], size[at]
        return cls(block, class_, size, count, offsets_of(size * count))

    def place(self, block: int, class_: Longs, size: Longs) -> tuple[Longs, Longs]:
        """Return which lots of a block there are, and where each begins, as they lie."""
        lot = np.flatnonzero(size)
        lot = lot[np.lexsort((lot, -size[lot], class_[lot]))]
        sizes, classes = size[lot], class_[lot]
        head = np.ones(len(lot), dtype=np.bool_)
        head[1:] = (sizes[1:] != sizes[:-1]) | (classes[1:] != classes[:-1])
        run = np.cumsum(head) - 1
        start = self.start[:-1][self.block == block]
        return lot, start[run] + sizes * rank_in_runs(run)

    def find_last(self, block: int, class_: int, size: int) -> int:
        """Return where the last lot of a block, class and size begins."""
        mine = (self.block == block) & (self.class_ == class_) & (self.size == size)
        row = int(np.flatnonzero(mine)[0])
        return int(self.start[row + 1]) - size

    def cut(self, at: Longs, length: Longs) -> tuple[Longs, Longs, Longs]:
        """Cut intervals where rows begin: which interval, which row, and how far into it."""
        first = np.searchsorted(self.start, at, side="right") - 1
        last = np.searchsorted(self.start, at + length - 1, side="right") - 1
        piece = np.repeat(np.arange(len(at)), last - first + 1)
        row = expand_runs(first, last - first + 1)
        return piece, row, np.maximum(self.start[row] - at[piece], 0)
