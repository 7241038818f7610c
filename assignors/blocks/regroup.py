"""Blocks in member order: static members, by instance id, before all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.blocks.deal_rows import find_blocks, find_edges
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import MEMBERS, Batches, Packet, join_packets, read_packets


@dataclass(frozen=True, slots=True)
class SplitMembers:
    """Send static members to blocks by instance id, and all others to blocks after these, by id.

    Attributes
    ----------
    static, others
        The instance ids, and the ids, at which blocks begin, but for the first of each.
    seats
        Of all blocks: those of static members are first.
    """

    static: pa.StringArray
    others: pa.StringArray
    seats: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls,
        packets: list[Packet],
        blocks: int,
        block_rows: int,
        find_seats: Callable[[int], npt.NDArray[np.int32]],
    ) -> Self:
        """Cut members into about as many blocks as there are.

        Parameters
        ----------
        packets
            Of `LOADS`, which have samples.
        block_rows
            About how many static members to a block at most.
        """
        static, others = (int(it.sum()) for it in join_packets(packets, "static", "others"))
        of_static = max(-(-static // block_rows), -(-blocks * static // max(static + others, 1)))
        of_others = -(-blocks * others // max(static + others, 1))
        found = (
            _find_edges(packets, "instances", "static", of_static),
            _find_edges(packets, "ids", "others", of_others),
        )
        return cls(*found, find_seats(sum(len(edges) + 1 for edges in found)))

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` of each block that gets some."""
        for packet in read_packets(batches):
            if packet.kind == MEMBERS:
                yield from self._split(packet)

    def _split(self, packet: Packet) -> Iterator[pa.RecordBatch]:
        block = MemberBlock.unpack(packet)
        named = block.instances.is_valid()
        static = np.asarray(named)
        to = np.zeros(len(static), dtype=np.int64)
        to[static] = find_blocks(block.instances.drop_null(), self.static)
        others = block.ids.filter(pc.invert(named))
        to[~static] = len(self.static) + 1 + find_blocks(others, self.others)
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


def _find_edges(packets: list[Packet], name: str, count: str, blocks: int) -> pa.StringArray:
    """Return samples of packets of `LOADS` that cut so many members into equal blocks."""
    samples = [packet.columns[name] for packet in packets]
    sizes = np.array([len(sample) for sample in samples], dtype=np.int64)
    (members,) = join_packets(packets, count)
    weight = np.repeat(members / np.maximum(sizes, 1), sizes)
    return find_edges(pa.concat_arrays([pa.array([], pa.string()), *samples]), weight, blocks)


def _block_of(packet: Packet) -> int:
    return packet.block
