"""Convert a classic group to its record, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.core.classic_events import CONSUMER, Protocol
from coordinator.core.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from coordinator.core.state.embedded import topics_of
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import ClassicGroupWritten, ClassicMemberWritten, ClassicRange

_OF_GROUP = {
    "group_id": "group_id",
    "generation": "generation",
    "protocol": "protocol",
    "leader": "leader",
    "state_timestamp": "state_since_ms",
    "assignor": "assignor",
    "moved": "moved",
    "reason": "reason",
    "member_id": "cause",
}
"""Fields of the record, and the group's fields that they have the values of."""
_OF_MEMBER = (
    "member_id",
    "instance_id",
    "client_id",
    "client_host",
    "rebalance_timeout_ms",
    "session_timeout_ms",
    "assignment",
)
"""Fields that a member has under the same names there."""


def _take(one: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def record_of(group: ClassicGroup) -> ClassicGroupWritten:
    """Return the record of a group, with each member's metadata for the group's protocol."""
    known: dict[bytes, tuple[str, ...]] = {}
    return ClassicGroupWritten(
        **{name: getattr(group, ours) for name, ours in _OF_GROUP.items()},
        protocol_type=group.protocol_type or "",
        members=tuple(
            ClassicMemberWritten(
                **_take(member, _OF_MEMBER),
                subscription=member.metadata(group.protocol),
                subscribed_topic_names=_topics_sent(group, member, known),
                assigned=tuple(
                    ClassicRange(key.name, key.topic_id, first, end - first)
                    for key, first, end in member.assigned
                ),
            )
            for member in group.members.values()
        ),
    )


def _topics_sent(
    group: ClassicGroup, member: ClassicMember, known: dict[bytes, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the topics that a consumer subscribes to; none where its bytes do not say."""
    if group.protocol_type != CONSUMER:
        return ()
    raw = member.metadata(group.protocol)
    if raw not in known:  # many members tell the same
        known[raw] = tuple(sorted(topics_of([raw]) or ()))
    return known[raw]


def _end_of(one: ClassicRange) -> int:
    return one.first_partition + one.partition_count


def group_of(record: ClassicGroupWritten) -> ClassicGroup:
    """Return the group of a record: Stable if it has members, else Empty."""
    group = ClassicGroup(
        **{ours: getattr(record, name) for name, ours in _OF_GROUP.items()},
        protocol_type=record.protocol_type or None,
        state=ClassicState.STABLE if record.members else ClassicState.EMPTY,
    )
    for member in record.members:
        group.put(
            ClassicMember(
                **_take(member, _OF_MEMBER),
                protocols=(Protocol(record.protocol or "", member.subscription),),
                last_assignment=member.assignment,
                assigned=tuple(
                    (TopicKey(one.topic, one.topic_id), one.first_partition, _end_of(one))
                    for one in member.assigned
                ),
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
