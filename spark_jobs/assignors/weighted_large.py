"""The assignor weighted for a group that is too large for one task.

It is for groups whose members all subscribe alike, with weights, capacities, states and drained
members. Rows are those of the local engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assignors import GroupSpec, SpecError, get_assignor
from assignors.arrays import Bools, Ints, Longs, sum_by
from assignors.certificate import bound_moves, find_makespan
from assignors.groups.assign_groups import SUMMARY_SCHEMA
from assignors.groups.task_rows import GROUP_ID
from assignors.loads.constraints import DRAIN, parse_constraints
from assignors.option_values import parse_share
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.bounds import find_whole_bound
from assignors.weighted.levels import SMALL
from assignors.weighted.problem import IGNORE
from spark_jobs.assignors.blocks import read_blocks
from spark_jobs.assignors.group import FrameGroup, TopicTable, refuse_changed
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.assignors.weighted_blocks import Blocks
from spark_jobs.assignors.weighted_search import Placed, Search
from spark_jobs.assignors.weighted_units import Line, Units, Weighed, weigh_units
from spark_jobs.session.schemas import select_assignment, small
from spark_jobs.session.work_session import WorkSession

WHOLE_MAX = 100_000_000
"""Most partitions of a group that one task assigns, as it needs over 100 bytes for each."""
BROADCAST_MAX = 2_000_000
"""Most members whose names every task gets: that spares a shuffle of all ranges."""
UNLIKE = "different subscriptions, or constraints other than drain"
_KNOWN = ("member_id", "instance_id", "subscribed")
_PLAIN = {GROUP_ID, "topic", "partition", "weight"}


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Members on the driver, in member order.

    Attributes
    ----------
    ids
        Text (members,).
    topics
        To which they all subscribe.
    capacity, active
        int64 and bool (members,).
    unit
        What a capacity of 1 is in the user's unit.
    ruled
        Whether any constraint is in force.
    """

    ids: pa.StringArray
    topics: Ints
    capacity: Longs
    active: Bools
    unit: float
    ruled: bool


def find_members(
    members: DataFrame, topics: pa.StringArray, constraints: DataFrame | None, as_of_ms: int | None
) -> Members | None:
    """Read members; None where they do not subscribe alike, or rules say where partitions may be.

    Raises
    ------
    SpecError
        Bad input.
    """
    rules = None if constraints is None else constraints.toArrow()
    if any(rule.kind != DRAIN or not rule.hard for rule in parse_constraints(rules or [])):
        return None
    none = pa.array(np.zeros(len(topics), dtype=np.int64))  # rules on members ask for none
    counted = pa.table({"topic": topics, "partitions": none})
    spec = GroupSpec.from_arrow(members.toArrow(), counted, constraints=rules, as_of_ms=as_of_ms)
    if spec.class_count != 1 or not spec.member_count:
        return None
    loads = spec.loads
    if loads is None:
        ones = np.ones(spec.member_count, dtype=np.int64)
        return Members(spec.member_ids, spec.class_topics, ones, ones > 0, 1.0, ruled=False)
    active = loads.active.copy()
    for rule in loads.constraints:
        active[rule.members] = False
    return Members(
        spec.member_ids, spec.class_topics, loads.capacity, active, loads.capacity_unit,
        bool(loads.constraints),
    )  # fmt: skip


def assign_large(
    work_session: WorkSession,
    assignor: str,
    tables: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    as_of_ms: int | None,
    least: int,
    most: int = WHOLE_MAX,
) -> tuple[DataFrame, pa.Table] | None:
    """Assign a group with its partitions as rows; None for one that a single task is to assign.

    Parameters
    ----------
    tables
        As for `groups.assign_groups`, their known columns.
    least, most
        A single task assigns groups of up to so many partitions; and those that cannot be cut.

    Returns
    -------
    rows, summary
        A frame of `ASSIGNMENT`, and a row of `SUMMARY_SCHEMA`.

    Raises
    ------
    SpecError
        Bad input, or a group that is too large for one task and cannot be cut.
    """
    options_of = get_assignor(assignor, **options)
    topics = TopicTable.of(tables["topics"])
    partitions = int(topics.partitions.sum())
    if partitions <= max(least, SMALL):
        return None
    why = _find_obstacle(options_of, tables)
    members = None
    if why is None:
        members = find_members(tables["members"], topics.names, tables.get("constraints"), as_of_ms)
        why = UNLIKE if members is None else None
    if why is not None and partitions > most:
        raise SpecError(
            f"the group has {partitions:,} partitions, and Spark cannot split a group with {why}: "
            f"one task assigns up to {most:,}; leave that out, or split the group"
        )
    if members is None or not members.active.any():
        return None
    assert isinstance(options_of, WeightedAssignor)
    return _Large(work_session, options_of, members).assign(tables)


def _find_obstacle(assignor: object, tables: Mapping[str, DataFrame]) -> str | None:
    """Return what else than weights and capacities decides who gets what; None if nothing does."""
    if not isinstance(assignor, WeightedAssignor):
        return "this assignor"
    if assignor.worth()[1]:
        return "least_share"
    columns = set(tables["partitions"].columns) if "partitions" in tables else set()
    more = columns - _PLAIN - ({"racks"} if assignor.rack == IGNORE else set())
    return ", ".join(sorted(f"partitions.{name}" for name in more)) or None


@dataclass(frozen=True, slots=True, eq=False)
class _Large:
    work_session: WorkSession
    assignor: WeightedAssignor
    members: Members

    def assign(self, tables: Mapping[str, DataFrame]) -> tuple[DataFrame, pa.Table] | None:
        session, members = self.work_session, self.members
        group = FrameGroup(session, TopicTable.of(tables["topics"]))
        line = Line.of(group.topics, members.topics)
        if line.partitions <= SMALL:
            return None
        owners, contested = None, 0
        if "owned" in tables:
            owners, contested = self._find_owners(tables)
        session.set_shuffle_parts(max(-(-line.partitions // session.bucket_rows), session.tasks))
        if owners is None:
            filled = self._fill_blocks(group, line, tables.get("partitions"))
            if filled is not None:
                return filled
        weighed = weigh_units(group, line, tables.get("partitions"), owners, members.active)
        if self._is_equal(weighed):
            return None
        search = self._search(weighed)
        start = Units(session, weighed.rows, line.partitions, fresh=owners is None)
        placed = search.solve(start)
        budget = self.assignor.budget(weighed.unit)
        if budget is not None:
            placed = search.keep_budget(placed, budget, start)
        ranges = session.keep(placed.units.join_ranges(line))
        summary = self._summarise(placed, weighed, ranges, contested)
        return self._name(group, line, ranges), summary

    def _find_owners(self, tables: Mapping[str, DataFrame]) -> tuple[DataFrame, int]:
        """Return what members own, and how many partitions more they claim."""
        known = [name for name in _KNOWN if name in tables["members"].columns]
        given = GivenTables.of(
            self.work_session, tables["members"].select(*known), tables["topics"], tables["owned"]
        )
        claimed = read_blocks(self.work_session, given)
        refuse_changed(len(self.members.ids), int(claimed.members.sum()))
        owned = claimed.resolved()
        return owned.list_owned(), claimed.kinds.owned - owned.kinds.owned

    def _search(self, weighed: Weighed) -> Search:
        members = self.members
        bound = find_whole_bound(
            weighed.total_on_grid, weighed.heaviest_on_grid, members.capacity[members.active]
        )
        return Search(
            members.capacity, members.active, bound,
            parse_share(self.assignor.tolerance, "tolerance"),
            self.assignor.worth()[0],
        )  # fmt: skip

    def _fill_blocks(
        self, group: FrameGroup, line: Line, partitions: DataFrame | None
    ) -> tuple[DataFrame, pa.Table] | None:
        """Fill members that have nothing; None where there is more to do."""
        blocks = Blocks.read(group, line, partitions)
        if blocks is None or self._is_equal(blocks.weighed):
            return None
        search = self._search(blocks.weighed)
        units = Units(self.work_session, blocks.weighed.rows, line.partitions, fresh=True)
        runs, placed = search.fill(units, blocks.pool)
        if placed.level > search.bound.level(search.improvement):
            return None
        ranges = blocks.fill(runs)
        summary = self._summarise(placed, blocks.weighed, ranges, 0)
        return self._name(group, line, ranges), summary

    def _is_equal(self, weighed: Weighed) -> bool:
        """Tell whether the local engine would count partitions: `LoadSpec.has_equal_loads`."""
        members = self.members
        return bool(
            members.active.all()
            and not members.ruled
            and weighed.lightest == weighed.heaviest
            and (members.capacity == members.capacity[0]).all()
        )

    def _name(self, group: FrameGroup, line: Line, ranges: DataFrame) -> DataFrame:
        """Add names to ranges; return a frame of `ASSIGNMENT`."""
        names = group.topics.names.take(pa.array(line.topic))
        topics = small(group.spark, {"at": np.arange(len(names)), "name": names})
        table = pa.table({"member_id": self.members.ids, "owner": np.arange(len(self.members.ids))})
        few = len(self.members.ids) <= BROADCAST_MAX
        members = group.spark.createDataFrame(table).hint("broadcast" if few else "shuffle_hash")
        named = ranges.withColumnRenamed("topic", "at").join(topics, "at", "inner")
        return select_assignment(
            named.withColumnRenamed("name", "topic").join(members, "owner", "inner")
        )

    def _summarise(
        self, placed: Placed, weighed: Weighed, ranges: DataFrame, contested: int
    ) -> pa.Table:
        """Return what the assignment is worth, from the rows."""
        members, units, size = self.members, placed.units, len(self.members.ids)
        found = ranges.groupBy("owner").agg(
            F.sum("partition_count").alias("sum"), F.count(F.lit(1)).alias("ranges"),
            F.sum("exact").alias("weight"),
        ).toArrow()  # fmt: skip
        owner = found["owner"].to_numpy()
        loads = sum_by(owner, found["sum"].to_numpy(), size)
        held = sum_by(owner, found["ranges"].to_numpy(), size)
        owned = units.sum_loads(size, "1", "prev")
        weight = sum_by(owner, found["weight"].to_numpy(), size)
        makespan = find_makespan(weight, members.capacity)
        bound = find_whole_bound(weighed.total, weighed.heaviest, members.capacity[members.active])
        before = units.sum_loads(size, "exact", "prev")
        moved, _, moved_weight = units.sum_moved()
        scale = weighed.unit / members.unit
        row: dict[str, Any] = dict.fromkeys(SUMMARY_SCHEMA.names)
        row |= {
            "group_id": "", "members": size, "partitions": int(loads.sum()),
            "load_min": int(loads.min()), "load_max": int(loads.max()),
            "moved": moved,
            "moved_lower_bound": int(np.maximum(owned - loads, 0).sum()),
            "exact": True, "partial": placed.partial,
            "orphans": units.count - int(owned.sum()), "contested": contested,
            "ranges": int(held.sum()), "ranges_max": int(held.max()),
            "makespan": float(makespan) * scale, "lower_bound": float(bound.ratio) * scale,
            "term": bound.term, "moved_weight": moved_weight * weighed.unit,
            "moved_weight_bound":
                bound_moves(before, members.capacity, members.active, makespan) * weighed.unit,
            "distant_before": 0.0, "distant_after": 0.0, "weights_known": weighed.known,
        }  # fmt: skip
        return pa.Table.from_pylist([row], schema=SUMMARY_SCHEMA)
