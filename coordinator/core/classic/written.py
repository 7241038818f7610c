"""A classic group as its record says it, and the way back."""

from __future__ import annotations

from coordinator.core.classic.embedded import topics_of
from coordinator.core.classic.events import CONSUMER, Protocol
from coordinator.core.classic.group import ClassicGroup, ClassicMember, ClassicState
from coordinator.core.records import ClassicGroupWritten, ClassicMemberWritten


def record_of(group: ClassicGroup) -> ClassicGroupWritten:
    """Return the record of a group: of each member what it told under the group's protocol."""
    return ClassicGroupWritten(
        group_id=group.group_id,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol,
        leader=group.leader,
        state_timestamp=group.state_since_ms,
        assignor=group.assignor,
        moved=group.moved,
        members=tuple(
            ClassicMemberWritten(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def group_of(record: ClassicGroupWritten) -> ClassicGroup:
    """Return the group that a record says: Stable with its members, Empty without."""
    group = ClassicGroup(
        record.group_id,
        protocol_type=record.protocol_type or None,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        state=ClassicState.STABLE if record.members else ClassicState.EMPTY,
        state_since_ms=record.state_timestamp,
        assignor=record.assignor,
        moved=record.moved,
    )
    for member in record.members:
        group.put(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                protocols=(Protocol(record.protocol or "", member.subscription),),
                assignment=member.assignment,
                last_assignment=member.assignment,
            )
        )
    group.subscribed = find_subscribed(group)
    return group


def find_subscribed(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics that the members of a group of consumers subscribe to, if they say so."""
    if group.protocol_type != CONSUMER:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    return topics_of(member.metadata(group.protocol) for member in group.members.values())
