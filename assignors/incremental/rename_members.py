"""Members of a planned group that stay under another id: they change places, not ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from assignors.incremental.equal_members import EqualMembers, distinct_keys, order_keys, sort_keys


def rename_members(held: EqualMembers, renamed: Mapping[str, str]) -> EqualMembers | None:
    """Return the group with members under their new ids.

    None if one is unknown, or its new id is not new: `change_group` says which.
    """
    old, new = list(renamed), list(renamed.values())
    if len(set(new)) < len(new) or not held.statics.keys().isdisjoint(new):
        return None
    instances = held.instances_of(old)
    new_ids = pa.array(new, pa.string())
    plain = distinct_keys(order_keys(new_ids, pa.nulls(len(new), pa.string())))
    leaving = order_keys(pa.array(old, pa.string()), instances)
    by_place = sort_keys(leaving)
    gone, there = held.order.find(leaving.take(pa.array(by_place)))
    if held.order.find(plain)[1].any() or not there.all():
        return None
    numbers, loads = np.empty(len(new), dtype=np.int64), np.empty(len(new), dtype=np.int64)
    numbers[by_place], loads[by_place] = held.order.read(gone)
    coming = order_keys(new_ids, instances)
    by_new = sort_keys(coming)
    keys = coming.take(pa.array(by_new))
    racks = np.empty(len(new), dtype=np.object_)
    racks[by_place] = held.order.racks_at(gone)
    racks = racks[by_new]
    numbers, loads = numbers[by_new], loads[by_new]
    order = held.order.changed(gone, held.order.find(keys)[0], keys, numbers, racks)
    order = order.put(order.find(keys)[0], loads)
    static = {renamed.get(name, name): instance for name, instance in held.statics.items()}
    return replace(held, order=order, statics=static)
