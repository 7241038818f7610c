"""Blocks of members: what they own, what they keep, and what they get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import (
    Bools,
    Ints,
    Longs,
    count_by,
    expand_runs,
    keep_longest,
    offsets_of,
    rank_in_runs,
    sum_by,
)
from assignors.blocks.lots import Lots
from assignors.blocks.packets import (
    GIVEN,
    LINE,
    LOADS,
    MEMBERS,
    WANTS,
    Batches,
    Packet,
    join_packets,
    make_packet,
    read_packets,
)
from assignors.materialize import PartitionLine
from assignors.partition_ranges import ARROW_SCHEMA, find_overlaps, merge_touching, overlay
from assignors.prior_ownership import SubscribedPairs
from assignors.water_level import Histogram

CLAIMED = ("topic", "first_partition", "partition_count")
ROWS = ("block", "member_id", "instance_id", "class", *CLAIMED)
"""Columns of rows to read: a member has a class, a claim has -1 in its place."""
_HELD = ("member", "topic", "first", "count")
SAMPLES = 64
"""So many instance ids of each block say where blocks of static members are to begin."""
_PARTITION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """What all tasks know of a group.

    Attributes
    ----------
    topics, partitions
        All topics, by name.
    eligible
        Which class subscribes to which topic.
    class_cell, topic_cell
        The cell of each class, and of each topic; -1 for a topic without partitions or subscribers.
    """

    topics: pa.StringArray
    partitions: Longs
    eligible: SubscribedPairs
    class_cell: Longs
    topic_cell: Longs

    def is_inside(self, class_: Ints, topic: Ints) -> Bools:
        """Tell which topics lie in the cell of a class."""
        return np.asarray(self.topic_cell[topic] == self.class_cell[class_])


@dataclass(frozen=True, slots=True)
class MemberBlock:
    """Neighbouring members, in member order, and what they own, in canonical order.

    Attributes
    ----------
    ids, instances
        Text (members,); the instance of a static member, null of others.
    class_
        (members,) the class of each.
    member, topic, first, count
        (ranges,) what each owns; a member is its place in the block.
    """

    ids: pa.StringArray
    instances: pa.StringArray
    class_: Ints
    member: Ints
    topic: Ints
    first: Ints
    count: Ints

    @classmethod
    def unpack(cls, packet: Packet) -> MemberBlock:
        """Read a packet of `MEMBERS`."""
        ids, instances = packet.columns["ids"], packet.columns["instances"]
        return cls(ids, instances, packet["class"], *(packet[name] for name in _HELD))

    def pack(self, block: int, *, seat: int = 0, **more: Ints) -> pa.RecordBatch:
        """Return the block as a packet of `MEMBERS`."""
        held = zip(_HELD, (self.member, self.topic, self.first, self.count), strict=True)
        columns = {"ids": self.ids, "instances": self.instances, "class": self.class_}
        return make_packet(block, MEMBERS, seat, **columns, **dict(held), **more)

    def take(self, members: Longs) -> MemberBlock:
        """Return some of the members, in the order given, with what they own."""
        lengths = np.bincount(self.member, minlength=len(self.ids))
        rows = expand_runs(offsets_of(lengths)[members], lengths[members])
        owner = np.repeat(np.arange(len(members), dtype=np.int32), lengths[members])
        at = pa.array(members)
        held = (owner, self.topic[rows], self.first[rows], self.count[rows])
        return MemberBlock(self.ids.take(at), self.instances.take(at), self.class_[members], *held)

    @classmethod
    def joined(cls, parts: list[MemberBlock]) -> MemberBlock:
        """Return the members of several blocks, in member order."""
        starts = offsets_of(np.array([len(part.ids) for part in parts]))
        owners = [part.member + start for part, start in zip(parts, starts[:-1], strict=True)]
        every = cls(
            pa.concat_arrays([part.ids for part in parts]),
            pa.concat_arrays([part.instances for part in parts]),
            np.concatenate([part.class_ for part in parts]),
            np.concatenate(owners),
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("topic", "first", "count")
            ),
        )
        names = pa.table({"instance": every.instances, "id": every.ids})
        order = pc.sort_indices(names, [("instance", "ascending"), ("id", "ascending")])
        return every.take(np.asarray(order).astype(np.int64))

    def sum_up(self, at: int, known: KnownGroup) -> pa.RecordBatch:
        """Return a packet of `LOADS`: what the driver needs to know of the block."""
        class_ = self.class_.astype(np.int64)
        loads = Histogram.of(len(known.class_cell), class_, self.loads(known))
        owned = int(self.count.sum(dtype=np.int64))
        return make_packet(
            at, LOADS, fault=[False], owned=[owned], crossing=[owned - int(loads.total().sum())],
            static=[len(self.instances) - self.instances.null_count],
            samples=_take_samples(self.instances),
            **{"class": loads.class_}, load=loads.load, members=loads.members,
            head_class=self.class_[_find_heads(self.class_)],
        )  # fmt: skip

    def inside(self, known: KnownGroup) -> Bools:
        """Tell which ranges lie in their owner's cell."""
        return known.is_inside(self.class_[self.member], self.topic)

    def loads(self, known: KnownGroup) -> Longs:
        """Return what each member owns within its cell."""
        return sum_by(self.member, np.where(self.inside(known), self.count, 0), len(self.ids))


@dataclass(frozen=True, slots=True)
class ReadMembers:
    """Read a block: rows of members and of what was theirs, whose ids are neighbours."""

    known: KnownGroup

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` and `LOADS`; a fault instead of loads where anything is wrong."""
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        rows = pa.Table.from_batches(kept).combine_chunks()
        at = rows["block"][0].as_py()
        block = self._read(rows)
        if block is None:
            yield make_packet(at, LOADS, fault=[True])
            return
        yield block.pack(at)
        yield block.sum_up(at, self.known)

    def _read(self, rows: pa.Table) -> MemberBlock | None:
        """Read a block; None where a claim is wrong, or a member is there twice."""
        is_member = np.asarray(rows["class"]) >= 0
        members, claims = rows.filter(pa.array(is_member)), rows.filter(pa.array(~is_member))
        ids = members["member_id"].combine_chunks().cast(pa.string())
        order = pc.sort_indices(ids)
        ids = ids.take(order)
        if len(ids) > 1 and pc.any(pc.equal(ids[1:], ids[:-1])).as_py():
            return None
        class_ = np.asarray(members["class"].combine_chunks().take(order))
        instances = members["instance_id"].combine_chunks().cast(pa.string()).take(order)
        held = self._read_claims(claims, ids, class_)
        return None if held is None else MemberBlock(ids, instances, class_, *held)

    def _read_claims(
        self, claims: pa.Table, ids: pa.StringArray, class_: Ints
    ) -> tuple[Ints, Ints, Ints, Ints] | None:
        """Return what members own, in canonical order; None where a claim is wrong."""
        known = self.known
        if any(claims[name].null_count for name in ("member_id", *CLAIMED)):
            return None
        first, count = (np.asarray(claims[name].combine_chunks()) for name in CLAIMED[1:])
        wrong = (first < 0) | (count < 1) | (np.maximum(first, count) > _PARTITION_MAX)
        if wrong.any():
            return None
        live = pc.index_in(claims["member_id"].cast(pa.string()), value_set=ids).combine_chunks()
        topic = pc.index_in(claims["topic"].cast(pa.string()), value_set=known.topics)
        rows = np.flatnonzero(live.is_valid())
        if rows.size < len(first):
            live, topic = live.take(pa.array(rows)), topic.take(pa.array(rows))
            first, count = first[rows], count[rows]
        if topic.null_count:
            return None
        member, topic = np.asarray(live), np.asarray(topic.combine_chunks())
        if (first + count > known.partitions[topic]).any():
            return None
        order = np.lexsort((first, topic, member))
        order = order[known.eligible.holds(class_[member[order]], topic[order])]
        member, topic, first, count = (it[order] for it in (member, topic, first, count))
        twice = find_overlaps(topic, first, count)
        if (twice[1:] & (member[1:] == member[:-1])).any():
            return None
        return merge_touching(member, topic, first, count)


def _take_samples(instances: pa.StringArray) -> pa.StringArray:
    """Return instance ids of static members at even steps of their order."""
    named = instances.drop_null()
    if not len(named):
        return named
    at = np.unique(np.linspace(0, len(named) - 1, min(SAMPLES, len(named))).astype(np.int64))
    return named.take(pc.sort_indices(named).take(pa.array(at)))


def _find_heads(class_: Ints) -> Longs:
    """Return the first member of each class that there is."""
    return np.sort(np.unique(class_, return_index=True)[1])


@dataclass(frozen=True, slots=True)
class Levels:
    """To what members are lowered and lifted; blocks by classes, where it depends on the block.

    Attributes
    ----------
    top, cut
        (C,) a class that is cut keeps at most `top` a member; others, what they have.
    top_more
        (B, C) how many of the first members above `top` keep one more.
    height
        (C,) what each member has at least, in the end.
    more
        (B, C) how many of the first members up to `height` get one more.
    """

    top: Longs
    cut: Bools
    top_more: Longs
    height: Longs
    more: Longs

    @classmethod
    def as_they_are(cls, blocks: int, classes: int) -> Levels:
        """Return levels at which each member keeps what it has."""
        none, shares = (
            np.zeros(classes, dtype=np.int64),
            np.zeros((blocks, classes), dtype=np.int64),
        )
        return cls(none, none > 0, shares, none, shares)


@dataclass(frozen=True, slots=True)
class PlaceMembers:
    """Decide what the members of blocks keep, and how much they get.

    Attributes
    ----------
    stretch
        So many places of the line are a stretch.
    seats
        Of stretches of the line; of blocks of members where `keep` is true.
    keep
        Whether to yield the members themselves, with what they keep.
    """

    known: KnownGroup
    line: PartitionLine
    levels: Levels
    stretch: int
    seats: npt.NDArray[np.int32]
    keep: bool

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `LINE` for each stretch and `WANTS`; or `MEMBERS` with what they want."""
        for packet in read_packets(batches):
            if packet.kind != MEMBERS:
                continue
            block = MemberBlock.unpack(packet)
            kept, want = self._place(packet.block, block)
            if self.keep:
                yield self._keep(packet.block, block, kept, want)
                continue
            yield from self._send(block, kept)
            wants = Histogram.of(len(self.levels.top), block.class_.astype(np.int64), want)
            yield make_packet(
                packet.block, WANTS, int(self.seats[0]),
                **{"class": wants.class_}, size=wants.load, members=wants.members,
            )  # fmt: skip

    def _place(self, at: int, block: MemberBlock) -> tuple[Longs, Longs]:
        """Return what is kept of each range, and what each member wants."""
        levels, class_ = self.levels, block.class_.astype(np.int64)
        inside, load = block.inside(self.known), block.loads(self.known)
        give = np.where(levels.cut[class_], np.maximum(load - levels.top[class_], 0), 0)
        give[_first_of_class(give > 0, class_, levels.top_more[at])] -= 1
        count = block.count.astype(np.int64)
        kept = np.where(inside, count, 0)
        rows = np.flatnonzero(inside & (give[block.member] > 0))
        left = load - give
        kept[rows] = keep_longest(block.member[rows], count[rows], left)
        want = np.maximum(levels.height[class_] - left, 0)
        low = left <= levels.height[class_]
        want[_first_of_class(low, class_, levels.more[at])] += 1
        return kept, want

    def _keep(self, at: int, block: MemberBlock, kept: Longs, want: Longs) -> pa.RecordBatch:
        some = kept > 0
        held = (block.member[some], block.topic[some], block.first[some], kept[some])
        left = MemberBlock(block.ids, block.instances, block.class_, *held)
        return left.pack(at, seat=int(self.seats[at]), want=want)

    def _send(self, block: MemberBlock, kept: Longs) -> Iterator[pa.RecordBatch]:
        """Yield what is kept and given up of each stretch of the line."""
        start = self.line.start[block.topic] + block.first
        some, given = kept > 0, block.count > kept
        start = np.concatenate([start[some], (start + kept)[given]])
        length = np.concatenate([kept[some], (block.count - kept)[given]])
        stays = np.arange(len(start)) < np.count_nonzero(some)
        first, last = start // self.stretch, (start + length - 1) // self.stretch
        row = np.repeat(np.arange(len(start)), last - first + 1)
        to = expand_runs(first, last - first + 1)
        low = np.maximum(start[row], to * self.stretch)
        length = np.minimum((start + length)[row], (to + 1) * self.stretch) - low
        order = np.argsort(low, kind="stable")
        to, low, length, stays = to[order], low[order], length[order], stays[row[order]]
        ends = offsets_of(count_by(to, len(self.seats))).tolist()
        for stretch in range(len(self.seats)):
            mine = slice(ends[stretch], ends[stretch + 1])
            yield make_packet(
                stretch, LINE, int(self.seats[stretch]),
                start=low[mine], length=length[mine], stays=stays[mine],
            )  # fmt: skip


def _first_of_class(who: Bools, class_: Longs, first: Longs) -> Longs:
    """Return, of the members flagged, the first `first` of each class, in their order."""
    if len(first) == 1:
        return np.flatnonzero(who)[: int(first[0])]
    if not first.any():
        return np.zeros(0, dtype=np.int64)
    member = np.flatnonzero(who)
    member = member[np.argsort(class_[member], kind="stable")]
    return np.asarray(member[rank_in_runs(class_[member]) < first[class_[member]]])


@dataclass(frozen=True, slots=True)
class HandOut:
    """Give members what they want of the pieces that were sent to their block.

    Attributes
    ----------
    lots
        `Lots` of what is wanted, by block of members: where each lies.
    """

    known: KnownGroup
    line: PartitionLine
    lots: Lots

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the assignment, in canonical order within each block."""
        packets = list(read_packets(batches))
        for members in packets:
            if members.kind == MEMBERS:
                mine = [it for it in packets if it.block == members.block and it.kind == GIVEN]
                yield self._finish(members, mine)

    def _finish(self, packet: Packet, given: list[Packet]) -> pa.RecordBatch:
        block, want, line = MemberBlock.unpack(packet), packet["want"], self.line
        who, laid = self.lots.place(packet.block, block.class_.astype(np.int64), want)
        order = np.argsort(laid)
        who = who[order]
        at, start, count = join_packets(given, "at", "start", "count")
        order = np.argsort(at)
        start, count = start[order], count[order]
        total = int(count.sum())
        assert total == int(want.sum()), "others were sent than are wanted"
        piece, taker, place, count = overlay(count, want[who], total)
        start = start[piece] + place - offsets_of(join_packets(given, "count")[0][order])[piece]
        topic = line.topics[np.searchsorted(line.ends, start, side="right")]
        member = np.concatenate([block.member, who[taker]])
        first = np.concatenate([block.first, start - line.start[topic]])
        topic, count = np.concatenate([block.topic, topic]), np.concatenate([block.count, count])
        order = np.lexsort((first, topic, member))
        rows = merge_touching(member[order], topic[order], first[order], count[order])
        return pa.RecordBatch.from_arrays(
            [
                block.ids.take(pa.array(rows[0])),
                self.known.topics.take(pa.array(rows[1])),
                pa.array(rows[2]),
                pa.array(rows[3]),
            ],
            schema=ARROW_SCHEMA,
        )
