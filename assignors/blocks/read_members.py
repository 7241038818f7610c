"""Rows of members and of what was theirs, read into blocks; claims that lost to earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Ints, Longs
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import (
    CLAIMED_TWICE,
    CLAIMS,
    FAULT,
    MEMBERS,
    ROWS,
    Batches,
    Packet,
    join_packets,
    make_packet,
    read_packets,
)
from assignors.errors import SpecError
from assignors.materialize import PartitionLine
from assignors.parse_tables import BAD_RANGE, NULL_IN_ROW
from assignors.partition_ranges import (
    find_overlaps,
    merge_touching,
    order_canonically,
    subtract,
)

CLAIMED = ("topic", "first_partition", "partition_count")
KINDS_OF_ROWS: Mapping[str, Mapping[str, pa.DataType]] = {
    ROWS: {"member_id": pa.string(), "instance_id": pa.string(), "label": pa.int64()},
    CLAIMS: {"member_id": pa.string(), "topic": pa.string(), "first_partition": pa.int64(),
             "partition_count": pa.int64()},
}  # fmt: skip
"""Columns of rows to read: of members, with labels of their subscriptions, and of claims."""
Columns: TypeAlias = Mapping[str, pa.Array]
OWNED = {
    "topic_index": pa.int32(), "first": pa.int32(), "count": pa.int32(), "owner": pa.int64(),
}  # fmt: skip
"""Columns of what members own: the topic, by name, and the owner's place in member order."""
CHANGED = (
    "members: the DataFrame gives other rows each time it is read (as random values do): "
    "cache it, or write it to a table and read that"
)
_PARTITION_MAX = 2**31 - 1


class _FaultError(Exception):
    """Rows of a member, or of any, are refused: the text, and what is wrong, the gravest first."""

    def __init__(self, rank: int, text: str, member_id: str = "") -> None:
        super().__init__(text)
        self.rank = rank
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Labels:
    """What stands for subscriptions in rows of members.

    Attributes
    ----------
    label, class_
        (labels,) ascending, and the class that each stands for.
    """

    label: Longs
    class_: Longs

    @classmethod
    def of(cls, label: Longs, class_: Longs) -> Self | None:
        """Sort labels; None if two are equal."""
        order = np.argsort(label)
        label = label[order]
        return cls(label, class_[order]) if (np.diff(label) != 0).all() else None

    @classmethod
    def numbers(cls, classes: int) -> Self:
        """Let each class's number stand for it."""
        return cls(np.arange(classes), np.arange(classes))

    def find(self, label: Longs) -> Longs:
        """Return the class of each label; -1 where it stands for none."""
        at = np.minimum(np.searchsorted(self.label, label), len(self.label) - 1)
        if not len(self.label):
            return np.full(len(label), -1)
        return np.where(self.label[at] == label, self.class_[at], -1)


@dataclass(frozen=True, slots=True)
class ReadMembers:
    """Read a block: rows of members and of what was theirs, whose ids are neighbours."""

    known: KnownGroup
    labels: Labels

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` and `LOADS`; or `FAULT` where anything is wrong."""
        packets = sorted(read_packets(batches), key=_block_of)
        for at, parts in groupby(packets, key=_block_of):
            try:
                block = self._read(list(parts))
            except _FaultError as error:
                text, who = pa.array([str(error)]), pa.array([error.member_id])
                yield make_packet(at, FAULT, rank=[error.rank], text=text, member_id=who)
                continue
            yield block.pack(at)
            yield block.sum_up(at, self.known)

    def _read(self, packets: list[Packet]) -> MemberBlock:
        members, claims = _join_rows(packets, ROWS), _join_rows(packets, CLAIMS)
        class_ = self.labels.find(np.asarray(members["label"])).astype(np.int32)
        if (class_ < 0).any():
            raise _FaultError(6, CHANGED)
        _refuse_bad_values(claims)
        ids = members["member_id"]
        order = pc.sort_indices(ids)
        ids = ids.take(order)
        if len(ids) > 1:
            again = pc.filter(ids[1:], pc.equal(ids[1:], ids[:-1]))
            if len(again):
                name = again[0].as_py()
                text = f"member {name!r} appears twice: give each member one row"
                raise _FaultError(2, text, name)
        class_ = class_[np.asarray(order)]
        instances = members["instance_id"].take(order)
        return MemberBlock(ids, instances, class_, *self._read_claims(claims, ids, class_))

    def _read_claims(
        self, claims: Columns, ids: pa.StringArray, class_: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Return what members own, in canonical order."""
        known = self.known
        names = claims["topic"]
        first, count = (np.asarray(claims[name]) for name in CLAIMED[1:])
        live = pc.index_in(claims["member_id"], value_set=ids)
        topic = pc.index_in(names, value_set=known.topics)
        rows = np.flatnonzero(live.is_valid())
        if rows.size < len(first):
            at = pa.array(rows)
            live, topic, names = live.take(at), topic.take(at), names.take(at)
            first, count = first[rows], count[rows]
        member = np.asarray(live)
        if topic.null_count:
            _refuse_unknown(ids, member, names, topic)
        topic = np.asarray(topic)
        order = np.lexsort((first, topic, member))
        member, topic, first, count = (it[order] for it in (member, topic, first, count))
        outside = first + count > known.partitions[topic]
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            who = ids[int(member[row])].as_py()
            name, most = known.topics[int(topic[row])].as_py(), int(known.partitions[topic[row]])
            raise _FaultError(
                4,
                f"member {who!r} owns partition {int(first[row] + count[row] - 1)} of topic "
                f"{name!r}, which has {most}: correct the claim or the partition count",
                who,
            )
        twice = find_overlaps(topic, first, count)
        twice[1:] &= member[1:] == member[:-1]
        if twice.any():
            row = int(np.flatnonzero(twice)[0])
            who = ids[int(member[row])].as_py()
            raise _FaultError(
                5,
                f"member {who!r} owns partition {int(first[row])} of topic "
                f"{known.topics[int(topic[row])].as_py()!r} twice: its ranges overlap; "
                "give each partition once",
                who,
            )
        ours = known.eligible.holds(class_[member], topic)
        member, topic, first, count = (it[ours] for it in (member, topic, first, count))
        return merge_touching(member, topic, first, count)


def raise_fault(packets: list[Packet]) -> None:
    """Raise the gravest fault in packets, of the first member that has it.

    Raises
    ------
    SpecError
        There is one.
    """
    faults = [packet for packet in packets if packet.kind == FAULT]
    if faults:
        gravest = min(faults, key=_order_fault)
        raise SpecError(gravest.columns["text"][0].as_py())


def _order_fault(packet: Packet) -> tuple[int, str]:
    return int(packet["rank"][0]), str(packet.columns["member_id"][0].as_py())


def _join_rows(packets: list[Packet], kind: str) -> Columns:
    """Return the columns of rows of a kind, also where there are none."""
    mine = [packet.columns for packet in packets if packet.kind == kind]
    columns = {name: [part[name] for part in mine] for name in KINDS_OF_ROWS[kind]}
    return {
        name: pa.concat_arrays([pa.array([], type_), *(part.cast(type_) for part in columns[name])])
        for name, type_ in KINDS_OF_ROWS[kind].items()
    }


def _refuse_bad_values(claims: Columns) -> None:
    if any(column.null_count for column in claims.values()):
        raise _FaultError(0, NULL_IN_ROW.format("owned"))
    first, count = (np.asarray(claims[name]) for name in CLAIMED[1:])
    wrong = (first < 0) | (count < 1) | (np.maximum(first, count) > _PARTITION_MAX)
    if wrong.any():
        bad = pa.table(dict(claims)).filter(pa.array(wrong)).to_pylist()
        first_bad = min(tuple(row.values()) for row in bad)
        raise _FaultError(1, BAD_RANGE.format("owned", *first_bad), first_bad[0])


def _block_of(packet: Packet) -> int:
    return packet.block


def _refuse_unknown(
    ids: pa.StringArray, member: Ints, names: pa.StringArray, topic: pa.Array
) -> None:
    strange = np.flatnonzero(np.asarray(topic.is_null()))
    row = int(strange[np.argmin(member[strange])])
    who = ids[int(member[row])].as_py()
    raise _FaultError(
        3,
        f"member {who!r} owns partitions of topic "
        f"{names[row].as_py()!r}, which is not in topics: add it, or drop the claim",
        who,
    )


@dataclass(frozen=True, slots=True)
class ListOwned:
    """List what the members of blocks own.

    Attributes
    ----------
    starts
        (blocks + 1,) how many members are before those of each block.
    """

    starts: Longs

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield rows of `OWNED`."""
        for packet in read_packets(batches):
            if packet.kind == MEMBERS:
                block = MemberBlock.unpack(packet)
                owner = block.member + self.starts[packet.block]
                columns = (block.topic, block.first, block.count, owner)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(it, kind) for it, kind in zip(columns, OWNED.values(), strict=True)],
                    list(OWNED),
                )


@dataclass(frozen=True, slots=True)
class TakeLostClaims:
    """Take from blocks of members what an earlier member in order claims, too."""

    known: KnownGroup
    line: PartitionLine

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `MEMBERS` and `LOADS` of blocks of which `MEMBERS` and `CLAIMED_TWICE` came."""
        packets = list(read_packets(batches))
        for packet in packets:
            if packet.kind != MEMBERS:
                continue
            lost = [it for it in packets if it.kind == CLAIMED_TWICE and it.block == packet.block]
            block = MemberBlock.unpack(packet)
            if lost:
                held = self._take(block, *join_packets(lost, "owner", "start", "length"))
                block = MemberBlock(block.ids, block.instances, block.class_, *held)
            yield block.pack(packet.block)
            yield block.sum_up(packet.block, self.known)

    def _take(
        self, block: MemberBlock, owner: Longs, start: Longs, length: Longs
    ) -> tuple[Ints, Ints, Ints, Ints]:
        line, width = self.line, np.int64(self.line.length + 1)
        at = line.start[block.topic] + block.first + block.member.astype(np.int64) * width
        lost = start + owner * width
        low, high = subtract(at, at + block.count.astype(np.int64), lost, lost + length)
        member, place = low // width, low % width
        topic = line.topics[np.searchsorted(line.ends, place, side="right")]
        return order_canonically(member, topic, place - line.start[topic], high - low)
