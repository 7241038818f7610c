"""What blocks of members say of themselves, and what a plan asks of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, offsets_of, sum_by
from assignors.blocks.member_blocks import KnownGroup, make_group
from assignors.blocks.packets import Packet, blocks_of, join_packets
from assignors.group_spec import GroupSpec
from assignors.relinquish import find_only_topics


@dataclass(frozen=True, slots=True, eq=False)
class BlockKinds:
    """Members that own alike, block by block.

    Rows are first members of classes that are alone, and of members that own nothing, by load;
    then kinds (`member_blocks.Kinds`), each by block.

    Attributes
    ----------
    blocks
        The number of blocks.
    block, times
        (rows,) the block, and how many members there are.
    group
        One member for each row, who owns of each topic class what is one topic's.
    loads
        How many rows are not kinds.
    """

    blocks: int
    block: Longs
    times: Longs
    group: GroupSpec
    loads: int

    @classmethod
    def of(cls, blocks: int, known: KnownGroup, packets: list[Packet]) -> BlockKinds:
        """Read packets of `LOADS`, by block."""
        class_, load, members = join_packets(packets, "class", "load", "members")
        kind_class, kind_members = join_packets(packets, "kind_class", "kind_members")
        entries, topic, owned = join_packets(packets, "kind_entries", "entry_topic", "entry_owned")
        if known.rank is not None:
            class_, kind_class = known.rank[class_], known.rank[kind_class]
        of_topic = _find_first_topics(known.parts.problem.topic_class)
        held = np.flatnonzero(load)
        only = find_only_topics(known.parts)[class_[held]] if len(held) else held
        member = np.concatenate([held, np.repeat(len(load) + np.arange(len(entries)), entries)])
        group = make_group(
            known,
            np.concatenate([class_, kind_class]),
            member,
            of_topic[np.concatenate([only, topic]).astype(np.int64)],
            np.zeros(len(member), dtype=np.int64),
            np.concatenate([load[held], owned]).astype(np.int64),
        )
        block = np.concatenate([blocks_of(packets, "load"), blocks_of(packets, "kind_class")])
        times = np.concatenate([members, kind_members])
        return cls(blocks, block, times, group, len(load))

    @property
    def owned(self) -> int:
        """Partitions that have an owner."""
        return int((self.group.count * self.times[self.group.member]).sum())

    @property
    def starts(self) -> Longs:
        """Where the kinds of each block begin, counted in kinds."""
        return offsets_of(np.bincount(self.block[self.loads :], minlength=self.blocks))

    def by_block(self, row: Longs, members: Longs) -> Longs:
        """Sum some rows by block and class: int64 (blocks, classes)."""
        return sum_classes(
            self.blocks, self.group.class_count, self.block[row], self.group.member_class[row],
            members,
        )  # fmt: skip


def sum_classes(blocks: int, classes: int, block: Longs, class_: Ints, members: Longs) -> Longs:
    """Sum by block and class: int64 (blocks, classes)."""
    return sum_by(block * classes + class_, members, blocks * classes).reshape(blocks, classes)


def share_first(there: Longs, first: Longs) -> Longs:
    """Return how many of the first `first` of each column are in each block, shape (B, n)."""
    before = np.cumsum(there, axis=0) - there
    return np.clip(first - before, 0, there)


def share_last(there: Longs, last: Longs) -> Longs:
    """Return how many of the last `last` of each column are in each block, shape (B, n)."""
    return share_first(there[::-1], last)[::-1]


def _find_first_topics(topic_class: Longs) -> Longs:
    """Return the first topic of each topic class."""
    found, first = np.unique(topic_class, return_index=True)
    return np.asarray(first[found >= 0])
