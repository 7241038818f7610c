"""Assign weighted groups side by side on the next night: most have owners, and some have left.

Groups whose assignment stays as it is, and those that meet the tolerance at once
(`assignors.weighted.solve_many`), get here what they get alone. All others are left to their own
run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Bools, Longs, expand_runs, offsets_of, sum_by, sum_segments
from assignors.certificate import Certificate
from assignors.groups.fresh_groups import (
    GroupRows,
    Part,
    Ranges,
    Units,
    Whole,
    batch_groups,
    find_plain_weights,
    level_above,
    read_units,
)
from assignors.groups.group_set import GroupSet
from assignors.option_values import parse_share
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.bounds import HEAVIEST, SHARE, LowerBound
from assignors.weighted.solve_many import ManyProblems, solve_many


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Some groups end to end, without what fills up their rows.

    Attributes
    ----------
    exact, weight, owner
        int64 (units,): as given, as planned with, and the owner before: a member of the batch.
    capacity
        int64 (members,).
    """

    read: Units
    members: Longs
    units: Longs
    exact: Longs
    weight: Longs
    owner: Longs
    capacity: Longs


def assign_next(groups: GroupSet, assignor: WeightedAssignor, places: Longs) -> GroupRows:
    """Assign those of some groups that can be assigned side by side.

    Returns
    -------
    GroupRows
        Of the groups that were; the others need a run of their own.
    """
    line = offsets_of(groups.whole.partitions)[groups.topics]
    size, loads = np.diff(line), groups.loads
    if loads is None or loads.move_cost is not None or assignor.budget(1.0) is not None:
        return GroupRows.join(())
    owned = np.diff(groups.whole.member_ranges[groups.members])
    fine = find_plain_weights(groups, size) & (owned > 0)
    places = places[fine[places]]
    if not len(places):
        return GroupRows.join(())
    owner, whole = _find_owners(groups), Whole.of(groups, line)
    order = np.argsort(size[places], kind="stable")
    return GroupRows.join(
        [
            _assign_batch(_read(groups, some, line, owner), assignor, whole)
            for some in batch_groups(places[order], size)
        ]
    )


def _find_owners(groups: GroupSet) -> Longs:
    """Return the member of the whole that owns each partition on the line, or −1."""
    whole = groups.whole
    owner = np.full(int(whole.partitions.sum()), -1, dtype=np.int64)
    counts = whole.count.astype(np.int64)
    first = offsets_of(whole.partitions)[whole.topic] + whole.first
    owner[expand_runs(first, counts)] = np.repeat(whole.member, counts)
    return owner


def _read(groups: GroupSet, places: Longs, line: Longs, owner: Longs) -> _Batch:
    read = read_units(groups, places, line)
    own = np.arange(read.weight.shape[1]) < read.units[:, None]
    real = np.arange(read.capacity.shape[1]) < read.members[:, None]
    members, units = offsets_of(read.members), offsets_of(read.units)
    before = owner[expand_runs(line[places], read.units)]
    shift = np.repeat(groups.members[places] - members[:-1], read.units)
    return _Batch(
        read, members, units, read.exact[own], read.weight[own],
        np.where(before < 0, before, before - shift), read.capacity[real],
    )  # fmt: skip


def _assign_batch(batch: _Batch, assignor: WeightedAssignor, whole: Whole) -> Part:
    """Assign the groups of a batch; return those that are done."""
    tolerance, improvement = (
        parse_share(getattr(assignor, name), name) for name in ("tolerance", "improvement")
    )
    bounds = _find_bounds(batch, batch.weight)
    goal, keep = (
        np.array([level_above(one.load, one.capacity, share) for one in bounds], dtype=np.int64)
        for share in (tolerance, improvement)
    )
    many = ManyProblems(
        batch.members, batch.units, batch.capacity, batch.weight, batch.owner.copy(), goal
    )
    orphans = np.add.reduceat((batch.owner < 0).astype(np.int64), batch.units[:-1])
    stays = (orphans == 0) & (many.level() <= keep)
    owner, met = solve_many(many)
    owner = np.where(np.repeat(stays, batch.read.units), batch.owner, owner)
    done = np.where(orphans == 0, stays, met & (goal <= keep)) & _find_fine(batch)
    at = np.flatnonzero(done)
    moved = (batch.owner >= 0) & (batch.owner != owner)
    proofs = _judge(batch, owner, moved, at)
    count = np.add.reduceat(moved.astype(np.int64), batch.units[:-1])
    ranges = _list_ranges(batch, owner, whole, at)
    return batch.read.places[at], proofs, count[at], ranges


def _find_fine(batch: _Batch) -> Bools:
    """Tell in which groups all partitions weigh something, and not all alike."""
    starts, tops = batch.units[:-1], batch.members[:-1]
    lightest = np.minimum.reduceat(batch.exact, starts)
    equal = lightest == np.maximum.reduceat(batch.exact, starts)
    equal &= np.minimum.reduceat(batch.capacity, tops) == np.maximum.reduceat(batch.capacity, tops)
    held = np.maximum.reduceat(batch.owner, starts) >= 0
    return np.asarray(~equal & (lightest > 0) & held & ~batch.read.unlike)


def _find_bounds(batch: _Batch, weight: Longs) -> list[LowerBound]:
    """Return the lower bound of each group, as `find_whole_bound` does."""
    tops, starts = batch.members[:-1], batch.units[:-1]
    columns = (
        np.add.reduceat(weight, starts), np.maximum.reduceat(weight, starts),
        np.add.reduceat(batch.capacity, tops), np.maximum.reduceat(batch.capacity, tops),
    )  # fmt: skip
    return [
        LowerBound(top, large, HEAVIEST)
        if top * size > total * large
        else LowerBound(total, size, SHARE)
        for total, top, size, large in zip(*(one.tolist() for one in columns), strict=True)
    ]


def _list_ranges(batch: _Batch, owner: Longs, whole: Whole, at: Longs) -> Ranges:
    units = batch.read.units[at]
    rows = expand_runs(batch.units[:-1][at], units)
    bits = int(units.max(initial=1)).bit_length()
    place = expand_runs(np.zeros(len(at), dtype=np.int64), units)
    key = (owner[rows] << bits) | place  # members of a batch ascend by group
    key.sort()
    key -= np.repeat(batch.members[:-1][at], units) << bits
    return whole.list_ranges(batch.read.places[at], units, key, bits)


def _judge(batch: _Batch, owner: Longs, moved: Bools, at: Longs) -> list[Certificate]:
    """Return what assignments of some groups are worth, as `certify` does."""
    members, capacity = len(batch.capacity), batch.capacity
    load = sum_by(owner, batch.exact, members)
    held = batch.owner >= 0
    before = sum_by(batch.owner[held], batch.exact[held], members)
    weight = sum_segments(np.where(moved, batch.exact, 0), batch.units).tolist()
    bounds = _find_bounds(batch, batch.exact)
    found = []
    for one in at.tolist():
        own = slice(int(batch.members[one]), int(batch.members[one + 1]))
        top = own.start + int(np.argmax(load[own] / capacity[own]))
        reached, by = int(load[top]), int(capacity[top])
        room = -(-reached * capacity[own] // by)
        unit = float(batch.read.unit[one])
        scale = unit / float(batch.read.capacity_unit[one])
        bound = bounds[one]
        units = int(batch.read.units[one])
        proof = Certificate(
            makespan=reached / by * scale,
            lower_bound=bound.load / bound.capacity * scale,
            term=bound.term,
            moved_weight=weight[one] * unit,
            moved_weight_bound=int(np.maximum(before[own] - room, 0).sum()) * unit,
            distant_before=0.0, distant_after=0.0, weights_known=units, partitions=units,
            rules=(), idle=(), held=(),
        )  # fmt: skip
        found.append(proof)
    return found
