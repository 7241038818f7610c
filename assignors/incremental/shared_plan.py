"""The next plan where classes share topics: solved on classes and kinds, carried out on who moves.

See docs/design/algorithm.md#the-next-plan. The plan is that of `assignors.plan`, which asks
`KeptOwnership` instead of all members; the steps after it are those of `assignors.relinquish` and
`assignors.materialize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from assignors.arrays import LINE_BITS, Ints, Longs, offsets_of, sum_by, sum_segments
from assignors.compressed_problem import CompressedProblem
from assignors.incremental.equal_members import EqualMembers
from assignors.incremental.held_ranges import HeldRanges
from assignors.incremental.kept_ownership import KeptOwnership
from assignors.incremental.known_topics import KnownTopics
from assignors.incremental.next_plan import are_in, join_places, lay_pieces
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.incremental.shared_changes import list_problem
from assignors.materialize import (
    Demand,
    NewRanges,
    PartitionLine,
    Pool,
    match_demand,
    share_pools,
    split_by_class,
)
from assignors.partition_ranges import merge_touching
from assignors.plan import Plan, plan_uniform_cells, solve_plan, solve_sticky_plan
from assignors.relinquish import find_only_topics
from assignors.sticky import StickyAssignor, parse_imbalance
from assignors.uniform import UniformAssignor
from assignors.water_level import Histogram, fill_loads, lower_loads


@dataclass(frozen=True, slots=True, eq=False)
class SharedPlan:
    """A plan made from the last one.

    Attributes
    ----------
    classes, kinds
        The group after it.
    touched
        By class: places, ascending, of the members whose ranges the plan changed.
    moved
        Partitions taken from members that stay.
    """

    classes: dict[int, EqualMembers]
    kinds: OwnedKinds
    touched: dict[int, Longs]
    moved: int


_Parts = list[tuple[Longs, Longs, Longs]]


@dataclass(frozen=True, slots=True)
class _Drops:
    """What members give: (place, topic class of the cells), sorted, and how much of it."""

    place: Longs
    topic: Longs
    amount: Longs


@dataclass(frozen=True, slots=True)
class _Kept:
    """Members that gave something up, and the ranges that they keep."""

    places: Longs
    ranges: HeldRanges


def plan_shared(
    held: Mapping[int, EqualMembers],
    kinds: OwnedKinds,
    topics: KnownTopics,
    pool: list[list[Ints]],
    assignor: UniformAssignor | StickyAssignor,
) -> SharedPlan | None:
    """Make the plan after members came and went, and topics grew; None: look at all members.

    Parameters
    ----------
    held
        The members of each class after the changes; who is new owns nothing.
    pool
        Topic, first and count of what no one owns.
    """
    numbers = sorted(held, key=lambda number: held[number].order.heads[0])
    classes = [held[number] for number in numbers]
    problem, partitions = list_problem(classes, topics)
    owned = KeptOwnership(classes, kinds, _find_heads(kinds, topics, problem))
    plan = _solve(problem, owned, assignor)
    flows = plan.flows
    if not plan.exact:
        return None
    line = PartitionLine.of(plan.cells.problem.topic_class, partitions)
    class_of_number = np.full(len(topics.partitions), -1, dtype=np.int64)
    class_of_number[topics.numbers] = plan.cells.problem.topic_class
    kept: list[_Kept] = []
    nothing = _Kept(np.zeros(0, dtype=np.int64), HeldRanges.none())
    for at, drops in enumerate(_find_drops(owned, plan)):
        if drops is None:
            kept.append(nothing)
            continue
        classes[at], kinds, some, given = _drop(classes[at], kinds, drops, class_of_number)
        kept.append(some)
        pool.append(given)
    parts = [[topics.places[part[0]], *part[1:]] for part in pool]
    start, length = lay_pieces(line, parts)
    pieces = Pool(start, length, np.zeros_like(start))
    new = flows.new if flows else np.zeros(len(plan.cells.problem.pair_class), dtype=np.int64)
    shares = share_pools(plan, pieces, new)
    taken = _find_takers(classes, kinds, plan, shares)
    touched = [join_places(one.places, two[0]) for one, two in zip(kept, taken, strict=True)]
    gained = match_demand(split_by_class(plan, pieces, shares), _rank_wants(touched, taken))
    starts = offsets_of(np.array([len(places) for places in touched], dtype=np.int64))
    for at, places in enumerate(touched):
        if len(places):
            mine = (gained.member >= starts[at]) & (gained.member < starts[at + 1])
            ours = NewRanges(
                gained.member[mine] - starts[at], gained.start[mine], gained.count[mine]
            )
            classes[at], kinds = _give(classes[at], kinds, (places, kept[at]), ours, (topics, line))
    done = dict(zip(numbers, classes, strict=True))
    return SharedPlan(
        {number: done[number] for number in held},
        kinds,
        dict(zip(numbers, touched, strict=True)),
        plan.moved,
    )


def _find_heads(kinds: OwnedKinds, topics: KnownTopics, problem: CompressedProblem) -> Longs:
    """Return by topic class of the kinds a topic of it, as a place in the order of names."""
    heads = np.zeros(kinds.width, dtype=np.int64)
    places = np.flatnonzero(problem.topic_class >= 0)
    heads[kinds.topic_class[topics.numbers[places]]] = places
    return heads


def _solve(
    problem: CompressedProblem, owned: KeptOwnership, assignor: UniformAssignor | StickyAssignor
) -> Plan:
    if isinstance(assignor, StickyAssignor):
        allowed = parse_imbalance(assignor.imbalance)
        return solve_sticky_plan(problem, allowed, owned, assignor.exact_edges)
    return solve_plan(plan_uniform_cells(problem), owned, assignor.exact_edges)


def _find_drops(owned: KeptOwnership, plan: Plan) -> list[_Drops | None]:
    """Bring a plan's drops down to members, by class; None: it gives nothing."""
    parts: list[_Parts] = [[] for _ in owned.classes]
    _drop_crossing(owned, plan, parts)
    _drop_above_level(owned, plan, parts)
    _drop_of_types(owned, plan, parts)
    _drop_below_low(owned, plan, parts)
    found: list[_Drops | None] = []
    for some in parts:
        if not some:
            found.append(None)
            continue
        place, topic, amount = (np.concatenate(column) for column in zip(*some, strict=True))
        order = np.lexsort((topic, place))
        order = order[amount[order] > 0]
        found.append(_Drops(place[order], topic[order], amount[order]))
    return found


def _drop_crossing(owned: KeptOwnership, plan: Plan, parts: list[_Parts]) -> None:
    """Give up everything owned across a border of cells."""
    outside = owned.seen(plan.cells).outside
    places = owned.kind[:0]
    last = -1
    for row, topic, amount in zip(*(column.tolist() for column in outside), strict=True):
        class_ = int(owned.class_[row])
        if row != last:
            places, last = owned.classes[class_].order.all_of(owned.kind[row : row + 1]), row
        part = (places, np.full_like(places, topic), np.full_like(places, amount))
        parts[class_].append(part)


def _drop_above_level(owned: KeptOwnership, plan: Plan, parts: list[_Parts]) -> None:
    """Lower the fullest members of classes that are alone in their cell."""
    if not plan.drops.any():
        return
    level, only = lower_loads(plan.loads, plan.drops), find_only_topics(plan.cells)
    seen = owned.seen(plan.cells)
    for class_ in np.flatnonzero(plan.drops).tolist():
        height, first = int(level.height[class_]), int(level.first[class_])
        rows, order = owned.rows_of(class_), owned.classes[class_].order
        load, kind = seen.load[rows], owned.kind[rows]
        above = int(owned.members[rows][load > height].sum())
        last = order.last_of(above - first, kind[load > height])
        places = join_places(last, order.all_of(kind[load > height + 1]))
        had = load[np.searchsorted(kind, order.loads_at(places))]
        amount = had - np.where(are_in(places, last), height, height + 1)
        parts[class_].append((places, np.full_like(places, only[class_]), amount))


def _drop_of_types(owned: KeptOwnership, plan: Plan, parts: list[_Parts]) -> None:
    """Lay each type's drops end to end; unit j is given up by member j mod w of the type."""
    if plan.flows is None:
        return
    held = plan.flows.held
    lost = held.entry_total - plan.flows.kept
    types = owned.types_of(held)
    losing = sum_segments(lost, held.node_entries)[: len(types.offsets) - 1]
    for number in np.flatnonzero(losing).tolist():
        rows = types.rows[types.offsets[number] : types.offsets[number + 1]]
        entries = slice(int(held.node_entries[number]), int(held.node_entries[number + 1]))
        amount, topics = lost[entries], held.entry_topic[entries]
        total, width = int(losing[number]), int(held.node_members[number])
        class_ = int(owned.class_[rows[0]])
        order = owned.classes[class_].order
        places = order.first_of(min(total, width), np.sort(owned.kind[rows]))
        rank, start = np.arange(len(places)), offsets_of(amount)
        for topic, low, high in zip(topics.tolist(), start[:-1], start[1:], strict=True):
            units = (high - 1 - rank) // width - (low - 1 - rank) // width
            parts[class_].append((places, np.full_like(places, topic), units))


def _drop_below_low(owned: KeptOwnership, plan: Plan, parts: list[_Parts]) -> None:
    """Take what members at or below low lose (rare) from the last of them in order."""
    if plan.flows is None:
        return
    lost = plan.flows.held.below - plan.flows.kept_below
    seen, problem = owned.seen(plan.cells), plan.cells.problem
    for pair in np.flatnonzero(lost).tolist():
        class_, topic = int(problem.pair_class[pair]), int(problem.pair_topic[pair])
        rows, order = owned.rows_of(class_), owned.classes[class_].order
        had, kind = seen.owned_of(rows, topic), owned.kind[rows]
        some = (seen.load[rows] <= plan.cells.low[class_]) & (had > 0)
        most = min(int(lost[pair]), int(owned.members[rows][some].sum()))
        places = order.last_of(most, kind[some])[::-1]
        has = had[np.searchsorted(kind, order.loads_at(places[::-1]))][::-1]
        amount = np.clip(lost[pair] - offsets_of(has)[:-1], 0, has)
        parts[class_].append((places, np.full_like(places, topic), amount))


def _drop(
    held: EqualMembers, kinds: OwnedKinds, drops: _Drops, class_of_number: Longs
) -> tuple[EqualMembers, OwnedKinds, _Kept, list[Ints]]:
    """Take from members what they give: of each topic class they keep their longest ranges.

    Returns
    -------
    held, kinds, kept, given
        The class after it; what givers keep; and topic, first and count of what they gave.
    """
    places = np.unique(drops.place)
    versions = held.order.numbers_at(places)
    ranges = HeldRanges.of(*held.ranges_of(versions))
    width = int(class_of_number.max()) + 1
    key = ranges.who * width + class_of_number[ranges.topic]
    entries, entry = np.unique(key, return_inverse=True)
    keeps = sum_by(entry, ranges.count, len(entries))
    giving = np.searchsorted(places, drops.place) * width + drops.topic
    keeps[np.searchsorted(entries, giving)] -= drops.amount
    stays, gone = ranges.keep_longest(entry, keeps)
    kinds, now = kinds.find(kinds.sum_ranges(len(places), stays.who, stays.topic, stays.count))
    lowered = replace(held, order=held.order.put(places, now))
    return lowered, kinds, _Kept(places, stays), [gone.topic, gone.first, gone.count]


def _find_takers(
    classes: list[EqualMembers], kinds: OwnedKinds, plan: Plan, shares: Longs
) -> list[tuple[Longs, Longs]]:
    """Fill the emptiest members of each class: places, ascending, and how much each gets."""
    amount = sum_by(plan.cells.problem.pair_class, shares, len(classes))
    loads = kinds.loads
    none = np.zeros(0, dtype=np.int64)
    found = []
    for wanted, held in zip(amount.tolist(), classes, strict=True):
        if not wanted:
            found.append((none, none))
            continue
        order = held.order
        seen = order.histogram()
        kind, load = seen.load, loads[seen.load]
        counts = Histogram.of(1, seen.class_, load, seen.members)
        level = fill_loads(counts, np.array([wanted]))
        height, more = int(level.height[0]), int(level.first[0])
        first = order.first_of(more, kind[load <= height])
        places = join_places(first, order.all_of(kind[load < height]))
        had = loads[order.loads_at(places)]
        found.append((places, np.maximum(height - had, 0) + are_in(places, first)))
    return found


def _rank_wants(touched: list[Longs], taken: list[tuple[Longs, Longs]]) -> Demand:
    """Return who gets how much, the greatest wants of each class first; who, among all touched."""
    starts = offsets_of(np.array([len(places) for places in touched], dtype=np.int64))
    member, amount = [starts[:0]], [starts[:0]]
    for at, (places, wants) in enumerate(taken):
        if not len(places):
            continue
        order = np.argsort(-wants, kind="stable")
        member.append(starts[at] + np.searchsorted(touched[at], places)[order])
        amount.append(wants[order])
    return Demand(np.concatenate(member), np.concatenate(amount))


def _give(
    held: EqualMembers,
    kinds: OwnedKinds,
    touched: tuple[Longs, _Kept],
    gained: NewRanges,
    laid: tuple[KnownTopics, PartitionLine],
) -> tuple[EqualMembers, OwnedKinds]:
    """Write what touched members of a class have then."""
    places, kept = touched
    topics, line = laid
    versions = held.order.numbers_at(places)
    others = np.flatnonzero(~are_in(places, kept.places))
    lengths, (topic, first, count) = held.ranges_of(versions[others])
    new = line.topics[np.searchsorted(line.ends, gained.start, side="right")]
    columns = (
        np.concatenate(column)
        for column in (
            (np.searchsorted(places, kept.places)[kept.ranges.who], np.repeat(others, lengths),
             gained.member),
            (kept.ranges.topic, topic, topics.numbers[new]),
            (kept.ranges.first, first, gained.start - line.start[new]),
            (kept.ranges.count, count, gained.count),
        )
    )  # fmt: skip
    who, topic, first, count = columns
    key = (who << LINE_BITS) + line.by_name[topics.places[topic]] + first
    by_place = np.argsort(key, kind="stable")
    rows = merge_touching(*(column[by_place] for column in (who, topic, first, count)))
    lengths = np.bincount(rows[0], minlength=len(places))
    kinds, now = kinds.find(kinds.sum_ranges(len(places), rows[0], rows[1], rows[3]))
    order = held.order.put(places, now, held.next_versions(lengths))
    return held.with_ranges(order, lengths, rows[1:]), kinds
