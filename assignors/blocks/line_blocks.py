"""Stretches of the line of partitions: which of them no member keeps, and who gets those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.arrays import Bools, Longs, count_by, offsets_of
from assignors.blocks.lots import Lots
from assignors.blocks.packets import (
    GIVEN,
    LINE,
    PIECES,
    POOL,
    Batches,
    Packet,
    join_packets,
    make_packet,
    read_packets,
)
from assignors.materialize import PartitionLine
from assignors.partition_ranges import complement, cut_at
from assignors.water_level import Histogram


@dataclass(frozen=True, slots=True)
class FreeLine:
    """Find what no member keeps of stretches of the line.

    Attributes
    ----------
    topic_taker
        (topics,) the class that gets what is free of each topic.
    """

    line: PartitionLine
    stretch: int
    topic_taker: Longs

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `POOL` and `PIECES` of each stretch, and what is for the driver as it is."""
        packets: list[Packet] = []
        others: list[pa.RecordBatch] = []
        for batch in batches:
            ours = pa.compute.equal(batch["kind"], LINE)
            packets += read_packets([batch.filter(ours)])
            others.append(batch.filter(pa.compute.invert(ours)))
        yield from (batch for batch in others if batch.num_rows)
        for block, parts in groupby(sorted(packets, key=_block_of), key=_block_of):
            yield from self._find_free(block, list(parts))

    def _find_free(self, block: int, parts: list[Packet]) -> Iterator[pa.RecordBatch]:
        start, length, stays = join_packets(parts, "start", "length", "stays")
        order = np.argsort(start, kind="stable")
        start, length, stays = start[order], length[order], stays[order]
        if (start[1:] < (start + length)[:-1]).any():
            yield make_packet(block, PIECES, twice=[True])
            return
        low = block * self.stretch
        high = min(low + self.stretch, self.line.length)
        start, length = complement(start[stays] - low, length[stays], high - low)
        start, length = cut_at(start + low, length, self.line.ends)
        topic = self.line.topics[np.searchsorted(self.line.ends, start, side="right")]
        class_ = self.topic_taker[topic]
        yield make_packet(block, POOL, start=start, length=length, **{"class": class_})
        yield make_packet(
            block, PIECES, twice=[False], **self._sum_up(low, high, start, length, class_)
        )

    def _sum_up(
        self, low: int, high: int, start: Longs, length: Longs, class_: Longs
    ) -> dict[str, Longs | list[int]]:
        """Count pieces by class and length; those that may go on in a neighbour, by themselves."""
        ends = self.line.ends
        begun = len(start) > 0 and start[0] == low and low > 0 and not (ends == low).any()
        more = len(start) > 0 and start[-1] + length[-1] == high and not (ends == high).any()
        first, last = (int(length[0]), int(length[-1])) if len(start) else (0, 0)
        whole = slice(int(begun), len(start) - int(more))
        found = Histogram.of(int(self.topic_taker.max()) + 1, class_[whole], length[whole])
        return {
            "class": found.class_, "size": found.load, "pieces": found.members,
            "begun": [first if begun else 0], "more": [last if more else 0],
            "through": [int(begun and more and len(start) == 1)],
            "first_class": class_[:1] if begun else [-1],
            "last_class": class_[-1:] if more else [-1],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seams:
    """Pieces that go on in the next stretch belong to the one in which they begin.

    Attributes
    ----------
    begun
        (stretches,) whether the first piece of each begins before it.
    last
        (stretches,) the length of the last piece of each, as far as it goes; 0 if it ends there.
    """

    begun: Bools
    last: Longs

    @classmethod
    def of(cls, begun: Longs, more: Longs, through: Longs) -> Seams:
        """Join what stretches, in order, say of their first and last pieces.

        Parameters
        ----------
        begun, more
            (stretches,) the length of a first piece that may begin before, of a last one that may
            go on; 0 where there is none.
        through
            (stretches,) 1 where both are the same piece.
        """
        size = len(begun)
        joined = np.zeros(size + 1, dtype=np.bool_)
        joined[1:-1] = (more[:-1] > 0) & (begun[1:] > 0)
        last, after = np.zeros(size, dtype=np.int64), 0
        for at in range(size - 1, -1, -1):  # of stretches, which are few
            whole = more[at] + (after if joined[at + 1] else 0)
            if joined[at] and through[at]:
                after = whole
            else:
                last[at] = whole
                after = begun[at]
        return cls(joined[:-1], last)


@dataclass(frozen=True, slots=True)
class DealPieces:
    """Send the free pieces of stretches to the blocks of those who get them.

    Attributes
    ----------
    free, wanted
        Lots of both, over which both are laid end to end.
    seats
        Of blocks of members.
    """

    seams: Seams
    free: Lots
    wanted: Lots
    seats: npt.NDArray[np.int32]

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `GIVEN` for each block of members that gets something."""
        for packet in read_packets(batches):
            if packet.kind == POOL:
                yield from self._deal(packet)

    def _deal(self, packet: Packet) -> Iterator[pa.RecordBatch]:
        block, seams = packet.block, self.seams
        start, length, class_ = packet["start"], packet["length"].copy(), packet["class"]
        if seams.last[block]:
            length[-1] = seams.last[block]
        skip = int(seams.begun[block])
        start, length, class_ = start[skip:], length[skip:], class_[skip:]
        lot, laid = self.free.place(block, class_, length)
        start, length = start[lot], length[lot]
        piece, row, skip_ = self.wanted.cut(laid, length)
        at = laid[piece] + skip_
        count = np.minimum(self.wanted.start[row + 1], (laid + length)[piece]) - at
        to = self.wanted.block[row]
        order = np.argsort(to, kind="stable")
        at, first, count = at[order], (start[piece] + skip_)[order], count[order]
        ends = offsets_of(count_by(to, len(self.seats))).tolist()
        for taker in range(len(self.seats)):
            mine = slice(ends[taker], ends[taker + 1])
            if mine.stop > mine.start:
                yield make_packet(
                    taker,
                    GIVEN,
                    int(self.seats[taker]),
                    at=at[mine],
                    start=first[mine],
                    count=count[mine],
                )


def _block_of(packet: Packet) -> int:
    return packet.block
