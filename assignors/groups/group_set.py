"""`GroupSet`: many groups as columns, read once.

All groups lie side by side in one `GroupSpec`: members by (group, member order), topics by (group,
name). Groups share no topic, so what assignors compute for the whole is what they compute for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs, expand_runs, offsets_of, take_lists
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.groups.group_tables import GroupTables
from assignors.loads.constraints import ConstraintRow
from assignors.loads.parse_loads import RawLoads, resolve_loads
from assignors.loads.take_loads import sort_named, take_loads
from assignors.prior_ownership import ReleasedOwnership


@dataclass(frozen=True, slots=True, eq=False)
class GroupSet:
    """Groups, each with its members, topics and owned ranges.

    Attributes
    ----------
    group_ids
        G names, sorted.
    whole
        All groups as one spec, without loads.
    members, topics, classes
        int64 (G + 1,): group g has members members[g]:members[g + 1] of the whole, and so on.
    loads
        Weights and the like of all groups, members in the order of the whole; None without any.
    constraints
        The rules of each group; empty without any.
    """

    group_ids: pa.StringArray
    whole: GroupSpec
    members: Longs
    topics: Longs
    classes: Longs
    loads: RawLoads | None
    constraints: tuple[tuple[ConstraintRow, ...], ...]

    def __len__(self) -> int:
        return len(self.group_ids)

    def find_empty(self) -> list[str]:
        """Return the groups without members, by name."""
        empty = pa.array(np.diff(self.members) == 0)
        return list(self.group_ids.filter(empty).to_pylist())

    @classmethod
    def from_arrow(
        cls,
        members: pa.Table,
        topics: pa.Table,
        owned: pa.Table | None = None,
        *,
        partitions: pa.Table | None = None,
        constraints: pa.Table | None = None,
        as_of_ms: int | None = None,
    ) -> Self:
        """Read the tables of docs/reference/formats.md#many-groups.

        Parameters
        ----------
        members, topics, owned, partitions, constraints, as_of_ms
            As for `GroupSpec.from_arrow`, with a column group_id. Topics, partitions and
            constraints without it are those of every group.

        Raises
        ------
        SpecError
            All groups are refused; the message names the first bad one.
        """
        tables = GroupTables.of(members, topics, owned, partitions, constraints, as_of_ms)
        try:
            return cls._build(tables)
        except SpecError as error:
            bad = cls._find_bad_group(tables)
            if bad is None:
                raise
            group_id, found = bad
            raise SpecError(f"group {group_id!r}: {found}") from error

    @classmethod
    def _find_bad_group(cls, tables: GroupTables) -> tuple[str, SpecError] | None:
        """Return the first group that cannot be read, and why; by halves."""
        low, high = 0, len(tables.group_ids)
        while high - low > 1:
            middle = (low + high) // 2
            try:
                cls._build(tables.take(low, middle))
                low = middle
            except SpecError:
                high = middle
        if high == low:
            return None
        try:
            tables.take(low, high).read_alone()
        except SpecError as error:
            return tables.group_ids[low].as_py(), error
        return None

    @classmethod
    def _build(cls, tables: GroupTables) -> Self:
        columns = tables.columns()
        groups = np.arange(len(tables.group_ids))
        whole = GroupSpec.from_places(
            member_ids=columns.member_ids,
            instance_ids=columns.instance_ids,
            racks=columns.racks,
            subscription=np.arange(len(columns.order)),
            lists=columns.lists,
            topics=columns.topics,
            partitions=columns.partitions,
            claims=columns.claims,
            group_of=np.repeat(groups, np.diff(columns.member_offsets)),
        )
        first = whole.class_order[whole.class_members[:-1]]
        loads = tables.loads(columns)
        classes = np.searchsorted(first, columns.member_offsets)
        return cls(
            tables.group_ids, whole, columns.member_offsets, columns.topic_offsets, classes,
            None if loads is None else sort_named(loads), tables.rules(),
        )  # fmt: skip

    def group(self, at: int) -> GroupSpec:
        """Return one group by itself.

        Parameters
        ----------
        at
            Its place in `group_ids`.

        Raises
        ------
        SpecError
            Its capacities differ too much.
        """
        own = self.take(np.array([at]))
        group, raw = own.whole, own.loads
        if raw is None:
            return group
        if own.constraints:
            raw = replace(raw, constraints=own.constraints[0])
        loads = resolve_loads(
            raw, np.arange(group.member_count), group.member_ids, group.instance_ids,
            group.topics, group.partitions, group.subscribed_topics(),
        )  # fmt: skip
        return replace(group, loads=loads)

    def take(self, groups: Longs) -> Self:
        """Return some of the groups.

        Parameters
        ----------
        groups
            Their places in `group_ids`, ascending.
        """
        if len(groups) == len(self):
            return self
        whole, sizes = self.whole, [np.diff(at)[groups] for at in self._offsets]
        starts = [at[groups] for at in self._offsets]
        members, topics, classes, ranges = map(expand_runs, starts, sizes)
        shifts = [start - offsets_of(size)[:-1] for start, size in zip(starts, sizes, strict=True)]
        by_member = [np.repeat(shift, sizes[0]) for shift in shifts]
        by_range = [np.repeat(shift, sizes[3]) for shift in shifts]
        lists, listed = take_lists(whole.class_offsets, whole.class_topics, classes)
        listed_shift = np.repeat(np.repeat(shifts[1], sizes[2]), np.diff(lists))
        smaller = GroupSpec(
            member_ids=whole.member_ids.take(pa.array(members)),
            instance_ids=whole.instance_ids.take(pa.array(members)),
            racks=whole.racks.take(pa.array(members)),
            topics=whole.topics.take(pa.array(topics)),
            partitions=whole.partitions[topics],
            member_class=(whole.member_class[members] - by_member[2]).astype(np.int32),
            class_offsets=lists,
            class_topics=(listed - listed_shift).astype(np.int32),
            class_order=whole.class_order[members] - by_member[0],
            class_members=offsets_of(np.diff(whole.class_members)[classes]),
            member=(whole.member[ranges] - by_range[0]).astype(np.int32),
            topic=(whole.topic[ranges] - by_range[1]).astype(np.int32),
            first=whole.first[ranges],
            count=whole.count[ranges],
            member_ranges=offsets_of(np.diff(whole.member_ranges)[members]),
            line_order=whole.line_order[ranges] - by_range[3],
            released=self._take_released(groups, shifts[1]),
        )
        rules = tuple(self.constraints[at] for at in groups) if self.constraints else ()
        loads = None
        if self.loads is not None:
            line = offsets_of(whole.partitions)[self.topics]
            loads = take_loads(self.loads, members, line[groups], np.diff(line)[groups])
        edges = tuple(map(offsets_of, sizes[:3]))
        names = self.group_ids.take(pa.array(groups))
        return type(self)(names, smaller, edges[0], edges[1], edges[2], loads, rules)

    @property
    def _offsets(self) -> tuple[Longs, Longs, Longs, Longs]:
        """Where members, topics, classes and owned ranges of each group start."""
        ranges = self.whole.member_ranges[self.members]
        return self.members, self.topics, self.classes, ranges

    def _take_released(self, groups: Longs, topic_shift: Longs) -> ReleasedOwnership:
        released = self.whole.released
        at = np.searchsorted(released.topic, self.topics)
        size = np.diff(at)[groups]
        rows = expand_runs(at[groups], size)
        return ReleasedOwnership(
            released.owner.take(pa.array(rows)),
            released.topic[rows] - np.repeat(topic_shift, size),
            released.first[rows],
            released.count[rows],
            released.cause[rows],
        )
