"""How many members have how many partitions: before the last epoch, now, and by the target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from coordinator.history.keyed_rows import combine_chunks, to_numbers
from coordinator.web.group_now import GroupNow, newest_epoch

BINS = 12


class Load(NamedTuple):
    """How many members have `low` to `high` partitions."""

    low: int
    high: int
    before: int
    now: int
    target: int | None


def count_loads(now: GroupNow, history: pa.Table) -> list[Load]:
    """Return how loads are spread: a row for each load, or for each of some ranges of loads."""
    epoch = newest_epoch(now.epochs)
    before = owned_at(history, epoch["position"] - 1) if epoch else np.zeros(0, np.int64)
    owned = to_numbers(now.members["owned"])
    known = not now.lost_target
    target = to_numbers(now.members["target"]) if known else np.zeros(0, np.int64)
    every = np.concatenate([before, owned, target])
    if not len(every):
        return []
    loads = np.unique(every)
    if len(loads) > BINS:
        edges = np.unique(np.linspace(loads[0], loads[-1] + 1, BINS + 1).astype(np.int64))
    else:
        edges = np.append(loads, loads[-1] + 1)
    counts = [np.histogram(one, edges)[0] for one in (before, owned, target)]
    exact = len(loads) <= BINS
    return [
        Load(
            int(low), int(low if exact else high - 1), int(one), int(two),
            int(three) if known else None,
        )
        for low, high, one, two, three in zip(edges[:-1], edges[1:], *counts, strict=True)
        if one or two or three
    ]  # fmt: skip


def owned_at(history: pa.Table, position: int) -> Longs:
    """Return how many partitions each member owned at a position, of those that owned any."""
    until = history["until_position"]
    here = pc.and_(
        pc.less_equal(history["since_position"], position),
        pc.or_(pc.is_null(until), pc.fill_null(pc.greater(until, position), fill_value=False)),
    )
    rows = history.filter(here)
    owner = combine_chunks(rows["member_id"]).dictionary_encode().indices.to_numpy()
    counts = np.bincount(owner, weights=to_numbers(rows["partition_count"])).astype(np.int64)
    return counts
