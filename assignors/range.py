"""The range assignor: runs of neighbouring partitions of each topic, as Kafka 4.4.0 does.

Not sticky. Members with the same subscription get the same partition numbers of topics of equal
size, so that such topics can be joined partition by partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assignors import solvers
from assignors.arrays import Longs, expand_runs, floor_div, offsets_of
from assignors.compressed_problem import CompressedProblem
from assignors.group_spec import GroupSpec
from assignors.partition_ranges import PartitionRanges


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """The closed form of Kafka's range assignor (G-156)."""

    name: ClassVar[str] = "range"
    knows_loads: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()
    spark_twin: ClassVar[str] = "spark_jobs.assignors.range:TWIN"

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Cut every topic among its subscribers in member order.

        Returns
        -------
        PartitionRanges
            The first (partitions mod subscribers) members get one partition more.
        """
        group.refuse_constraints(self.name)
        problem = CompressedProblem.of(group)
        offsets, subscribers = _list_subscribers(group, problem)
        topic = np.flatnonzero(problem.topic_class >= 0)
        partitions = group.partitions[topic]
        members = np.diff(offsets)[problem.topic_class[topic]]
        rows = np.minimum(partitions, members)  # later members get nothing
        at = np.repeat(np.arange(len(topic)), rows)
        place = np.arange(len(at)) - offsets_of(rows)[:-1][at]
        member = subscribers[offsets[problem.topic_class[topic]][at] + place]
        quota, rest = floor_div(partitions, members), partitions % np.maximum(members, 1)
        count = quota[at] + (place < rest[at])
        first = quota[at] * place + np.minimum(place, rest[at])
        order = _order_by_member(offsets_of(rows), member, group.member_count)
        return PartitionRanges(
            group.member_ids,
            group.topics,
            member[order].astype(np.int32),
            topic[at][order].astype(np.int32),
            first[order].astype(np.int32),
            count[order].astype(np.int32),
        )


def _list_subscribers(group: GroupSpec, problem: CompressedProblem) -> tuple[Longs, Longs]:
    """Return the members of each topic class in member order, laid end to end."""
    sizes = np.diff(group.class_members)[problem.pair_class]
    member = group.class_order[expand_runs(group.class_members[problem.pair_class], sizes)]
    topic_class = np.repeat(problem.pair_topic, sizes)
    offsets = offsets_of(np.bincount(topic_class, minlength=len(problem.partitions)))
    key = topic_class * np.int64(max(group.member_count, 1)) + member
    return offsets, member[np.argsort(key, kind="stable")]


def _order_by_member(offsets: Longs, member: Longs, members: int) -> Longs:
    """Return the permutation from topic order to (member, topic): a counting sort."""
    rows = np.arange(len(member), dtype=np.int64)
    shape = (len(offsets) - 1, members)
    return solvers.csr_array((rows, member, offsets), shape=shape).tocsc().data
