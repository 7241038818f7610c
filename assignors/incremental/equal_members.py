"""A planned group whose members all subscribe alike, in columns that a change touches only in part.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Ints, Longs, expand_runs, offsets_of, sort_distinct
from assignors.group_spec import GroupSpec
from assignors.incremental.known_topics import KnownTopics
from assignors.incremental.layered_columns import LayeredColumns
from assignors.incremental.level_counts import FEW
from assignors.incremental.member_order import Keys, MemberOrder, Texts
from assignors.incremental.subscribed_topics import SubscribedTopics
from assignors.partition_ranges import PartitionRanges
from assignors.plan import ABOVE_ALL

_TEXT = pa.large_string()
_STATIC, _DYNAMIC, _END = "\x00", "\x01", "\x00\x00"
_DYNAMIC_END = "\x02"
_NO_KEYS = pa.array([], _TEXT)
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_GARBAGE_MAX = 2
"""Unused versions or names by members, and blocks beyond need by need, before all is copied."""
_GARBAGE_MIN = 512


class Owned(NamedTuple):
    """Some members in order, and what they own.

    Attributes
    ----------
    keys
        Of each member.
    lengths
        How many ranges each has.
    ranges
        Topic, first and count of all.
    """

    keys: Keys
    lengths: Longs
    ranges: list[Ints]


class Newcomers(NamedTuple):
    """Members that join, in order.

    Attributes
    ----------
    before
        The place before which each belongs.
    keys, versions, racks
        Their keys in the order, their versions, which are empty, and their racks.
    """

    before: Longs
    keys: Keys
    versions: Longs
    racks: Texts


@dataclass(frozen=True, slots=True, eq=False)
class EqualMembers:
    """Members with equal subscriptions, and their ranges.

    A member that a plan touches gets a new *version*: a row that says where its ranges are. The
    order has the numbers of versions, so that nothing is ever overwritten. The first version has
    no ranges: all who join begin with it.

    Attributes
    ----------
    topics
        What every member subscribes to.
    statics
        Instance ids of static members, by member id.
    order
        Members in order: keys, racks, numbers of versions, and loads.
    versions
        Columns: first row of `ranges`, number of them.
    ranges
        Columns: topic, first, count; those of a version are in canonical order, and come after
        those of earlier versions.
    """

    topics: SubscribedTopics
    statics: dict[str, str]
    order: MemberOrder
    versions: LayeredColumns
    ranges: LayeredColumns

    @classmethod
    def of_classes(
        cls,
        group: GroupSpec,
        topics: KnownTopics,
        owned: PartitionRanges,
        loads: Longs,
        block: int,
    ) -> tuple[EqualMembers, ...]:
        """Take the members of each class of a group, and what they own.

        Parameters
        ----------
        topics
            Those of the group, in its order.
        loads
            The load of each member, or the kind of what it owns.
        """
        keys, racks = order_keys(group.member_ids, group.instance_ids), read_texts(group.racks)
        lengths = np.bincount(owned.member, minlength=group.member_count)
        starts = offsets_of(lengths)
        static = group.instance_ids.is_valid()
        instances = {
            at: (group.member_ids[at].as_py(), group.instance_ids[at].as_py())
            for at in np.flatnonzero(static.to_numpy(zero_copy_only=False)).tolist()
        }
        found = []
        for number in range(group.class_count):
            rows = group.class_order[slice(*group.class_members[number : number + 2].tolist())]
            listed = group.class_topics[slice(*group.class_offsets[number : number + 2].tolist())]
            names = frozenset(group.topics.take(pa.array(listed)).to_pylist())
            ranges = expand_runs(starts[rows], lengths[rows])
            numbers = np.arange(1, len(rows) + 1, dtype=np.int64)
            listed_keys = keys.take(pa.array(rows))
            found.append(
                cls(
                    SubscribedTopics.of(names, listed.astype(np.int64), topics.partitions),
                    dict(instances[at] for at in rows.tolist() if at in instances)
                    if instances
                    else {},
                    MemberOrder.of(listed_keys, numbers, loads[rows], block, racks[rows]),
                    _list_versions(lengths[rows]),
                    LayeredColumns.of(
                        owned.topic[ranges], owned.first[ranges], owned.count[ranges]
                    ),
                )
            )
        return tuple(found)

    @classmethod
    def of_newcomers(cls, joined: Newcomers, block: int) -> EqualMembers:
        """Take members that subscribe to nothing yet."""
        count = len(joined.keys)
        none, no_ranges = np.zeros(count, dtype=np.int64), np.zeros(0, dtype=np.int32)
        return cls(
            SubscribedTopics.of(frozenset(), none[:0], none[:0]),
            {},
            MemberOrder.of(joined.keys, none, none, block, joined.racks),
            _list_versions(none[:0]),
            LayeredColumns.of(no_ranges, no_ranges, no_ranges),
        )

    def holders_beyond(self, order: MemberOrder, ends: Longs) -> Longs:
        """Return the places of members that own partitions at or beyond the end of a topic.

        It looks at all ranges, but only at the topics of most of them.

        Parameters
        ----------
        order
            Members with their versions.
        ends
            By topic; `ABOVE_ALL` for those that all members may own whole.
        """
        ended = ends < ABOVE_ALL
        rows = []
        for start, (topic, first, count) in zip(
            self.ranges.starts, self.ranges.layers, strict=False
        ):
            some = np.flatnonzero(ended[topic])
            rows.append(start + some[first[some] + count[some] > ends[topic[some]]])
        starts = np.concatenate([layer[0] for layer in self.versions.layers])
        versions = np.searchsorted(starts, np.concatenate(rows), side="right") - 1
        place_of = np.full(len(starts), -1, dtype=np.int64)
        places, numbers = order.all_places()
        place_of[numbers] = places
        found = place_of[versions]
        return sort_distinct(found[found >= 0])

    def ranges_of(self, versions: Longs) -> tuple[Longs, list[Ints]]:
        """Return how many ranges each version has, and the ranges: topic, first, count."""
        start, length = self.versions.rows(versions, slice(2))
        return length, self.ranges.rows(expand_runs(start, length))

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        if self.statics.keys().isdisjoint(member_ids):
            return pa.nulls(len(member_ids), pa.string())
        return pa.array([self.statics.get(name) for name in member_ids], pa.string())

    def next_versions(self, lengths: Longs) -> Longs:
        """Return the numbers of versions that `with_ranges` adds."""
        return np.arange(len(self.versions), len(self.versions) + len(lengths))

    def with_ranges(
        self, order: MemberOrder, lengths: Longs, ranges: Sequence[Ints]
    ) -> EqualMembers:
        """Add versions, given how many ranges each has, for members in this order."""
        start = len(self.ranges) + offsets_of(lengths)[:-1]
        versions, all_ranges = self.versions.extended(start, lengths), self.ranges.extended(*ranges)
        return EqualMembers(self.topics, self.statics, order, versions, all_ranges)

    def swept(self) -> EqualMembers:
        """Return the same without what nothing uses any longer, once that is most of it."""
        members, blocks = len(self.order), len(self.order.keys.blocks)
        rows = max(len(self.versions), len(self.order.names))
        unused = rows > (1 + _GARBAGE_MAX) * members + _GARBAGE_MIN
        short = blocks > (1 + _GARBAGE_MAX) * (members // self.order.block + 1)
        if not (unused or short):
            return self
        keys, versions = self.order.all()
        lengths, ranges = self.ranges_of(versions)
        loads, numbers = self.order.loads.end_to_end(), np.arange(1, members + 1, dtype=np.int64)
        return replace(
            self,
            order=MemberOrder.of(keys, numbers, loads, self.order.block, self.order.all_racks()),
            versions=_list_versions(lengths),
            ranges=LayeredColumns.of(*ranges),
        )

    def all_owned(self) -> Owned:
        """Return all members, and what they own."""
        keys, versions = self.order.all()
        return Owned(keys, *self.ranges_of(versions))

    def owned_at(self, places: Longs) -> Owned:
        """Return members at places, which ascend, and what they own."""
        keys, versions = self.order.read_members(places)
        return Owned(keys, *self.ranges_of(versions))


def _list_versions(lengths: Longs) -> LayeredColumns:
    """Return a version for each member, whose ranges follow each other, after the empty one."""
    return LayeredColumns.of(np.append(0, offsets_of(lengths)[:-1]), np.append(0, lengths))


def read_texts(column: pa.StringArray) -> Texts:
    """Return an Arrow column as Python's texts."""
    return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.object_))


def order_keys(member_ids: pa.StringArray, instance_ids: pa.StringArray) -> Keys:
    """Return texts that sort in member order: static members by instance id, then by member id.

    Most are member ids as they are. That of a static member begins with a zero; a zero within its
    instance id is followed by a one, so that two zeros end it. Before a member id that begins with
    a zero or a one, or is empty, there is a one.
    """
    if len(member_ids) < FEW:
        rows = zip(member_ids.to_pylist(), instance_ids.to_pylist(), strict=True)
        found = [
            (name if name >= _DYNAMIC_END else _DYNAMIC + name)
            if instance is None
            else _STATIC + instance.replace("\x00", "\x00\x01") + _END + name
            for name, instance in rows
        ]
        return pa.array(found, _TEXT)
    keys = member_ids.cast(_TEXT)
    if _are_odd(keys):
        odd = pc.binary_join_element_wise(_text(_DYNAMIC), keys, _text(""))
        keys = pc.if_else(pc.less(keys, _text(_DYNAMIC_END)), odd, keys)
    if instance_ids.null_count < len(instance_ids):
        instances = pc.replace_substring(instance_ids.cast(_TEXT), "\x00", "\x00\x01")
        ids = member_ids.cast(_TEXT)
        parts = (_text(_STATIC), instances, _text(_END), ids, _text(""))
        keys = pc.coalesce(pc.binary_join_element_wise(*parts), keys)
    return keys


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)


def _are_odd(keys: Keys) -> bool:
    """Tell whether a text is empty, or begins with a zero or a one."""
    _, offsets, texts = keys.buffers()
    at = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    if not (at[1:] > at[:-1]).all():
        return True
    return bool((np.frombuffer(texts, np.uint8)[at[:-1]] <= ord(_DYNAMIC)).any())


def sort_keys(keys: Keys) -> Longs:
    """Return the order of texts."""
    if len(keys) < FEW:
        texts = keys.to_pylist()
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.int64)
    return np.asarray(pc.array_sort_indices(keys)).astype(np.int64)


def distinct_keys(keys: Keys) -> Keys:
    """Return the different texts, ascending."""
    if len(keys) < FEW:
        return pa.array(sorted(set(keys.to_pylist())), _TEXT)
    keys = pc.unique(keys)
    return keys.take(pc.array_sort_indices(keys))


def read_keys(keys: Keys) -> tuple[pa.StringArray, pa.StringArray]:
    """Return member ids and instance ids; the inverse of `order_keys`."""
    nulls = pa.nulls(len(keys), pa.string())
    if len(keys) < FEW:
        texts = keys.to_pylist()
        if all(text >= _DYNAMIC_END for text in texts):
            return pa.array(texts, pa.string()), nulls
    elif not _are_odd(keys):
        return keys.cast(pa.string()), nulls
    is_static, is_odd = pc.starts_with(keys, _STATIC), pc.starts_with(keys, _DYNAMIC)
    rest = pc.utf8_slice_codeunits(keys, 1)
    split = pc.split_pattern(rest, _END, max_splits=1)
    split = pc.if_else(is_static, split, pa.scalar(["", ""], split.type))
    ids = pc.if_else(is_static, pc.list_element(split, 1), pc.if_else(is_odd, rest, keys))
    instances = pc.replace_substring(pc.list_element(split, 0), "\x00\x01", "\x00")
    instances = pc.if_else(is_static, instances, pa.scalar(None, _TEXT))
    return ids.cast(pa.string()), instances.cast(pa.string())


def join_owned(parts: list[Owned]) -> Owned:
    """Return the members of all parts in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Owned(_NO_KEYS, _NO_NUMBERS, [np.zeros(0, dtype=np.int32)] * 3)
    order = sort_keys(pa.concat_arrays([part.keys for part in parts]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return put_in_order(parts, place)


def put_in_order(parts: list[Owned], place: Longs) -> Owned:
    """Return the members of all parts, each at its place."""
    order = np.empty(len(place), dtype=np.int64)
    order[place] = np.arange(len(place))
    lengths = np.concatenate([part.lengths for part in parts])
    rows = expand_runs(offsets_of(lengths)[:-1][order], lengths[order])
    ranges = [
        np.concatenate(column)[rows]
        for column in zip(*(part.ranges for part in parts), strict=True)
    ]
    keys = pa.concat_arrays([part.keys for part in parts]).take(pa.array(order))
    return Owned(keys, lengths[order], ranges)
