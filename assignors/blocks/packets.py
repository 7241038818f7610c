"""Packets: what tasks send each other and the driver, arrays packed into one value of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.arrays import Longs

Batches: TypeAlias = Iterable[pa.RecordBatch]
PACKET = {"seat": pa.int32(), "block": pa.int32(), "kind": pa.string(), "payload": pa.binary()}
"""Columns of a packet: where its block is worked on, the block, what it is, and the arrays."""

ROWS, CLAIMS = "rows", "claims"
MEMBERS, LINE, POOL, GIVEN = "members", "line", "pool", "given"
CLAIMED_TWICE, HELD_BACK = "claimed twice", "held back"
LOADS, LEFT, WANTS, PIECES, MOVES = "loads", "left", "wants", "pieces", "moves"
DIVIDED, AFTER, FAULT = "divided", "after", "fault"
"""Kinds of packets: of a block's rows and members, of a stretch of the line, of its free pieces, of
what members are given of them, of what they lose to an earlier claim and what they keep for now;
and the totals for the driver."""


@dataclass(frozen=True, slots=True)
class Packet:
    """Arrays of one kind, for one block or about it."""

    block: int
    kind: str
    columns: Mapping[str, pa.Array]

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column of numbers."""
        return np.asarray(self.columns[name])


def make_packet(
    block: int, kind: str, seat: int = 0, /, **columns: npt.ArrayLike | pa.Array
) -> pa.RecordBatch:
    """Return a packet as a batch of one row."""
    arrays = [c if isinstance(c, pa.Array) else pa.array(np.asarray(c)) for c in columns.values()]
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array)
        for array in arrays
    ]
    batch = pa.RecordBatch.from_arrays(lists, list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    row = ([seat], [block], [kind], [sink.getvalue().to_pybytes()])
    return pa.RecordBatch.from_arrays(
        [pa.array(value, kind_) for value, kind_ in zip(row, PACKET.values(), strict=True)],
        list(PACKET),
    )


def read_packets(batches: Batches) -> Iterator[Packet]:
    """Read packets, row by row: each is a block of rows."""
    for batch in batches:
        columns = [batch.column(name) for name in ("block", "kind", "payload")]
        for at in range(batch.num_rows):
            block, kind, payload = (column[at] for column in columns)
            yield Packet(block.as_py(), str(kind.as_py()), _unpack(payload.as_buffer()))


def join_packets(packets: list[Packet], *names: str) -> list[np.ndarray]:
    """Concatenate columns of numbers of several packets of a kind."""
    if not packets:
        return [np.zeros(0, dtype=np.int64) for _ in names]
    return [np.concatenate([packet[name] for packet in packets]) for name in names]


def blocks_of(packets: list[Packet], column: str) -> Longs:
    """Return the block of each row of the packets."""
    blocks = np.array([packet.block for packet in packets], dtype=np.int64)
    return np.repeat(blocks, [len(packet[column]) for packet in packets])


def _unpack(payload: pa.Buffer) -> dict[str, pa.Array]:
    batch = pa.ipc.open_stream(payload).read_next_batch()
    names = batch.schema.names
    return {name: column.values for name, column in zip(names, batch.columns, strict=True)}
