"""Rows of members and of what was theirs, dealt to the blocks that read them.

Rows become packets where an engine reads them: it moves a few arrays, and not each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, count_by, offsets_of
from assignors.blocks.packets import CLAIMS, ROWS, Batches, make_packet

DEALT_ROWS = 250_000
"""So many rows are dealt at once, about: a task has no more of them in memory."""
SAMPLES = 100
"""Ids of so many rows for each block say where blocks begin."""


@dataclass(frozen=True, slots=True)
class DealRows:
    """Send rows of members, which have labels, or of claims to the blocks of their ids.

    Attributes
    ----------
    edges
        The ids at which blocks begin, but for the first; None if rows say their blocks.
    seats
        Of all blocks.
    """

    edges: pa.StringArray | None
    seats: npt.NDArray[np.int32]

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS` or `CLAIMS` for each block that gets some."""
        some: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if batch.num_rows:
                some.append(batch)
                rows += batch.num_rows
            if rows >= DEALT_ROWS:
                yield from self._deal(some)
                some, rows = [], 0
        if some:
            yield from self._deal(some)

    def _deal(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches).combine_chunks()
        kind = ROWS if "label" in rows.schema.names else CLAIMS
        columns = {name: rows[name].combine_chunks() for name in rows.schema.names}
        columns["member_id"] = columns["member_id"].cast(pa.string())
        if self.edges is None:
            block = np.asarray(columns.pop("block")).astype(np.int64)
        else:
            block = find_blocks(columns["member_id"], self.edges)
        if len(self.seats) == 1:
            yield make_packet(0, kind, int(self.seats[0]), **columns)
            return
        order = np.argsort(block, kind="stable")
        ends = offsets_of(count_by(block, len(self.seats))).tolist()
        for at in range(len(self.seats)):
            if ends[at] < ends[at + 1]:
                mine = pa.array(order[ends[at] : ends[at + 1]])
                some = {name: column.take(mine) for name, column in columns.items()}
                yield make_packet(at, kind, int(self.seats[at]), **some)


def find_blocks(ids: pa.StringArray, edges: pa.StringArray) -> Longs:
    """Return how many edges, which are sorted, are at or before each id; 0 for null."""
    found = np.zeros(len(ids), dtype=np.int64)
    step = 1 << max(len(edges).bit_length() - 1, 0)
    while step and len(edges):
        to = found + step
        edge = edges.take(pa.array(np.minimum(to, len(edges)) - 1))
        beyond = np.asarray(pc.fill_null(pc.greater_equal(ids, edge), fill_value=False))
        found = np.where(beyond & (to <= len(edges)), to, found)
        step >>= 1
    return found


def find_edges(samples: pa.StringArray, weight: npt.ArrayLike, blocks: int) -> pa.StringArray:
    """Return those of the samples that cut what they stand for into blocks of about equal size.

    Parameters
    ----------
    weight
        For how much each stands. No result depends on the edges.
    """
    if not len(samples):
        return samples
    order = pc.sort_indices(samples)
    upto = np.cumsum(np.asarray(weight)[np.asarray(order)])
    share = upto / upto[-1]
    at = np.minimum(np.searchsorted(share, np.arange(1, blocks) / blocks), len(samples) - 1)
    return samples.take(order).take(pa.array(at)).unique()
