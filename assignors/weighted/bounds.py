"""Lower bounds of the greatest level: what no assignment can be below.

Three terms, each exact: a set of types and the cells that may have them (every such set is a cut of
the flow from types to cells; the worst is found by repeated maximum flows), the heaviest unit on
the largest member that may have it, and what is on a member already when that cannot move.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs, sum_by
from assignors.network_flow import Network, find_maximum_flow, find_reached
from assignors.weighted.levels import BITS

SHARE, HEAVIEST = "share", "heaviest"
_FLOW_BITS = 28
_ROUNDS_MAX = 1000


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The greatest lower bound, as load by capacity, and which term it is.

    Attributes
    ----------
    load, capacity
        Their quotient is the bound; 0 and 1 for a group without partitions.
    term
        `SHARE`: weight by the capacity of all that may have it; `HEAVIEST`: one unit.
    """

    load: int
    capacity: int
    term: str

    @property
    def ratio(self) -> Fraction:
        """The bound."""
        return Fraction(self.load, self.capacity)

    def level(self, above: Fraction = Fraction(0)) -> int:
        """Return the level that is a share above the bound, rounded up."""
        wanted = self.ratio * (1 + above)
        return -(-(wanted.numerator << BITS) // wanted.denominator)


def find_lower_bound(
    weight: Longs,
    type_: Longs,
    capacity: Longs,
    cell: Longs,
    allowed: Bools,
    home: Longs | None = None,
) -> LowerBound:
    """Return the greatest of the bounds.

    Parameters
    ----------
    weight, type_
        (units,); every type may be somewhere.
    capacity, cell
        (members,); cell −1 for those that may have nothing.
    allowed
        bool (types, cells).
    home
        int64 (units,): the one member that may have a unit; −1 where others may, too.
    """
    if not len(weight):
        return LowerBound(0, 1, SHARE)
    types = len(allowed)
    heaviest = np.zeros(types, dtype=np.int64)
    if types == 1:
        heaviest[0] = weight.max()
    else:
        np.maximum.at(heaviest, type_, weight)
    sizes = measure_cells(capacity, cell, allowed.shape[1])
    fullest = _find_fullest(weight, capacity, home)
    return bound_types(sum_by(type_, weight, types), heaviest, sizes, allowed, fullest)


def measure_cells(capacity: Longs, cell: Longs, cells: int) -> tuple[Longs, Longs]:
    """Return the capacity of each cell in all, and that of its largest member.

    Parameters
    ----------
    capacity, cell
        As for `find_lower_bound`.
    """
    open_ = cell >= 0
    largest = np.zeros(cells, dtype=np.int64)
    np.maximum.at(largest, cell[open_], capacity[open_])
    return sum_by(cell[open_], capacity[open_], cells), largest


def bound_types(
    amount: Longs,
    heaviest: Longs,
    sizes: tuple[Longs, Longs],
    allowed: Bools,
    fullest: tuple[int, int] = (0, 1),
) -> LowerBound:
    """Return the greatest of the bounds, from sums.

    Parameters
    ----------
    amount, heaviest
        int64 (types,): weight in all, and of the heaviest unit.
    sizes
        Of cells, as `measure_cells` returns them.
    fullest
        Weight and capacity of the member that is fullest with what only it may have.
    """
    size, largest = sizes
    share = max(find_share(amount, size, allowed), fullest, key=_divide)
    best = np.where(allowed, largest, 0).max(axis=1)
    alone = max(
        (Fraction(int(one), int(by)), int(one), int(by))
        for one, by in zip(heaviest, best, strict=True)
        if by
    )
    if alone[0] > Fraction(*share):
        return LowerBound(alone[1], alone[2], HEAVIEST)
    return LowerBound(*share, SHARE)


def _divide(share: tuple[int, int]) -> Fraction:
    return Fraction(*share)


def _find_fullest(weight: Longs, capacity: Longs, home: Longs | None) -> tuple[int, int]:
    """Return weight and capacity of the member that is fullest with what only it may have."""
    if home is None or not (home >= 0).any():
        return 0, 1
    sure = np.flatnonzero(home >= 0)
    load = sum_by(home[sure], weight[sure], len(capacity))
    top = int(np.argmax(load / capacity))
    return int(load[top]), int(capacity[top])


def find_whole_bound(total: int, heaviest: int, capacity: Longs) -> LowerBound:
    """Return the greatest of the bounds where every unit may be on every member.

    Parameters
    ----------
    total, heaviest
        Of the units' weights.
    capacity
        (members,) that may have something.
    """
    size, largest = int(capacity.sum()), int(capacity.max())
    if Fraction(heaviest, largest) > Fraction(total, size):
        return LowerBound(heaviest, largest, HEAVIEST)
    return LowerBound(total, size, SHARE)


def find_share(amount: Longs, size: Longs, allowed: Bools) -> tuple[int, int]:
    """Return weight and capacity of the cut with the greatest quotient (Dinkelbach's method).

    Parameters
    ----------
    amount
        Weight of each type.
    size
        Capacity of each cell.
    """
    load, capacity = int(amount.sum()), int(size[allowed[amount > 0].any(axis=0)].sum())
    if capacity == 0:
        return 0, 1
    if bool(allowed[amount > 0].all()):
        return load, capacity
    for _ in range(_ROUNDS_MAX):
        cut = _find_worse_cut(amount, size, allowed, load, capacity)
        if cut is None:
            return load, capacity
        load, capacity = cut
    return load, capacity


def _find_worse_cut(
    amount: Longs, size: Longs, allowed: Bools, load: int, capacity: int
) -> tuple[int, int] | None:
    """Return a cut above load / capacity, or None where the flow at that level carries all.

    Supplies are rounded down and rooms up to fit int32, so that a cut that is found is real.
    """
    types, cells = allowed.shape
    unit = max(1, int(amount.sum()) >> _FLOW_BITS)
    supply = amount // unit
    rooms = np.array([-(-load * int(one) // (capacity * unit)) for one in size], dtype=np.int64)
    rooms = np.minimum(rooms, int(supply.sum()))
    pair_type, pair_cell = np.nonzero(allowed)
    source, sink = types + cells, types + cells + 1
    tail = np.concatenate([np.full(types, source), pair_type, types + np.arange(cells)])
    head = np.concatenate([np.arange(types), types + pair_cell, np.full(cells, sink)])
    bound = np.concatenate([supply, supply[pair_type], rooms])
    network, order = Network.of(sink + 1, tail, head, bound)
    flow = np.empty(len(order), dtype=np.int64)
    sorted_flow = find_maximum_flow(network, source, sink)
    flow[order] = sorted_flow
    if int(flow[:types].sum()) == int(supply.sum()):
        return None
    reached = find_reached(network, sorted_flow, source)[:types]
    hot = np.flatnonzero(reached & (amount > 0))
    found = int(amount[hot].sum()), int(size[allowed[hot].any(axis=0)].sum())
    worse = found[1] > 0 and found[0] * capacity > load * found[1]
    return found if worse else None
