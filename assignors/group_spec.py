"""`GroupSpec`: the input of every assignor, columnar and checked once.

Members are in member order, topics by name; members with the same subscription share a subscription
class; what members owned before is canonical ranges, clipped to live members, existing partitions
and current subscriptions. The readers of dicts, JSON and Arrow tables are in `parse.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import parse, parse_tables
from assignors.arrays import (
    PARTITIONS_MAX,
    Bools,
    Ints,
    Longs,
    label_lists,
    offsets_of,
    sort_lists,
    take_lists,
)
from assignors.errors import SpecError
from assignors.loads.load_spec import LoadSpec
from assignors.loads.parse_loads import (
    RawLoads,
    parse_load_fields,
    parse_load_tables,
    resolve_loads,
)
from assignors.partition_ranges import PartitionRanges, find_names
from assignors.prior_ownership import (
    PriorOwnership,
    ReleasedOwnership,
    SubscribedPairs,
    resolve_claims,
)


@dataclass(frozen=True, slots=True, eq=False)
class GroupSpec:
    """A group as its assignors see it.

    Attributes
    ----------
    member_ids, instance_ids, racks
        N names in member order: static members first by instance id, then by member id.
    topics, partitions
        T names in order, and the number of partitions of each (int64).
    member_class
        int32 (N,): subscription class of each member; classes are numbered by their first member.
    class_offsets, class_topics
        Class c subscribes to topics class_topics[class_offsets[c]:class_offsets[c + 1]], sorted.
    class_order, class_members
        Members sorted by (class, member), and where each class starts (C + 1,).
    member, topic, first, count
        Owned ranges, canonical: each partition has at most one owner, live and subscribed.
    member_ranges
        Owned ranges of member m are member_ranges[m]:member_ranges[m + 1].
    line_order
        Permutation that sorts the owned ranges by (topic, first).
    released
        Claims that could not be honoured.
    loads
        Weights, capacities, racks of partitions and constraints; None when none were given.
    """

    member_ids: pa.StringArray
    instance_ids: pa.StringArray
    racks: pa.StringArray
    topics: pa.StringArray
    partitions: Longs
    member_class: Ints
    class_offsets: Longs
    class_topics: Ints
    class_order: Longs
    class_members: Longs
    member: Ints
    topic: Ints
    first: Ints
    count: Ints
    member_ranges: Longs
    line_order: Longs
    released: ReleasedOwnership
    loads: LoadSpec | None = None

    @property
    def member_count(self) -> int:
        """Number of members, N."""
        return len(self.member_ids)

    @property
    def class_count(self) -> int:
        """Number of subscription classes, C."""
        return len(self.class_offsets) - 1

    def subscribed_topics(self) -> Bools:
        """Whether any member subscribes to each topic, shape (topics,)."""
        seen = np.zeros(len(self.topics), dtype=np.bool_)
        seen[self.class_topics] = True
        return seen

    def orphan_count(self) -> int:
        """Count the partitions of subscribed topics without an owner."""
        total = int(self.partitions[self.subscribed_topics()].sum())
        return total - int(self.count.sum(dtype=np.int64))

    def refuse_constraints(self, assignor: str) -> None:
        """Refuse hard constraints, for an assignor that knows none.

        Raises
        ------
        SpecError
            Names the first of them.
        """
        if self.loads is None:
            return
        idle = np.flatnonzero(~self.loads.active)
        names = [rule.name for rule in self.loads.constraints if rule.hard]
        names += [f"member {self.member_ids[int(at)].as_py()!r} is not active" for at in idle[:1]]
        if names:
            raise SpecError(
                f"assignor {assignor!r} does not support constraints ({names[0]}): use weighted, "
                "or omit constraints and states"
            )

    def __repr__(self) -> str:
        return (
            f"GroupSpec({self.member_count} members in {self.class_count} classes, "
            f"{len(self.topics)} topics, {int(self.partitions.sum())} partitions, "
            f"{len(self.member)} owned ranges)"
        )

    @classmethod
    def from_dict(cls, spec: Mapping[str, object], *, as_of_ms: int | None = None) -> Self:
        """Read the object of docs/reference/formats.md#assignment-spec.

        Parameters
        ----------
        spec
            `topics`: {name: partitions}; `members`: {member id: {"subscribed": [topic, …],
            "owned": {topic: [partition, …] or [[first, count], …]}, "instance_id", "rack",
            "capacity", "state", "process"}}; optional `weights`, `move_costs`, `racks`: {topic:
            a value each partition}, `constraints`: a list of rules.
            Also `id`, `assignor`, and `kafka` of the golden cases, which are not read here.
        as_of_ms
            As in `from_arrow`.

        Raises
        ------
        SpecError
            The group is refused whole; the message names the value and the remedy.
        """
        columns = parse.parse_dict(spec)
        loads = parse_load_fields(spec, columns["topics"], columns["partitions"], as_of_ms)
        return cls.from_columns(**columns, loads=loads)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read JSON text of docs/reference/formats.md#assignment-spec.

        What is not JSON is refused, and so is a key given twice.

        Parameters
        ----------
        text
            One object, as `from_dict` reads it.

        Raises
        ------
        SpecError
            As `from_dict`.
        """
        return cls.from_dict(parse.parse_json_object(text))

    @classmethod
    def from_arrow(
        cls,
        members: pa.Table | pa.RecordBatch,
        topics: pa.Table | pa.RecordBatch,
        owned: pa.Table | pa.RecordBatch | None = None,
        *,
        partitions: pa.Table | pa.RecordBatch | None = None,
        constraints: object = None,
        as_of_ms: int | None = None,
    ) -> Self:
        """Read the tables of docs/reference/formats.md#tables.

        Parameters
        ----------
        members
            member_id, subscribed (list of topic names); optional instance_id, rack, capacity,
            state, process.
        topics
            topic, partitions; topic_id and racks are let through, for a coordinator's catalog.
        owned
            member_id, topic, first_partition, partition_count; None for a fresh group. Any order,
            split anyhow. Owners that are not members have left.
        partitions
            topic, partition; optional weight, move_cost, racks, colocate, pinned_to. Partitions
            may be absent.
        constraints
            A table, or a list of dicts: kind, selector, value, hard, reason, until.
        as_of_ms
            Now, in ms since 1970, which `until` is compared with; None: nothing has expired.

        Raises
        ------
        SpecError
            As `from_dict`; also a missing column or a wrong type, with what was expected.
        """
        columns = parse_tables.parse_tables(members, topics, owned)
        names, counts = columns["topics"], columns["partitions"]
        loads = parse_load_tables(members, names, counts, partitions, constraints, as_of_ms)
        return cls.from_columns(**columns, loads=loads)

    def to_arrow(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return the group as the tables that `from_arrow` reads.

        Returns
        -------
        members, topics, owned
            In member order, by name, and in canonical order. Loads and constraints are in none.
        """
        lists = pa.LargeListArray.from_arrays(
            self.class_offsets, self.topics.take(pa.array(self.class_topics))
        )
        members = pa.table(
            {
                "member_id": self.member_ids,
                "instance_id": self.instance_ids,
                "rack": self.racks,
                "subscribed": lists.take(pa.array(self.member_class)),
            }
        )
        return members, self.topics_to_arrow(), self.owned().to_arrow()

    def topics_to_arrow(self) -> pa.Table:
        """Return the topics as the table that `from_arrow` reads."""
        return pa.table({"topic": self.topics, "partitions": self.partitions})

    def owned(self) -> PartitionRanges:
        """Return what members own before any assignment."""
        return PartitionRanges(
            self.member_ids, self.topics, self.member, self.topic, self.first, self.count
        )

    @classmethod
    def from_columns(
        cls,
        *,
        member_id: pa.StringArray,
        instance_id: pa.StringArray,
        rack: pa.StringArray,
        subscription: Longs,
        list_offsets: Longs,
        list_topics: Ints,
        topics: pa.StringArray,
        partitions: Longs,
        owner: pa.StringArray | pa.DictionaryArray,
        owned_topic: Ints,
        owned_first: Ints,
        owned_count: Ints,
        owner_places: Longs | None = None,
        loads: RawLoads | None = None,
    ) -> Self:
        """Build a group from columns in any order; the common end of all readers.

        Parameters
        ----------
        subscription, list_offsets, list_topics
            Member row r has the subscription numbered s = subscription[r], which is
            list_topics[list_offsets[s]:list_offsets[s + 1]]; lists may be alike, unsorted, unused.
        topics, partitions
            Sorted by name, distinct, counts checked.
        owner, owned_topic, owned_first, owned_count
            Claims; topic −1 is allowed only for owners that are not members. Their numbers are
            int64, or int32 where ends are too.
        owner_places
            The member row of each of the dictionary of owners, −1 of one that is none; None: it is
            looked up.
        loads
            Weights, capacities, racks and constraints, as they were given.

        Raises
        ------
        SpecError
            A member twice, a group too large, a claim outside its topic, overlapping claims of one
            member.
        """
        order = order_members(member_id, instance_id)
        ids, instances = (names.take(pa.array(order)) for names in (member_id, instance_id))
        _refuse_twice(ids, by_id=instances.null_count == len(instances))
        if owner_places is None:
            member = find_names(owner, ids)
        else:
            place = np.full(len(order) + 1, -1, np.int32)  # of no row, it is the last
            place[order] = np.arange(len(order))
            member = place[owner_places][owner.indices.to_numpy()]
        claims = PriorOwnership(owner, member, owned_topic, owned_first, owned_count)
        spec = cls.from_places(
            member_ids=ids,
            instance_ids=instances,
            racks=rack.take(pa.array(order)),
            subscription=subscription[order],
            lists=sort_lists(list_offsets, list_topics, len(topics)),
            topics=topics,
            partitions=partitions,
            claims=claims,
        )
        if loads is None:
            return spec
        found = resolve_loads(
            loads, order, ids, instances, topics, partitions, spec.subscribed_topics()
        )
        return replace(spec, loads=found)

    @classmethod
    def from_places(
        cls,
        *,
        member_ids: pa.StringArray,
        instance_ids: pa.StringArray,
        racks: pa.StringArray,
        subscription: Longs,
        lists: tuple[Longs, Ints],
        topics: pa.StringArray,
        partitions: Longs,
        claims: PriorOwnership,
        group_of: Longs | None = None,
    ) -> Self:
        """Build a group whose members are in order and whose names are looked up.

        Parameters
        ----------
        member_ids, instance_ids, racks, subscription
            One row per member, in member order.
        lists
            Offsets and topics of the numbered subscriptions, each sorted.
        claims
            Their owners are places in member order.
        group_of
            Members of different groups, (members,), are never of one class; None: one group.

        Raises
        ------
        SpecError
            As `from_columns`.
        """
        labels, class_offsets, class_topics = _find_classes(subscription, lists, group_of)
        _refuse_too_large(topics, partitions, class_topics)
        pairs = SubscribedPairs.of(class_offsets, class_topics, len(topics))
        resolved = resolve_claims(claims, member_ids, topics, partitions, labels, pairs)
        return cls(
            member_ids=member_ids,
            instance_ids=instance_ids,
            racks=racks,
            topics=topics,
            partitions=partitions,
            member_class=labels.astype(np.int32),
            class_offsets=class_offsets,
            class_topics=class_topics.astype(np.int32),
            class_order=np.argsort(labels, kind="stable"),
            class_members=offsets_of(np.bincount(labels, minlength=len(class_offsets) - 1)),
            member=resolved.member,
            topic=resolved.topic,
            first=resolved.first,
            count=resolved.count,
            member_ranges=offsets_of(np.bincount(resolved.member, minlength=len(member_ids))),
            line_order=resolved.line_order,
            released=resolved.released,
        )


def order_members(member_id: pa.StringArray, instance_id: pa.StringArray) -> Longs:
    """Return the permutation of member order: static by instance id, then the others by member id.

    Strings compare by UTF-8 bytes, which is code point order and Spark's order.
    """
    if instance_id.null_count == len(instance_id):
        return np.asarray(pc.sort_indices(member_id), dtype=np.int64)
    dynamic = pc.is_null(instance_id)
    table = pa.table({"dynamic": dynamic, "instance": instance_id, "member": member_id})
    keys = [(name, "ascending") for name in table.column_names]
    return np.asarray(pc.sort_indices(table, keys), dtype=np.int64)


def _find_classes(
    subscription: Longs, lists: tuple[Longs, Ints], group_of: Longs | None
) -> tuple[Longs, Longs, Ints]:
    """Return each member's subscription class and the lists, numbered by their first member."""
    if group_of is None and len(subscription) and (subscription == subscription[0]).all():
        return np.zeros(len(subscription), dtype=np.int64), *take_lists(*lists, subscription[:1])
    used, first, inverse = np.unique(subscription, return_index=True, return_inverse=True)
    key = None if group_of is None else group_of[first]
    labels, heads = label_lists(*take_lists(*lists, used), key)
    if len(heads) == 1:
        return np.zeros(len(subscription), dtype=np.int64), *take_lists(*lists, used[heads])
    labels = labels[inverse]
    _, first = np.unique(labels, return_index=True)
    by_first = np.argsort(first)
    rank = np.empty_like(by_first)
    rank[by_first] = np.arange(len(by_first))
    return rank[labels], *take_lists(*lists, used[heads[by_first]])


def _refuse_twice(member_id: pa.StringArray, *, by_id: bool) -> None:
    """Refuse members in order of whom one is there twice; by their ids, its rows are neighbours."""
    count = len(member_id)
    if by_id:
        pairs = () if count < 2 else (member_id.slice(0, count - 1), member_id.slice(1))  # noqa: PLR2004
        is_twice = bool(pairs) and pc.any(pc.equal(*pairs)).as_py()
    else:
        is_twice = len(pc.unique(member_id)) < count
    if not is_twice:
        return
    counts = pc.value_counts(member_id)
    twice = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))
    raise SpecError(f"member {pc.min(twice).as_py()!r} appears twice: give each member one row")


def _refuse_too_large(topics: pa.StringArray, partitions: Longs, class_topics: Ints) -> None:
    used = np.unique(class_topics)
    total = int(partitions[used].sum())
    if total > PARTITIONS_MAX:
        largest = topics[int(used[np.argmax(partitions[used])])].as_py()
        raise SpecError(
            f"the group subscribes to {total} partitions (largest topic: {largest!r}), "
            f"above the limit of {PARTITIONS_MAX} (2^30): split the group"
        )
