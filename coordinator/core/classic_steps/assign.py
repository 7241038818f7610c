"""Assign the partitions of a classic group here, in place of its leader.

If the group's setting `consumer.assignor.classic` names an assignor, it computes the assignment,
and the one in the leader's SyncGroup is ignored. Members own what they report in their
subscriptions, and what the last generation assigned to them.

Members of a cooperative protocol keep their partitions while they join. So a partition that must
move is assigned to nobody in this generation: its owner sees that it is missing, revokes it and
joins again, and the next generation assigns it (KIP-429).

The leader's assignment is used if a subscription does not parse, if the assignor refuses the group,
or if members own partitions under any other protocol, because it is unknown whether they would
revoke them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from assignors import SpecError
from coordinator.core import target_builder
from coordinator.core.classic.embedded import (
    Assignment,
    MalformedError,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from coordinator.core.classic.events import CONSUMER
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.partition_spans import Spans, TopicKey, spans_of
from coordinator.core.records import MemberMetadata
from coordinator.core.state import State, Topic
from coordinator.core.target_assignment import Targets
from coordinator.kafka_config import CLASSIC_ASSIGNOR, OFF

EAGER = frozenset({"range", "roundrobin", "sticky"})
"""Protocols whose members revoke all partitions before they join."""
COOPERATIVE = "cooperative"
"""Part of the names of protocols whose members keep their partitions, as `cooperative-sticky`."""

Partition: TypeAlias = tuple[TopicKey, int]
Owners: TypeAlias = dict[Partition, str | None]
"""The member that reports to own a partition; None if two members of one generation do."""


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
    """

    assignments: Mapping[str, bytes]
    assignor: str = ""
    moved: int = 0


def assign_classic_group(state: State, group: ClassicGroup) -> ClassicAssignment | None:
    """Return the assignment of a generation, or None to use the leader's."""
    settings = state.settings.get(group.group_id, {})
    assignor = settings.get(CLASSIC_ASSIGNOR, OFF)
    if assignor == OFF or group.protocol_type != CONSUMER:
        return None
    protocol = group.protocol or ""
    try:
        told = {
            member.member_id: read_subscription(member.metadata(protocol))
            for member in group.members.values()
        }
        owners = _find_owners(state, told)
        cooperative = COOPERATIVE in protocol
        if owners and not cooperative and protocol not in EAGER:
            return None
        had = _find_previous(state, group, owners)
        given = _build_input(state, group, told, had)
        ranges = target_builder.run_assignor(given.spec(), assignor, settings)
    except (MalformedError, SpecError, ValueError, MemoryError):
        return None
    changes, moved = target_builder.diff_targets(group.group_id, given, ranges)
    target: dict[str, Spans] = {**had, **{record.member_id: record.spans for record in changes}}
    held = owners if cooperative else {}
    assignments = {
        member_id: _write(subscription.version, member_id, target.get(member_id, ()), held)
        for member_id, subscription in told.items()
    }
    return ClassicAssignment(assignments, assignor, moved)


def read_assigned(state: State, raw: bytes) -> Spans:
    """Parse an assignment, and return its partitions that exist; () if it does not parse."""
    try:
        return spans_of(_existing(state, read_assignment(raw).partitions)) if raw else ()
    except MalformedError:
        return ()


def _find_owners(state: State, told: Mapping[str, Subscription]) -> Owners:
    """Return the owner of each partition that members report.

    If two members report a partition, the one with the later generation owns it (KIP-792). If they
    have the same generation, neither does, and both must revoke it.
    """
    since: dict[Partition, int] = {}
    owners: Owners = {}
    for member_id, subscription in told.items():
        for partition in _existing(state, subscription.owned):
            generation = since.get(partition)
            if generation is None or subscription.generation > generation:
                since[partition], owners[partition] = subscription.generation, member_id
            elif subscription.generation == generation and owners[partition] != member_id:
                owners[partition] = None
    return owners


def _find_previous(state: State, group: ClassicGroup, owners: Owners) -> Targets:
    """Return what each member owned: what it reports, and what the last generation gave it."""
    owner_of = {partition: owner for partition, owner in owners.items() if owner is not None}
    for member in group.members.values():
        try:
            last = read_assignment(member.last_assignment).partitions
        except MalformedError:  # the leader wrote it, or there was none
            continue
        for partition in _existing(state, last):
            if partition not in owners:
                owner_of.setdefault(partition, member.member_id)
    found: dict[str, list[Partition]] = {member_id: [] for member_id in group.members}
    for partition, owner in owner_of.items():
        found[owner].append(partition)
    had = Targets()
    for member_id, partitions in found.items():
        had[member_id] = spans_of(partitions)
    return had


def _existing(state: State, partitions: Mapping[str, Iterable[int]]) -> Iterable[Partition]:
    """Yield those of a member's partitions that exist."""
    for name, numbers in partitions.items():
        topic = state.topics.get(name)
        if topic is not None:
            yield from ((topic.key, at) for at in numbers if 0 <= at < topic.partitions)


def _build_input(
    state: State, group: ClassicGroup, told: Mapping[str, Subscription], had: Targets
) -> target_builder.AssignorInput:
    """Return the group as input of an assignor."""
    lists: dict[tuple[str, ...], tuple[str, ...]] = {}
    metas: dict[str, MemberMetadata] = {}
    for member_id, subscription in told.items():
        names = tuple(sorted(set(subscription.topics)))
        metas[member_id] = MemberMetadata(
            group.group_id,
            member_id,
            group.members[member_id].instance_id,
            subscribed_topic_names=lists.setdefault(names, names),
        )
    names = tuple(sorted({name for names in lists for name in names}))
    topics: list[Topic] = [state.topics[name] for name in names if name in state.topics]
    return target_builder.AssignorInput(metas, had, topics)


def _write(version: int, member_id: str, spans: Spans, held: Owners) -> bytes:
    """Return the bytes of a member's assignment, without partitions that others still own."""
    partitions: dict[str, list[int]] = {}
    for key, first, end in spans:
        free = [at for at in range(first, end) if held.get((key, at), member_id) == member_id]
        if free:
            partitions.setdefault(key.name, []).extend(free)
    return write_assignment(Assignment(version, partitions))
