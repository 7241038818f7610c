"""Assign weighted groups side by side where no partition has an owner and no rule is in force.

Such a group is filled in one go, and its lower bound is a quotient, so the same arithmetic serves
all of them at once. Each gets the rows that it gets alone; a group that would be searched further
is left to its own run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, TypeAlias

import numpy as np
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, expand_runs, offsets_of, sum_segments
from assignors.certificate import Certificate
from assignors.groups.group_set import GroupSet
from assignors.loads.load_spec import (
    ACTIVE,
    CAPACITY_BITS,
    CAPACITY_RATIO_MAX,
    WEIGHT_BITS,
    Floats,
)
from assignors.option_values import parse_share
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.bounds import HEAVIEST, SHARE
from assignors.weighted.fill_many import fill_many
from assignors.weighted.levels import (
    BITS,
    IDLE_BITS,
    SMALL,
    levels_of,
    raise_to_floor,
    round_to_grid,
)
from assignors.weighted.problem import find_floors

CELLS = 1_000_000
"""About how many units, with those that only fill up rows, are worked on at once."""
UNITS_MAX = 100_000
"""Groups of more partitions are assigned by themselves: nothing is gained."""
_ROUGH = 31


Ranges: TypeAlias = tuple[Ints, Ints, Ints, Ints]
"""Member, topic, first and count, of the whole."""
Part: TypeAlias = tuple[Longs, list[Certificate], Longs, Ranges]
"""Which groups, what each is worth, how many partitions each moves, and the ranges of all."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows:
    """Ranges of the groups that were assigned, members and topics of the whole.

    Attributes
    ----------
    places
        int64: which groups.
    proofs
        What each is worth.
    moved
        int64: how many partitions of each have another owner.
    """

    places: Longs
    proofs: list[Certificate]
    moved: Longs
    member: Ints
    topic: Ints
    first: Ints
    count: Ints

    @classmethod
    def join(cls, parts: Sequence[Part]) -> Self:
        """Put batches of groups together."""
        whole, none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        empty: Part = (whole, [], whole, (none, none, none, none))
        places, proofs, moved, ranges = zip(empty, *parts, strict=True)
        columns = (np.concatenate(column) for column in zip(*ranges, strict=True))
        listed = [proof for some in proofs for proof in some]
        return cls(np.concatenate(places), listed, np.concatenate(moved), *columns)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Some groups of like size: one row per group, padded.

    Attributes
    ----------
    weight, exact
        int64 (groups, units): what is planned with, and as given; on the line.
    unit, capacity_unit
        float64 (groups,).
    unlike
        bool (groups,): capacities differ too much.
    """

    places: Longs
    units: Longs
    members: Longs
    weight: Longs
    exact: Longs
    capacity: Longs
    unit: Floats
    capacity_unit: Floats
    unlike: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """Where things are in all groups.

    Attributes
    ----------
    line
        int64 (groups + 1,): places on the line of all topics.
    members
        int64 (groups + 1,).
    topic
        int32 (partitions,): the topic of each place.
    start
        int64 (topics + 1,): first place of each topic.
    """

    line: Longs
    members: Longs
    topic: Ints
    start: Longs

    @classmethod
    def of(cls, groups: GroupSet, line: Longs) -> Self:
        """Look up where things are; `line` is as above."""
        sizes = groups.whole.partitions
        topic = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        return cls(line, groups.members, topic, offsets_of(sizes))

    def list_ranges(self, groups: Longs, units: Longs, key: Longs, bits: int) -> Ranges:
        """Return the ranges of groups, canonical.

        Parameters
        ----------
        groups, units
            Which groups, and how many partitions each has.
        key
            int64 (partitions of them,): member << bits | place, of a group, ascending in each.
        """
        place = (key & ((1 << bits) - 1)) + np.repeat(self.line[groups], units)
        topic = self.topic[place]
        head = np.ones(len(key), dtype=np.bool_)
        np.not_equal(key[1:], key[:-1] + 1, out=head[1:])
        head[1:] |= topic[1:] != topic[:-1]
        at = np.flatnonzero(head)
        count = np.empty(len(at), dtype=np.int32)
        np.subtract(at[1:], at[:-1], out=count[:-1], casting="same_kind")
        count[-1:] = len(key) - at[-1:]
        member = (key >> bits) + np.repeat(self.members[groups], units)
        first = place[at] - self.start[topic[at]]
        return member[at].astype(np.int32), topic[at], first.astype(np.int32), count


def assign_fresh(groups: GroupSet, assignor: WeightedAssignor) -> GroupRows:
    """Assign what can be assigned side by side.

    Returns
    -------
    GroupRows
        Of the groups that were; the others need a run of their own.
    """
    line = offsets_of(groups.whole.partitions)[groups.topics]
    owned = np.diff(groups.whole.member_ranges[groups.members])
    places = np.flatnonzero(find_plain_weights(groups, np.diff(line)) & (owned == 0))
    order = np.argsort(np.diff(line)[places], kind="stable")
    whole = Whole.of(groups, line)
    return GroupRows.join(
        [
            _fill(read_units(groups, some, line), assignor, whole)
            for some in batch_groups(places[order], np.diff(line))
        ]
    )


def find_plain_weights(groups: GroupSet, units: Longs) -> Bools:
    """Tell which groups have nothing but weights and capacities, all of them known."""
    raw, whole = groups.loads, groups.whole
    assert raw is not None
    members = np.diff(groups.members)
    out: Bools = (members > 1) & (units > 0) & (units <= UNITS_MAX) & (np.diff(groups.classes) == 1)
    if groups.constraints:
        out &= np.array([not rules for rules in groups.constraints], dtype=np.bool_)
    topics = sum_segments(whole.subscribed_topics().astype(np.int64), groups.topics)
    out &= topics == np.diff(groups.topics)
    line = offsets_of(whole.partitions)[groups.topics]
    if raw.named:
        out[:] = False
    if raw.state is not None:
        idle = pc.fill_null(pc.not_equal(raw.state, ACTIVE), fill_value=False)
        out &= sum_segments(np.asarray(idle).astype(np.int64), groups.members) == 0
    if raw.rack_set is not None:  # even if racks are ignored, as reports tell what is distant
        out &= sum_segments((raw.rack_set >= 0).astype(np.int64), line) == 0
    if raw.weight is not None:
        out &= sum_segments(np.isnan(raw.weight).astype(np.int64), line) == 0
    return out


def batch_groups(places: Longs, units: Longs) -> Iterator[Longs]:
    """Yield groups, sorted by size, so that padded rows fit."""
    begin = 0
    while begin < len(places):
        step = max(CELLS // int(units[places[begin]]), 1)
        end = min(begin + step, len(places))
        while end > begin + 1 and (end - begin) * int(units[places[end - 1]]) > 2 * CELLS:
            end = begin + (end - begin) // 2
        yield places[begin:end]
        begin = end


def read_units(groups: GroupSet, places: Longs, line: Longs) -> Units:
    """Return weights and capacities as integers, as `resolve_loads` and `pose_problem` do."""
    raw = groups.loads
    assert raw is not None
    units, members = np.diff(line)[places], np.diff(groups.members)[places]
    weight = _pad(raw.weight, line[places], units)
    capacity = _pad(raw.capacity, groups.members[places], members)
    rough = _ROUGH - np.frexp(weight.max(axis=1))[1].astype(np.int64)
    sums = np.rint(np.ldexp(weight, rough[:, None])).astype(np.int64).sum(axis=1)
    shift = rough + WEIGHT_BITS - np.frexp(sums.astype(np.float64))[1]
    exact = np.rint(np.ldexp(weight, shift[:, None])).astype(np.int64)
    planned = raise_to_floor(exact, find_floors(exact.sum(axis=1), units)[:, None])
    planned = np.where((units > SMALL)[:, None], round_to_grid(planned), planned)
    least = np.where(capacity > 0, capacity, np.inf).min(axis=1)  # a capacity is above 0
    narrow = CAPACITY_BITS - np.frexp(capacity.max(axis=1))[1].astype(np.int64)
    return Units(
        places, units, members, planned, exact,
        np.rint(np.ldexp(capacity, narrow[:, None])).astype(np.int64),
        np.ldexp(1.0, -shift), np.ldexp(1.0, -narrow),
        capacity.max(axis=1) > CAPACITY_RATIO_MAX * least,
    )  # fmt: skip


def _pad(values: Floats | None, start: Longs, size: Longs) -> Floats:
    """Return rows of values, 0 behind each; ones without values."""
    out = np.zeros((len(start), int(size.max(initial=1))))
    row = np.repeat(np.arange(len(start)), size)
    rank = expand_runs(np.zeros(len(start), dtype=np.int64), size)
    out[row, rank] = 1.0 if values is None else values[start[row] + rank]
    return out


def _fill(units: Units, assignor: WeightedAssignor, whole: Whole) -> Part:
    """Fill the groups of a batch; return those that are done."""
    bits = units.weight.shape[1].bit_length()
    own = np.arange(units.weight.shape[1]) < units.units[:, None]
    real = np.arange(units.capacity.shape[1]) < units.members[:, None]
    key = np.where(own, (-units.weight << bits) | np.arange(units.weight.shape[1]), 1 << bits)
    key.sort(axis=1)  # heaviest first, ties in order; what only fills up is last
    place = key & ((1 << bits) - 1)
    sorted_ = np.where(own, -(key >> bits), 0)
    chosen, load = _choose(sorted_, units)
    level = np.where(real, levels_of(load, np.maximum(units.capacity, 1)), 0).max(axis=1)
    key = np.where(own, (chosen << bits) | place, np.iinfo(np.int64).max)
    key.sort(axis=1)
    held = _sum_held(units, own, key, bits)
    proofs = {
        int(units.places[at]): proof
        for at, proof in _judge(units, assignor, level, held, own, real)
    }
    good = np.isin(units.places, list(proofs))
    mine, places = key[own & good[:, None]], units.places[good]
    ranges = whole.list_ranges(places, units.units[good], mine, bits)
    return places, [proofs[at] for at in places.tolist()], places * 0, ranges


def _choose(sorted_: Longs, units: Units) -> tuple[Longs, Longs]:
    """Fill members with what weighs something, then, by number, with what does not."""
    some = np.count_nonzero(sorted_, axis=1)
    chosen, load = fill_many(sorted_, some, units.capacity, units.members)
    idle = units.units - some
    row, rank = np.nonzero(np.arange(int(idle.max(initial=0))) < idle[:, None])
    if len(row):
        alike = np.full((len(idle), int(idle.max())), 1 << IDLE_BITS)
        more, _ = fill_many(alike, idle, units.capacity, units.members)
        chosen[row, some[row] + rank] = more[row, rank]
    return chosen, load


def _sum_held(units: Units, own: Bools, key: Longs, bits: int) -> Floats:
    """Add up exact weights, (groups, members), by keys of member and place."""
    row = np.repeat(np.arange(len(units.units)), units.units)
    mine = key[own]
    place = (mine & ((1 << bits) - 1)) + row * units.exact.shape[1]
    whose = (mine >> bits) + row * units.capacity.shape[1]
    held = np.bincount(whose, units.exact.ravel()[place], minlength=units.capacity.size)
    return np.asarray(held.reshape(units.capacity.shape))


def _judge(
    units: Units,
    assignor: WeightedAssignor,
    level: Longs,
    held: Floats,
    own: Bools,
    real: Bools,
) -> Iterator[tuple[int, Certificate]]:
    """Yield groups that need no further search, and what their assignments are worth."""
    near = min(parse_share(assignor.tolerance, "tolerance"), parse_share(assignor.improvement, ""))
    capacity = np.where(real, units.capacity, np.iinfo(np.int64).max)
    least, largest = capacity.min(axis=1), units.capacity.max(axis=1)
    highest = np.argmax(held / capacity, axis=1)
    lightest = np.where(own, units.exact, np.iinfo(np.int64).max).min(axis=1)
    heaviest = units.exact.max(axis=1)
    equal = (lightest == heaviest) & (least == largest)
    fine = ~equal & (heaviest > 0) & ~units.unlike
    planned = np.where(own, units.weight, 0)
    columns = (
        planned.sum(axis=1), planned.max(axis=1), np.where(real, units.capacity, 0).sum(axis=1),
        largest, units.exact.sum(axis=1), heaviest, level,
        held[np.arange(len(highest)), highest].astype(np.int64),
        units.capacity[np.arange(len(highest)), highest],
    )  # fmt: skip
    listed = list(zip(*(column.tolist() for column in columns), strict=True))
    for at in np.flatnonzero(fine).tolist():
        total, top, size, large, weight, most, reached, load, by = listed[at]
        amount, room = (top, large) if top * size > total * large else (total, size)
        if reached > level_above(amount, room, near):
            continue
        alone = most * size > weight * large
        bound = most / large if alone else weight / size
        scale = float(units.unit[at]) / float(units.capacity_unit[at])
        yield at, Certificate(
            makespan=load / by * scale,
            lower_bound=bound * scale,
            term=HEAVIEST if alone else SHARE,
            moved_weight=0.0, moved_weight_bound=0.0, distant_before=0.0, distant_after=0.0,
            weights_known=int(units.units[at]), partitions=int(units.units[at]),
            rules=(), idle=(), held=(),
        )  # fmt: skip


def level_above(load: int, capacity: int, share: Fraction) -> int:
    """Return `LowerBound.level`, without fractions."""
    wanted = load * (share.denominator + share.numerator)
    return -(-(wanted << BITS) // (capacity * share.denominator))
