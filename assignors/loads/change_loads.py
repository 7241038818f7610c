"""Carry what was given about a group's loads over to the group after some changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, offsets_of
from assignors.errors import SpecError
from assignors.loads.load_spec import Floats
from assignors.loads.parse_loads import NUMBER_MAX, RawLoads
from assignors.parse import show

NewWeights: TypeAlias = Mapping[str, Mapping[int, float | None]]
"""By topic and partition; None: it is not known any longer."""


def locate_weights(
    weights: NewWeights, topics: pa.StringArray, partitions: Longs
) -> tuple[Longs, Floats]:
    """Return the places on the line of partitions that have other weights, ascending, and these.

    Raises
    ------
    SpecError
        A topic or a partition is not there, or a weight is no number from 0 on.
    """
    names = pa.array(weights, pa.string())
    at = pc.fill_null(pc.index_in(names, value_set=topics), -1).to_pylist()
    start = offsets_of(partitions)
    places, values = [start[:0]], [np.zeros(0)]
    for topic, (name, some) in zip(at, weights.items(), strict=True):
        if topic < 0:
            raise SpecError(
                f"weights: topic {show(name)} is not in topics: add it, or leave its weights out"
            )
        size = int(partitions[topic])
        for partition, weight in some.items():
            if not 0 <= partition < size:
                raise SpecError(
                    f"weights: topic {name!r} has no partition {partition}, it has {size}: "
                    "correct the partition or the count"
                )
            if weight is not None and not 0 <= weight <= NUMBER_MAX:
                raise SpecError(
                    f"weights: partition {partition} of topic {name!r} has weight {show(weight)}: "
                    "give a number from 0 on, below 2^62"
                )
        number = np.fromiter(some, np.int64, len(some))
        given = np.array([np.nan if one is None else one for one in some.values()], np.float64)
        places.append(start[topic] + number)
        values.append(given)
    place, value = np.concatenate(places), np.concatenate(values)
    order = np.argsort(place, kind="stable")
    return place[order], value[order]


def carry_loads(raw: RawLoads, members: Longs, joined: int, line: Longs) -> RawLoads:
    """Return what was given, for the members and partitions after some changes.

    Who joined is active and has capacity 1, and nothing is known of partitions that came.

    Parameters
    ----------
    raw
        Members in the order in which `members` counts them.
    members
        Rows of those that stay; those that joined come after them.
    joined
        How many these are.
    line
        int64 (partitions,): where each was on the line before; −1 for those that came.
    """
    stays = raw.of_members(members)
    found, size = np.flatnonzero(line >= 0), int(line.max(initial=-1)) + 1
    now = np.full(max(size, _last_place(raw)), -1, dtype=np.int64)
    now[line[found]] = found
    named = []
    for kind, place, text in raw.named:
        kept = np.flatnonzero(now[place] >= 0)
        named.append((kind, now[place[kept]], text.take(pa.array(kept))))
    texts = pa.nulls(joined, pa.string())
    return replace(
        stays,
        capacity=None if stays.capacity is None else np.append(stays.capacity, np.ones(joined)),
        state=None if stays.state is None else pa.concat_arrays([stays.state, texts]),
        process=None if stays.process is None else pa.concat_arrays([stays.process, texts]),
        weight=_carry(raw.weight, line, np.nan),
        move_cost=_carry(raw.move_cost, line, np.nan),
        rack_set=None if raw.rack_set is None else np.append(raw.rack_set, -1)[line],
        named=tuple(named),
    )


def put_weights(raw: RawLoads, place: Longs, weight: Floats, partitions: int) -> RawLoads:
    """Return what was given with other weights at some places."""
    now = np.full(partitions, np.nan) if raw.weight is None else raw.weight.copy()
    now[place] = weight
    return replace(raw, weight=now)


def _carry(values: Floats | None, line: Longs, new: float) -> npt.NDArray[np.float64] | None:
    return None if values is None else np.append(values, new)[line]


def _last_place(raw: RawLoads) -> int:
    """Return a number above all places that are named."""
    return max((int(place.max(initial=-1)) + 1 for _, place, _ in raw.named), default=0)
