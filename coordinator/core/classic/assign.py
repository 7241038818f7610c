"""Assign the partitions of a classic group here, in place of its leader.

If the group's setting `consumer.assignor.classic` names an assignor, it computes the assignment,
and the one in the leader's SyncGroup is ignored. Members own what they report in their
subscriptions, and what the last generation assigned to them.

Members of a cooperative protocol keep their partitions while they join. So a partition that must
move has no owner in this generation: its present owner sees that it is missing, revokes it and
joins again, and the next generation assigns it (KIP-429).

The leader's assignment is used if a subscription does not parse, if the assignor refuses the group
or returns no valid assignment of it, or if members own partitions under any other protocol, because
it is unknown whether they would revoke them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from assignors import PartitionRanges, SpecError
from assignors.arrays import Ints, Longs, expand_runs
from coordinator.config import Config
from coordinator.config.kafka import CLASSIC_ASSIGNOR, OFF
from coordinator.core.classic.claims import (
    Numbers,
    Owners,
    TopicLine,
    add_previous,
    as_target,
    find_runs,
    resolve_owners,
)
from coordinator.core.classic_events import CONSUMER
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.embedded import (
    Assignment,
    MalformedError,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import Spans
from coordinator.core.state.records import MemberMetadata
from coordinator.core.state.target_assignment import Targets
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.compute_here import assign_checked
from coordinator.errors import GroupError

EAGER = frozenset({"range", "roundrobin", "sticky"})
"""Protocols whose members revoke all partitions before they join."""
COOPERATIVE = "cooperative"
"""Part of the names of protocols whose members keep their partitions, as `cooperative-sticky`."""


class ClassicAssignment(NamedTuple):
    """The assignment of a generation.

    Attributes
    ----------
    assignments
        The bytes of each member's assignment.
    assignor
        The assignor's name; "" is the leader.
    moved
        How many owned partitions change their owner.
    assigned
        The existing partitions in each member's bytes; None if they were not parsed.
    """

    assignments: Mapping[str, bytes]
    assignor: str = ""
    moved: int = 0
    assigned: Mapping[str, Spans] | None = None


class AssignedPartitions(NamedTuple):
    """An assignment, one entry per partition, by member and position.

    Attributes
    ----------
    member
        The place of the owner among the sorted members.
    position
        On a `TopicLine`.
    """

    member: Longs
    position: Longs


def assign_classic_group(
    state: State, config: Config, group: ClassicGroup, now_ms: int
) -> ClassicAssignment | None:
    """Return the assignment of a generation, or None to use the leader's.

    Parameters
    ----------
    now_ms
        Time in ms since 1970, for constraints that expire.
    """
    settings = state.settings.get(group.group_id, {})
    assignor = settings.get(CLASSIC_ASSIGNOR, OFF)
    if assignor == OFF or group.protocol_type != CONSUMER:
        return None
    protocol = group.protocol or ""
    member_ids = sorted(group.members)
    try:
        subscriptions = [
            read_subscription(group.members[one].metadata(protocol)) for one in member_ids
        ]
        last = [_read_partitions(group.members[one].last_assignment) for one in member_ids]
        line = TopicLine(state, _names_of(subscriptions, last))
        reported = line.claims([one.owned for one in subscriptions])
        owners = resolve_owners(reported, [one.generation for one in subscriptions])
        cooperative = COOPERATIVE in protocol
        if len(owners.position) and not cooperative and protocol not in EAGER:
            return None
        had = add_previous(owners, line.claims(last))
        target = Targets(as_target(line, had, member_ids))
        metas = dict(zip(member_ids, subscriptions, strict=True))
        given = replace(_build_input(state, group, metas, target), as_of_ms=now_ms)
        options = AssignorOptions.of_group(assignor, settings, config)
        ranges = assign_checked(given.spec(assignor), options)
    except (MalformedError, SpecError, GroupError, ValueError, MemoryError):
        return None
    found = _list_partitions(line, ranges, member_ids)
    names = {topic.key.name for topic in given.topics}
    subscribed = np.array([topic.key.name in names for topic in line.topics], dtype=np.bool_)
    moved = _count_moved(had.rows(subscribed[line.topic_of(had.position)]), found)
    if cooperative:
        free = owners.find(found.position, found.member) == found.member
        found = AssignedPartitions(found.member[free], found.position[free])
    versions = [one.version for one in subscriptions]
    return _write(line, found, member_ids, versions, assignor, moved)


def read_assigned(state: State, assignments: Sequence[bytes]) -> list[Spans]:
    """Parse members' assignments; return the existing partitions of each, () if invalid."""
    listed = [_read_partitions(raw) for raw in assignments]
    line = TopicLine(state, {name for partitions in listed for name in partitions})
    found = AssignedPartitions(*line.claims(listed))
    topic = line.topic_of(found.position)
    number = found.position - line.starts[topic]
    return _split_spans(line, found, topic, number, range(len(listed) + 1))


def _read_partitions(assignment: bytes) -> Mapping[str, Numbers]:
    """Return the partitions that a member was assigned, if that can be read."""
    try:
        return read_assignment(assignment).partitions
    except MalformedError:  # the leader wrote it, or there was none
        return {}


def _names_of(
    subscriptions: Sequence[Subscription], last: Sequence[Mapping[str, Numbers]]
) -> set[str]:
    """Return the names of all topics that members subscribe to, own, or were assigned."""
    found: set[str] = set()
    for subscription, assigned in zip(subscriptions, last, strict=True):
        found.update(subscription.topics, subscription.owned, assigned)
    return found


def _build_input(
    state: State, group: ClassicGroup, subscriptions: Mapping[str, Subscription], had: Targets
) -> AssignorInput:
    """Return the group as input of an assignor."""
    lists: dict[tuple[str, ...], tuple[str, ...]] = {}
    metas: dict[str, MemberMetadata] = {}
    for member_id, subscription in subscriptions.items():
        names = tuple(sorted(set(subscription.topics)))
        metas[member_id] = MemberMetadata(
            group.group_id,
            member_id,
            group.members[member_id].instance_id,
            subscription.rack,
            group.members[member_id].client_id,
            subscribed_topic_names=lists.setdefault(names, names),
        )
    names = tuple(sorted({name for names in lists for name in names}))
    topics = [state.topics[name] for name in names if name in state.topics]
    loads = state.loads.get(group.group_id)
    return AssignorInput(metas, had, topics, loads=loads)


def _list_partitions(
    line: TopicLine, ranges: PartitionRanges, member_ids: Sequence[str]
) -> AssignedPartitions:
    """Return each assigned partition, by member and position."""
    names = {topic.key.name: at for at, topic in enumerate(line.topics)}
    number = {member_id: at for at, member_id in enumerate(member_ids)}
    starts = line.starts[[names[name] for name in ranges.topics.to_pylist()]]
    place = np.array([number[one] for one in ranges.member_ids.to_pylist()], dtype=np.int64)
    position = expand_runs(starts[ranges.topic] + ranges.first, ranges.count)
    member = np.repeat(place[ranges.member], ranges.count)
    order = np.lexsort((position, member))
    return AssignedPartitions(member[order], position[order])


def _count_moved(had: Owners, found: AssignedPartitions) -> int:
    """Return how many of the partitions that members own are not assigned to their owners."""
    order = np.argsort(found.position)
    now = Owners(found.position[order], found.member[order])
    return int(np.count_nonzero(now.find(had.position, -1) != had.owner))


def _write(
    line: TopicLine,
    found: AssignedPartitions,
    member_ids: Sequence[str],
    versions: Sequence[int],
    assignor: str,
    moved: int,
) -> ClassicAssignment:
    """Return each member's assignment as bytes and as spans."""
    topic = line.topic_of(found.position)
    number = found.position - line.starts[topic]
    wanted = range(len(member_ids) + 1)
    lists = _split_lists(line, found.member, topic, number, wanted)
    spans = _split_spans(line, found, topic, number, wanted)
    assignments = {
        member_id: write_assignment(Assignment(version, partitions))
        for member_id, version, partitions in zip(member_ids, versions, lists, strict=True)
    }
    return ClassicAssignment(
        assignments, assignor, moved, dict(zip(member_ids, spans, strict=True))
    )


def _split_lists(
    line: TopicLine, member: Longs, topic: Longs, number: Longs, wanted: range
) -> list[dict[str, Ints]]:
    """Return each member's partitions, by topic."""
    other = (member[1:] != member[:-1]) | (topic[1:] != topic[:-1])
    heads = np.flatnonzero(np.append(True, other)[: len(member)])
    names = [line.topics[at].key.name for at in topic[heads].tolist()]
    ends = np.append(heads[1:], len(member)).tolist()
    lists = list(zip(names, heads.tolist(), ends, strict=False))
    bounds = np.searchsorted(member[heads], wanted).tolist()
    return [
        {name: number[first:end] for name, first, end in lists[low:high]}
        for low, high in pairwise(bounds)
    ]


def _split_spans(
    line: TopicLine, found: AssignedPartitions, topic: Longs, number: Longs, wanted: range
) -> list[Spans]:
    """Return each member's partitions as spans."""
    first, end = find_runs(found.position, topic, found.member)
    keys = [line.topics[at].key for at in topic[first].tolist()]
    begin = number[first]
    columns = (keys, begin.tolist(), (begin + (end - first)).tolist())
    spans = list(zip(*columns, strict=True))
    bounds = np.searchsorted(found.member[first], wanted).tolist()
    return [tuple(spans[low:high]) for low, high in pairwise(bounds)]
