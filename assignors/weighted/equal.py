"""Partitions that weigh the same: what is in order stays, unless the rows of `uniform` pay."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from assignors.arrays import Bools, Longs, sum_by, sum_segments
from assignors.group_spec import GroupSpec
from assignors.partition_ranges import PartitionRanges
from assignors.sticky import StickyAssignor
from assignors.weighted.solve import is_better


def assign_equal(
    group: GroupSpec, worth: tuple[Fraction, Fraction], max_moves: int | None
) -> PartitionRanges:
    """Assign a group whose partitions weigh the same, on members that are alike."""
    uniform = StickyAssignor().assign(group)
    edges = np.array([0, group.member_count]), np.array([0, len(group.topics)])
    ranges, stays = keep_in_order(group, *edges, uniform, worth)
    if stays[0]:
        return replace(ranges, verdict=replace(uniform.verdict, moved_minimum=0))
    return uniform if max_moves is None else StickyAssignor(max_moves=max_moves).assign(group)


def keep_in_order(
    whole: GroupSpec,
    members: Longs,
    topics: Longs,
    ranges: PartitionRanges,
    worth: tuple[Fraction, Fraction],
) -> tuple[PartitionRanges, Bools]:
    """Leave groups as they are that are in order, unless what `uniform` gives them is worth it.

    Parameters
    ----------
    whole
        Groups side by side.
    members, topics
        int64 (groups + 1,): where those of each group begin.
    ranges
        What `uniform` gives them.
    worth
        By what share the greatest load must fall; or what share of its new load a member lacks.

    Returns
    -------
    ranges, stays
        The verdict is that of `ranges`; bool (groups,): which are left as they are.
    """
    count = whole.member_count
    before, after = sum_by(whole.member, whole.count, count), ranges.loads()
    wanted = np.where(whole.subscribed_topics(), whole.partitions, 0)
    stays = sum_segments(wanted, topics) == sum_segments(before, members)
    whose = np.repeat(np.arange(len(members) - 1), np.diff(members))
    old, new = np.zeros((2, len(stays)), dtype=np.int64)
    np.maximum.at(old, whose, before)
    np.maximum.at(new, whose, after)
    improvement, least = worth
    lacks = before * least.denominator < after * least.numerator
    stays &= sum_segments(lacks.astype(np.int64), members) == 0
    for at in np.flatnonzero(stays & (old > new)).tolist():
        stays[at] = not is_better(int(old[at]), int(new[at]), improvement)
    kept = np.repeat(stays, np.diff(members))
    rows, own = ~kept[ranges.member], kept[whole.member]
    columns = [
        np.concatenate([getattr(ranges, name)[rows], getattr(whole, name)[own]])
        for name in ("member", "topic", "first", "count")
    ]
    order = np.argsort(columns[0], kind="stable")
    member, topic, first, size = (column[order] for column in columns)
    return (
        PartitionRanges(
            ranges.member_ids, ranges.topics, member, topic, first, size, ranges.verdict
        ),
        stays,
    )
