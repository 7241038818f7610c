"""Decide which member gives up how much of which topic class.

See docs/design/algorithm.md#relinquish.

A plan says it per type, class and level; here it comes down to members, by total orders only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import (
    Bools,
    Longs,
    expand_runs,
    offsets_of,
    rank_in_runs,
    sum_by,
    sum_segments,
)
from assignors.compressed_problem import Cells
from assignors.ownership import ArrayOwnership, MemberTypes, Ownership
from assignors.plan import Flows, Plan
from assignors.water_level import Histogram, WaterLevel, count_drops_needed, lower_loads


@dataclass(frozen=True, slots=True)
class Relinquishment:
    """What members give up: `amount` of the `owned` partitions of (member, topic class).

    Sorted by (member, topic class), no two alike.
    """

    member: Longs
    topic_class: Longs
    owned: Longs
    amount: Longs

    @classmethod
    def joined(cls, parts: list[Relinquishment]) -> Relinquishment:
        """Put disjoint drops together, leaving out those of nothing."""
        parts = [part for part in parts if len(part.member)]
        if not parts:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, none, none)
        member = np.concatenate([part.member for part in parts])
        topic_class = np.concatenate([part.topic_class for part in parts])
        owned = np.concatenate([part.owned for part in parts])
        amount = np.concatenate([part.amount for part in parts])
        order = np.lexsort((topic_class, member))
        order = order[amount[order] > 0]
        return cls(member[order], topic_class[order], owned[order], amount[order])

    def subtract(self, load: Longs) -> Longs:
        """Return what is left to members."""
        if not len(self.member):
            return load
        return load - sum_by(self.member, self.amount, len(load))


def relinquish(
    holdings: Ownership, plan: Plan, owned: ArrayOwnership
) -> tuple[Relinquishment, Longs]:
    """Bring a plan's drops down to members.

    Returns
    -------
    drops, new
        Who gives up what; and per pair of the problem how much of the topic class's pool goes to
        the class (for classes alone in their cell: 0, they take all of it).
    """
    parts = [relinquish_crossing(holdings)]
    if plan.drops.any():
        level = lower_loads(plan.loads, plan.drops)
        parts.append(relinquish_above_level(holdings, level, plan.drops > 0))
    if plan.flows is None:
        return Relinquishment.joined(parts), np.zeros(
            len(plan.cells.problem.pair_class), dtype=np.int64
        )
    flows = plan.flows
    lumped, back = _relinquish_of_classes(holdings, plan, flows)
    parts += [
        relinquish_of_types(TypeDrops.of(flows), owned.find_types(flows.held)),
        relinquish_below_low(holdings, flows.held.below - flows.kept_below),
        lumped,
    ]
    return Relinquishment.joined(parts), flows.new + back


def select_first_of_class(holdings: Ownership, who: Bools, first: Longs) -> Longs:
    """Return, of the members flagged, the first `first` of each class in member order."""
    group = holdings.group
    if group.class_count == 1:
        return np.flatnonzero(who)[: int(first[0])]
    if not first.any():
        return np.zeros(0, dtype=np.int64)
    member = group.class_order[who[group.class_order]]
    class_ = holdings.class_[member]
    return np.asarray(member[rank_in_runs(class_) < first[class_]])


def relinquish_crossing(holdings: Ownership) -> Relinquishment:
    """Give up everything owned across a border of cells."""
    if not holdings.crossing:
        return Relinquishment.joined([])
    member, topic, owned = holdings.entries(np.flatnonzero(~holdings.inside))
    return Relinquishment(member, topic, owned, owned)


def relinquish_above_level(
    holdings: Ownership, level: WaterLevel, lowered: Bools
) -> Relinquishment:
    """Lower the fullest members of the classes flagged, which are alone in their cell."""
    give = _count_above(holdings, holdings.load, level, lowered)
    member = np.flatnonzero(give)
    only = find_only_topics(holdings.cells)[holdings.class_[member]]
    return Relinquishment(member, only, holdings.load[member], give[member])


def find_only_topics(cells: Cells) -> Longs:
    """Return the one topic class of the cell of each class that is alone there, shape (C,)."""
    problem = cells.problem
    only = np.zeros(len(problem.size), dtype=np.int64)
    only[problem.pair_class] = problem.pair_topic
    return only


def _count_above(holdings: Ownership, load: Longs, level: WaterLevel, classes: Bools) -> Longs:
    """Return per member what it has above the level, for the classes flagged."""
    class_ = holdings.class_
    give = np.maximum(np.where(classes[class_], load - level.height[class_], 0), 0)
    give[select_first_of_class(holdings, give > 0, level.first)] -= 1  # these keep one more
    return give


@dataclass(frozen=True, slots=True)
class TypeDrops:
    """What the members of each type give up.

    Attributes
    ----------
    members
        Per type, how many there are.
    offsets
        Type t's entries are offsets[t]:offsets[t + 1].
    topic_class, owned, amount
        Per entry: what one member owns, and what all of them together give up.
    """

    members: Longs
    offsets: Longs
    topic_class: Longs
    owned: Longs
    amount: Longs

    @classmethod
    def of(cls, flows: Flows) -> TypeDrops:
        """Compare what types own with what they keep."""
        held, types = flows.held, int(np.count_nonzero(flows.held.typed))
        offsets = held.node_entries[: types + 1]
        some = slice(0, int(offsets[-1]))
        return cls(
            held.node_members[:types], offsets, held.entry_topic[some], held.entry_owned[some],
            (held.entry_total - flows.kept)[some],
        )  # fmt: skip

    @property
    def lost(self) -> Longs:
        """What each type gives up, all members together."""
        return sum_segments(self.amount, self.offsets)


def relinquish_of_types(drops: TypeDrops, types: MemberTypes) -> Relinquishment:
    """Lay each type's drops end to end; unit j is given up by member j mod w of the type."""
    offsets, amount = drops.offsets, drops.amount
    laid = offsets_of(amount)
    start = laid[:-1] - np.repeat(laid[offsets[:-1]], np.diff(offsets))
    some = np.flatnonzero(drops.lost[types.type] > 0)
    type_ = types.type[some]
    lengths = np.diff(offsets)[type_]
    at = expand_runs(offsets[type_], lengths)
    rank, width = np.repeat(types.rank[some], lengths), np.repeat(drops.members[type_], lengths)
    units = (start[at] + amount[at] - 1 - rank) // width - (start[at] - 1 - rank) // width
    member = np.repeat(types.member[some], lengths)
    return Relinquishment(member, drops.topic_class[at], drops.owned[at], units)


def relinquish_below_low(holdings: Ownership, lost: Longs) -> Relinquishment:
    """Take what members at or below low lose (rare), per pair, from the last of them in order."""
    if not lost.any():
        return Relinquishment.joined([])
    group = holdings.group
    low = holdings.competing & (holdings.load <= holdings.low)
    member, topic, owned = holdings.entries(np.flatnonzero(holdings.inside & low[group.member]))
    pair = holdings.pair(topic, holdings.class_[member])
    return _take_from_last(member, topic, owned, pair, lost)


def _take_from_last(
    member: Longs, topic: Longs, owned: Longs, pair: Longs, lost: Longs
) -> Relinquishment:
    """Take `lost` partitions of each pair from the members that own some, the last one first."""
    order = np.lexsort((-member, pair))
    before = _sum_before(owned[order], pair[order])
    amount = np.zeros_like(owned)
    amount[order] = np.clip(lost[pair[order]] - before, 0, owned[order])
    return Relinquishment(member, topic, owned, amount)


def _sum_before(amount: Longs, key: Longs) -> Longs:
    """Sum what comes before each row within its run of equal keys."""
    before = offsets_of(amount)[:-1]
    head = np.flatnonzero(rank_in_runs(key) == 0)
    return before - np.repeat(before[head], np.diff(np.append(head, len(key))))


def _relinquish_of_classes(
    holdings: Ownership, plan: Plan, flows: Flows
) -> tuple[Relinquishment, Longs]:
    """Carry out drops of classes that were planned without types (`exact` is then False).

    1. Each pair's drops come from the fullest members first, of each no more than it has above
       high; what is left comes from the last members.
    2. Members still above their bounds give up more, which stays with their class.

    Returns
    -------
    drops, back
        And per pair, what step 2 hands back to the class through the pool.
    """
    pairs = len(plan.cells.problem.pair_class)
    cut, pair_lost = find_class_drops(holdings.cells, flows)
    if not cut.any():
        return Relinquishment.joined([]), np.zeros(pairs, dtype=np.int64)
    entries = ClassEntries.of(holdings, cut)
    drops = entries.take(holdings, pair_lost)
    level, lowered = find_class_levels(
        plan.cells, flows, cut, holdings.histogram(drops.subtract(holdings.load))
    )
    more = level_classes(holdings, drops, level, lowered)
    pair = entries.pair
    drops = Relinquishment(drops.member, drops.topic_class, drops.owned, drops.amount + more)
    return drops, sum_by(pair, more, pairs)


def find_class_drops(cells: Cells, flows: Flows) -> tuple[Bools, Longs]:
    """Return which classes without types give something up, and how much of each pair."""
    held, problem = flows.held, cells.problem
    lost = held.entry_total - flows.kept
    at = np.flatnonzero(~held.typed[held.entry_node] & (lost > 0))
    losing = held.node_class[held.entry_node[at]]
    pair_lost = np.zeros(len(problem.pair_class), dtype=np.int64)
    keys = problem.pair_topic * len(problem.size) + problem.pair_class
    pair = np.searchsorted(keys, held.entry_topic[at] * len(problem.size) + losing)
    pair_lost[pair] = lost[at]
    cut = np.zeros(len(problem.size), dtype=np.bool_)
    cut[losing] = True
    return cut, pair_lost


@dataclass(frozen=True, slots=True)
class ClassEntries:
    """What members above low own whose class gives something up, by (member, topic class)."""

    member: Longs
    topic_class: Longs
    owned: Longs
    pair: Longs

    @classmethod
    def of(cls, holdings: Ownership, cut: Bools) -> ClassEntries:
        """List them."""
        class_ = holdings.class_
        over = cut[class_] & (holdings.load > holdings.low)
        rows = np.flatnonzero(holdings.inside & over[holdings.group.member])
        member, topic, owned = holdings.entries(rows)
        return cls(member, topic, owned, holdings.pair(topic, class_[member]))

    def take(
        self, holdings: Ownership, lost: Longs, from_last: Longs | None = None
    ) -> Relinquishment:
        """Take `lost` of each pair from the fullest members, and what is left from the last.

        Parameters
        ----------
        from_last
            What is left of each pair, if that is known.
        """
        amount = _take_from_fullest(holdings, self.member, self.owned, self.pair, lost)
        if from_last is None:
            from_last = lost - sum_by(self.pair, amount, len(lost))
        rest = _take_from_last(
            self.member, self.topic_class, self.owned - amount, self.pair, from_last
        )
        return Relinquishment(self.member, self.topic_class, self.owned, amount + rest.amount)


def _take_from_fullest(
    holdings: Ownership, member: Longs, owned: Longs, pair: Longs, lost: Longs
) -> Longs:
    """Take from the fullest members, of each no more than it has above its class's high."""
    surplus = holdings.load[member] - holdings.cells.high[holdings.class_[member]]
    offer = np.clip(surplus, 0, owned)
    order = np.lexsort((member, -surplus, pair))
    pair, offer = pair[order], offer[order]
    amount = np.zeros_like(owned)
    amount[order] = np.clip(lost[pair] - _sum_before(offer, pair), 0, offer)
    return amount


def find_class_levels(
    cells: Cells, flows: Flows, cut: Bools, loads: Histogram
) -> tuple[WaterLevel, Bools]:
    """Return to what members of which classes are lowered, so that all are within bounds.

    Parameters
    ----------
    loads
        Once each class has given up what the plan says.
    """
    problem = cells.problem
    given = sum_by(problem.pair_class, flows.new, len(problem.size))
    needed = count_drops_needed(loads, cells.low, cells.high, loads.total() + given)
    needed = np.where(cut, needed, 0)
    return lower_loads(loads, needed), needed > 0


def level_classes(
    holdings: Ownership, drops: Relinquishment, level: WaterLevel, lowered: Bools
) -> Longs:
    """Return what members above their class's level give up more, from their last topic classes."""
    give = _count_above(holdings, drops.subtract(holdings.load), level, lowered)
    left = drops.owned - drops.amount
    before = _sum_before(left[::-1], drops.member[::-1])[::-1]
    return np.asarray(np.clip(give[drops.member] - before, 0, left))
