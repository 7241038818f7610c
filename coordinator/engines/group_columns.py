"""The columns that a computation starts from, made from those of the one before it.

To convert 100,000 members and their targets takes longer than to assign them, and requests wait
for the interpreter meanwhile. So only members that changed are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec
from assignors.arrays import Bools, offsets_of
from assignors.group_spec import order_members
from assignors.prior_ownership import PriorOwnership
from coordinator.core.state.groups import ChangePlace, Topic
from coordinator.core.state.target_assignment import Targets, WholeTarget
from coordinator.core.targets.basis import AssignorInput


@dataclass(frozen=True, slots=True, eq=False)
class GroupColumns:
    """A group as its assignor gets it.

    Attributes
    ----------
    topics, whole
        Those of its input: with others, every member may be another.
    mark
        Where its changes were when the input was prepared; None: no other group is made from it.
        Then what members own in `spec` is not just their targets, or more than the records of a
        member decides what is written of it.
    """

    spec: GroupSpec
    topics: list[Topic]
    whole: WholeTarget | None
    mark: ChangePlace | None

    @classmethod
    def of(cls, found: AssignorInput, assignor: str, before: GroupColumns | None = None) -> Self:
        """Return a group, made from that of an earlier computation if possible."""
        plain = found.loads is None and not found.regexes
        spec = None if before is None or not plain else _splice(before, found)
        if spec is None:
            spec = found.spec(assignor)
            plain = plain and _owns_just(spec, found.targets)
        mark = found.prepared if plain else None
        return cls(spec, found.topics, found.targets.whole, mark)


def _owns_just(spec: GroupSpec, targets: Targets) -> bool:
    """Tell whether no target was clipped, dropped or joined with its neighbour."""
    had = targets.ranges()
    partitions = int(had.end.sum(dtype=np.int64) - had.first.sum(dtype=np.int64))
    return len(spec.first) == len(had.first) and spec.count.sum(dtype=np.int64) == partitions


def _splice(before: GroupColumns, found: AssignorInput) -> GroupSpec | None:
    """Return the group before with the members that changed as they are now.

    None: it cannot be known who changed, they are many, or own something else than their targets.
    """
    if before.mark is None or found.restored is None:
        return None
    changed = set(before.mark.until(found.restored) or ())
    alike = found.topics == before.topics and found.targets.whole is before.whole
    if not changed or not alike or 2 * len(changed) > before.spec.member_count:
        return None
    targets = Targets()
    for member_id in changed & found.targets.keys():
        targets[member_id] = found.targets[member_id]
    metas = {member_id: found.metas[member_id] for member_id in changed & found.metas.keys()}
    theirs = AssignorInput(metas, targets, found.topics).spec()
    if not _owns_just(theirs, targets):
        return None
    gone = pc.is_in(before.spec.member_ids, value_set=pa.array(list(changed), pa.string()))
    return _join(before.spec, ~gone.to_numpy(zero_copy_only=False), theirs)


def _join(one: GroupSpec, stays: Bools, other: GroupSpec) -> GroupSpec | None:
    """Return a group of those members of one that stay, and of another's; None if both own a place.

    Both have the same topics, and no member is in both.
    """
    kept, size = np.flatnonzero(stays), one.member_count
    rows = np.concatenate([kept, size + np.arange(other.member_count)])
    ids, instances = (
        pa.concat_arrays([getattr(group, name) for group in (one, other)]).take(pa.array(rows))
        for name in ("member_ids", "instance_ids")
    )
    order = order_members(ids, instances)
    rows = rows[order]
    place = np.zeros(size + other.member_count, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    theirs = place[size + other.member]
    ranges = np.flatnonzero(stays[one.member])
    at = np.searchsorted(place[one.member[ranges]], theirs)
    ranges = np.insert(ranges, at, len(one.member) + np.arange(len(theirs)))
    owner, topic, first, count = (
        np.concatenate([mine, others]).astype(np.int64)[ranges]
        for mine, others in (
            (one.member, size + other.member),
            (one.topic, other.topic),
            (one.first, other.first),
            (one.count, other.count),
        )
    )
    ids = ids.take(pa.array(order))
    member = place[owner]
    classes = np.concatenate([one.member_class, one.class_count + other.member_class])
    lengths = [np.diff(group.class_offsets) for group in (one, other)]
    spec = GroupSpec.from_places(
        member_ids=ids,
        instance_ids=instances.take(pa.array(order)),
        racks=pa.concat_arrays([one.racks, other.racks]).take(pa.array(rows)),
        subscription=classes[rows].astype(np.int64),
        lists=(
            offsets_of(np.concatenate(lengths)),
            np.concatenate([one.class_topics, other.class_topics]),
        ),
        topics=one.topics,
        partitions=one.partitions,
        claims=PriorOwnership(ids.take(pa.array(member)), member, topic, first, count),
    )
    joined = len(spec.first) == len(first) and spec.count.sum(dtype=np.int64) == count.sum()
    return spec if joined else None
