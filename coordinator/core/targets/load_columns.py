"""Weights, capacities, racks and constraints of a group, as an assignor takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from assignors.loads.constraints import DRAIN, ConstraintRow
from assignors.loads.load_spec import ACTIVE, Floats
from assignors.loads.parse_loads import RawLoads
from coordinator.core.state.rows.member_table import list_field, list_texts

if TYPE_CHECKING:
    from coordinator.core.state.groups import Topic
    from coordinator.core.state.plan_values import MemberLoad
    from coordinator.core.state.records import LoadsNoted, MemberMetadata

DRAINED = "drained by a plan"


def load_columns(
    loads: LoadsNoted | None,
    metas: Mapping[str, MemberMetadata],
    topics: Sequence[Topic],
    as_of_ms: int | None,
) -> RawLoads:
    """Return what makes partitions and members unequal, one row per member in the order of `metas`.

    Parameters
    ----------
    loads
        As noted; None where nothing was.
    topics
        By name.
    as_of_ms
        When constraints are compared with their end; None: none has expired.
    """
    rack_set, rack_sets = _rack_sets(topics)
    process = _client_ids(metas)
    if loads is None:
        return RawLoads(process=process, rack_set=rack_set, rack_sets=rack_sets, as_of_ms=as_of_ms)
    found = _find_member_loads(loads, metas)
    drains = (ConstraintRow(DRAIN, name, reason=DRAINED) for name in loads.drained)
    return RawLoads(
        capacity=np.array([1.0 if one is None else one.capacity for one in found]),
        state=pa.array([ACTIVE if one is None else one.state for one in found], pa.string()),
        process=process,
        weight=_weights(loads, topics),
        rack_set=rack_set,
        rack_sets=rack_sets,
        constraints=(*loads.constraints, *drains),
        as_of_ms=as_of_ms,
    )


def _find_member_loads(
    loads: LoadsNoted, metas: Mapping[str, MemberMetadata]
) -> list[MemberLoad | None]:
    """Return what is noted of each member: by its instance id, else member id, else client id."""
    known = {one.name: one for one in loads.capacities}
    if not known:
        return [None] * len(metas)
    return [
        known.get(instance_id or "") or known.get(member_id) or known.get(client_id)
        for member_id, instance_id, client_id in zip(
            metas, list_field(metas, "instance_id"), list_field(metas, "client_id"), strict=True
        )
    ]


def list_racks(loads: LoadsNoted | None, metas: Mapping[str, MemberMetadata]) -> pa.StringArray:
    """Return the rack of each member: the one it sent, else the one on record."""
    racks = list_texts(metas, "rack_id")
    if loads is None or not loads.capacities:
        return racks
    noted = _find_member_loads(loads, metas)
    on_record = (None if one is None else one.rack for one in noted)
    both = zip(racks.to_pylist(), on_record, strict=True)
    return pa.array([rack or other for rack, other in both], pa.string())


def _client_ids(metas: Mapping[str, MemberMetadata]) -> pa.StringArray:
    return pa.array([one or None for one in list_field(metas, "client_id")], pa.string())


def _weights(loads: LoadsNoted, topics: Sequence[Topic]) -> Floats | None:
    known = {one.topic: one.weights for one in loads.weights}
    if not known:
        return None
    parts = []
    for topic in topics:
        row = np.full(topic.partitions, np.nan)
        given = np.array(known.get(topic.key.name, ())[: topic.partitions], dtype=np.float64)
        row[: len(given)] = np.where(given >= 0, given, np.nan)
        parts.append(row)
    return np.concatenate(parts) if parts else np.zeros(0)


def _rack_sets(topics: Sequence[Topic]) -> tuple[Longs | None, tuple[tuple[str, ...], ...]]:
    """Number the sets of racks that the replicas of partitions are in; −1 is unknown."""
    if not any(topic.racks for topic in topics):
        return None, ()
    known: dict[tuple[str, ...], int] = {}
    numbers: list[int] = []
    for topic in topics:
        of_topic = topic.racks[: topic.partitions]
        numbers += [
            known.setdefault(tuple(sorted(set(racks))), len(known)) if racks else -1
            for racks in of_topic
        ]
        numbers += [-1] * (topic.partitions - len(of_topic))
    return np.array(numbers, dtype=np.int64), tuple(known)
