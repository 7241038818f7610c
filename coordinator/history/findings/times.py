"""Times of the log as numbers."""

from __future__ import annotations

import pyarrow as pa

from assignors.arrays import Longs
from coordinator.history.keyed_rows import combine_chunks, to_numbers

MS = pa.timestamp("ms", tz="UTC")


def to_times(at_ms: Longs) -> pa.Array:
    """Return milliseconds as times; null where they are below 0."""
    return pa.array(at_ms, pa.int64(), mask=at_ms < 0).cast(MS)


def to_ms(times: pa.Array | pa.ChunkedArray) -> Longs:
    """Return times as milliseconds; -1 for null."""
    return to_numbers(combine_chunks(times).cast(MS))
