"""A group in memory as the tables that jobs read: for engines that take tables, not specs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from assignors.arrays import offsets_of
from assignors.loads.constraints import to_table
from assignors.loads.parse_loads import RawLoads
from assignors.registry import knows_loads
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.load_columns import load_columns


def make_tables(found: AssignorInput, assignor: str) -> dict[str, pa.Table]:
    """Return a group as the tables of docs/reference/formats.md#tables.

    Returns
    -------
    dict
        members, topics, owned; for an assignor that knows weights, partitions and constraints too,
        where there are any.
    """
    spec = found.spec(None if knows_loads(assignor) else assignor)
    members, topics, owned = spec.to_arrow()
    if not knows_loads(assignor):
        return {"members": members, "topics": topics, "owned": owned}
    metas = {name: found.metas[name] for name in spec.member_ids.to_pylist()}
    loads = load_columns(found.loads, metas, found.topics, found.as_of_ms)
    for name in ("capacity", "state", "process"):
        column = getattr(loads, name)
        if column is not None:
            members = members.append_column(name, pa.array(column))
    tables = {"members": members, "topics": topics, "owned": owned}
    if loads.weight is not None or loads.rack_set is not None:
        tables["partitions"] = _list_partitions(spec.topics, spec.partitions, loads)
    if loads.constraints:
        tables["constraints"] = to_table(loads.constraints)
    return tables


def _list_partitions(topics: pa.StringArray, partitions: np.ndarray, loads: RawLoads) -> pa.Table:
    at = np.repeat(np.arange(len(topics)), partitions)
    columns = {
        "topic": topics.take(pa.array(at)),
        "partition": pa.array(np.arange(len(at)) - offsets_of(partitions)[at]),
    }
    if loads.weight is not None:
        columns["weight"] = pa.array(loads.weight, mask=np.isnan(loads.weight))
    if loads.rack_set is not None:
        sets = pa.array(loads.rack_sets, pa.list_(pa.string()))
        known = pa.array(loads.rack_set, mask=loads.rack_set < 0)
        columns["racks"] = sets.take(known)
    return pa.table(columns)
