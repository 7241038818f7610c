"""Divide members into cells and partitions into types, and say which types may be where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs, label_lists, offsets_of
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.constraints import EXCLUDE, PIN
from assignors.loads.load_spec import Constraint, LoadSpec
from assignors.weighted.named import Choices, Marks

_PAIRS_MAX = 2**25
_OWN_CELLS, _PAIRS = 2**10, 2**18
"""Most cells, and most pairs of types and cells, of a table where a rule has its own."""


@dataclass(frozen=True, slots=True)
class Line:
    """Partitions with subscribers: places on the line, topics, and sets of racks (−1: unknown)."""

    place: Longs
    topic: Longs
    rack_set: Longs


@dataclass(frozen=True, slots=True)
class Table:
    """Which types and cells there are.

    Attributes
    ----------
    cell
        int64 (members,): −1 for those that may have nothing.
    cell_class, cell_rack, cell_head
        int64 (cells,): subscription, rack (an index into the sorted names of members' racks; −1 for
        none) and first member.
    type
        int64 (partitions,).
    heads
        int64 (types,): first partition.
    mark
        int64 (types,): of `choices`; −1 for none.
    choices
        Which members marks name; None without rules on members.
    """

    cell: Longs
    cell_class: Longs
    cell_rack: Longs
    cell_head: Longs
    type: Longs
    heads: Longs
    mark: Longs
    choices: Choices | None

    @property
    def pairs(self) -> int:
        """Size of a table of types and cells."""
        return len(self.heads) * max(len(self.cell_class), 1)


def tabulate(
    group: GroupSpec,
    active: Bools,
    line: Line,
    rules: Sequence[Constraint],
    unit: Longs | None,
) -> tuple[Table, tuple[Longs, Choices] | None]:
    """Divide members and partitions; also return what rules on members are left for lists.

    Returns
    -------
    table, listed
        The mark of each partition, −1 for those in the table, and what members marks name; None
        where the table has it all.

    Raises
    ------
    SpecError
        Even without rules the table is too large.
    """
    about = [rule for rule in rules if rule.kind in (PIN, EXCLUDE)]
    if about:
        marks = Marks.of(about, line.place)
        own = np.zeros(group.member_count, dtype=np.int64)
        for rule in about:
            own[rule.members] = rule.members + 1
        choices, mark = Choices.of(about, marks, active)
        table = _divide(group, active, line, own, marks.mark, (mark, choices))
        if len(table.cell_class) <= _OWN_CELLS and table.pairs <= _PAIRS:
            return table, None
        if unit is not None:
            choices, mark = Choices.of(about, marks.join(unit), active)
        return _compress(group, active, line, mark, choices)
    table = _divide(group, active, line, None, None, None)
    _refuse_pairs(table)
    return table, None


def _refuse_pairs(table: Table) -> None:
    if table.pairs > _PAIRS_MAX:
        raise SpecError(
            f"the group has {len(table.heads)} kinds of partitions and {len(table.cell_class)} "
            f"kinds of members, over {_PAIRS_MAX} pairs: let members share subscriptions and racks"
        )


def _compress(
    group: GroupSpec, active: Bools, line: Line, mark: Longs, choices: Choices
) -> tuple[Table, tuple[Longs, Choices]]:
    """Divide members by the rules that name them; if these are too many, do without.

    What only one member may have is not in the table in any case.
    """
    home = choices.find_homes()
    free = home < 0
    own = choices.label_members(free)
    tabled = np.where(free[mark], mark, -1)
    table = _divide(group, active, line, own, tabled, (tabled, choices))
    homes = np.unique(table.cell[home[~free]])
    if (len(table.heads) + len(homes)) * max(len(table.cell_class), 1) <= _PAIRS:
        return table, (np.where(free[mark], -1, mark), choices)
    table = _divide(group, active, line, None, None, None)
    _refuse_pairs(table)
    bound = choices.only | (np.diff(choices.offsets) > 0)
    return table, (np.where(bound[mark], mark, -1), choices)


def _divide(
    group: GroupSpec,
    active: Bools,
    line: Line,
    own: Longs | None,
    mark: Longs | None,
    named: tuple[Longs, Choices] | None,
) -> Table:
    """Divide members by subscription, rack and `own`, partitions by topic, racks and `mark`.

    Parameters
    ----------
    named
        The mark of each partition in `choices`, and these.
    """
    racks = bool((line.rack_set >= 0).any())
    cells = _divide_members(group, active, own, racks=racks)
    type_, heads = _divide_partitions(group, line, mark)
    at = np.full(len(heads), -1, dtype=np.int64) if named is None else named[0][heads]
    return Table(*cells, type_, heads, at, None if named is None else named[1])


def _divide_members(
    group: GroupSpec, active: Bools, own: Longs | None, *, racks: bool
) -> tuple[Longs, Longs, Longs, Longs]:
    """Return the cell of each member, and the class, rack and first member of each cell."""
    if group.class_count == 1 and not racks and own is None and active.any():
        one = np.zeros(1, dtype=np.int64)
        return np.where(active, 0, -1), one, one - 1, np.flatnonzero(active)[:1]
    rack = np.full(group.member_count, -1, dtype=np.int64)
    if racks:
        names = pc.unique(group.racks.drop_null())
        names = names.take(pc.sort_indices(names))
        rack = np.asarray(pc.fill_null(pc.index_in(group.racks, value_set=names), -1)).astype(
            np.int64
        )
    own = np.zeros(group.member_count, dtype=np.int64) if own is None else own
    class_ = group.member_class.astype(np.int64)
    key = np.stack([class_, rack, own])[:, active]
    found, first, inverse = np.unique(key, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    cell = np.full(group.member_count, -1, dtype=np.int64)
    cell[active] = rank[inverse.ravel()]
    return cell, found[0][order], found[1][order], np.flatnonzero(active)[first[order]]


def _divide_partitions(group: GroupSpec, line: Line, mark: Longs | None) -> tuple[Longs, Longs]:
    """Return the type of each partition, and the first partition (index) of each type."""
    rack_set = line.rack_set
    if not len(line.place):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if group.class_count == 1 and mark is None and (rack_set == rack_set[0]).all():
        return np.zeros(len(line.place), dtype=np.int64), np.zeros(1, dtype=np.int64)
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    order = np.argsort(group.class_topics, kind="stable")
    sizes = np.bincount(group.class_topics, minlength=len(group.topics))
    kinds, _ = label_lists(offsets_of(sizes), class_[order])
    key = kinds[line.topic] * (int(rack_set.max()) + 2) + rack_set + 1
    if mark is not None:
        key = key * (int(mark.max(initial=0)) + 2) + mark + 1
    if (key == key[0]).all():
        return np.zeros(len(key), dtype=np.int64), np.zeros(1, dtype=np.int64)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]


def relate(
    group: GroupSpec, loads: LoadSpec, table: Table, line: Line, *, require: bool
) -> tuple[Bools, Bools]:
    """Return which types may be on which cells, and where they are far from their replicas."""
    subscribed = np.zeros((len(group.topics), group.class_count), dtype=np.bool_)
    class_ = np.repeat(np.arange(group.class_count), np.diff(group.class_offsets))
    subscribed[group.class_topics, class_] = True
    allowed = subscribed[line.topic[table.heads]][:, table.cell_class]
    sets = line.rack_set[table.heads]
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
        distant = ~near[sets][:, table.cell_rack]
    if require:
        allowed &= ~distant
    marked = np.flatnonzero(table.mark >= 0)
    if table.choices is not None and len(marked):
        allowed[marked] &= table.choices.admit(table.mark[marked][:, None], table.cell_head)
    return allowed, distant
