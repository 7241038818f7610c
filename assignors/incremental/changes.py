"""What changed in a group since its last plan, and the group after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, offsets_of
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.incremental.parse_changes import ChangedMembers, parse_changes
from assignors.loads.change_loads import (
    NewWeights,
    carry_loads,
    locate_weights,
    put_weights,
)
from assignors.loads.parse_loads import RawLoads
from assignors.parse import parse_json_object, refuse_unknown_topic
from assignors.parse_tables import parse_topics_table
from assignors.partition_ranges import PartitionRanges


@dataclass(frozen=True, slots=True, eq=False)
class SubscribedMembers:
    """Members that subscribe to the same topics.

    Attributes
    ----------
    member_ids
        Who they are.
    subscribed
        Names of topics.
    instance_ids, racks
        One each, or null; None: none has any.
    """

    member_ids: pa.StringArray
    subscribed: Sequence[str]
    instance_ids: pa.StringArray | None = None
    racks: pa.StringArray | None = None

    @classmethod
    def of(cls, *member_ids: str, subscribed: Sequence[str]) -> SubscribedMembers:
        """List members that have neither an instance id nor a rack."""
        return cls(pa.array(member_ids, pa.string()), subscribed)

    @classmethod
    def of_fields(cls, members: ChangedMembers) -> Self:
        """Take members whose fields were read."""
        instances, racks = (
            pa.array([one.get(key) for one in members.fields.values()], pa.string())
            for key in ("instance_id", "rack")
        )
        return cls(pa.array(members.fields, pa.string()), members.subscribed, instances, racks)

    def names(self, column: str) -> pa.StringArray:
        """Return instance ids or racks."""
        given = getattr(self, column)
        return pa.nulls(len(self.member_ids), pa.string()) if given is None else given


@dataclass(frozen=True, slots=True, eq=False)
class GroupChanges:
    """Everything that changed since the last plan; all of it becomes one plan.

    Attributes
    ----------
    left
        Members that are gone, by the id that they had last.
    joined
        Members that are new; or that left as well, so that they own nothing.
    resubscribed
        Members that stay and subscribe to other topics.
    topics
        Topics that are new or have another number of partitions.
    removed_topics
        Topics that are gone; no one subscribes to them any longer.
    lists
        Topics that members subscribed to before the changes, and those that all who subscribed to
        just these do after them: as when a topic comes that all of them name.
    renamed
        Members that stay under another id, with all else that they have: the next incarnation of
        each static member by the id of the one before.
    weights
        New weights by topic and partition; None: it is not known any longer.
    """

    left: Sequence[str] = ()
    joined: Sequence[SubscribedMembers] = ()
    resubscribed: Sequence[SubscribedMembers] = ()
    topics: Mapping[str, int] = field(default_factory=dict)
    removed_topics: Sequence[str] = ()
    lists: Sequence[tuple[Collection[str], Collection[str]]] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    weights: NewWeights = field(default_factory=dict)

    @classmethod
    def from_dict(cls, changes: Mapping[str, object]) -> Self:
        """Read the object of docs/reference/formats.md#changes-of-a-group.

        Raises
        ------
        SpecError
            The changes are refused whole; the message names the value and the remedy.
        """
        fields = parse_changes(changes)
        for name in ("joined", "resubscribed"):
            fields[name] = [SubscribedMembers.of_fields(members) for members in fields[name]]
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text of docs/reference/formats.md#changes-of-a-group.

        Raises
        ------
        SpecError
            As `from_dict`; also what is not JSON, and a key given twice.
        """
        return cls.from_dict(parse_json_object(text, "what changed"))

    def shortened(self) -> GroupChanges:
        """Return changes in which who got another id and left just left."""
        left = set(self.left)
        gone = {old: new for old, new in self.renamed.items() if new in left}
        if not gone:
            return self
        stay = {old: new for old, new in self.renamed.items() if old not in gone}
        return replace(self, left=[*gone, *left.difference(gone.values())], renamed=stay)


def change_group(group: GroupSpec, owned: PartitionRanges, changes: GroupChanges) -> GroupSpec:
    """Return the group after changes, read from tables; members own what `owned` says.

    Capacities, states and constraints stay; who joined has capacity 1 and is active.

    Raises
    ------
    SpecError
        A member that left or changed is unknown, one that joined is not new, or a topic is unknown.
    """
    if changes.renamed:
        group, owned = rename_group(group, owned, changes.renamed)
    topics, partitions = _change_topics(group, changes)
    lists = _list_topics(group, changes, topics)
    subscription = group.member_class.astype(np.int64)
    for members in changes.resubscribed:
        subscription[_find(group.member_ids, members.member_ids)] = len(lists)
        lists.append(_subscribe(members, topics))
    stays = np.ones(group.member_count, dtype=np.bool_)
    stays[_find(group.member_ids, pa.array(changes.left, pa.string()))] = False
    at = np.flatnonzero(stays)
    known = (group.member_ids, group.instance_ids, group.racks)
    columns = [[names.take(pa.array(at))] for names in known]
    numbers = [subscription[at]]
    for members in changes.joined:
        _refuse_known(columns[0][0], members.member_ids)
        columns[0].append(members.member_ids)
        columns[1].append(members.names("instance_ids"))
        columns[2].append(members.names("racks"))
        numbers.append(np.full(len(members.member_ids), len(lists)))
        lists.append(_subscribe(members, topics))
    member_id, instance_id, rack = (pa.concat_arrays(parts) for parts in columns)
    return GroupSpec.from_columns(
        member_id=member_id,
        instance_id=instance_id,
        rack=rack,
        subscription=np.concatenate(numbers),
        list_offsets=offsets_of(np.array([len(numbers) for numbers in lists], dtype=np.int64)),
        list_topics=np.concatenate([*lists, np.zeros(0, dtype=np.int64)]),
        topics=topics,
        partitions=partitions,
        loads=_change_loads(group, changes, at, topics, partitions),
        **_clip_owned(owned, topics, partitions, _find_returned(changes)),
    )


def _change_loads(
    group: GroupSpec, changes: GroupChanges, stays: Longs, topics: pa.StringArray, counts: Longs
) -> RawLoads | None:
    """Return weights, capacities and the like after the changes; None without any.

    Parameters
    ----------
    stays
        Places of the members that stay.
    topics, counts
        Names, in order, and partitions after the changes.
    """
    if group.loads is None and not changes.weights:
        return None
    raw = RawLoads() if group.loads is None else group.loads.given
    joined = sum(len(members.member_ids) for members in changes.joined)
    line = np.arange(int(counts.sum()))
    if changes.topics or changes.removed_topics:
        before, now = offsets_of(group.partitions), offsets_of(counts)
        at = _look_up(topics, group.topics)
        inside = line - np.repeat(now[:-1], counts)
        known = inside < np.repeat(np.append(group.partitions, 0)[at], counts)
        line = np.where(known, inside + np.repeat(before[at], counts), -1)
    raw = carry_loads(raw, stays, joined, line)
    if not changes.weights:
        return raw
    return put_weights(raw, *locate_weights(changes.weights, topics, counts), len(line))


def rename_group(
    group: GroupSpec, owned: PartitionRanges, renamed: Mapping[str, str]
) -> tuple[GroupSpec, PartitionRanges]:
    """Return the group, and what its members own, under their new ids; in the order of before.

    Raises
    ------
    SpecError
        A member is unknown, or its new id is not new.
    """
    old, new = (pa.array(names, pa.string()) for names in (renamed.keys(), renamed.values()))
    _find(group.member_ids, old)
    if len(set(renamed.values())) < len(renamed):
        name, _ = Counter(renamed.values()).most_common(1)[0]
        raise SpecError(f"two members get the id {name!r}: give each an id of its own")
    _refuse_known(pc.filter(group.member_ids, pc.invert(pc.is_in(group.member_ids, old))), new)

    def names(ids: pa.StringArray) -> pa.StringArray:
        return pc.coalesce(new.take(pc.index_in(ids, value_set=old)), ids)

    return (
        replace(group, member_ids=names(group.member_ids)),
        replace(owned, member_ids=names(owned.member_ids)),
    )


def _change_topics(group: GroupSpec, changes: GroupChanges) -> tuple[pa.StringArray, Longs]:
    """Return names, in order, and partitions after the changes."""
    for name in changes.removed_topics:
        if pc.index(group.topics, name).as_py() < 0:
            raise SpecError(f"topic {name!r} is removed, but is not in the group: leave it out")
    gone = pa.array([*changes.topics, *changes.removed_topics], pa.string())
    stay = pc.invert(pc.is_in(group.topics, value_set=gone))
    names = pa.concat_arrays([group.topics.filter(stay), pa.array(changes.topics, pa.string())])
    counts = group.partitions[stay.to_numpy(zero_copy_only=False)]
    counts = np.append(counts, np.array(list(changes.topics.values()), dtype=np.int64))
    return parse_topics_table(pa.table({"topic": names, "partitions": counts}))


def _list_topics(group: GroupSpec, changes: GroupChanges, topics: pa.StringArray) -> list[Longs]:
    """Return what each class subscribes to, among the topics after the changes."""
    to = {frozenset(before): after for before, after in changes.lists}
    if len(to) < len(changes.lists):
        raise SpecError("lists of topics change twice: give each list of before once")
    found = []
    for low, high in pairwise(group.class_offsets.tolist()):
        names = group.topics.take(pa.array(group.class_topics[low:high]))
        at = _look_up(names, topics)
        after = to.get(frozenset(names.to_pylist())) if to else None
        if after is not None:
            at = _look_up(pa.array(after, pa.string()), topics)
            if (at < 0).any():
                unknown = list(after)[int(np.flatnonzero(at < 0)[0])]
                raise SpecError(
                    f"a list of topics changes to one with {unknown!r}, which is not in topics: "
                    "add it to topics, or leave it out"
                )
        found.append(at[at >= 0])
    return found


def _subscribe(members: SubscribedMembers, topics: pa.StringArray) -> Longs:
    """Look up what members subscribe to."""
    at = _look_up(pa.array(members.subscribed, pa.string()), topics)
    if (at < 0).any() and len(members.member_ids):
        unknown = members.subscribed[int(np.flatnonzero(at < 0)[0])]
        refuse_unknown_topic(members.member_ids[0].as_py(), unknown)
    return at[at >= 0]


def _find_returned(changes: GroupChanges) -> pa.StringArray:
    """Return who left and joined again."""
    left = pa.array(changes.left, pa.string())
    joined = [members.member_ids for members in changes.joined]
    return pc.filter(left, pc.is_in(left, value_set=pa.concat_arrays([left[:0], *joined])))


def _clip_owned(
    owned: PartitionRanges, topics: pa.StringArray, partitions: Longs, returned: pa.StringArray
) -> dict[str, Any]:
    """Return what members own of what topics still have, as columns of `GroupSpec`.

    What who left owned is a claim of one that is not a member; but who returned claims nothing.
    """
    topic = _look_up(owned.topics, topics)[owned.topic]
    first = owned.first.astype(np.int64)
    count = np.minimum(first + owned.count, np.append(partitions, 0)[topic]) - first
    gone = pc.is_in(owned.member_ids, value_set=returned)
    some = (count > 0) & ~gone.to_numpy(zero_copy_only=False)[owned.member]
    return {
        "owner": owned.member_ids.take(pa.array(owned.member[some])),
        "owned_topic": topic[some],
        "owned_first": first[some],
        "owned_count": count[some],
    }


def _look_up(names: pa.StringArray, known: pa.StringArray) -> Longs:
    """Return the place of each name, −1 if it is not known."""
    at = pc.fill_null(pc.index_in(names, value_set=known), -1)
    return np.asarray(at, dtype=np.int64)


def _find(known: pa.StringArray, names: pa.StringArray) -> Longs:
    """Return the places of members that must be known."""
    at = pc.index_in(names, value_set=known)
    if at.null_count:
        name = pc.filter(names, pc.is_null(at))[0].as_py()
        raise SpecError(
            f"member {name!r} has left or changed, but is not in the group: leave it out"
        )
    return np.asarray(at, dtype=np.int64)


def _refuse_known(known: pa.StringArray, names: pa.StringArray) -> None:
    twice = pc.filter(names, pc.is_in(names, value_set=known))
    if len(twice):
        raise SpecError(
            f"member {twice[0].as_py()!r} has joined, but is in the group: list it as "
            "resubscribed, or as left too"
        )
