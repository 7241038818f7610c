"""A group that the driver holds: assigned there by `assignors`, the code that blocks repeat.

Blocks on executors take a dozen stages, which Spark plans and compiles for seconds. Reading the
rows takes three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from assignors import Assignor, GroupSpec, get_assignor
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.parse_tables import get_strings, parse_claims
from assignors.quality import count_moved
from assignors.water_level import Histogram
from spark_jobs.assignors.frame_assignment import FrameAssignment
from spark_jobs.assignors.group import TopicTable, refuse_changed
from spark_jobs.assignors.labelled_members import LabelledMembers, read_members
from spark_jobs.session.schemas import frame_of, select_owned, select_topics
from spark_jobs.session.work_session import WorkSession


@dataclass(frozen=True, slots=True)
class GivenTables:
    """The tables of a group, in the work session.

    Attributes
    ----------
    members, topics
        Members by label of their subscription, and how many have each; the topics, read.
    rows, previous
        The rows of the previous assignment, unless it is a new group, and how many there are.
    """

    members: LabelledMembers
    rows: int
    topics: TopicTable
    previous: DataFrame | None

    @classmethod
    def of(
        cls,
        work_session: WorkSession,
        members: DataFrame | LabelledMembers,
        topics: DataFrame,
        previous: DataFrame | None,
    ) -> GivenTables:
        """Check the columns, read topics and subscriptions, and count the rest.

        Parameters
        ----------
        members, topics, previous
            As for `spark_jobs.assignors.uniform.assign`.

        Raises
        ------
        SpecError
            A column is missing or of another type, a member has no id, or an unknown topic.
        """
        claims = None if previous is None else select_owned(work_session.adopt(previous))
        listed = select_topics(work_session.adopt(topics))
        if isinstance(members, LabelledMembers):
            known = TopicTable.of(listed)
            return cls(*members.adopted(work_session).counted(claims), known, claims)
        frame = work_session.adopt(members)
        known, labelled, rows = read_members(frame, listed, claims)
        return cls(labelled, rows, known, claims)

    def count(self, *, owners_of_each_topic: bool) -> int:
        """Count rows; those of the result, too, if each member may get a range of each topic."""
        assert self.members.sizes is not None
        members, topics = int(self.members.sizes.sum()), len(self.topics.names)
        product = members * topics if owners_of_each_topic else 0
        return members + topics + self.rows + product


def assign_small_group(
    work_session: WorkSession,
    assignor: str,
    given: GivenTables,
    options: Mapping[str, Any],
    *,
    owners_of_each_topic: bool = False,
) -> FrameAssignment | None:
    """Assign on the driver if members and ranges are few; the rows are the same.

    Parameters
    ----------
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
    most = work_session.driver_rows
    if not most or given.count(owners_of_each_topic=owners_of_each_topic) > most:
        return None
    group = _read_group(given)
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


def join_blocks(known: KnownGroup, blocks: list[MemberBlock]) -> GroupSpec:
    """Return blocks, which are in member order, as one group."""
    every = MemberBlock.joined(blocks)
    names = every.ids
    return GroupSpec.from_columns(
        member_id=names,
        instance_id=every.instances,
        rack=pa.nulls(len(names), pa.string()),
        subscription=known.rank_of(every.class_),
        list_offsets=known.class_offsets,
        list_topics=known.class_topics,
        topics=known.topics,
        partitions=known.partitions,
        owner=names.take(pa.array(every.member)),
        owned_topic=every.topic,
        owned_first=every.first.astype(np.int64),
        owned_count=every.count.astype(np.int64),
    )


def _read_group(given: GivenTables) -> GroupSpec:
    """Read a group without the topics of each member, which are the most of it."""
    labelled, known = given.members, given.topics
    table = labelled.rows.toArrow()
    assert labelled.sizes is not None
    subscription = labelled.labels.find(np.asarray(table["label"]))
    found = np.bincount(subscription + 1, minlength=len(labelled.sizes) + 1)
    refuse_changed(np.append(0, labelled.sizes), found)  # 0 with another label
    owned = None if given.previous is None else given.previous.toArrow()
    ids = get_strings(table, "members", "member_id")
    return GroupSpec.from_columns(
        member_id=ids,
        instance_id=get_strings(table, "members", "instance_id", optional=True),
        rack=pa.nulls(len(ids), pa.string()),
        subscription=subscription,
        list_offsets=labelled.offsets,
        list_topics=labelled.listed,
        topics=known.names,
        partitions=known.partitions,
        **parse_claims(owned, ids, known.names),
    )
