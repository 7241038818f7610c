"""Convert a classic group to a consumer group while it has members (M2-2…M2-5).

This happens when a member joins by a heartbeat, and the migration policy allows it. The generation
becomes the group epoch, and the leader's assignment becomes the target and current assignment. Then
the heartbeat is decided as in any consumer group. Waiting members are asked to rejoin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.config import Config
from coordinator.core.classic_events import (
    CONSUMER,
    JoinGroupResponse,
    Parked,
    SyncGroupResponse,
)
from coordinator.core.consumer.heartbeat import heartbeat
from coordinator.core.events import (
    HEARTBEAT,
    JOIN_PHASE,
    SESSION,
    SYNC_PHASE,
    Heartbeat,
    Result,
    SetTimer,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.classic_group import ClassicGroup, ClassicMember
from coordinator.core.state.embedded import MalformedError, read_assignment, read_subscription
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import Spans, TopicKey, add_epoch, spans_of
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberMetadata,
    ClassicProtocol,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    Record,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.state_records import replay_alone
from coordinator.core.state.subscriptions import hash_of
from coordinator.core.state.target_candidate import TargetCandidate, list_records
from coordinator.errors import ErrorCode, GroupError

UPGRADES = {"bidirectional", "upgrade"}
GENERATION_MAX = 2**31 - 2**16
"""The largest group epoch to start with: an epoch only rises, and never wraps."""


@dataclass(frozen=True, slots=True)
class ConvertedMember:
    """A converted member, and its assignment."""

    meta: MemberMetadata
    assigned: Spans


def upgrade_group(
    state: State, config: Config, group: ClassicGroup, event: Heartbeat, now_ms: int
) -> Result:
    """Convert a group, and answer the heartbeat that joins it.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND: the group must stay a classic group. Or the heartbeat is refused.
    """
    _check(config, group)
    epoch = max(group.generation, 1)
    records = _convert(state, group, epoch)
    joined = heartbeat(replay_alone(state, records), config, event, now_ms)
    ended = Tombstone(ClassicGroupWritten.kind, group.group_id)
    return Result(
        [ended, *records, *joined.records],
        joined.response,
        [*_timers(group), *joined.timers],
        joined.tasks,
        completed=_release(group.members.values()),
    )


def _check(config: Config, group: ClassicGroup) -> None:
    """Refuse a group that must stay a classic group."""
    policy, most = config.kafka.migration_policy, config.kafka.max_size
    if policy not in UPGRADES:
        why = f"group.consumer.migration.policy is {policy}"
    elif group.protocol_type != CONSUMER:
        why = f"its protocol type is {group.protocol_type}"
    elif len(group.members) > most:
        why = f"it has {len(group.members)} members, group.consumer.max.size is {most}"
    elif group.generation > GENERATION_MAX:
        why = f"its generation is {group.generation}, and epochs do not wrap"
    else:
        return
    raise _stays_classic(group, why)


def _stays_classic(group: ClassicGroup, why: str) -> GroupError:
    message = f"Group {group.group_id} is not a consumer group, and cannot become one: {why}."
    return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _convert(state: State, group: ClassicGroup, epoch: int) -> list[Record]:
    """Return the records of the consumer group.

    The last member comes first: a consumer group lists its newest members first.
    """
    members = _convert_members(state, group)
    names = {name for one in members for name in one.meta.subscribed_topic_names}
    metas = [one.meta for one in reversed(members)]
    targets = [TargetMember(group.group_id, one.meta.member_id, one.assigned) for one in members]
    current = [
        CurrentMember(
            group_id=group.group_id,
            member_id=one.meta.member_id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            assigned=add_epoch(one.assigned, epoch),
        )
        for one in members
    ]
    return [
        *metas,
        GroupMetadata(
            group.group_id, epoch, hash_of(state.topics, names), Reason.CLASSIC_GROUP_CONVERTED
        ),
        *list_records(TargetCandidate(group.group_id, epoch, changes=targets), 0),
        *current,
    ]


def _convert_members(state: State, group: ClassicGroup) -> list[ConvertedMember]:
    """Return the members. A partition that the leader gave to two of them stays with the first."""
    taken: set[tuple[TopicKey, int]] = set()
    converted = []
    for member in group.members.values():
        try:
            subscription = read_subscription(_metadata(group, member))
            assignment = read_assignment(member.assignment).partitions if member.assignment else {}
        except MalformedError as error:
            why = f"what member {member.member_id} subscribes to or has cannot be read: {error}"
            raise _stays_classic(group, why) from None
        given = {
            (state.topics[name].key, partition)
            for name, partitions in assignment.items()
            if name in state.topics
            for partition in partitions
            if 0 <= partition < state.topics[name].partitions
        }
        assigned = spans_of(given - taken)
        taken |= given
        meta = MemberMetadata(
            group_id=group.group_id,
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic_member_metadata=ClassicMemberMetadata(
                member.session_timeout_ms,
                tuple(ClassicProtocol(name, metadata) for name, metadata in member.protocols),
            ),
        )
        converted.append(ConvertedMember(meta, assigned))
    return converted


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Return a member's metadata for the group's protocol, or its first if none is chosen yet."""
    names = [name for name, _ in member.protocols]
    return member.metadata(group.protocol if group.protocol in names else names[0])


def _timers(group: ClassicGroup) -> list[SetTimer]:
    """Return timers that end the classic group's timers and start its members' sessions."""
    group_id = group.group_id
    ended = [SetTimer(kind, group_id, "", None) for kind in (JOIN_PHASE, SYNC_PHASE)]
    ended += [
        SetTimer(HEARTBEAT, group_id, member_id, None)
        for member_id in (*group.members, *group.pending_joins)
    ]
    sessions = [
        SetTimer(SESSION, group_id, member.member_id, member.session_timeout_ms)
        for member in group.members.values()
    ]
    return ended + sessions


def _release(members: Iterable[ClassicMember]) -> list[tuple[int, Parked]]:
    """Tell all waiting members to join again."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    released: list[tuple[int, Parked]] = []
    for member in members:
        if member.parked_join is not None:
            released.append((member.parked_join, JoinGroupResponse(member.member_id, again)))
        if member.parked_sync is not None:
            released.append((member.parked_sync, SyncGroupResponse(again)))
    return released
