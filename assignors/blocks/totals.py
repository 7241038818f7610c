"""What the driver adds up: levels of all members, and how blocks share in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, sum_by
from assignors.blocks.line_blocks import Seams
from assignors.blocks.lots import Lots
from assignors.blocks.member_blocks import Levels
from assignors.blocks.packets import Packet, join_packets
from assignors.compressed_problem import Cells
from assignors.plan import OwnershipSource, Plan, count_class_partitions, solve_plan
from assignors.water_level import Histogram, WaterLevel, fill_loads, lower_loads


@dataclass(frozen=True, slots=True)
class BlockLoads(OwnershipSource):
    """How many members of each class and load there are in each block.

    Attributes
    ----------
    blocks
        The number of blocks.
    block, class_, load, members
        (rows,) each.
    owned, crossed
        Partitions owned, and those of them in another cell than their owner.
    """

    blocks: int
    classes: int
    block: Longs
    class_: Longs
    load: Longs
    members: Longs
    owned: int
    crossed: int

    @classmethod
    def of(cls, blocks: int, classes: int, packets: list[Packet]) -> BlockLoads:
        """Read packets of `LOADS`."""
        class_, load, members = join_packets(packets, "class", "load", "members")
        owned, crossing = (int(it.sum()) for it in join_packets(packets, "owned", "crossing"))
        return cls(
            blocks, classes, _blocks_of(packets, "load"), class_, load, members, owned, crossing
        )

    def loads(self, cells: Cells) -> Histogram:  # noqa: ARG002 - they were counted by these
        """See `OwnershipSource`."""
        return Histogram.of(self.classes, self.class_, self.load, self.members)

    def crossing(self, cells: Cells) -> int:  # noqa: ARG002 - the same
        """See `OwnershipSource`."""
        return self.crossed

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> None:  # noqa: ARG002 - never asked
        """See `OwnershipSource`: no class competes with another."""
        raise AssertionError("every class is alone in its cell")

    def by_block(self, members: Longs) -> Longs:
        """Sum rows: int64 (blocks, classes)."""
        key = self.block * self.classes + self.class_
        return sum_by(key, members, self.blocks * self.classes).reshape(self.blocks, self.classes)


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan for members that are alone in their cells, as levels.

    Attributes
    ----------
    plan, levels
        What is done.
    loads
        Members by load, in the end.
    wanted
        Partitions that get an owner, or another one.
    """

    plan: Plan
    levels: Levels
    loads: Histogram
    wanted: int


def settle(cells: Cells, found: BlockLoads) -> Settled | None:
    """Find the levels; None where partitions are owned twice, so that loads are wrong."""
    plan = solve_plan(cells, found)
    every = plan.loads
    cut = plan.drops > 0
    top = lower_loads(every, plan.drops)
    over = cut[found.class_] & (found.load > top.height[found.class_])
    lowered = found.by_block(np.where(over, found.members, 0))
    top_more = _share_first(lowered, np.where(cut, top.first, 0))
    left = _lower(every, top, cut)
    amount = count_class_partitions(cells) - left.total()
    if (amount < 0).any():
        return None
    fill = fill_loads(left, amount)
    low = ~over & (found.load <= fill.height[found.class_])
    lifted = found.by_block(np.where(low, found.members, 0))
    lifted += np.where(cut & (top.height <= fill.height), lowered - top_more, 0)
    lifted += np.where(cut & (top.height < fill.height), top_more, 0)
    more = _share_first(lifted, fill.first)
    levels = Levels(top.height, cut, top_more, fill.height, more)
    return Settled(plan, levels, add_filled(left, fill), int(amount.sum()))


def find_wanted(packets: list[Packet]) -> Lots:
    """Lay what members want, from packets of `WANTS`."""
    return Lots.of(_blocks_of(packets, "size"), *join_packets(packets, "class", "size", "members"))


def find_free(packets: list[Packet]) -> tuple[Seams, Lots]:
    """Join pieces of neighbouring stretches and lay all, from packets of `PIECES`, by stretch."""
    begun, more, through = join_packets(packets, "begun", "more", "through")
    first_class, last_class = join_packets(packets, "first_class", "last_class")
    seams = Seams.of(begun, more, through)
    at = np.arange(len(packets))
    alone = np.flatnonzero((begun > 0) & ~seams.begun & (through == 0))
    ends = np.flatnonzero(seams.last)
    class_, size, pieces = join_packets(packets, "class", "size", "pieces")
    lots = Lots.of(
        np.concatenate([_blocks_of(packets, "size"), at[alone], at[ends]]),
        np.concatenate([class_, first_class[alone], last_class[ends]]),
        np.concatenate([size, begun[alone], seams.last[ends]]),
        np.concatenate([pieces, np.ones(len(alone) + len(ends), dtype=np.int64)]),
    )
    return seams, lots


def add_filled(loads: Histogram, level: WaterLevel) -> Histogram:
    """Return the loads after every member was filled to its level."""
    low = loads.load <= level.height[loads.class_]
    lifted = np.add.reduceat(
        np.append(np.where(low, loads.members, 0), 0), np.minimum(loads.offsets[:-1], len(low))
    )
    lifted = np.where(np.diff(loads.offsets) > 0, lifted, 0)
    return _with_level(loads, ~low, lifted, level, (lifted > 0) | (level.first > 0))


def number_by_head(loads: Histogram, packets: list[Packet]) -> Histogram:
    """Number the classes of loads by their first member, from packets of `LOADS`, by block."""
    classes = len(loads.offsets) - 1
    (heads,) = join_packets(packets, "head_class")  # of each block, by their first member
    found, first = np.unique(heads, return_index=True)
    at = np.full(classes, len(heads), dtype=np.int64)
    at[found] = first
    rank = np.empty(classes, dtype=np.int64)
    rank[np.argsort(at, kind="stable")] = np.arange(classes)
    return Histogram.of(classes, rank[loads.class_], loads.load, loads.members)


def _lower(loads: Histogram, level: WaterLevel, cut: np.ndarray) -> Histogram:
    """Return the loads after the members of classes that are cut were lowered to their level."""
    over = cut[loads.class_] & (loads.load > level.height[loads.class_])
    if not over.any():
        return loads
    lowered = sum_by(loads.class_, np.where(over, loads.members, 0), len(cut))
    return _with_level(loads, ~over, lowered, level, lowered > 0)


def _with_level(
    loads: Histogram, rest: np.ndarray, at_level: Longs, level: WaterLevel, some: np.ndarray
) -> Histogram:
    class_, height = np.arange(len(level.height)), level.height
    return Histogram.of(
        len(height),
        np.concatenate([loads.class_[rest], class_[some], class_[some]]),
        np.concatenate([loads.load[rest], height[some], height[some] + 1]),
        np.concatenate([loads.members[rest], (at_level - level.first)[some], level.first[some]]),
    )


def _share_first(there: Longs, first: Longs) -> Longs:
    """Return how many of the first `first` of each class are in each block, shape (B, C)."""
    before = np.cumsum(there, axis=0) - there
    return np.clip(first - before, 0, there)


def _blocks_of(packets: list[Packet], column: str) -> Longs:
    """Return the block of each row of the packets."""
    blocks = np.array([packet.block for packet in packets], dtype=np.int64)
    return np.repeat(blocks, [len(packet[column]) for packet in packets])
