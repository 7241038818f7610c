"""A group that the driver holds: assigned there by `assignors`, the code that DataFrames repeat.

A job of DataFrames has some fifty stages, which Spark plans and compiles for seconds, and which
move rows between tasks again and again. Reading the rows takes three.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assignors import Assignor, GroupSpec, get_assignor
from assignors.parse_tables import get_strings, parse_claims
from assignors.quality import count_moved
from assignors.water_level import Histogram
from spark_jobs.assignors.group import (
    FrameGroup,
    LabelledMembers,
    TopicTable,
    adopt_members,
    refuse_changed,
)
from spark_jobs.assignors.materialize import FrameAssignment, add_names
from spark_jobs.assignors.prior_ownership import ResolvedOwnership
from spark_jobs.session.schemas import frame_of, select_members, select_owned, select_topics
from spark_jobs.session.work_session import WorkSession


def assign_small_group(
    work_session: WorkSession,
    assignor: str,
    members: DataFrame | LabelledMembers,
    topics: DataFrame,
    previous: DataFrame | None,
    options: Mapping[str, Any],
    *,
    owners_of_each_topic: bool = False,
) -> FrameAssignment | None:
    """Assign on the driver if members and ranges are few; the rows are the same.

    Parameters
    ----------
    members, topics, previous
        As for `spark_jobs.assignors.uniform.assign`.
    owners_of_each_topic
        Each member may get a range of each topic.

    Returns
    -------
    FrameAssignment or None
        None if there may be more rows than `WorkSession.driver_rows`, those of the result included.

    Raises
    ------
    SpecError
        Bad input, as on executors.
    """
    if not work_session.driver_rows:
        return None
    members = adopt_members(work_session, members)
    frames = {"topics": work_session.adopt(select_topics(topics))}
    if previous is not None:
        frames["owned"] = work_session.adopt(select_owned(previous))
    rows = members.rows if isinstance(members, LabelledMembers) else select_members(members)
    if _count(frames | {"members": rows}, owners_of_each_topic) > work_session.driver_rows:
        return None
    group = _read_group(members, **frames)
    return assign_on_driver(work_session, get_assignor(assignor, **options), group)


def assign_on_driver(
    work_session: WorkSession, assignor: Assignor, group: GroupSpec
) -> FrameAssignment:
    """Assign a group that the driver has read."""
    ranges = assignor.assign(group)
    return FrameAssignment(
        frame_of(work_session.spark, ranges.to_arrow()).coalesce(work_session.tasks),
        ranges.verdict,
        Histogram.of(
            len(group.class_offsets) - 1, group.member_class.astype(np.int64), ranges.loads()
        ),
        int(count_moved(group, ranges).sum()),
        group.orphan_count(),
        (group, ranges),
    )


def collect_group(group: FrameGroup, resolved: ResolvedOwnership) -> GroupSpec:
    """Collect a group that was read on executors, and what its members own."""
    members = group.members.toArrow()
    ids, dynamic = get_strings(members, "members", "member_id"), members["dynamic"]
    owned = add_names(group, resolved.ranges).toArrow()
    topics = group.topics
    return GroupSpec.from_columns(
        member_id=ids,
        instance_id=pc.if_else(
            dynamic, pa.scalar(None, pa.string()), members["instance"]
        ).combine_chunks(),
        rack=pa.nulls(len(ids), pa.string()),
        subscription=members["class"].to_numpy().astype(np.int64),
        list_offsets=group.classes.offsets,
        list_topics=group.classes.topics.astype(np.int64),
        topics=topics.names,
        partitions=topics.partitions,
        **parse_claims(owned, ids, topics.names),
    )


def _read_group(
    members: DataFrame | LabelledMembers, topics: DataFrame, owned: DataFrame | None = None
) -> GroupSpec:
    """Read a group without the topics of each member, which are the most of it."""
    known = TopicTable.of(topics)
    labelled = LabelledMembers.of(members, known)
    table = labelled.rows.toArrow()
    subscription = table["class"].to_numpy().astype(np.int64)
    if labelled.sizes is not None:
        refuse_changed(labelled.sizes, np.bincount(subscription, minlength=len(labelled.sizes)))
    ids = get_strings(table, "members", "member_id")
    offsets, listed = labelled.classes(known)
    return GroupSpec.from_columns(
        member_id=ids,
        instance_id=get_strings(table, "members", "instance_id", optional=True),
        rack=pa.nulls(len(ids), pa.string()),
        subscription=subscription,
        list_offsets=offsets,
        list_topics=listed,
        topics=known.names,
        partitions=known.partitions,
        **parse_claims(owned.toArrow() if owned is not None else None, ids, known.names),
    )


def _count(frames: Mapping[str, DataFrame], owners_of_each_topic: bool) -> int:  # noqa: FBT001
    """Count the rows of all frames, and those of the result where they may be more."""
    counted = [
        frame.agg(F.lit(name).alias("name"), F.count(F.lit(1)).alias("rows"))
        for name, frame in frames.items()
    ]
    counts = {row["name"]: row["rows"] for row in reduce(DataFrame.unionAll, counted).collect()}
    product = counts["members"] * counts["topics"] if owners_of_each_topic else 0
    return int(sum(counts.values()) + product)
