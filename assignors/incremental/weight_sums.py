"""Sums over the weights of a group: what a plan asks of them, kept while few of them change.

The numbers are those that `quantise_weights`, `pose_problem` and `find_lower_bound` find by a pass
over all weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from assignors.arrays import Bools, Ints, Longs, offsets_of, sum_by
from assignors.incremental.block_column import split_blocks
from assignors.loads.load_spec import (
    Floats,
    find_rough_shift,
    find_shift,
    scale_weights,
)
from assignors.weighted.levels import SMALL, raise_to_floor, round_to_grid
from assignors.weighted.problem import find_floor

BLOCK = 1_024
"""Weights that are copied, and looked at, when one of them changes; of one topic."""
Change: TypeAlias = tuple[Longs, Longs]
"""Places of which what is planned with changed, and by how much."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """How weights become integers.

    Attributes
    ----------
    rough, shift
        Weights are added up in units of 2^-rough, and planned with in units of 2^-shift.
    floor
        What weighs something counts for so much at least.
    grid
        Whether weights are rounded to a grid.
    """

    rough: int
    shift: int
    floor: int
    grid: bool

    def plan_with(self, weight: Floats) -> Longs:
        """Return what weights count for in a plan."""
        planned = raise_to_floor(scale_weights(weight, self.shift), self.floor)
        return round_to_grid(planned) if self.grid else planned


@dataclass(frozen=True, slots=True, eq=False)
class WeightSums:
    """Weights on the line, of topics with subscribers, in blocks; and what they add up to.

    Attributes
    ----------
    begins
        int64 (blocks,): the place of the first weight of each block; a block is of one topic.
    type
        int64 (blocks,): the type of its partitions.
    blocks
        The weights; those that were not given are filled in.
    greatest, least, positive
        float64 (blocks,): the greatest and the least of each, and the least that is above 0.
    count
        Partitions.
    rough_total, total
        In the rough unit, and in the unit that is planned with.
    amount
        int64 (types,): what is planned with.
    """

    begins: Longs
    type: Longs
    blocks: list[Floats]
    greatest: Floats
    least: Floats
    positive: Floats
    count: int
    scale: Scale
    rough_total: int
    total: int
    amount: Longs

    @classmethod
    def of(
        cls, weight: Floats, first: Longs, size: Longs, type_: Longs
    ) -> tuple[WeightSums, Longs] | None:
        """Add up all weights; None if nothing weighs anything.

        Parameters
        ----------
        weight
            On the line of all topics.
        first, size, type_
            int64 (topics,): of those with subscribers and partitions, where they begin.

        Returns
        -------
        sums, planned
            What each weight of these topics counts for, in their order.
        """
        parts = -(-size // BLOCK)
        inside = np.arange(int(parts.sum())) - np.repeat(offsets_of(parts)[:-1], parts)
        begins = np.repeat(first, parts) + inside * BLOCK
        ends = np.minimum(begins + BLOCK, np.repeat(first + size, parts))
        blocks = [weight[low:high] for low, high in zip(begins, ends, strict=True)]
        whole = np.concatenate(blocks)
        starts = offsets_of(ends - begins)[:-1]
        greatest = np.maximum.reduceat(whole, starts)
        rough = find_rough_shift(float(greatest.max()))
        rough_total = int(scale_weights(whole, rough).sum())
        if not rough_total:
            return None
        shift = find_shift(rough, rough_total)
        total = int(scale_weights(whole, shift).sum())
        scale = Scale(rough, shift, find_floor(total, len(whole)), len(whole) > SMALL)
        own = np.repeat(type_, parts)
        planned = scale.plan_with(whole)
        amount = np.add.reduceat(planned, starts)
        sums = cls(
            begins, own, blocks, greatest, np.minimum.reduceat(whole, starts),
            np.minimum.reduceat(np.where(whole > 0, whole, np.inf), starts), len(whole), scale,
            rough_total, total, sum_by(own, amount, int(type_.max()) + 1),
        )  # fmt: skip
        return sums, planned

    def heaviest(self) -> Longs:
        """Return the greatest that is planned with, by type."""
        top = np.zeros(len(self.amount))
        np.maximum.at(top, self.type, self.greatest)
        return self.scale.plan_with(top)

    def are_equal(self) -> bool:
        """Tell whether all weigh the same, in the unit that is planned with."""
        ends = np.array([self.least.min(), self.greatest.max()])
        low, high = scale_weights(ends, self.scale.shift).tolist()
        return bool(low == high)

    def changed(self, place: Longs, weight: Floats) -> tuple[WeightSums, Change] | None:
        """Return the sums with other weights at some places, ascending, of topics that are here.

        None: they add up to another power of two, so that all become other integers.
        """
        block = self.begins.searchsorted(place, side="right") - 1
        parts = split_blocks(block)
        index = place - self.begins[block]
        before = self._take(parts, index)
        blocks = [*self.blocks]
        greatest, least, positive = (
            column.copy() for column in (self.greatest, self.least, self.positive)
        )
        for at, rows in parts:
            some = blocks[at] = blocks[at].copy()
            some[index[rows]] = weight[rows]
            greatest[at], least[at], positive[at] = _look_at(some)
        scale, top = self.scale, float(greatest.max())
        if find_rough_shift(top) != scale.rough:
            return None
        rough_total = self.rough_total + _differ(before, weight, scale.rough)
        if not rough_total or find_shift(scale.rough, rough_total) != scale.shift:
            return None
        total = self.total + _differ(before, weight, scale.shift)
        now = Scale(scale.rough, scale.shift, find_floor(total, self.count), scale.grid)
        places, more = place, now.plan_with(weight) - scale.plan_with(before)
        own = self.type[block]
        if now.floor != scale.floor:
            others, lifted, theirs = self._lift(now, place)
            places, more = np.append(place, others), np.append(more, lifted)
            own = np.append(own, theirs)
        amount = self.amount + sum_by(own, more, len(self.amount))
        sums = WeightSums(
            self.begins, self.type, blocks, greatest, least, positive, self.count, now,
            rough_total, total, amount,
        )  # fmt: skip
        return sums, (places, more)

    def put(self, weight: Floats) -> None:
        """Write all weights to their places on the line."""
        for begin, some in zip(self.begins.tolist(), self.blocks, strict=True):
            weight[begin : begin + len(some)] = some

    def _lift(self, now: Scale, but: Longs) -> tuple[Longs, Longs, Longs]:
        """Return what counts for more or less since another floor holds: places, change and types.

        Parameters
        ----------
        but
            Places to leave out, ascending.
        """
        limit = float(np.ldexp(float(max(now.floor, self.scale.floor)), -now.shift))
        none = np.zeros(0, dtype=np.int64)
        places, changes, types = [none], [none], [none]
        for at in np.flatnonzero(self.positive < limit).tolist():
            some = self.blocks[at]
            light = np.flatnonzero((some > 0) & (some < limit))
            light = light[~_are_in(self.begins[at] + light, but)]
            places.append(self.begins[at] + light)
            changes.append(now.plan_with(some[light]) - self.scale.plan_with(some[light]))
            types.append(np.full(len(light), self.type[at]))
        return np.concatenate(places), np.concatenate(changes), np.concatenate(types)

    def _take(self, parts: list[tuple[int, slice]], index: Ints) -> Floats:
        found = [self.blocks[at][index[rows]] for at, rows in parts]
        return np.concatenate(found) if found else np.zeros(0)


def _look_at(some: Floats) -> tuple[float, float, float]:
    """Return the greatest and the least of some weights, and the least that is above 0."""
    positive = some[some > 0]
    return some.max(), some.min(), positive.min() if len(positive) else np.inf


def _differ(before: Floats, after: Floats, shift: int) -> int:
    """Return by how much a sum changes."""
    return int((scale_weights(after, shift) - scale_weights(before, shift)).sum())


def _are_in(values: Longs, some: Longs) -> Bools:
    """Tell which values are among some, which ascend and are not none."""
    at = np.minimum(some.searchsorted(values), len(some) - 1)
    return np.asarray(some[at] == values)
