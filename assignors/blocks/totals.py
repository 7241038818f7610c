"""What the driver adds up: what members give up and get, and how blocks share in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from assignors.arrays import Bools, Longs, expand_runs, offsets_of, rank_in_runs, sum_by
from assignors.blocks.drops import BlockDrops, BlockLevels, ClassDrops
from assignors.blocks.kinds import BlockKinds, share_first, share_last, sum_classes
from assignors.blocks.line_blocks import Seams
from assignors.blocks.lots import Lots
from assignors.blocks.packets import Packet, blocks_of, join_packets
from assignors.ownership import ArrayOwnership, MemberTypes, Ownership
from assignors.plan import Flows, Plan
from assignors.relinquish import TypeDrops, find_class_drops, find_class_levels
from assignors.water_level import Histogram, WaterLevel, fill_loads, lower_loads


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A plan as what each block needs to know of it.

    Attributes
    ----------
    plan, drops, filled
        What members give up, and to what those that have the least are filled.
    shares
        Per pair of the plan's problem, what the class gets.
    loads
        Members by load, in the end.
    moved
        Partitions that live owners give up.
    """

    plan: Plan
    drops: BlockDrops
    filled: BlockLevels
    shares: Longs
    loads: Histogram
    moved: int


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """Members by what is left to them, by block; and what pairs get back (`CountLeft`)."""

    block: Longs
    class_: Longs
    load: Longs
    members: Longs
    back: Longs


CountLeft = Callable[[BlockDrops], list[Packet]]
"""Asks blocks for packets of `LEFT`."""


def settle(
    plan: Plan, kinds: BlockKinds, owned: ArrayOwnership, count: CountLeft
) -> Settled | None:
    """Find what blocks do; None where partitions are owned twice, so that loads are wrong."""
    drops = _share_drops(plan, kinds, owned)
    if drops.below is None and drops.classes is None:
        left = _find_left(plan, kinds, owned, drops)
    else:
        drops, left = _ask_left(plan, kinds, drops, count)
    if (left.load[left.members > 0] < 0).any():
        return None
    classes, problem = kinds.group.class_count, plan.cells.problem
    load = np.maximum(left.load, 0)  # of no member
    loads = Histogram.of(classes, left.class_, load, left.members)
    alone = plan.cells.alone[plan.cells.of_class[problem.pair_class]]
    kept = loads.total()[problem.pair_class]
    new = np.zeros_like(left.back) if plan.flows is None else plan.flows.new
    shares = np.where(alone, problem.partitions[problem.pair_topic] - kept, new + left.back)
    if (shares < 0).any():
        return None
    level = fill_loads(loads, sum_by(problem.pair_class, shares, classes))
    low = np.where(left.load <= level.height[left.class_], left.members, 0)
    there = sum_classes(kinds.blocks, classes, left.block, left.class_, low)
    filled = BlockLevels(level.height, share_first(there, level.first))
    moved = kinds.owned - int(loads.total().sum())
    return Settled(plan, drops, filled, shares, add_filled(loads, level), moved)


def find_wanted(packets: list[Packet]) -> Lots:
    """Lay what members want, from packets of `WANTS`."""
    return Lots.of(blocks_of(packets, "size"), *join_packets(packets, "class", "size", "members"))


def find_free(packets: list[Packet]) -> tuple[Seams, Longs, Lots]:
    """Join pieces of neighbouring stretches and lay all, from packets of `PIECES`, by stretch.

    Returns
    -------
    seams, starts, lots
        And where the first piece of each stretch is laid that goes on from the one before.
    """
    begun, more, through = join_packets(packets, "begun", "more", "through")
    first_class, last_class = join_packets(packets, "first_class", "last_class")
    seams = Seams.of(begun, more, through, last_class[:-1] == first_class[1:])
    at = np.arange(len(packets))
    alone = np.flatnonzero((begun > 0) & ~seams.begun & (through == 0))
    ends = np.flatnonzero(seams.last)
    class_, size, pieces = join_packets(packets, "class", "size", "pieces")
    lots = Lots.of(
        np.concatenate([blocks_of(packets, "size"), at[alone], at[ends]]),
        np.concatenate([class_, first_class[alone], last_class[ends]]),
        np.concatenate([size, begun[alone], seams.last[ends]]),
        np.concatenate([pieces, np.ones(len(alone) + len(ends), dtype=np.int64)]),
    )
    starts = np.zeros(len(packets), dtype=np.int64)
    went, place = 0, 0
    for block in range(len(packets)):  # of stretches, which are few
        if seams.begun[block]:
            starts[block] = place + went
            went += int(begun[block])
        if seams.last[block]:
            place, went = lots.find_last(block, last_class[block], seams.last[block]), more[block]
    return seams, starts, lots


def add_filled(loads: Histogram, level: WaterLevel) -> Histogram:
    """Return the loads after every member was filled to its level."""
    low = loads.load <= level.height[loads.class_]
    classes = np.arange(len(level.height))
    lifted = sum_by(loads.class_, np.where(low, loads.members, 0), len(classes))
    some = lifted > 0
    return Histogram.of(
        len(classes),
        np.concatenate([loads.class_[~low], classes[some], classes[some]]),
        np.concatenate([loads.load[~low], level.height[some], level.height[some] + 1]),
        np.concatenate([loads.members[~low], (lifted - level.first)[some], level.first[some]]),
    )


def _share_drops(plan: Plan, kinds: BlockKinds, owned: ArrayOwnership) -> BlockDrops:
    """Share out what the plan says that members give up."""
    holdings, group = owned.holdings(plan.cells), kinds.group
    lowered = plan.drops > 0
    level = lower_loads(plan.loads, plan.drops)
    over = np.flatnonzero(
        lowered[group.member_class] & (holdings.load > level.height[group.member_class])
    )
    top = BlockLevels(
        level.height, share_first(kinds.by_block(over, kinds.times[over]), level.first)
    )
    none = np.full(len(kinds.block) - kinds.loads, -1, dtype=np.int64)
    drops = BlockDrops(plan.cells, top, lowered, None, kinds.starts, none, none)
    if plan.flows is None:
        return drops
    types = owned.find_types(plan.flows.held)
    drops = _share_types(drops, plan.flows, kinds, types)
    lost = plan.flows.held.below - plan.flows.kept_below
    if lost.any():
        low = holdings.competing & (holdings.load <= holdings.low)
        rows = np.flatnonzero(holdings.inside & low[group.member])
        there = _sum_pairs(kinds, holdings, rows, holdings.count_owned(rows))
        drops = replace(drops, below=share_last(there, lost))
    cut, pair_lost = find_class_drops(plan.cells, plan.flows)
    if cut.any():
        drops = replace(drops, classes=_share_classes(kinds, holdings, cut, pair_lost))
    return drops


def _share_types(
    drops: BlockDrops, flows: Flows, kinds: BlockKinds, types: MemberTypes
) -> BlockDrops:
    """Number the members of types that give something up, block after block."""
    every = TypeDrops.of(flows)
    losing = np.flatnonzero(every.lost)
    if not len(losing):
        return drops
    number = np.full(len(every.members), -1, dtype=np.int64)
    number[losing] = np.arange(len(losing))
    type_of = drops.type.copy()
    type_of[types.member - kinds.loads] = number[types.type]
    some = np.flatnonzero(type_of >= 0)
    block, times = kinds.block[kinds.loads :][some], kinds.times[kinds.loads :][some]
    key = type_of[some] * kinds.blocks + block
    found, at = np.unique(key, return_inverse=True)
    there = sum_by(at, times, len(found))
    upto = offsets_of(there)[:-1]
    head = np.flatnonzero(rank_in_runs(found // kinds.blocks) == 0)
    upto = upto - np.repeat(upto[head], np.diff(np.append(head, len(found))))
    before = np.zeros_like(type_of)
    before[some] = upto[at]
    lengths = np.diff(every.offsets)[losing]
    rows = expand_runs(every.offsets[:-1][losing], lengths)
    fewer = TypeDrops(
        every.members[losing], offsets_of(lengths), every.topic_class[rows], every.owned[rows],
        every.amount[rows],
    )  # fmt: skip
    return replace(drops, types=fewer, type=type_of, before=before)


def _share_classes(kinds: BlockKinds, holdings: Ownership, cut: Bools, lost: Longs) -> ClassDrops:
    """Share out what classes without types give: from the fullest members, then from the last."""
    class_, load = holdings.class_, holdings.load
    over = cut[class_] & (load > holdings.low)
    rows = np.flatnonzero(holdings.inside & over[kinds.group.member])
    member, topic, owned = holdings.entries(rows)
    pair = holdings.pair(topic, class_[member])
    times, block = kinds.times[member], kinds.block[member]
    surplus = load[member] - holdings.cells.high[class_[member]]
    offer = np.clip(surplus, 0, owned) * times
    order = np.lexsort((block, -surplus, pair))
    upto = offsets_of(offer[order])[:-1]
    head = np.flatnonzero(rank_in_runs(pair[order]) == 0)
    upto = upto - np.repeat(upto[head], np.diff(np.append(head, len(order))))
    taken = np.zeros_like(offer)
    taken[order] = np.clip(lost[pair[order]] - upto, 0, offer[order])
    size, pairs = kinds.blocks, len(lost)
    key = block * pairs + pair
    fullest = sum_by(key, taken, size * pairs).reshape(size, pairs)
    there = sum_by(key, owned * times, size * pairs).reshape(size, pairs) - fullest
    return ClassDrops(cut, fullest, share_last(there, lost - fullest.sum(axis=0)))


def _sum_pairs(kinds: BlockKinds, holdings: Ownership, rows: Longs, amount: Longs) -> Longs:
    """Sum owned ranges by block and pair: int64 (blocks, pairs)."""
    member, pairs = kinds.group.member[rows], len(holdings.cells.problem.pair_class)
    pair = holdings.pair(holdings.topic_class[rows], holdings.class_[member])
    key = kinds.block[member] * pairs + pair
    return sum_by(key, amount, kinds.blocks * pairs).reshape(kinds.blocks, pairs)


def _find_left(plan: Plan, kinds: BlockKinds, owned: ArrayOwnership, drops: BlockDrops) -> Left:
    """Find what is left to members that give up by level or by type, one at a time."""
    holdings, class_ = owned.holdings(plan.cells), kinds.group.member_class.astype(np.int64)
    load, block = holdings.load, kinds.block
    level = drops.level
    give = drops.lowered[class_] & (load > level.height[class_])
    typed = np.zeros(len(load), dtype=np.bool_)
    typed[kinds.loads :] = drops.type >= 0
    rest = ~give & ~typed
    b, c = np.nonzero(kinds.by_block(np.flatnonzero(give), kinds.times[give]))
    lowered = kinds.by_block(np.flatnonzero(give), kinds.times[give])[b, c]
    more = level.first[b, c]
    parts = [
        (block[rest], class_[rest], load[rest], kinds.times[rest]),
        (b, c, level.height[c], lowered - more),
        (b, c, level.height[c] + 1, more),
    ]
    if drops.types is not None:
        row = kinds.loads + np.flatnonzero(drops.type >= 0)
        type_, before = drops.type[row - kinds.loads], drops.before[row - kinds.loads]
        key = block[row] * len(drops.types.members) + type_
        _, first, at = np.unique(key, return_index=True, return_inverse=True)
        there = sum_by(at, kinds.times[row], len(first))
        row, type_, before = row[first], type_[first], before[first]
        each, odd = np.divmod(drops.types.lost, drops.types.members)
        more = np.clip(odd[type_] - before, 0, there)
        left = load[row] - each[type_]
        parts.append((block[row], class_[row], left, there - more))
        parts.append((block[row], class_[row], left - 1, more))
    block, class_, load, times = (np.concatenate([part[at] for part in parts]) for at in range(4))
    none = np.zeros(len(plan.cells.problem.pair_class), dtype=np.int64)
    return Left(block, class_, load, times, none)


def _ask_left(
    plan: Plan, kinds: BlockKinds, drops: BlockDrops, count: CountLeft
) -> tuple[BlockDrops, Left]:
    """Ask blocks, where it depends on more than members' kinds; twice for classes without types."""
    classes, flows, packets = kinds.group.class_count, plan.flows, count(drops)
    assert flows is not None, "classes alone in their cells give up by level"
    if drops.classes is not None:
        names = ("between_class", "between_load", "between_members")
        class_, load, members = join_packets(packets, *names)
        between = Histogram.of(classes, class_, load, members)
        level, lowered = find_class_levels(plan.cells, flows, drops.classes.cut, between)
        if lowered.any():
            over = lowered[class_] & (load > level.height[class_])
            block = blocks_of(packets, "between_load")[over]
            there = sum_classes(kinds.blocks, classes, block, class_[over], members[over])
            shared = BlockLevels(level.height, share_first(there, level.first))
            drops = replace(drops, classes=replace(drops.classes, level=shared, lowered=lowered))
            packets = count(drops)
    class_, load, members, pair, back = join_packets(
        packets, "class", "load", "members", "pair", "back"
    )
    got_back = sum_by(pair, back, len(plan.cells.problem.pair_class))
    return drops, Left(blocks_of(packets, "load"), class_, load, members, got_back)
