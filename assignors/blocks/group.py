"""A group in blocks: which tasks an engine runs, one after another, and what it asks in between.

1. `reading`: rows become blocks of members. If some are static (`regroup`), `splitting` and
   `joining` put these into blocks before all others. `settle` finds how much each keeps and gets.
2. `sending`: what members keep goes to stretches of the line; `freeing` finds what is free.
3. `dealing`: free pieces go to the blocks of those who get them; `staying` yields those blocks
   again, and `handing` joins both.

For `range`, `dividing` follows 1: no member has to know what others own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.arrays import Ints, Longs
from assignors.blocks.line_blocks import DealPieces, FreeLine, Seams
from assignors.blocks.lots import Lots
from assignors.blocks.member_blocks import HandOut, KnownGroup, Levels, PlaceMembers, ReadMembers
from assignors.blocks.packets import PIECES, WANTS, Packet, join_packets
from assignors.blocks.range_blocks import DivideTopics, Shares
from assignors.blocks.regroup import JoinMembers, SplitStatic, find_edges
from assignors.blocks.totals import BlockLoads, Settled, find_free, find_wanted, settle
from assignors.compressed_problem import Cells, CompressedProblem
from assignors.materialize import PartitionLine
from assignors.prior_ownership import SubscribedPairs

Seats = npt.NDArray[np.int32]
"""Where each block is worked on, as the engine numbers its tasks."""
STRETCHES_MAX = 256
"""Each block of members sends a packet to each stretch of the line."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockGroup:
    """A group whose classes are alone in their cells, or all in one for `range`.

    Attributes
    ----------
    cells, known, line
        The plan's cells; what all tasks know; the line of partitions.
    blocks
        Blocks of members.
    stretch
        So many places of the line are a stretch.
    """

    cells: Cells
    known: KnownGroup
    line: PartitionLine
    blocks: int
    stretch: int

    @classmethod
    def of(
        cls,
        cells: Cells,
        topics: pa.StringArray,
        partitions: Longs,
        class_offsets: Longs,
        class_topics: Ints,
        blocks: int,
    ) -> BlockGroup:
        """Lay out a group of so many blocks, whose line has a partition."""
        topic_class = cells.problem.topic_class
        line = PartitionLine.of(topic_class, partitions)
        eligible = SubscribedPairs.of(class_offsets, class_topics, len(topics))
        topic_cell = np.where(topic_class >= 0, np.append(cells.of_topics, -1)[topic_class], -1)
        known = KnownGroup(topics, partitions, eligible, cells.of_class, topic_cell)
        stretches = min(blocks, STRETCHES_MAX, line.length)
        return cls(cells, known, line, blocks, -(-line.length // stretches))

    @property
    def stretches(self) -> int:
        """How many stretches the line has."""
        return -(-self.line.length // self.stretch)

    def reading(self) -> ReadMembers:
        """Read blocks of members; `LOADS` is for `settle`."""
        return ReadMembers(self.known)

    def regroup(self, packets: list[Packet], block_rows: int) -> Regrouped | None:
        """Return how to put static members first; None where blocks are in member order.

        Parameters
        ----------
        packets
            Of `LOADS`.
        block_rows
            About so many members to a block of static members.
        """
        (static,) = join_packets(packets, "static")
        if not static.any():
            return None
        edges = find_edges(packets, -(-int(static.sum()) // block_rows))
        return Regrouped(replace(self, blocks=self.blocks + len(edges) + 1), edges)

    def splitting(self, regrouped: Regrouped, seats: Seats) -> SplitStatic:
        """Send static members to blocks of their own, and the others to theirs."""
        return SplitStatic(regrouped.edges, seats)

    def joining(self) -> JoinMembers:
        """Join the members that `splitting` has sent to each block; `LOADS` is for `settle`."""
        return JoinMembers(self.known)

    def settle(self, loads: BlockLoads) -> Settled | None:
        """Find how much each member keeps and gets; None if some partition is owned twice."""
        return settle(self.cells, loads)

    def sending(self, levels: Levels, seats: Seats) -> PlaceMembers:
        """Send what members keep to stretches of the line; `WANTS` is for `dealing`."""
        return PlaceMembers(self.known, self.line, levels, self.stretch, seats, keep=False)

    def freeing(self) -> FreeLine:
        """Find what is free of stretches; `PIECES` is for `dealing`."""
        problem = self.cells.problem
        taker = np.full(len(problem.partitions), -1, dtype=np.int64)
        taker[problem.pair_topic] = problem.pair_class
        of_topic = np.where(problem.topic_class >= 0, taker[problem.topic_class], -1)
        return FreeLine(self.line, self.stretch, of_topic)

    @staticmethod
    def is_owned_twice(found: list[Packet]) -> bool:
        """Tell from packets of `PIECES` whether two members own the same partition."""
        return any(packet["twice"][0] for packet in found if packet.kind == PIECES)

    def dividing(self, loads: BlockLoads, *, sum_up: bool) -> DivideTopics:
        """Divide all topics as `range` does: the rows, or `DIVIDED`, their totals."""
        shares = Shares.of(self.cells.problem, self.known.partitions, loads)
        return DivideTopics(self.known.topics, shares, sum_up=sum_up)

    def deal(self, found: list[Packet]) -> Dealt | None:
        """Lay what is free over what is wanted; None if some partition is owned twice."""
        if self.is_owned_twice(found):
            return None
        pieces = [packet for packet in found if packet.kind == PIECES]
        wanted = find_wanted([packet for packet in found if packet.kind == WANTS])
        seams, free = find_free(pieces)
        assert free.start[-1] == wanted.start[-1], "more is free than is wanted"
        return Dealt(seams, free, wanted)

    def dealing(self, dealt: Dealt, seats: Seats) -> DealPieces:
        """Send free pieces to the blocks of those who get them."""
        return DealPieces(dealt.seams, dealt.free, dealt.wanted, seats)

    def staying(self, levels: Levels, seats: Seats) -> PlaceMembers:
        """Yield blocks of members with what they keep and want."""
        return PlaceMembers(self.known, self.line, levels, self.stretch, seats, keep=True)

    def handing(self, dealt: Dealt) -> HandOut:
        """Join what `dealing` and `staying` have sent to each block: the rows of the assignment."""
        return HandOut(self.known, self.line, dealt.wanted)


def put_in_one_cell(problem: CompressedProblem) -> Cells:
    """Return cells for `range`, which asks only who subscribes to what."""
    of_class, of_topics = np.zeros_like(problem.size), np.zeros_like(problem.partitions)
    return Cells(problem, of_class, of_topics, of_class, of_class, np.zeros(1, dtype=np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class Regrouped:
    """A group with more blocks, and the instance ids at which those of static members begin."""

    group: BlockGroup
    edges: pa.StringArray


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """What is free and what is wanted, laid over each other."""

    seams: Seams
    free: Lots
    wanted: Lots
