"""Read tables with a column `group_id`: names to places, group by group, in one pass.

Forms are checked by the readers of one group's tables. What a group got wrong is found here by
places, without its name: `GroupSet` then reads that group alone, for the usual message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Ints, Longs, expand_runs, sort_lists, take_lists
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.constraints import ConstraintRow, parse_constraints
from assignors.loads.parse_loads import RawLoads, parse_load_tables
from assignors.parse_tables import (
    LOAD_COLUMNS,
    MEMBERS_COLUMNS,
    get_string_lists,
    get_strings,
    parse_owned_table,
    parse_topic_counts,
    parse_topics_table,
    refuse_unknown_columns,
)
from assignors.prior_ownership import PriorOwnership

GROUP_ID = "group_id"


@dataclass(frozen=True, slots=True, eq=False)
class GroupTable:
    """A table without its group ids, and the group of each row; None: all groups share the rows."""

    rows: pa.Table
    group: Longs | None

    @classmethod
    def of(cls, table: pa.Table, where: str, known: pa.StringArray) -> Self:
        """Look up the groups of a table; rows of other groups are refused."""
        if GROUP_ID not in table.schema.names:
            return cls(table, None)
        at = pc.index_in(get_strings(table, where, GROUP_ID), value_set=known)
        return cls(table.drop_columns([GROUP_ID]), np.asarray(at, dtype=np.int64))

    def take(self, low: int, high: int) -> Self:
        """Return the rows of the groups from `low` on and before `high`."""
        if self.group is None:
            return self
        kept = (self.group >= low) & (self.group < high)
        return type(self)(self.rows.filter(pa.array(kept)), self.group[kept] - low)


@dataclass(frozen=True, slots=True, eq=False)
class GroupColumns:
    """Members and topics of all groups, by (group, order), and what refers to them by place.

    Attributes
    ----------
    order
        Rows of the members table, in member order within each group.
    member_offsets, topic_offsets
        (G + 1,): where each group's members and topics start.
    """

    order: Longs
    member_ids: pa.StringArray
    instance_ids: pa.StringArray
    racks: pa.StringArray
    lists: tuple[Longs, Ints]
    member_offsets: Longs
    topics: pa.StringArray
    partitions: Longs
    topic_offsets: Longs
    claims: PriorOwnership


@dataclass(frozen=True, slots=True, eq=False)
class GroupTables:
    """The tables of many groups."""

    group_ids: pa.StringArray
    members: GroupTable
    topics: GroupTable
    owned: GroupTable | None
    partitions: GroupTable | None
    constraints: GroupTable | None
    as_of_ms: int | None

    @classmethod
    def of(
        cls,
        members: pa.Table,
        topics: pa.Table,
        owned: pa.Table | None,
        partitions: pa.Table | None,
        constraints: pa.Table | None,
        as_of_ms: int | None,
    ) -> Self:
        """Find the groups: all that any table names.

        Raises
        ------
        SpecError
            A table lacks its group ids, or they are not text.
        """
        if owned is not None and GROUP_ID not in owned.schema.names:
            raise SpecError(
                "owned: column 'group_id' is missing, but members has it: add it, so that "
                "each row names its group"
            )
        given = {
            "members": members, "topics": topics, "owned": owned,
            "partitions": partitions, "constraints": constraints,
        }  # fmt: skip
        found = [
            pc.unique(get_strings(table, where, GROUP_ID))
            for where, table in given.items()
            if table is not None and (where == "members" or GROUP_ID in table.schema.names)
        ]
        names = pc.unique(pa.concat_arrays(found))
        names = names.take(pc.sort_indices(names))
        made = {
            where: None if table is None else GroupTable.of(table, where, names)
            for where, table in given.items()
        }
        return cls(names, **made, as_of_ms=as_of_ms)  # type: ignore[arg-type]

    def take(self, low: int, high: int) -> Self:
        """Return the groups from `low` on and before `high`."""
        tables = {
            name: table.take(low, high)
            for name in ("members", "topics", "owned", "partitions", "constraints")
            if (table := getattr(self, name)) is not None
        }
        return replace(self, group_ids=self.group_ids.slice(low, high - low), **tables)

    def read_alone(self) -> GroupSpec:
        """Read the only group, as if it had tables of its own."""
        optional = (self.owned, self.partitions, self.constraints)
        owned, partitions, constraints = (it and it.rows for it in optional)
        return GroupSpec.from_arrow(
            self.members.rows, self.topics.rows, owned,
            partitions=partitions, constraints=constraints, as_of_ms=self.as_of_ms,
        )  # fmt: skip

    def columns(self) -> GroupColumns:
        """Turn names into places.

        Raises
        ------
        SpecError
            Some group is bad.
        """
        table, group = self.members.rows, self.members.group
        assert group is not None, "members has group ids"
        ids = get_strings(table, "members", "member_id")
        refuse_unknown_columns(
            table.schema.names, (GROUP_ID, *MEMBERS_COLUMNS, *LOAD_COLUMNS), "members"
        )
        instances = get_strings(table, "members", "instance_id", optional=True)
        names = _Names.of(ids)
        order = _order_members(group, names.rank, instances)
        member_key = group * names.count + names.rank
        whose = np.argsort(member_key, kind="stable")
        if (np.diff(member_key[whose]) == 0).any():
            raise SpecError("a member appears twice")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        member_key, at_member = member_key[whose], place[whose]

        topics = _Topics.of(self.topics)
        lists, flat = get_string_lists(table, "members", "subscribed")
        listed = topics.key(np.repeat(group, np.diff(lists)), flat)
        owner, topic, first, count = self._read_owned()
        whose_claim = self.owned.group if self.owned is not None else group[:0]
        assert whose_claim is not None, "owned has group ids"
        claimed = topics.key(whose_claim, topic)
        topics = topics.narrow(listed, claimed)
        flat_at = topics.find(listed)
        if (flat_at < 0).any():
            raise SpecError("a topic is not in topics")
        claimant = _find(member_key, names.key(whose_claim, owner))
        claimant = np.where(claimant >= 0, np.append(at_member, -1)[claimant], -1)
        listed_lists = sort_lists(lists, flat_at, max(len(topics.names), 1))
        groups = np.arange(len(self.group_ids) + 1)
        return GroupColumns(
            order=order,
            member_ids=ids.take(pa.array(order)),
            instance_ids=instances.take(pa.array(order)),
            racks=get_strings(table, "members", "rack", optional=True).take(pa.array(order)),
            lists=take_lists(*listed_lists, order),
            member_offsets=np.searchsorted(group[order], groups),
            topics=topics.names,
            partitions=topics.count,
            topic_offsets=np.searchsorted(topics.group, groups),
            claims=PriorOwnership(owner, claimant, topics.find(claimed), first, count),
        )

    def _read_owned(self) -> tuple[pa.StringArray, pa.StringArray, Longs, Longs]:
        if self.owned is not None:
            return parse_owned_table(self.owned.rows, "owned")
        text, none = pa.array([], pa.string()), np.zeros(0, dtype=np.int64)
        return text, text, none, none

    def loads(self, columns: GroupColumns) -> RawLoads | None:
        """Read weights and the like, members in the order of the columns; without constraints.

        Raises
        ------
        SpecError
            Some group is bad.
        """
        rows, topic_of = None, None
        if self.partitions is not None:
            rows, topic_of = _place_partitions(self.partitions, self.topics, columns)
        members = self.members.rows
        if self.constraints is None and rows is None and not set(members.schema.names) & set(
            LOAD_COLUMNS
        ):  # fmt: skip
            return None
        return parse_load_tables(
            members.take(pa.array(columns.order)), columns.topics, columns.partitions, rows,
            [], self.as_of_ms, topic_of=topic_of,
        )  # fmt: skip

    def rules(self) -> tuple[tuple[ConstraintRow, ...], ...]:
        """Return the rules of each group; empty without any."""
        if self.constraints is None or not len(self.constraints.rows):
            return ()
        found = parse_constraints(self.constraints.rows)
        if self.constraints.group is None:
            return (tuple(found),) * len(self.group_ids)
        own: list[list[ConstraintRow]] = [[] for _ in range(len(self.group_ids))]
        for at, rule in zip(self.constraints.group.tolist(), found, strict=True):
            own[at].append(rule)
        return tuple(map(tuple, own))


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """Names as ranks in their order, so that pairs of group and name compare as one number."""

    names: pa.StringArray
    rank: Longs

    @classmethod
    def of(cls, values: pa.StringArray) -> Self:
        names = pc.unique(values)
        names = names.take(pc.sort_indices(names))
        return cls(names, np.asarray(pc.index_in(values, value_set=names), dtype=np.int64))

    @property
    def count(self) -> int:
        return len(self.names)

    def find(self, values: pa.StringArray) -> Longs:
        """Return the rank of each name, −1 for unknown ones."""
        at = pc.fill_null(pc.index_in(values, value_set=self.names), -1)
        return np.asarray(at, dtype=np.int64)

    def key(self, group: Longs, values: pa.StringArray) -> Longs:
        """Return group and name as one number, −1 for unknown names."""
        rank = self.find(values)
        return np.where(rank >= 0, group * max(self.count, 1) + rank, -1)


@dataclass(frozen=True, slots=True, eq=False)
class _Topics:
    """Topics of all groups, by key; those that every group may have are narrowed to what is used.

    Attributes
    ----------
    keys
        (topics,): ascending; none before narrowing, when all groups share the topics.
    """

    known: _Names
    keys: Longs
    count: Longs
    shared: bool

    @classmethod
    def of(cls, table: GroupTable) -> Self:
        if table.group is None:
            names, counts = parse_topics_table(table.rows)
            known = _Names(names, np.arange(len(names)))
            return cls(known, np.zeros(0, dtype=np.int64), counts, shared=True)
        known = _Names.of(get_strings(table.rows, "topics", "topic"))
        keys = table.group * max(known.count, 1) + known.rank
        order = np.argsort(keys, kind="stable")
        if (np.diff(keys[order]) == 0).any():
            raise SpecError("a topic appears twice")
        counts = parse_topic_counts(table.rows)
        return cls(known, keys[order], counts[order], shared=False)

    def narrow(self, *used: Longs) -> Self:
        if not self.shared:
            return self
        keys = np.unique(np.concatenate(used))
        keys = keys[keys >= 0]
        return replace(self, keys=keys, count=self.count[keys % max(self.known.count, 1)])

    def key(self, group: Longs, values: pa.StringArray) -> Longs:
        return self.known.key(group, values)

    def find(self, keys: Longs) -> Longs:
        return _find(self.keys, keys)

    @property
    def names(self) -> pa.StringArray:
        return self.known.names.take(pa.array(self.keys % max(self.known.count, 1)))

    @property
    def group(self) -> Longs:
        return self.keys // max(self.known.count, 1)


def _find(keys: Longs, wanted: Longs) -> Longs:
    """Return the place of each wanted key among ascending keys, −1 for none."""
    other = np.ones(len(wanted), dtype=np.bool_)
    np.not_equal(wanted[1:], wanted[:-1], out=other[1:])
    head = np.flatnonzero(other)  # a topic's partitions are mostly next to each other
    asked = wanted[head]
    at = np.searchsorted(keys, asked)
    found = np.where(np.append(keys, -2)[at] == asked, at, -1)
    return np.repeat(found, np.diff(head, append=len(wanted)))


def _order_members(group: Longs, rank: Longs, instances: pa.StringArray) -> Longs:
    """Return the permutation to (group, member order)."""
    if instances.null_count == len(instances):
        return np.lexsort((rank, group))
    known = _Names.of(instances.drop_null())
    static = known.find(instances)
    return np.lexsort((rank, np.where(static < 0, known.count, static), group))


def _place_partitions(
    table: GroupTable, topics: GroupTable, columns: GroupColumns
) -> tuple[pa.Table, Longs]:
    """Return rows of partitions with the topic of each; shared rows once for each group."""
    known = _Names.of(columns.topics)
    topic_group = np.repeat(
        np.arange(len(columns.topic_offsets) - 1), np.diff(columns.topic_offsets)
    )
    keys = topic_group * max(known.count, 1) + known.rank
    names = get_strings(table.rows, "partitions", "topic")
    if table.group is not None:
        at = _find(keys, known.key(table.group, names))
        bad = at < 0
        if topics.group is None:  # not subscribed here, but known: it weighs nothing
            listed = get_strings(topics.rows, "topics", "topic")
            bad &= np.asarray(pc.invert(pc.is_in(names, value_set=listed)))
        if bad.any():
            raise SpecError("a partition's topic is not in topics")
        return table.rows.filter(pa.array(at >= 0)), at[at >= 0]
    if topics.group is None:
        listed = get_strings(topics.rows, "topics", "topic")
        if not pc.all(pc.is_in(names, value_set=listed), min_count=0).as_py():
            raise SpecError("a partition's topic is not in topics")
    rank = known.find(names)
    order = np.argsort(rank, kind="stable")
    low, high = (np.searchsorted(rank[order], known.rank, side=side) for side in ("left", "right"))
    rows = order[expand_runs(low, high - low)]
    return table.rows.take(pa.array(rows)), np.repeat(np.arange(len(keys)), high - low)
