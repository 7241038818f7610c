"""The problem that the weighted assignor solves: units, their types, members and their cells.

Compression, as for the other assignors: partitions that may go to the same members are one type,
members that may have the same types are one cell. A rule that names a member gives it a cell of its
own, and one that names partitions a type of their own, so that what is allowed is a table (types,
cells). Where that table would be large, members that the same rules name share a cell; where it
still would be, rules are kept as lists of members. Partitions that must stay together are one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assignors import solvers
from assignors.arrays import (
    Bools,
    Longs,
    expand_runs,
    label_lists,
    offsets_of,
    sort_distinct,
    sum_by,
    take_lists,
)
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.constraints import (
    ANTI_AFFINITY,
    COLOCATE,
    DRAIN,
    MAX_PARTITIONS,
    name_partition,
)
from assignors.loads.contradictions import refuse_joined_labels, refuse_two_labels
from assignors.loads.load_spec import Constraint, LoadSpec
from assignors.weighted.levels import SMALL, raise_to_floor, round_to_grid
from assignors.weighted.named import Choices, NamedUnits, list_runs
from assignors.weighted.tables import Line, relate, tabulate

PREFER, REQUIRE, IGNORE = "prefer", "require", "ignore"
RACKS = (PREFER, REQUIRE, IGNORE)

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
    named
        Units whose members rules list, where these are not in the table; None for none.
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
    named: NamedUnits | None = None

    @property
    def member_count(self) -> int:
        """Number of members, idle ones too."""
        return len(self.capacity)

    @property
    def is_free(self) -> bool:
        """Whether every unit may be on every member, in any number."""
        open_ = bool(self.allowed.all()) and bool((self.cell >= 0).all())
        return open_ and self.named is None and not self.limited

    @property
    def home(self) -> Longs | None:
        """int64 (units,): the one member that a list names, −1 for none; None without lists."""
        return None if self.named is None else self.named.home

    def admits(self, unit: Longs, member: Longs) -> Bools:
        """Tell for pairs, which broadcast, whether rules let the member have the unit."""
        cell = self.cell[member]
        if not self.allowed.shape[1]:  # no member may have anything
            return np.zeros(np.broadcast_shapes(unit.shape, cell.shape), dtype=np.bool_)
        fine = (cell >= 0) & self.allowed[self.type[unit], cell]
        if self.named is not None:
            fine = fine & self.named.admit(unit, member)
        return np.asarray(fine)

    def may_stay(self) -> Bools:
        """Tell for each unit whether its previous owner may keep it."""
        held = np.flatnonzero(self.owner >= 0)
        out = np.zeros(len(self.owner), dtype=np.bool_)
        out[held] = self.admits(held, self.owner[held])
        return out

    def find_free(self, unit: Longs) -> Longs:
        """Return those of some units that more than one member may have, as far as rules list."""
        return unit if self.named is None else unit[self.named.home[unit] < 0]


def pose_problem(
    group: GroupSpec, loads: LoadSpec, rack: str, *, soft: bool, owner: Longs | None = None
) -> WeightedProblem:
    """Return the problem of a group.

    Parameters
    ----------
    rack
        One of `RACKS`.
    soft
        Whether soft rules count as hard ones.
    owner
        int64 (partitions,): previous owners, instead of the group's.

    Raises
    ------
    SpecError
        A partition may be on no member, or rules contradict each other: what, and by which rule.
    """
    rules = [rule for rule in loads.constraints if soft or rule.hard]
    place, topic, given = find_places(group)
    owner = given if owner is None else owner
    active = loads.active.copy()
    for rule in rules:
        if rule.kind == DRAIN:
            active[rule.members] = False
    rack_set = np.full(len(place), -1)
    if rack != IGNORE:
        rack_set = loads.rack_set[place]
    unit = _find_units(place, rules)
    line = Line(place, topic, rack_set)
    table, listed = tabulate(group, active, line, rules, unit)
    allowed, distant = relate(group, loads, table, line, require=rack == REQUIRE)
    weight = loads.weight[place]
    weight = raise_to_floor(weight, find_floor(int(weight.sum()), len(weight)))
    if len(weight) > SMALL:
        weight = round_to_grid(weight)
    problem = WeightedProblem(
        place=place, unit=None, weight=weight,
        cost=weight if loads.move_cost is loads.weight else loads.move_cost[place],
        count=np.ones(len(place), dtype=np.int64), owner=owner, type=table.type,
        apart=_number_apart(group, place, unit, rules), capacity=loads.capacity, cell=table.cell,
        most=_find_most(group.member_count, rules), allowed=allowed, distant=distant,
        limited=any(rule.kind == MAX_PARTITIONS for rule in rules),
    )  # fmt: skip
    if unit is not None:
        problem = _join_units(problem, unit)
    if listed is not None:
        problem = _list_units(problem, listed)
    _refuse_impossible(group, problem, rules)
    return _give_homes(problem)


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


def _number_apart(
    group: GroupSpec, place: Longs, unit: Longs | None, rules: Sequence[Constraint]
) -> Longs:
    """Number the labels of anti_affinity, (partitions,)."""
    out = np.full(len(place), -1, dtype=np.int64)
    own = [rule for rule in rules if rule.kind == ANTI_AFFINITY]
    if not own:
        return out
    at = _list_places(own)
    label = np.concatenate([rule.label for rule in own])
    found = np.searchsorted(place, at)
    known = np.append(place, -1)[found] == at
    _, number = np.unique(label[known], return_inverse=True)
    pairs = np.unique(np.stack([found[known], number]), axis=1)
    refuse_two_labels(group.topics, group.partitions, place[pairs[0]], rules)
    several = np.bincount(pairs[1])[pairs[1]] > 1  # what one partition has alone says nothing
    out[pairs[0][several]] = pairs[1][several]
    if unit is not None:
        at, label = pairs
        refuse_joined_labels(group.topics, group.partitions, place[at], unit[at], label, rules)
    return out


def _find_most(members: int, rules: Sequence[Constraint]) -> Longs:
    most = np.full(members, _ANY, dtype=np.int64)
    for rule in rules:
        if rule.kind == MAX_PARTITIONS:
            most[rule.members] = np.minimum(most[rule.members], rule.limit)
    return most


def _list_places(rules: Sequence[Constraint]) -> Longs:
    """Return the places of all rules, one after the other."""
    _, first, end = list_runs(rules)
    return expand_runs(first, end - first)


def _find_units(place: Longs, rules: Sequence[Constraint]) -> Longs | None:
    """Number units of partitions that must be together, (partitions,); None where each is one."""
    own = [rule for rule in rules if rule.kind == COLOCATE]
    if not own or not len(place):
        return None
    at = _list_places(own)
    label = np.concatenate([rule.label for rule in own])
    found = np.searchsorted(place, at)
    known = np.append(place, -1)[found] == at
    names, number = np.unique(label[known], return_inverse=True)
    nodes = len(place) + len(names)
    links = (found[known], len(place) + number)
    graph = solvers.coo_array((np.ones(len(number), dtype=np.int8), links), shape=(nodes, nodes))
    _, joined = solvers.connected_components(graph, directed=False)
    _, first, unit = np.unique(joined[: len(place)], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[unit]


def _join_units(problem: WeightedProblem, unit: Longs) -> WeightedProblem:
    """Make one unit of partitions that must be together."""
    units = int(unit.max()) + 1
    type_, allowed, distant = _join_types(problem, unit, units)
    joined = WeightedProblem(
        place=problem.place, unit=unit, weight=sum_by(unit, problem.weight, units),
        cost=sum_by(unit, problem.cost, units), count=sum_by(unit, problem.count, units),
        owner=np.full(units, -1, dtype=np.int64), type=type_,
        apart=_join_apart(problem, unit, units), capacity=problem.capacity, cell=problem.cell,
        most=problem.most, allowed=allowed, distant=distant, limited=problem.limited,
    )  # fmt: skip
    return replace(joined, owner=_choose_owner(problem, joined, unit))


def _join_types(problem: WeightedProblem, unit: Longs, units: int) -> tuple[Longs, Bools, Bools]:
    """Return the type of each unit: what is allowed to all of its partitions."""
    width = len(problem.allowed)
    if width == 1:
        return np.zeros(units, dtype=np.int64), problem.allowed, problem.distant
    pairs = sort_distinct(unit * width + problem.type)
    offsets = offsets_of(np.bincount(pairs // width, minlength=units))
    type_, heads = label_lists(offsets, pairs % width)
    offsets, types = take_lists(offsets, pairs % width, heads)
    allowed = np.logical_and.reduceat(problem.allowed[types], offsets[:-1], axis=0)
    return type_, allowed, np.logical_or.reduceat(problem.distant[types], offsets[:-1], axis=0)


def _choose_owner(problem: WeightedProblem, joined: WeightedProblem, unit: Longs) -> Longs:
    """Return for each unit who owned the most of it: weight, then partitions, then the first.

    Members that may not have the whole unit come last.
    """
    size = max(problem.member_count, 1)
    alone = joined.count == 1
    owner = joined.owner.copy()
    one = alone[unit]
    owner[unit[one]] = problem.owner[one]
    held = np.flatnonzero((problem.owner >= 0) & ~one)
    pairs, inverse = np.unique(unit[held] * size + problem.owner[held], return_inverse=True)
    weight = sum_by(inverse, problem.weight[held], len(pairs))
    owned = np.bincount(inverse, minlength=len(pairs))
    whole = joined.admits(pairs // size, pairs % size)
    order = np.lexsort((-pairs, owned, weight, whole, pairs // size))
    owner[pairs[order] // size] = pairs[order] % size
    return owner


def _join_apart(problem: WeightedProblem, unit: Longs, units: int) -> Longs:
    out = np.full(units, -1, dtype=np.int64)
    marked = np.flatnonzero(problem.apart >= 0)
    out[unit[marked]] = problem.apart[marked]
    return out


def _list_units(problem: WeightedProblem, listed: tuple[Longs, Choices]) -> WeightedProblem:
    """Give units the lists of rules that are not in the table."""
    mark, choices = listed
    if problem.unit is not None:
        mark = mark[np.unique(problem.unit, return_index=True)[1]]
    home = np.where(mark >= 0, choices.find_homes()[mark], -1)
    return replace(problem, named=NamedUnits(mark, home, choices))


def _give_homes(problem: WeightedProblem) -> WeightedProblem:
    """Give a type of its own, for each cell, to what only one member of the cell may have."""
    if problem.named is None:
        return problem
    settled = np.flatnonzero(problem.named.home >= 0)
    cells, which = np.unique(problem.cell[problem.named.home[settled]], return_inverse=True)
    types, width = problem.allowed.shape
    type_ = problem.type.copy()
    type_[settled] = types + which
    only = np.zeros((len(cells), width), dtype=np.bool_)
    only[np.arange(len(cells)), cells] = True
    return replace(
        problem, type=type_, allowed=np.concatenate([problem.allowed, only]),
        distant=np.concatenate([problem.distant, np.zeros_like(only)]),
    )  # fmt: skip


def _find_impossible(problem: WeightedProblem) -> Longs:
    """Return units that may be on no member."""
    impossible = ~np.asarray(problem.allowed.any(axis=1))[problem.type]
    if problem.named is None:
        return np.flatnonzero(impossible)
    named = np.flatnonzero(problem.named.mark >= 0)
    kinds, which = np.unique(
        np.stack([problem.type[named], problem.named.mark[named]]), axis=1, return_inverse=True
    )
    open_ = problem.cell >= 0
    total = problem.allowed @ np.bincount(problem.cell[open_], minlength=problem.allowed.shape[1])
    impossible[named] |= ~problem.named.choices.leave(
        kinds[1], kinds[0], problem.allowed, problem.cell, total
    )[which.ravel()]
    return np.flatnonzero(impossible)


def _refuse_impossible(
    group: GroupSpec, problem: WeightedProblem, rules: Sequence[Constraint]
) -> None:
    """Refuse units that may be on no member."""
    bad = _find_impossible(problem)
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
        f"{name_partition(group.topics, group.partitions, place)} "
        f"cannot be on any member: {causes}: drop or soften a constraint, or add a member"
    )


def _name_drains(group: GroupSpec, rules: Sequence[Constraint], topic: int) -> list[str]:
    """Name a few of the rules that drain subscribers of a topic."""
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    subscribed = np.isin(group.member_class, class_[group.class_topics == topic])
    names = [
        rule.name for rule in rules if rule.kind == DRAIN and bool(subscribed[rule.members].any())
    ]
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
