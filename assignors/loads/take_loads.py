"""Take some groups' part of what was given for many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs, expand_runs, offsets_of
from assignors.loads.parse_loads import RawLoads


def take_loads(raw: RawLoads, members: Longs, first: Longs, count: Longs) -> RawLoads:
    """Return what was given for some members and runs of partitions, without constraints.

    Parameters
    ----------
    raw
        Its columns `named` are sorted by place (`sort_named`).
    members
        Rows of the members to take.
    first, count
        Runs of places on the line, ascending; they are laid end to end.
    """
    line = expand_runs(first, count)
    start = offsets_of(count)[:-1]
    named = []
    for kind, place, text in raw.named:
        low, high = np.searchsorted(place, first), np.searchsorted(place, first + count)
        inside = expand_runs(low, high - low)
        moved = place[inside] - np.repeat(first - start, high - low)
        named.append((kind, moved, text.take(pa.array(inside))))
    return replace(
        raw.of_members(members),
        weight=None if raw.weight is None else raw.weight[line],
        move_cost=None if raw.move_cost is None else raw.move_cost[line],
        rack_set=None if raw.rack_set is None else raw.rack_set[line],
        named=tuple(named),
        constraints=(),
    )


def sort_named(raw: RawLoads) -> RawLoads:
    """Sort the columns `colocate` and `pinned_to` by place."""
    named = []
    for kind, place, text in raw.named:
        order = np.argsort(place, kind="stable")
        named.append((kind, place[order], text.take(pa.array(order))))
    return replace(raw, named=tuple(named))
