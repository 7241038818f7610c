"""What members of blocks keep, what they want, and what they get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.arrays import Ints, Longs, count_by, expand_runs, offsets_of, sum_by
from assignors.blocks.drops import BlockDrops, BlockLevels
from assignors.blocks.lots import Lots
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import (
    AFTER,
    GIVEN,
    HELD_BACK,
    LEFT,
    LINE,
    MEMBERS,
    WANTS,
    Batches,
    Packet,
    join_packets,
    make_packet,
    read_packets,
)
from assignors.group_spec import GroupSpec
from assignors.materialize import PartitionLine, Stays, take_off
from assignors.ownership import Ownership
from assignors.partition_ranges import ARROW_SCHEMA, merge_touching, overlay
from assignors.relinquish import Relinquishment, select_first_of_class
from assignors.water_level import Histogram

Seats = npt.NDArray[np.int32]
"""Where each block is worked on, as the engine numbers its tasks."""


@dataclass(frozen=True, slots=True)
class CountLeft:
    """Count what is left to members, where the driver cannot know it."""

    known: KnownGroup
    drops: BlockDrops

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `LEFT`: members by load, once when classes have given what the plan says."""
        for packet in read_packets(batches):
            if packet.kind == MEMBERS:
                group = MemberBlock.unpack(packet, self.known.rank).as_group(self.known)
                yield self._count(packet.block, group)

    def _count(self, at: int, group: GroupSpec) -> pa.RecordBatch:
        holdings = Ownership(group, self.drops.cells)
        drops, of_classes, back = self.drops.relinquish(at, group, self.known)
        pairs = len(holdings.cells.problem.pair_class)
        pair = holdings.pair(of_classes.topic_class, holdings.class_[of_classes.member])
        got_back = sum_by(pair, back, pairs)
        owned = sum_by(group.member, group.count, group.member_count)
        between = holdings.histogram(of_classes.subtract(holdings.load))
        left = holdings.histogram(drops.subtract(owned))
        some = np.flatnonzero(got_back)
        return make_packet(
            at, LEFT, **{"class": left.class_}, load=left.load, members=left.members,
            between_class=between.class_, between_load=between.load,
            between_members=between.members, pair=some, back=got_back[some],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlaceMembers:
    """Decide what the members of blocks keep, and how much they get.

    Attributes
    ----------
    drops, filled
        What they give up, and to what they are filled; None for nothing.
    stretch
        So many places of the line are a stretch.
    seats
        Of stretches of the line; of blocks of members where `keep` is true.
    keep
        Whether to yield the members themselves, with what they keep.
    """

    known: KnownGroup
    line: PartitionLine
    drops: BlockDrops | None
    filled: BlockLevels | None
    stretch: int
    seats: Seats
    keep: bool

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `LINE` for each stretch and `WANTS`; or `MEMBERS` with what they want."""
        for packet in read_packets(batches):
            if packet.kind != MEMBERS:
                continue
            block = MemberBlock.unpack(packet, self.known.rank)
            group = block.as_group(self.known)
            kept, want = self._place(packet.block, group)
            if self.keep:
                yield self._keep(packet.block, block, kept, want)
                continue
            yield from self._send(packet.block, group, kept)
            wants = Histogram.of(group.class_count, group.member_class.astype(np.int64), want)
            yield make_packet(
                packet.block, WANTS, int(self.seats[0]),
                **{"class": wants.class_}, size=wants.load, members=wants.members,
            )  # fmt: skip

    def _place(self, at: int, group: GroupSpec) -> tuple[Ints, Longs]:
        """Return what is kept of each range, and what each member wants."""
        kept, drops = group.count, Relinquishment.joined([])
        if self.drops is None or self.filled is None:
            return kept, np.zeros(group.member_count, dtype=np.int64)
        drops, _, _ = self.drops.relinquish(at, group, self.known)
        holdings = Ownership(group, self.drops.cells)
        kept = take_off(holdings, Stays(group.first, kept), drops).count
        left = sum_by(group.member, kept, group.member_count)
        level = self.filled.of(at)
        height = level.height[holdings.class_]
        want = np.maximum(height - left, 0)
        want[select_first_of_class(holdings, left <= height, level.first)] += 1
        return kept, want

    def _keep(self, at: int, block: MemberBlock, kept: Ints, want: Longs) -> pa.RecordBatch:
        some = kept > 0
        held = (block.member[some], block.topic[some], block.first[some], kept[some])
        left = MemberBlock(block.ids, block.instances, block.class_, *held)
        return left.pack(at, seat=int(self.seats[at]), want=want)

    def _send(self, at: int, group: GroupSpec, kept: Ints) -> Iterator[pa.RecordBatch]:
        """Yield what is kept and given up of each stretch of the line."""
        start = self.line.start[group.topic] + group.first
        some, given = kept > 0, group.count > kept
        owner = np.concatenate([group.member[some], group.member[given]])
        start = np.concatenate([start[some], (start + kept)[given]])
        length = np.concatenate([kept[some], (group.count - kept)[given]]).astype(np.int64)
        stays = np.arange(len(start)) < np.count_nonzero(some)
        surplus = self._find_surplus(group)[owner]
        first, last = start // self.stretch, (start + length - 1) // self.stretch
        row = np.repeat(np.arange(len(start)), last - first + 1)
        to = expand_runs(first, last - first + 1)
        low = np.maximum(start[row], to * self.stretch)
        length = np.minimum((start + length)[row], (to + 1) * self.stretch) - low
        order = np.argsort(low, kind="stable")
        to, low, length, row = to[order], low[order], length[order], row[order]
        ends = offsets_of(count_by(to, len(self.seats))).tolist()
        columns = {
            "start": low.astype(np.int32), "length": length.astype(np.int32), "stays": stays[row],
            "owner": owner[row], "surplus": surplus[row].astype(np.int32),
        }  # fmt: skip
        for stretch in range(len(self.seats)):
            mine = slice(ends[stretch], ends[stretch + 1])
            yield make_packet(
                stretch, LINE, int(self.seats[stretch]), origin=[at],
                **{name: column[mine] for name, column in columns.items()},
            )  # fmt: skip

    def _find_surplus(self, group: GroupSpec) -> Longs:
        """Return what members own above the least that they may have."""
        if self.drops is None:
            return np.zeros(group.member_count, dtype=np.int64)
        low = self.drops.cells.low[group.member_class]
        return np.asarray(sum_by(group.member, group.count, group.member_count) - low)


@dataclass(frozen=True, slots=True)
class HandOut:
    """Give members what they want of the pieces that were sent to their block.

    Attributes
    ----------
    lots
        `Lots` of what is wanted, by block of members: where each lies.
    sum_up
        Whether to yield packets in place of rows.
    """

    known: KnownGroup
    line: PartitionLine
    lots: Lots
    sum_up: bool

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the assignment; or `MEMBERS`, with what they own then, and `AFTER`."""
        packets = list(read_packets(batches))
        for packet in packets:
            if packet.kind != MEMBERS:
                continue
            mine = [it for it in packets if it.block == packet.block]
            block = self._finish(
                packet,
                [it for it in mine if it.kind == GIVEN],
                [it for it in mine if it.kind == HELD_BACK],
            )
            if not self.sum_up:
                yield list_rows(block, self.known.topics)
                continue
            yield block.pack(packet.block)
            load = sum_by(block.member, block.count, len(block.ids))
            classes, class_ = len(self.known.class_offsets) - 1, block.class_.astype(np.int64)
            loads = Histogram.of(classes, class_, load)
            yield make_packet(
                packet.block, AFTER,
                **{"class": loads.class_}, load=loads.load, members=loads.members,
            )  # fmt: skip

    def _finish(self, packet: Packet, given: list[Packet], back: list[Packet]) -> MemberBlock:
        block, want, line = MemberBlock.unpack(packet), packet["want"], self.line
        who, laid = self.lots.place(packet.block, block.class_.astype(np.int64), want)
        who = who[np.argsort(laid)]
        at, start, count, goes = join_packets(given, "at", "start", "count", "goes")
        order = np.argsort(at)
        start, count, goes = start[order], count[order], goes[order]
        total = int(count.sum())
        assert total == int(want.sum()), "others were sent than are wanted"
        piece, taker, place, length = overlay(count, want[who], total)
        start = start[piece] + place - offsets_of(count)[:-1][piece]
        some = goes[piece].astype(np.bool_)
        owner, kept_start, kept_length = join_packets(back, "owner", "start", "length")
        start = np.concatenate([start[some], kept_start])
        length = np.concatenate([length[some], kept_length])
        topic = line.topics[np.searchsorted(line.ends, start, side="right")]
        member = np.concatenate([block.member, who[taker[some]], owner])
        first = np.concatenate([block.first, start - line.start[topic]])
        topic, count = np.concatenate([block.topic, topic]), np.concatenate([block.count, length])
        order = np.lexsort((first, topic, member))
        held = merge_touching(member[order], topic[order], first[order], count[order])
        return MemberBlock(block.ids, block.instances, block.class_, *held)


@dataclass(frozen=True, slots=True)
class ListRows:
    """List what the members of blocks own."""

    topics: pa.StringArray

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield rows of an assignment, in canonical order within each block."""
        for packet in read_packets(batches):
            if packet.kind == MEMBERS:
                yield list_rows(MemberBlock.unpack(packet), self.topics)


def list_rows(block: MemberBlock, topics: pa.StringArray) -> pa.RecordBatch:
    """Return what members own, as rows."""
    return pa.RecordBatch.from_arrays(
        [
            block.ids.take(pa.array(block.member)),
            topics.take(pa.array(block.topic)),
            pa.array(block.first),
            pa.array(block.count),
        ],
        schema=ARROW_SCHEMA,
    )
