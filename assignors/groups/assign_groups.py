"""Assign many groups: those that compete for nothing at once, the others one by one.

In a group whose members all subscribe alike, an assignor's plan is arithmetic on its only class.
Such groups, side by side, are one group of many classes that share nothing, so one run gives the
rows of each. Where members of a group compete, a flow or a search decides; what it finds among
equals could depend on other groups, so each runs by itself. Weighted groups that begin, and those
that go on with a few partitions without an owner, are solved by rows, each as it would be alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import quality
from assignors.arrays import Bools, Ints, Longs, sum_segments
from assignors.certificate import Certificate, certify, find_broken_rules
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.groups.fresh_groups import assign_fresh
from assignors.groups.group_set import GroupSet
from assignors.groups.next_groups import assign_next
from assignors.long_ranges.keep_long import ANY_SIZE, keeps_long
from assignors.option_values import LONG_RANGES
from assignors.partition_ranges import ARROW_SCHEMA, PartitionRanges, Verdict
from assignors.prior_ownership import CONTESTED
from assignors.range import RangeAssignor
from assignors.registry import Assignor
from assignors.sticky import StickyAssignor
from assignors.uniform import UniformAssignor
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.equal import keep_in_order

PROBLEMS_MAX = 20
"""How many bad groups the totals name."""

GROUPS_SCHEMA = pa.schema([pa.field("group_id", pa.string()), *ARROW_SCHEMA])
"""The rows of many groups: by group, then as the rows of one."""

SUMMARY_SCHEMA = pa.schema(
    [
        ("group_id", pa.string()),
        ("members", pa.int64()),
        ("partitions", pa.int64()),
        ("load_min", pa.int64()),
        ("load_max", pa.int64()),
        ("moved", pa.int64()),
        ("moved_lower_bound", pa.int64()),
        ("moved_minimum", pa.int64()),
        ("exact", pa.bool_()),
        ("partial", pa.bool_()),
        ("orphans", pa.int64()),
        ("contested", pa.int64()),
        ("ranges", pa.int64()),
        ("ranges_max", pa.int64()),
        ("makespan", pa.float64()),
        ("lower_bound", pa.float64()),
        ("term", pa.string()),
        ("moved_weight", pa.float64()),
        ("moved_weight_bound", pa.float64()),
        ("distant_before", pa.float64()),
        ("distant_after", pa.float64()),
        ("weights_known", pa.int64()),
        ("problem", pa.string()),
    ]
)
"""One row per group: what it is worth. The columns from makespan on are null without weights."""


@dataclass(frozen=True, slots=True)
class GroupsAssignment:
    """Who owns what in many groups.

    Attributes
    ----------
    rows
        A table of `GROUPS_SCHEMA`, by group, then in canonical order; None if it is too large
        for this process.
    summary
        A table of `SUMMARY_SCHEMA`, one row per group.
    """

    rows: pa.Table | None
    summary: pa.Table

    def totals(self) -> dict[str, Any]:
        """Return the figures of all groups together, ready for JSON."""
        return sum_up(self.summary)

    def per_group(self) -> list[dict[str, Any]]:
        """Return the figures of each group, ready for JSON, without those that it lacks."""
        rows = self.summary.to_pylist()
        return [{name: it for name, it in row.items() if it is not None} for row in rows]

    def answers(self) -> Iterator[tuple[str, dict[str, dict[str, list[list[int]]]]]]:
        """Yield each group's id and assignment: {member: {topic: [[first, count], …]}}.

        Members without partitions are left out.
        """
        assert self.rows is not None, "rows that are too large are not printed"
        ids = self.rows["group_id"].to_pylist()
        found: dict[str, dict[str, dict[str, list[list[int]]]]] = {
            name: {} for name in self.summary["group_id"].to_pylist()
        }
        rest = (self.rows[name].to_pylist() for name in ARROW_SCHEMA.names)
        for group_id, member, topic, first, count in zip(ids, *rest, strict=True):
            found[group_id].setdefault(member, {}).setdefault(topic, []).append([first, count])
        yield from found.items()


def sum_up(summary: pa.Table) -> dict[str, Any]:
    """Return the figures of all groups together, ready for JSON.

    Loads are those of single members; the spread is the greatest within a group, and the makespan
    that of the group furthest above its lower bound.
    """

    def total(name: str) -> Any:  # noqa: ANN401 - a column's own type
        return pc.sum(summary[name], skip_nulls=False, min_count=0).as_py()

    bad = summary.filter(pc.is_valid(summary["problem"]))
    some = summary.filter(pc.greater(summary["members"], 0))
    spread = pc.subtract(some["load_max"], some["load_min"])
    members, partitions = total("members"), total("partitions")
    out = {
        "groups": len(summary),
        "valid": len(bad) == 0,
        "problems": [
            f"group {row['group_id']!r}: {row['problem']}"
            for row in bad.slice(0, PROBLEMS_MAX).to_pylist()
        ],
        "members": members,
        "partitions": partitions,
        "loads": {
            "min": pc.min(some["load_min"]).as_py() or 0,
            "max": pc.max(some["load_max"]).as_py() or 0,
            "mean": partitions / members if members else 0.0,
            "spread": pc.max(spread).as_py() or 0,
        },
        "moved": total("moved"),
        "moved_lower_bound": total("moved_lower_bound"),
        "moved_minimum": total("moved_minimum"),
        "exact": pc.all(summary["exact"], min_count=0).as_py(),
        "partial": bool(pc.any(summary["partial"], min_count=0).as_py()),
        "orphans": total("orphans"),
        "contested": total("contested"),
        "ranges": total("ranges"),
        "ranges_max": pc.max(summary["ranges_max"]).as_py() or 0,
    }
    weighted = summary.filter(pc.is_valid(summary["makespan"]))
    return out | ({"weights": _sum_up_weights(weighted)} if len(weighted) else {})


def _sum_up_weights(summary: pa.Table) -> dict[str, Any]:
    """Return what the weights of all groups together are worth."""
    gap = pc.subtract(pc.divide(summary["makespan"], summary["lower_bound"]), 1.0)
    gaps = pc.if_else(pc.greater(summary["lower_bound"], 0), gap, None)
    worst = pc.max(gaps).as_py()
    at = 0 if worst is None else pc.index(gaps, worst).as_py()
    furthest = summary.slice(at, 1).to_pylist()[0]
    totals = {
        name: pc.sum(summary[name]).as_py()
        for name in ("moved_weight", "moved_weight_bound", "distant_before", "distant_after")
    }
    return {
        "groups": len(summary),
        "furthest": furthest["group_id"],
        "makespan": furthest["makespan"],
        "lower_bound": furthest["lower_bound"],
        "gap": None if worst is None else max(worst, 0.0),
        "term": furthest["term"],
        "moved_weight": totals["moved_weight"],
        "moved_weight_bound": totals["moved_weight_bound"],
        "distant_weight": {"before": totals["distant_before"], "after": totals["distant_after"]},
        "weights_known": pc.sum(summary["weights_known"]).as_py(),
    }


@dataclass(slots=True)
class _Found:
    """Ranges of the whole, moves of each group, and what was proved of it."""

    member: Ints
    topic: Ints
    first: Ints
    count: Ints
    moved: Longs
    verdicts: list[Verdict]
    proofs: list[Certificate | None]
    broken: list[str | None]


def assign_groups(groups: GroupSet, assignor: Assignor) -> GroupsAssignment:
    """Assign every group; each gets the rows that it gets alone.

    Parameters
    ----------
    groups
        Members, topics and owners of all groups.
    assignor
        As `get_assignor` returns it; it assigns all of them.

    Returns
    -------
    GroupsAssignment
        The rows of all groups, and a line about each.

    Raises
    ------
    SpecError
        A group cannot be assigned: all are refused, and the message names the first of them.
    """
    plain = _find_plain(groups, assignor)
    found = _assign_plain(groups, assignor, plain)
    rest = _assign_weighted(groups, assignor, np.flatnonzero(~plain), found)
    _assign_one_by_one(groups, assignor, rest, found)
    ranges = _in_order(groups.whole, found)
    whose = np.repeat(np.arange(len(groups)), np.diff(groups.members))
    rows = ranges.to_arrow()
    names = groups.group_ids.take(pa.array(whose[ranges.member]))
    return GroupsAssignment(
        rows.add_column(0, GROUPS_SCHEMA.field(0), names), _summarize(groups, ranges, found)
    )


def _find_plain(groups: GroupSet, assignor: Assignor) -> Bools:
    """Tell which groups may be assigned side by side."""
    none_of_them, all_of_them = (np.full(len(groups), value) for value in (False, True))
    if groups.constraints:
        return none_of_them
    loads = groups.loads
    if loads is not None and (isinstance(assignor, WeightedAssignor) or loads.restricts):
        return none_of_them
    if isinstance(assignor, RangeAssignor):
        return all_of_them
    if getattr(assignor, "defragment", 0):  # each has a budget of its own
        return none_of_them
    if isinstance(assignor, UniformAssignor | StickyAssignor | WeightedAssignor):
        return np.asarray(np.diff(groups.classes) == 1) & _are_alike(groups, assignor)
    return none_of_them


def _are_alike(groups: GroupSet, assignor: Assignor) -> Bools:
    """Tell which groups are so small that their ranges are kept long, if any are to be."""
    most = getattr(assignor, "long_ranges", LONG_RANGES)
    if not most:
        return np.full(len(groups), fill_value=True)
    whole = groups.whole
    wanted = np.where(whole.subscribed_topics(), whole.partitions, 0)
    partitions = sum_segments(wanted, groups.topics)
    sizes = zip(np.diff(groups.members).tolist(), partitions.tolist(), strict=True)
    return np.array([keeps_long(*size, most) for size in sizes], dtype=np.bool_)


def _assign_plain(groups: GroupSet, assignor: Assignor, plain: Bools) -> _Found:
    """Assign plain groups as one."""
    places = np.flatnonzero(plain)
    none = np.zeros(0, dtype=np.int32)
    size = len(groups)
    zeros = np.zeros(size, dtype=np.int64)
    found = _Found(none, none, none, none, zeros, [Verdict()] * size, [None] * size, [None] * size)
    if not len(places):
        return found
    part, limit = groups.take(places), getattr(assignor, "max_moves", None)
    if getattr(assignor, "long_ranges", 0):  # of each of them: `_find_plain` leaves out large ones
        assignor = replace(assignor, long_ranges=ANY_SIZE)  # type: ignore[type-var]
    if limit is not None and not isinstance(assignor, RangeAssignor):
        assignor = replace(assignor, max_moves=None)  # type: ignore[type-var]
    if isinstance(assignor, WeightedAssignor):
        uniform = UniformAssignor(long_ranges=ANY_SIZE).assign(part.whole)
        ranges, _ = keep_in_order(part.whole, part.members, part.topics, uniform, assignor.worth())
    else:
        ranges = assignor.assign(part.whole)
    moved = found.moved[places] = _count_moved(part, ranges)
    if not isinstance(assignor, RangeAssignor):
        for place, count in zip(places.tolist(), moved.tolist(), strict=True):
            found.verdicts[place] = Verdict(moved_minimum=count)
        if limit is not None and (moved > limit).any():  # those are cut short one by one
            plain[places[moved > limit]] = False
            keep = np.repeat(moved <= limit, np.diff(part.members))[ranges.member]
            columns = (ranges.member, ranges.topic, ranges.first, ranges.count)
            ranges = PartitionRanges(
                ranges.member_ids, ranges.topics, *(column[keep] for column in columns)
            )
    member_shift = groups.members[places] - part.members[:-1]
    topic_shift = groups.topics[places] - part.topics[:-1]
    whose = np.repeat(np.arange(len(places)), np.diff(part.members))[ranges.member]
    found.member = (ranges.member + member_shift[whose]).astype(np.int32)
    found.topic = (ranges.topic + topic_shift[whose]).astype(np.int32)
    found.first, found.count = ranges.first, ranges.count
    return found


def _count_moved(groups: GroupSet, ranges: PartitionRanges) -> Longs:
    """Count the owned partitions of each group that have another owner now."""
    moved = quality.count_moved(groups.whole, ranges)
    return sum_segments(moved, groups.members)


def _assign_weighted(groups: GroupSet, assignor: Assignor, places: Longs, found: _Found) -> Longs:
    """Assign weighted groups side by side that begin, or go on; return those that are left."""
    if groups.loads is None or not isinstance(assignor, WeightedAssignor) or not len(places):
        return places
    if assignor.worth()[1]:
        return places
    for rows in (assign_fresh(groups, assignor), assign_next(groups, assignor, places)):
        for place, proof in zip(rows.places.tolist(), rows.proofs, strict=True):
            found.proofs[place] = proof
        found.moved[rows.places] = rows.moved
        for name in ("member", "topic", "first", "count"):
            setattr(found, name, np.concatenate([getattr(found, name), getattr(rows, name)]))
        places = np.setdiff1d(places, rows.places, assume_unique=True)
    return places


def _assign_one_by_one(groups: GroupSet, assignor: Assignor, places: Longs, found: _Found) -> None:
    parts = [(found.member, found.topic, found.first, found.count)]
    for place in places.tolist():
        try:
            group = groups.group(place)
            ranges = assignor.assign(group)
        except SpecError as error:
            raise SpecError(f"group {groups.group_ids[place].as_py()!r}: {error}") from None
        found.verdicts[place] = ranges.verdict
        found.moved[place] = quality.count_moved(group, ranges).sum()
        found.proofs[place] = certify(group, ranges)
        found.broken[place] = "; ".join(find_broken_rules(group, ranges)) or None
        member = ranges.member + np.int32(groups.members[place])
        topic = ranges.topic + np.int32(groups.topics[place])
        parts.append((member, topic, ranges.first, ranges.count))
    columns = (np.concatenate([part[at] for part in parts]) for at in range(4))
    found.member, found.topic, found.first, found.count = columns


def _in_order(whole: GroupSpec, found: _Found) -> PartitionRanges:
    """Return the ranges of all groups by member; those of one member are in order already."""
    columns = (found.member, found.topic, found.first, found.count)
    if (np.diff(found.member) < 0).any():
        order = np.argsort(found.member, kind="stable")
        columns = tuple(column[order] for column in columns)  # type: ignore[assignment]
    return PartitionRanges(whole.member_ids, whole.topics, *columns)


def _summarize(groups: GroupSet, ranges: PartitionRanges, found: _Found) -> pa.Table:
    """Return what each group's assignment is worth, from the rows."""
    whole, edges = groups.whole, groups.members
    loads = ranges.loads()
    owned = np.bincount(whole.member, weights=whole.count, minlength=whole.member_count)
    surplus = np.maximum(owned.astype(np.int64) - loads, 0)
    held = np.bincount(ranges.member, minlength=whole.member_count)
    some = np.diff(edges) > 0
    partitions = sum_segments(loads, edges)
    wanted = np.where(whole.subscribed_topics(), whole.partitions, 0)
    all_owned = sum_segments(owned.astype(np.int64), edges)
    minimum = [verdict.moved_minimum for verdict in found.verdicts]
    bound = sum_segments(surplus, edges)
    proved = np.array([v.moved_minimum or 0 if not v.partial else 0 for v in found.verdicts])
    released = whole.released
    lost = np.where(released.cause == CONTESTED, released.count, 0)
    contested = sum_segments(lost, np.searchsorted(released.topic, groups.topics))
    missing = sum_segments(wanted, groups.topics) - partitions
    columns: dict[str, Any] = {
        "group_id": groups.group_ids,
        "members": np.diff(edges),
        "partitions": partitions,
        "load_min": _by_group(np.minimum, loads, edges, some),
        "load_max": _by_group(np.maximum, loads, edges, some),
        "moved": found.moved,
        "moved_lower_bound": np.maximum(bound, proved),
        "moved_minimum": minimum,
        "exact": [verdict.exact for verdict in found.verdicts],
        "partial": [verdict.partial for verdict in found.verdicts],
        "orphans": sum_segments(wanted, groups.topics) - all_owned,
        "contested": contested,
        "ranges": sum_segments(held, edges),
        "ranges_max": _by_group(np.maximum, held, edges, some),
        "problem": _find_problems(groups, ranges, missing, found.broken),
    }
    for name in SUMMARY_SCHEMA.names:
        if name not in columns:
            columns[name] = [
                None if proof is None else getattr(proof, name) for proof in found.proofs
            ]
    return pa.table({name: columns[name] for name in SUMMARY_SCHEMA.names}, schema=SUMMARY_SCHEMA)


def _by_group(reduce: np.ufunc, values: Longs, edges: Longs, some: Bools) -> Longs:
    """Reduce the values of each group's members; 0 for groups without members."""
    out = np.zeros(len(some), dtype=np.int64)
    if some.any():
        out[some] = reduce.reduceat(values, edges[:-1][some])
    return out


def _find_problems(
    groups: GroupSet, ranges: PartitionRanges, missing: Longs, broken: list[str | None]
) -> list[str | None]:
    """Say of each group why its assignment is not valid, None where it is."""
    out = list(broken)
    for place in np.flatnonzero(missing > 0).tolist():
        if groups.members[place] < groups.members[place + 1]:
            out[place] = f"{int(missing[place])} partitions have no owner"
    for problem in quality.find_problems(groups.whole, ranges):
        if "have no owner" not in problem and out:
            out[0] = problem
    return out
