"""Remove members that leave or time out (docs/design/behaviours.md#static-members, #timers)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from coordinator.core.events import (
    HEARTBEAT,
    JOIN_PHASE,
    LEAVE_FOR_A_WHILE,
    REBALANCE,
    SESSION,
    SYNC_PHASE,
    Heartbeat,
    HeartbeatResponse,
    Result,
    SetTimer,
    TimerFired,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    Record,
    RegexResolved,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.subscriptions import hash_with
from coordinator.core.state.target_candidate import TargetCandidate, list_records
from coordinator.errors import ErrorCode, GroupError

Removal: TypeAlias = Callable[[Group, Sequence[str], Reason, object], Result]
"""Removes members of a group, for a reason, and answers with a response."""
TIMEOUTS = {
    SESSION: Reason.SESSION_TIMEOUT,
    REBALANCE: Reason.REBALANCE_TIMEOUT,
    HEARTBEAT: Reason.HEARTBEAT_TIMEOUT,
    JOIN_PHASE: Reason.JOIN_TIMEOUT,
    SYNC_PHASE: Reason.SYNC_TIMEOUT,
}
"""Why a member is removed, by the kind of its timer that fired."""


def leave_group(state: State, event: Heartbeat, remove: Removal) -> Result:
    """Answer a heartbeat with epoch −1 or −2."""
    group = state.groups.get(event.group_id)
    if group is None:
        raise not_found(event.group_id)
    if event.instance_id is None:
        member = group.members.get(event.member_id)
        if member is None:
            raise unknown_member(event.group_id, event.member_id)
    else:
        member = static_member(group, event.instance_id, event.member_id)
    response = HeartbeatResponse(event.member_id, event.member_epoch, heartbeat_interval_ms=0)
    if event.member_epoch == LEAVE_FOR_A_WHILE:
        return Result([_leave_static(member)], response)
    return remove(group, [member.member_id], Reason.MEMBER_LEFT, response)


def expire_member(state: State, event: TimerFired, remove: Removal) -> Result:
    """Remove a member one of whose timers fired, if the timer still means it."""
    group = state.groups.get(event.group_id)
    member = group.members.get(event.member_id) if group else None
    if group is None or member is None:
        return Result()
    if event.kind == REBALANCE and member.epoch != event.member_epoch:
        return Result()
    return remove(group, [event.member_id], TIMEOUTS[event.kind], None)


def remove_members(
    state: State, group: Group, member_ids: Sequence[str], reason: Reason, response: object
) -> Result:
    """Remove members: their records end, what only they subscribed to ends, the epoch moves."""
    records: list[Record] = []
    timers: list[SetTimer] = []
    for member_id in member_ids:
        records += end_of_member(group.group_id, member_id)
        timers += end_timers(group.group_id, member_id)
    gone = [group.members[member_id].meta for member_id in member_ids]
    unused = unused_regexes(group, gone)
    records += [Tombstone(RegexResolved.kind, group.group_id, name=regex) for regex in unused]
    epoch = group.epoch + 1
    metadata_hash = hash_after(state, group, gone, None, unused)
    owner_left = any(group.targets.get(member_id) for member_id in member_ids)
    records.append(
        GroupMetadata(group.group_id, epoch, metadata_hash, reason, member_ids[0], owner_left)
    )
    if len(member_ids) == len(group.members):
        # The group is Empty, not Assigning, and the next joiner is assigned at once (G-44).
        records += list_records(TargetCandidate(group.group_id, epoch), 0)
    return Result(records, response, timers)


def end_of_member(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member's three records."""
    kinds = (CurrentMember.kind, TargetMember.kind, MemberMetadata.kind)
    return [Tombstone(kind, group_id, member_id) for kind in kinds]


def end_timers(group_id: str, member_id: str) -> list[SetTimer]:
    """Return what cancels a member's timers."""
    kinds = (SESSION, REBALANCE, JOIN_PHASE, SYNC_PHASE)
    return [SetTimer(kind, group_id, member_id, None) for kind in kinds]


def unused_regexes(group: Group, gone: Sequence[MemberMetadata]) -> list[str]:
    """Return the resolved regexes that no member uses once these are gone (G-85)."""
    fewer = Counter(meta.subscribed_topic_regex for meta in gone)
    return sorted(
        regex
        for regex, count in fewer.items()
        if regex in group.regexes and group.regex_members[regex] <= count
    )


def hash_after(
    state: State,
    group: Group,
    gone: Sequence[MemberMetadata],
    come: MemberMetadata | None,
    unused: Sequence[str],
) -> int:
    """Return the metadata hash of what will be subscribed after this step (G-148).

    Parameters
    ----------
    gone, come
        Members that go away as they were, and one that comes.
    unused
        Resolved regexes that end.
    """
    new = None if come is None else come.subscribed_topic_names
    fewer = Counter(meta.subscribed_topic_names for meta in gone)
    ended = [names for names, count in fewer.items() if _is_last(group, names, count, new)]
    ended += [group.regexes[regex].topics for regex in unused]
    return hash_with(state, group, [] if new is None or new in group.lists else [new], ended)


def _is_last(group: Group, names: tuple[str, ...], count: int, new: tuple[str, ...] | None) -> bool:
    """Whether a list of names ends with so many members of it."""
    listed = group.lists.get(names)
    return listed is not None and listed.members <= count and names != new


def _leave_static(member: Member) -> CurrentMember:
    """Return what a static member holds while it is away: its target waits for it (G-49a)."""
    current = member.current
    return CurrentMember(
        group_id=current.group_id,
        member_id=current.member_id,
        member_epoch=LEAVE_FOR_A_WHILE,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned=tuple((key, first, end, 0) for key, first, end, _ in current.assigned),
    )


def static_member(group: Group, instance_id: str, member_id: str) -> Member:
    """Return the member of an instance id, if it is this one (G-49).

    Raises
    ------
    GroupError
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise GroupError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def not_found(group_id: str) -> GroupError:
    """Return the error for a group that was not found."""
    return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def unknown_member(group_id: str, member_id: str) -> GroupError:
    """Return the refusal of a member that is not in the group."""
    return GroupError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
