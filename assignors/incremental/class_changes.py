"""What changed for the members of one class of subscription, and their next plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from assignors.incremental.changes import SubscribedMembers
from assignors.incremental.equal_members import (
    EqualMembers,
    Newcomers,
    Owned,
    distinct_keys,
    order_keys,
    read_texts,
    sort_keys,
)
from assignors.incremental.member_order import Keys
from assignors.incremental.next_plan import Bounds, NextPlan, are_in, plan_next
from assignors.incremental.rename_members import rename_members
from assignors.incremental.subscribed_topics import SubscribedTopics

_NO_TEXTS, _NO_PLACES = np.zeros(0, dtype=np.object_), np.zeros(0, dtype=np.int64)
_NO_MEMBERS = Newcomers(_NO_PLACES, pa.array([], pa.large_string()), _NO_PLACES, _NO_TEXTS)


@dataclass(slots=True)
class ClassChanges:
    """Everything that changed for one class; without topics, these are as before."""

    left: list[str] = field(default_factory=list)
    joined: list[SubscribedMembers] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    topics: SubscribedTopics | None = None


def plan_class(held: EqualMembers, changes: ClassChanges, bounds: Bounds) -> NextPlan | None:
    """Return the next plan of a class; None if it names members that are not as it says."""
    found = _find_members(held, changes)
    if found is None:
        return None
    held, left, newcomers = found
    return plan_next(held, left, newcomers, changes.topics or held.topics, bounds)


def change_members(held: EqualMembers, changes: ClassChanges) -> tuple[EqualMembers, Owned] | None:
    """Return a class whose members are others, before it is planned; and what leavers owned.

    None if it names members that are not as it says.
    """
    found = _find_members(held, changes)
    if found is None:
        return None
    held, left, joined = found
    gone = held.owned_at(left)
    order = held.order.changed(left, *joined)
    return replace(held, order=order, topics=changes.topics or held.topics), gone


def _find_members(
    held: EqualMembers, changes: ClassChanges
) -> tuple[EqualMembers, Longs, Newcomers] | None:
    """Return who leaves and who joins, and the class that knows who is static then."""
    renamed = rename_members(held, changes.renamed) if changes.renamed else held
    left = None if renamed is None else _find_left(renamed, changes.left)
    joined = _list_joined(left[1], changes.joined, left[0]) if left else None
    return None if left is None or joined is None else (joined[1], left[0], joined[0])


def plan_new_class(changes: ClassChanges, bounds: Bounds, block: int) -> NextPlan | None:
    """Return the first plan of a class that no member had; None if a member comes twice."""
    assert changes.topics is not None, "what they subscribe to"
    held = start_class(changes, block)
    if held is None:
        return None
    return plan_next(held, _NO_PLACES, _NO_MEMBERS, changes.topics, bounds)


def start_class(changes: ClassChanges, block: int) -> EqualMembers | None:
    """Return a class that no member had, before it has topics; None if a member comes twice."""
    nothing = EqualMembers.of_newcomers(_NO_MEMBERS, block)
    joined = _list_joined(nothing, changes.joined, _NO_PLACES)
    if joined is None:
        return None
    newcomers, known = joined
    return replace(EqualMembers.of_newcomers(newcomers, block), statics=known.statics)


def _find_left(held: EqualMembers, left: Sequence[str]) -> tuple[Longs, EqualMembers] | None:
    """Return the places of members that leave, and the group that forgets who is static of them.

    None if one is unknown: `change_group` says which.
    """
    if not left:
        return _NO_PLACES, held
    ids, instances = pa.array(left, pa.string()), held.instances_of(left)
    static = held.statics.keys() & set(left)
    if static:
        rest = {name: at for name, at in held.statics.items() if name not in static}
        held = replace(held, statics=rest)
    places, there = held.order.find(distinct_keys(order_keys(ids, instances)))
    return (places, held) if there.all() else None


def _list_joined(
    held: EqualMembers, joined: Sequence[SubscribedMembers], leaving: Longs
) -> tuple[Newcomers, EqualMembers] | None:
    """Return new members, in order, and the group that knows who of them is static.

    None if one is not new, but for members at places of those who leave, or comes twice:
    `change_group` says which.
    """
    if not joined:
        return _NO_MEMBERS, held
    ids = _concat([members.member_ids for members in joined])
    instances = _concat([members.names("instance_ids") for members in joined])
    racks = _concat([members.names("racks") for members in joined])
    if len(ids) > 1 and len(pc.unique(ids)) < len(ids):
        return None
    if held.statics and not held.statics.keys().isdisjoint(ids.to_pylist()):
        return None
    keys = order_keys(ids, instances)
    order = sort_keys(keys)
    if len(keys) > 1:
        keys = keys.take(pa.array(order))
    if instances.null_count < len(ids):
        named = instances.is_valid()
        plain = order_keys(ids.filter(named), pa.nulls(pc.sum(named).as_py(), pa.string()))
        if _find_staying(held, distinct_keys(plain), leaving)[1]:
            return None
        new = zip(ids.filter(named).to_pylist(), instances.filter(named).to_pylist(), strict=True)
        held = replace(held, statics=held.statics | dict(new))
    before, stays = _find_staying(held, keys, leaving)
    if stays:
        return None
    versions = np.zeros_like(before)
    return Newcomers(before, keys, versions, read_texts(racks)[order]), held


def _concat(columns: list[pa.StringArray]) -> pa.StringArray:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _find_staying(held: EqualMembers, keys: Keys, leaving: Longs) -> tuple[Longs, bool]:
    """Return where members belong, and whether one of them is there and stays."""
    places, there = held.order.find(keys)
    return places, bool((there & ~are_in(places, leaving)).any()) if there.any() else False
