"""`LoadSpec`: weights, capacities, racks, states and constraints of a group, as integer columns.

Partitions are positions on the line of all topics by name: partition p of topic t is at
topic_start[t] + p. Weights and capacities are integers, so that every sum and comparison is exact
and the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from assignors.arrays import Bools, Ints, Longs, expand_runs
from assignors.errors import SpecError

if TYPE_CHECKING:
    from assignors.loads.parse_loads import RawLoads

Floats = npt.NDArray[np.float64]

ACTIVE, DRAINING, STANDBY = "active", "draining", "standby"
STATES = (ACTIVE, DRAINING, STANDBY)
"""What members may be; only active ones are given partitions."""

_ROUGH_BITS = 31
WEIGHT_BITS = 41
"""The weights of a group add up to less than 2⁴²: a load times a capacity fits int64."""
CAPACITY_BITS = 20
CAPACITY_RATIO_MAX = 4096
"""Greatest capacity by smallest: below, rounding a capacity to an integer loses under 1 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """One rule on where partitions may be, resolved against its group.

    Attributes
    ----------
    kind
        One of `constraints.KINDS`.
    name
        The rule in words, for errors and reports.
    reason
        Why its owner wants it; None if no reason was given.
    hard
        Must hold. A soft one is given up where it would cost more than the tolerance.
    first, count
        int64: runs of positions on the line that it is about, ascending; none for rules on members.
    label
        int64, one for each of `partitions`: those of one label belong together (colocate) or
        apart (anti_affinity); empty for other kinds.
    members
        int64: the members it names.
    limit
        Of max_partitions.
    """

    kind: str
    name: str
    reason: str | None
    hard: bool
    first: Longs
    count: Longs
    label: Longs
    members: Longs
    limit: int = 0

    @property
    def partitions(self) -> Longs:
        """int64: the positions on the line, ascending."""
        return expand_runs(self.first, self.count)

    def is_about(self, place: int) -> bool:
        """Tell whether a position on the line is one of `partitions`."""
        return bool(((self.first <= place) & (place < self.first + self.count)).any())


@dataclass(frozen=True, slots=True, eq=False)
class LoadSpec:
    """What makes partitions and members of a group unequal.

    Attributes
    ----------
    capacity
        int64 (members,): relative capacities, of at most 2²⁰.
    capacity_unit
        What one of them is in the user's unit.
    active
        bool (members,): may own partitions. Draining and standby members may not.
    weight
        int64 (partitions,): weights on the line.
    weight_unit
        What one of them is in the user's unit.
    move_cost
        int64 (partitions,): what a move costs, in units of weight.
    known
        Partitions whose weight was given; the others have the median of their topic.
    rack_set
        int64 (partitions,): which of `rack_sets` a partition's replicas are in; −1 for unknown.
    rack_sets
        Sets of racks, sorted names.
    constraints
        Rules in force.
    idle
        Rules that are not, each with the cause.
    given
        What all of this was made of, members in member order.
    """

    capacity: Longs
    capacity_unit: float
    active: Bools
    weight: Longs
    weight_unit: float
    move_cost: Longs
    known: int
    rack_set: Longs
    rack_sets: tuple[tuple[str, ...], ...]
    constraints: tuple[Constraint, ...]
    idle: tuple[str, ...]
    given: RawLoads

    def has_equal_loads(self, subscribed: Bools) -> bool:
        """Tell whether partitions weigh the same and members are alike, and no rule says other.

        Parameters
        ----------
        subscribed
            bool (partitions,): whether any member subscribes.
        """
        weight = self.weight[subscribed]
        return bool(
            self.active.all()
            and not self.constraints
            and (len(weight) == 0 or (weight == weight[0]).all())
            and (len(self.capacity) == 0 or (self.capacity == self.capacity[0]).all())
        )


def quantise_weights(weight: Floats, *, like: float | None = None) -> tuple[Longs, float]:
    """Return weights as integers that add up to about 2⁴¹, and the unit: a power of two.

    Whole numbers stay exact unless their sum is above 2⁴¹. No float is added up, so the result
    does not depend on how a machine adds.

    Parameters
    ----------
    like
        A unit to use instead of the best one; what exceeds int64 in it is cut.
    """
    if like is not None:
        return np.rint(np.minimum(weight / like, 2.0**WEIGHT_BITS)).astype(np.int64), like
    greatest = float(weight.max(initial=0.0))
    rough = find_rough_shift(greatest)
    shift = find_shift(rough, int(scale_weights(weight, rough).sum()))
    return scale_weights(weight, shift), float(np.ldexp(1.0, -shift))


def scale_weights(weight: Floats, shift: int) -> Longs:
    """Return weights in a unit of 2^-shift, rounded."""
    return np.asarray(np.rint(np.ldexp(weight, shift)).astype(np.int64))


def find_rough_shift(greatest: float) -> int:
    """Return the shift with which weights are added up to find that of `find_shift`."""
    return _ROUGH_BITS - int(np.frexp(greatest)[1]) if greatest > 0 else 0


def find_shift(rough: int, total: int) -> int:
    """Return the shift with which weights add up to about 2⁴¹, from their sum with another."""
    return rough + WEIGHT_BITS - total.bit_length() if total else 0


def quantise_capacities(
    capacity: Floats, member_ids: list[str] | None = None
) -> tuple[Longs, float]:
    """Return capacities as integers of at most 2²⁰, and the unit: a power of two.

    Raises
    ------
    SpecError
        The greatest is more than `CAPACITY_RATIO_MAX` times the smallest.
    """
    if not len(capacity):
        return np.zeros(0, dtype=np.int64), 1.0
    least = int(np.argmin(capacity))
    greatest = float(capacity.max())
    if greatest > CAPACITY_RATIO_MAX * float(capacity[least]):
        who = f"member {member_ids[least]!r}" if member_ids else "a member"
        raise SpecError(
            f"{who} has capacity {float(capacity[least])!r} and another {greatest!r}: "
            f"capacities may differ by a factor of {CAPACITY_RATIO_MAX}; "
            "give a member that should take nothing the state standby"
        )
    shift = CAPACITY_BITS - int(np.frexp(greatest)[1])
    return np.rint(np.ldexp(capacity, shift)).astype(np.int64), float(np.ldexp(1.0, -shift))


def fill_medians(weight: Floats, topic_start: Ints) -> tuple[Floats, int]:
    """Give missing weights (NaN) the median of their topic; without one, of all; else 1.

    Returns
    -------
    weight, known
        All weights, and how many were given.
    """
    missing = np.isnan(weight)
    known = int((~missing).sum())
    if known == len(weight):
        return weight, known
    out = weight.copy()
    sizes = np.diff(topic_start)
    topic = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((weight, topic))  # NaN is last within its topic
    given = np.bincount(topic[~missing], minlength=len(sizes))
    middle = np.minimum(topic_start[:-1] + np.maximum(given - 1, 0) // 2, len(weight) - 1)
    lower, upper = (
        weight[order[middle + odd]] for odd in (0, _other_middle(given, middle, weight))
    )
    rest = float(np.median(weight[~missing])) if known else 1.0
    median = np.where(given > 0, (lower + upper) / 2, rest)
    out[missing] = median[topic[missing]]
    return out, known


def _other_middle(given: Longs, middle: Longs, weight: Floats) -> Longs:
    """Return 1 where a median lies between two values, else 0."""
    return np.where((given > 0) & (given % 2 == 0) & (middle + 1 < len(weight)), 1, 0)
