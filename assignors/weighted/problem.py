"""The problem that the weighted assignor solves: units, their types, members and their cells.

Compression, as for the other assignors: partitions that may go to the same members are one type,
members that may have the same types are one cell. A rule that names a member gives it a cell of its
own, and one that names partitions a type of their own, so that what is allowed is a table (types,
cells). Partitions that must stay together are one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from assignors.arrays import Bools, Longs, expand_runs, label_lists, offsets_of, sum_by
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.constraints import (
    ANTI_AFFINITY,
    COLOCATE,
    DRAIN,
    EXCLUDE,
    MAX_PARTITIONS,
    PIN,
)
from assignors.loads.load_spec import Constraint, LoadSpec
from assignors.weighted.levels import SMALL, raise_to_floor, round_to_grid

PREFER, REQUIRE, IGNORE = "prefer", "require", "ignore"
RACKS = (PREFER, REQUIRE, IGNORE)

_PAIRS_MAX = 2**25
_FLOOR_SHIFT = 10  # what weighs something counts for the mean / 2¹⁰ at least
_ANY = 2**31
_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class WeightedProblem:
    """Units with weights, members with capacities, and which may go where.

    Attributes
    ----------
    place
        int64 (partitions,): places on the line of all topics, of partitions with subscribers.
    unit
        int64 (partitions,): the unit of each; None where each is its own.
    weight, cost, count, owner, type
        int64 (units,): weight, cost of a move, partitions, previous owner or −1, type.
    apart
        int64 (units,): units of one number from 0 on must be on different members; −1 for none.
    capacity, cell, most
        int64 (members,): capacity, cell (−1: may have nothing), most partitions.
    allowed, distant
        bool (types, cells): may be there; is there without a replica in its rack.
    limited
        Some member has a most.
    """

    place: Longs
    unit: Longs | None
    weight: Longs
    cost: Longs
    count: Longs
    owner: Longs
    type: Longs
    apart: Longs
    capacity: Longs
    cell: Longs
    most: Longs
    allowed: Bools
    distant: Bools
    limited: bool

    @property
    def member_count(self) -> int:
        """Number of members, idle ones too."""
        return len(self.capacity)

    def may_stay(self) -> Bools:
        """Tell for each unit whether its previous owner may keep it."""
        held = self.owner >= 0
        cell = np.where(held, self.cell[self.owner], -1)
        return (cell >= 0) & self.allowed[self.type, cell]


def pose_problem(group: GroupSpec, loads: LoadSpec, rack: str, *, soft: bool) -> WeightedProblem:
    """Return the problem of a group.

    Parameters
    ----------
    rack
        One of `RACKS`.
    soft
        Whether soft rules count as hard ones.

    Raises
    ------
    SpecError
        A partition may be on no member, or rules contradict each other: what, and by which rule.
    """
    rules = [rule for rule in loads.constraints if soft or rule.hard]
    place, topic, owner = find_places(group)
    active = loads.active.copy()
    for rule in rules:
        if rule.kind == DRAIN:
            active[rule.members] = False
    about = [rule for rule in rules if rule.kind in (PIN, EXCLUDE)]
    rack_set = np.full(len(place), -1)
    if rack != IGNORE:
        rack_set = loads.rack_set[place]
    cell, cell_class, cell_rack = _divide_members(group, active, about, bool((rack_set >= 0).any()))
    type_, heads = _divide_partitions(group, place, topic, rack_set, about)
    if len(heads) * max(len(cell_class), 1) > _PAIRS_MAX:
        raise SpecError(
            f"the group has {len(heads)} kinds of partitions and {len(cell_class)} kinds of "
            f"members, over {_PAIRS_MAX} pairs: name fewer of them in constraints"
        )
    allowed, distant = _relate(
        group, loads, heads, topic, rack_set, cell_class, cell_rack, require=rack == REQUIRE
    )
    _apply_rules(allowed, about, place[heads], cell)
    weight = loads.weight[place]
    weight = raise_to_floor(weight, find_floor(int(weight.sum()), len(weight)))
    if len(weight) > SMALL:
        weight = round_to_grid(weight)
    problem = WeightedProblem(
        place=place, unit=None, weight=weight,
        cost=weight if loads.move_cost is loads.weight else loads.move_cost[place],
        count=np.ones(len(place), dtype=np.int64), owner=owner, type=type_,
        apart=_number_apart(place, rules), capacity=loads.capacity, cell=cell,
        most=_find_most(group.member_count, rules), allowed=allowed, distant=distant,
        limited=any(rule.kind == MAX_PARTITIONS for rule in rules),
    )  # fmt: skip
    problem = _join_units(problem, rules)
    _refuse_impossible(group, problem, rules)
    return problem


def find_floor(weight: int, partitions: int) -> int:
    """Return the least that a partition counts for which weighs something."""
    return max(weight // max(partitions, 1) >> _FLOOR_SHIFT, 1)


def find_floors(weight: Longs, partitions: Longs) -> Longs:
    """Return the least that a partition of each group counts for."""
    return np.asarray(np.maximum(weight // np.maximum(partitions, 1) >> _FLOOR_SHIFT, 1))


def find_places(group: GroupSpec) -> tuple[Longs, Longs, Longs]:
    """Return places on the line, topics and previous owners of partitions with subscribers."""
    start = offsets_of(group.partitions)
    topic = np.repeat(np.arange(len(group.topics)), group.partitions)
    owner = np.full(int(start[-1]), -1, dtype=np.int64)
    order = group.line_order
    counts = group.count[order].astype(np.int64)
    at = expand_runs(start[group.topic[order]] + group.first[order], counts)
    owner[at] = np.repeat(group.member[order].astype(np.int64), counts)
    wanted = group.subscribed_topics()
    if wanted.all():
        return np.arange(len(topic)), topic, owner
    place = np.flatnonzero(wanted[topic])
    return place, topic[place], owner[place]


def _divide_members(
    group: GroupSpec,
    active: Bools,
    about: Sequence[Constraint],
    racks: bool,  # noqa: FBT001 - of this file
) -> tuple[Longs, Longs, Longs]:
    """Return the cell of each member, and the class and rack of each cell.

    Racks are indexes into the sorted names of members' racks; −1 for none.
    """
    if group.class_count == 1 and not racks and not about and active.any():
        one = np.zeros(1, dtype=np.int64)
        return np.where(active, 0, -1), one, one - 1
    rack = np.full(group.member_count, -1, dtype=np.int64)
    if racks:
        names = pc.unique(group.racks.drop_null())
        names = names.take(pc.sort_indices(names))
        rack = np.asarray(pc.fill_null(pc.index_in(group.racks, value_set=names), -1)).astype(
            np.int64
        )
    own = np.zeros(group.member_count, dtype=np.int64)
    for rule in about:
        own[rule.members] = rule.members + 1
    class_ = group.member_class.astype(np.int64)
    key = np.stack([class_, rack, own])[:, active]
    found, first, inverse = np.unique(key, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    cell = np.full(group.member_count, -1, dtype=np.int64)
    cell[active] = rank[inverse.ravel()]
    return cell, found[0][order], found[1][order]


def _divide_partitions(
    group: GroupSpec, place: Longs, topic: Longs, rack_set: Longs, about: Sequence[Constraint]
) -> tuple[Longs, Longs]:
    """Return the type of each partition, and the first partition (index) of each type."""
    if not len(place):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if group.class_count == 1 and not about and (rack_set == rack_set[0]).all():
        return np.zeros(len(place), dtype=np.int64), np.zeros(1, dtype=np.int64)
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    order = np.argsort(group.class_topics, kind="stable")
    sizes = np.bincount(group.class_topics, minlength=len(group.topics))
    kinds, _ = label_lists(offsets_of(sizes), class_[order])
    key = kinds[topic] * (int(rack_set.max()) + 2) + rack_set + 1
    if about:
        at = np.concatenate([rule.partitions for rule in about])
        rule = np.repeat(np.arange(len(about)), [len(one.partitions) for one in about])
        order = np.lexsort((rule, at))
        size = int(max(place[-1], at.max(initial=0))) + 1
        marks, _ = label_lists(offsets_of(np.bincount(at, minlength=size)), rule[order])
        key = key * (int(marks.max(initial=0)) + 1) + marks[place]
    if (key == key[0]).all():
        return np.zeros(len(key), dtype=np.int64), np.zeros(1, dtype=np.int64)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]


def _relate(
    group: GroupSpec,
    loads: LoadSpec,
    heads: Longs,
    topic: Longs,
    rack_set: Longs,
    cell_class: Longs,
    cell_rack: Longs,
    *,
    require: bool,
) -> tuple[Bools, Bools]:
    """Return which types may be on which cells, and where they are far from their replicas."""
    subscribed = np.zeros((len(group.topics), group.class_count), dtype=np.bool_)
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    subscribed[group.class_topics, class_] = True
    allowed = subscribed[topic[heads]][:, cell_class]
    sets = rack_set[heads]
    distant = np.zeros_like(allowed)
    if (sets >= 0).any():
        names = pc.unique(group.racks.drop_null())
        at = {
            name: place for place, name in enumerate(names.take(pc.sort_indices(names)).to_pylist())
        }
        near = np.zeros((len(loads.rack_sets) + 1, len(at) + 1), dtype=np.bool_)
        near[-1] = True
        for row, racks in enumerate(loads.rack_sets):
            near[row, [at[name] for name in racks if name in at]] = True
        distant = ~near[sets][:, cell_rack]
    if require:
        allowed &= ~distant
    return allowed, distant


def _apply_rules(allowed: Bools, about: Sequence[Constraint], first: Longs, cell: Longs) -> None:
    """Take from `allowed` what pins and exclusions forbid, by a type's first partition."""
    for rule in about:
        types = np.isin(first, rule.partitions)
        cells = np.zeros(allowed.shape[1], dtype=np.bool_)
        named = cell[rule.members]
        cells[named[named >= 0]] = True
        allowed[np.ix_(types, ~cells if rule.kind == PIN else cells)] = False


def _number_apart(place: Longs, rules: Sequence[Constraint]) -> Longs:
    """Number the labels of anti_affinity, (partitions,)."""
    out = np.full(len(place), -1, dtype=np.int64)
    own = [rule for rule in rules if rule.kind == ANTI_AFFINITY]
    if not own:
        return out
    at = np.concatenate([rule.partitions for rule in own])
    label = np.concatenate([rule.label for rule in own])
    found = np.searchsorted(place, at)
    known = np.append(place, -1)[found] == at
    _, number = np.unique(label[known], return_inverse=True)
    pairs = np.unique(np.stack([found[known], number]), axis=1)
    if len(np.unique(pairs[0])) < pairs.shape[1]:
        raise SpecError(
            "a partition has two labels of anti_affinity: give it one, the same for all "
            "that are to be apart"
        )
    out[pairs[0]] = pairs[1]
    return out


def _find_most(members: int, rules: Sequence[Constraint]) -> Longs:
    most = np.full(members, _ANY, dtype=np.int64)
    for rule in rules:
        if rule.kind == MAX_PARTITIONS:
            most[rule.members] = np.minimum(most[rule.members], rule.limit)
    return most


def _join_units(problem: WeightedProblem, rules: Sequence[Constraint]) -> WeightedProblem:
    """Make one unit of partitions that must be together."""
    own = [rule for rule in rules if rule.kind == COLOCATE]
    if not own or not len(problem.place):
        return problem
    at = np.concatenate([rule.partitions for rule in own])
    label = np.concatenate([rule.label for rule in own])
    found = np.searchsorted(problem.place, at)
    known = np.append(problem.place, -1)[found] == at
    names, number = np.unique(label[known], return_inverse=True)
    nodes = len(problem.place) + len(names)
    links = (found[known], len(problem.place) + number)
    graph = coo_array((np.ones(len(number), dtype=np.int8), links), shape=(nodes, nodes))
    _, joined = connected_components(graph, directed=False)
    _, first, unit = np.unique(joined[: len(problem.place)], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    unit, units = rank[unit], len(first)
    type_, allowed, distant = _join_types(problem, unit, units)
    return WeightedProblem(
        place=problem.place, unit=unit, weight=sum_by(unit, problem.weight, units),
        cost=sum_by(unit, problem.cost, units), count=sum_by(unit, problem.count, units),
        owner=_choose_owner(problem, unit, units), type=type_,
        apart=_join_apart(problem, unit, units), capacity=problem.capacity, cell=problem.cell,
        most=problem.most, allowed=allowed, distant=distant, limited=problem.limited,
    )  # fmt: skip


def _join_types(problem: WeightedProblem, unit: Longs, units: int) -> tuple[Longs, Bools, Bools]:
    """Return the type of each unit: what is allowed to all of its partitions."""
    width = len(problem.allowed)
    pairs = np.unique(unit * width + problem.type)
    offsets = offsets_of(np.bincount(pairs // width, minlength=units))
    type_, heads = label_lists(offsets, pairs % width)
    allowed = np.ones((len(heads), problem.allowed.shape[1]), dtype=np.bool_)
    distant = np.zeros_like(allowed)
    for row, head in enumerate(heads):
        types = pairs[offsets[head] : offsets[head + 1]] % width
        allowed[row] = problem.allowed[types].all(axis=0)
        distant[row] = problem.distant[types].any(axis=0)
    return type_, allowed, distant


def _choose_owner(problem: WeightedProblem, unit: Longs, units: int) -> Longs:
    """Return for each unit who owned the most weight of it; the first of several."""
    held = np.flatnonzero(problem.owner >= 0)
    owner = np.full(units, -1, dtype=np.int64)
    pairs, inverse = np.unique(
        unit[held] * problem.member_count + problem.owner[held], return_inverse=True
    )
    weight = sum_by(inverse, problem.weight[held], len(pairs))
    order = np.lexsort((-pairs, weight, pairs // max(problem.member_count, 1)))
    owner[pairs[order] // max(problem.member_count, 1)] = pairs[order] % max(
        problem.member_count, 1
    )
    return owner


def _join_apart(problem: WeightedProblem, unit: Longs, units: int) -> Longs:
    out = np.full(units, -1, dtype=np.int64)
    marked = np.flatnonzero(problem.apart >= 0)
    pairs = np.unique(np.stack([unit[marked], problem.apart[marked]]), axis=1)
    if pairs.shape[1] < len(marked):
        raise SpecError(
            "partitions that must be together by colocate must be apart by anti_affinity: "
            "drop one of the two"
        )
    if len(np.unique(pairs[0])) < pairs.shape[1]:
        raise SpecError(
            "partitions that must be together by colocate have two labels of anti_affinity: "
            "give them one"
        )
    out[unit[marked]] = problem.apart[marked]
    return out


def _refuse_impossible(
    group: GroupSpec, problem: WeightedProblem, rules: Sequence[Constraint]
) -> None:
    """Refuse units that may be on no member."""
    possible = problem.allowed.any(axis=1)
    bad = np.flatnonzero(~np.asarray(possible)[problem.type])
    if not len(bad):
        return
    at = int(bad[0]) if problem.unit is None else int(np.flatnonzero(problem.unit == bad[0])[0])
    place = int(problem.place[at])
    start = offsets_of(group.partitions)
    topic = int(np.searchsorted(start, place, side="right")) - 1
    found = [rule.name for rule in rules if rule.is_about(place)]
    found += _name_drains(group, rules, topic)
    causes = "; ".join(found) or "its subscribers are draining, on standby, or in other racks"
    raise SpecError(
        f"partition {place - int(start[topic])} of topic {group.topics[topic].as_py()!r} "
        f"may be on no member: {causes}: drop or soften a constraint, or add a member"
    )


def _name_drains(group: GroupSpec, rules: Sequence[Constraint], topic: int) -> list[str]:
    """Name a few of the rules that drain subscribers of a topic."""
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    subscribed = np.isin(group.member_class, class_[group.class_topics == topic])
    names = [
        rule.name for rule in rules if rule.kind == DRAIN and bool(subscribed[rule.members].any())
    ]
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
