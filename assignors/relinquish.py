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
    offsets_of,
    rank_in_runs,
    runs_to_index,
    segment_sums,
    total_by,
)
from assignors.ownership import Asked, Holdings, Typed
from assignors.plan import Flows, Plan
from assignors.water_level import Level, drops_needed, lower


@dataclass(frozen=True, slots=True)
class Drops:
    """What members give up: `amount` of the `owned` partitions of (member, topic class).

    Sorted by (member, topic class), no two alike.
    """

    member: Longs
    topic_class: Longs
    owned: Longs
    amount: Longs

    @classmethod
    def joined(cls, parts: list[Drops]) -> Drops:
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


def drops_of(holdings: Holdings, plan: Plan, owned: Asked) -> tuple[Drops, Longs]:
    """Bring a plan's drops down to members.

    Returns
    -------
    drops, new
        Who gives up what; and per pair of the problem how much of the topic class's pool goes to
        the class (for classes alone in their cell: 0, they take all of it).
    """
    parts = [_crossing(holdings), _lowered(holdings, plan)]
    if plan.flows is None:
        return Drops.joined(parts), np.zeros(len(plan.cells.problem.pair_class), dtype=np.int64)
    flows = plan.flows
    lumped, back = _lumped(holdings, plan, flows)
    parts += [_typed(flows, owned.typed(flows.held)), _below(holdings, flows), lumped]
    return Drops.joined(parts), flows.new + back


def first_of_class(holdings: Holdings, who: Bools, first: Longs) -> Longs:
    """Return, of the members flagged, the first `first` of each class in member order."""
    group = holdings.group
    if group.class_count == 1:
        return np.flatnonzero(who)[: int(first[0])]
    if not first.any():
        return np.zeros(0, dtype=np.int64)
    member = group.class_order[who[group.class_order]]
    class_ = holdings.class_[member]
    return np.asarray(member[rank_in_runs(class_) < first[class_]])


def _crossing(holdings: Holdings) -> Drops:
    """Give up everything owned across a border of cells."""
    if not holdings.crossing:
        return Drops.joined([])
    member, topic, owned = holdings.entries(np.flatnonzero(~holdings.inside))
    return Drops(member, topic, owned, owned)


def _lowered(holdings: Holdings, plan: Plan) -> Drops:
    """Lower the fullest members of classes that are alone in their cell."""
    if not plan.drops.any():
        return Drops.joined([])
    give = _above(holdings, holdings.load, lower(plan.loads, plan.drops), plan.drops > 0)
    member = np.flatnonzero(give)
    problem = plan.cells.problem
    only = np.zeros(len(problem.size), dtype=np.int64)  # the one topic class of the cell
    only[problem.pair_class] = problem.pair_topic
    return Drops(member, only[holdings.class_[member]], holdings.load[member], give[member])


def _above(holdings: Holdings, load: Longs, level: Level, classes: Bools) -> Longs:
    """Return per member what it has above the level, for the classes flagged."""
    class_ = holdings.class_
    give = np.maximum(np.where(classes[class_], load - level.height[class_], 0), 0)
    give[first_of_class(holdings, give > 0, level.first)] -= 1  # these keep one more
    return give


def _typed(flows: Flows, types: Typed) -> Drops:
    """Lay each type's drops end to end; unit j is given up by member j mod w of the type."""
    held = flows.held
    count = len(types.heads)
    offsets = held.node_entries[: count + 1]
    amount = (held.entry_total - flows.kept)[: offsets[-1]]
    laid = offsets_of(amount)
    start = laid[:-1] - np.repeat(laid[offsets[:-1]], np.diff(offsets))
    some = np.flatnonzero(segment_sums(amount, offsets)[types.type] > 0)
    type_ = types.type[some]
    lengths = np.diff(offsets)[type_]
    at = runs_to_index(offsets[type_], lengths)
    rank, width = np.repeat(types.rank[some], lengths), np.repeat(held.node_members[type_], lengths)
    units = (start[at] + amount[at] - 1 - rank) // width - (start[at] - 1 - rank) // width
    member = np.repeat(types.member[some], lengths)
    return Drops(member, held.entry_topic[at], held.entry_owned[at], units)


def _below(holdings: Holdings, flows: Flows) -> Drops:
    """Take what members at or below low lose (rare) from the last of them in order."""
    lost = flows.held.below - flows.kept_below
    if not lost.any():
        return Drops.joined([])
    group = holdings.group
    low = holdings.competing & (holdings.load <= holdings.low)
    member, topic, owned = holdings.entries(np.flatnonzero(holdings.inside & low[group.member]))
    pair = holdings.pair(topic, holdings.class_[member])
    return _from_last(member, topic, owned, pair, lost)


def _from_last(member: Longs, topic: Longs, owned: Longs, pair: Longs, lost: Longs) -> Drops:
    """Take `lost` partitions of each pair from the members that own some, the last one first."""
    order = np.lexsort((-member, pair))
    before = _running(owned[order], pair[order])
    amount = np.zeros_like(owned)
    amount[order] = np.clip(lost[pair[order]] - before, 0, owned[order])
    return Drops(member, topic, owned, amount)


def _running(amount: Longs, key: Longs) -> Longs:
    """Sum what comes before each row within its run of equal keys."""
    before = offsets_of(amount)[:-1]
    head = np.flatnonzero(rank_in_runs(key) == 0)
    return before - np.repeat(before[head], np.diff(np.append(head, len(key))))


def _lumped(holdings: Holdings, plan: Plan, flows: Flows) -> tuple[Drops, Longs]:
    """Carry out drops of classes that were planned without types (`exact` is then False).

    1. Each pair's drops come from the fullest members first, of each no more than it has above
       high; what is left comes from the last members.
    2. Members still above their bounds give up more, which stays with their class.

    Returns
    -------
    drops, back
        And per pair, what step 2 hands back to the class through the pool.
    """
    held, pairs = flows.held, len(plan.cells.problem.pair_class)
    lost = flows.held.entry_total - flows.kept
    at = np.flatnonzero(~held.typed[held.entry_node] & (lost > 0))
    if not len(at):
        return Drops.joined([]), np.zeros(pairs, dtype=np.int64)
    group, class_ = holdings.group, holdings.class_
    losing = held.node_class[held.entry_node[at]]
    pair_lost = np.zeros(pairs, dtype=np.int64)
    pair_lost[holdings.pair(held.entry_topic[at], losing)] = lost[at]
    cut = np.zeros(group.class_count, dtype=np.bool_)
    cut[losing] = True
    over = cut[class_] & (holdings.load > holdings.low)
    member, topic, owned = holdings.entries(np.flatnonzero(holdings.inside & over[group.member]))
    pair = holdings.pair(topic, class_[member])
    amount = _from_fullest(holdings, member, owned, pair, pair_lost)
    left = pair_lost - total_by(pair, amount, pairs)
    amount = amount + _from_last(member, topic, owned - amount, pair, left).amount
    more = _level_lumps(holdings, plan, flows, Drops(member, topic, owned, amount), cut)
    return Drops(member, topic, owned, amount + more), total_by(pair, more, pairs)


def _from_fullest(
    holdings: Holdings, member: Longs, owned: Longs, pair: Longs, lost: Longs
) -> Longs:
    """Take from the fullest members, of each no more than it has above its class's high."""
    surplus = holdings.load[member] - holdings.cells.high[holdings.class_[member]]
    offer = np.clip(surplus, 0, owned)
    order = np.lexsort((member, -surplus, pair))
    pair, offer = pair[order], offer[order]
    amount = np.zeros_like(owned)
    amount[order] = np.clip(lost[pair] - _running(offer, pair), 0, offer)
    return amount


def _level_lumps(holdings: Holdings, plan: Plan, flows: Flows, drops: Drops, cut: Bools) -> Longs:
    """Lower members whose load is above their bounds, each from its last topic classes."""
    cells, problem = plan.cells, plan.cells.problem
    load = holdings.load - total_by(drops.member, drops.amount, len(holdings.load))
    given = total_by(problem.pair_class, flows.new, len(problem.size))
    loads = holdings.histogram(load)
    needed = drops_needed(loads, cells.low, cells.high, loads.total() + given)
    needed = np.where(cut, needed, 0)
    give = _above(holdings, load, lower(loads, needed), needed > 0)
    left = drops.owned - drops.amount
    before = _running(left[::-1], drops.member[::-1])[::-1]
    return np.asarray(np.clip(give[drops.member] - before, 0, left))
