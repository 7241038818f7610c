"""Blocks in member order: static members, by instance id, before all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.blocks.deal_rows import find_blocks, find_edges
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import MEMBERS, Batches, Packet, join_packets, read_packets


@dataclass(frozen=True, slots=True)
class SplitStatic:
    """Send static members to blocks of their own, by instance id; the others keep their block.

    Attributes
    ----------
    edges
        The instance ids at which blocks of static members begin, but for the first.
    seats
        Of all blocks: those of static members are first.
    """

    edges: pa.StringArray
    seats: npt.NDArray[np.int32]

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` of each block that gets some."""
        for packet in read_packets(batches):
            if packet.kind == MEMBERS:
                yield from self._split(packet)

    def _split(self, packet: Packet) -> Iterator[pa.RecordBatch]:
        block, edges = MemberBlock.unpack(packet), self.edges
        static = np.asarray(block.instances.is_valid())
        to = np.full(len(static), len(edges) + 1 + packet.block)
        to[static] = find_blocks(block.instances.drop_null(), edges)
        for one in np.unique(to).tolist():
            mine = block.take(np.flatnonzero(to == one))
            yield mine.pack(one, seat=int(self.seats[one]))


@dataclass(frozen=True, slots=True)
class JoinMembers:
    """Join the members that were sent to a block, in member order."""

    known: KnownGroup

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` and `LOADS`."""
        packets = sorted(read_packets(batches), key=_block_of)
        for at, parts in groupby(packets, key=_block_of):
            block = MemberBlock.joined([MemberBlock.unpack(part) for part in parts])
            yield block.pack(at)
            yield block.sum_up(at, self.known)


def find_static_edges(packets: list[Packet], blocks: int) -> pa.StringArray:
    """Return instance ids that cut static members into blocks of about equal size.

    Parameters
    ----------
    packets
        Of `LOADS`, which have samples.
    """
    samples = [packet.columns["samples"] for packet in packets]
    sizes = np.array([len(sample) for sample in samples])
    (static,) = join_packets(packets, "static")
    weight = np.repeat(static / np.maximum(sizes, 1), sizes)
    return find_edges(pa.concat_arrays(samples), weight, blocks)


def _block_of(packet: Packet) -> int:
    return packet.block
