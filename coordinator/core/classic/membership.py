"""Decide Heartbeat and LeaveGroup of a classic group, and its timers."""

from __future__ import annotations

from coordinator.config import Config
from coordinator.core.classic.rebalance import (
    ClassicUpdate,
    complete_if_all_joined,
    complete_join_phase,
    end_join_phase,
    end_sync_phase,
    prepare_rebalance,
)
from coordinator.core.classic_events import (
    ClassicHeartbeat,
    LeaveGroup,
    LeaveGroupResponse,
    Leaver,
)
from coordinator.core.consumer.member_removal import unknown_member
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, Result, SetTimer, TimerFired
from coordinator.core.reasons import Reason
from coordinator.core.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from coordinator.core.state.groups import State
from coordinator.errors import ErrorCode, GroupError


def heartbeat(state: State, event: ClassicHeartbeat) -> Result:
    """Answer a heartbeat; the response is NONE, or that the group rebalances.

    Raises
    ------
    GroupError
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    group = state.classic.get(event.group_id)
    if group is None:
        raise unknown_member(event.group_id, event.member_id)
    member = group.find_member(event.member_id, event.instance_id)
    group.check_generation(event.generation)
    rebalances = group.state is ClassicState.PREPARING
    session = SetTimer(HEARTBEAT, group.group_id, member.member_id, member.session_timeout_ms)
    return Result(
        response=ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE,
        timers=[session],
    )


def find_steady_member(state: State, event: ClassicHeartbeat) -> ClassicMember | None:
    """Return the member of a heartbeat that changes nothing but its session; None for all others.

    The fast path: of exactly these `heartbeat` says NONE, and gives them another session timeout.
    Where Kafka coordinates the groups there are none.
    """
    group = state.classic.get(event.group_id)
    if (
        group is None
        or state.watched is not None
        or event.generation != group.generation
        or group.state is ClassicState.PREPARING
        or not (
            event.instance_id is None or group.instances.get(event.instance_id) == event.member_id
        )
    ):
        return None
    return group.members.get(event.member_id)


def leave_group(state: State, config: Config, event: LeaveGroup, now_ms: int) -> Result:
    """Remove the members that exist, and rebalance once for all of them."""
    found = state.classic.get(event.group_id)
    if found is None:
        unknown = [(leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in event.members]
        return Result(response=LeaveGroupResponse(unknown))
    update = ClassicUpdate(found.draft(), config, now_ms)
    left = [(leaver, _leave(update, leaver)) for leaver in event.members]
    if any(code is ErrorCode.NONE for _, code in left):
        gone = [one.member_id for one, code in left if code is ErrorCode.NONE]
        _members_went(update, Reason.MEMBER_LEFT, gone[0] if len(gone) == 1 else None)
    return update.result(LeaveGroupResponse(left))


def _leave(update: ClassicUpdate, leaver: Leaver) -> ErrorCode:
    group, member_id = update.group, leaver.member_id
    if not member_id:
        # An administrator removes the member that has the instance id.
        member_id = group.instances.get(leaver.instance_id or "", "")
        if leaver.instance_id is None or not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending_joins:
        update.drop_member(member_id)
        return ErrorCode.NONE
    else:
        try:
            group.find_member(member_id, leaver.instance_id)
        except GroupError as error:
            return error.code
    update.turn_away(member_id)
    return ErrorCode.NONE


def _members_went(update: ClassicUpdate, reason: Reason, cause: str | None) -> None:
    match update.group.state:
        case ClassicState.STABLE | ClassicState.COMPLETING:
            prepare_rebalance(update, reason, cause or None)
        case ClassicState.PREPARING:
            update.group.note_reason(reason, cause or None)
            complete_if_all_joined(update)


def fire_timer(state: State, config: Config, event: TimerFired, now_ms: int) -> Result:
    """Handle a timer of a classic group, if it is still valid."""
    found = state.classic.get(event.group_id)
    if found is None:
        return Result()
    update = ClassicUpdate(found.draft(), config, now_ms)
    if event.kind == HEARTBEAT:
        _expire(update, event.member_id)
    elif event.kind == JOIN_PHASE:
        end_join_phase(update)
    elif (
        event.member_epoch == found.generation
        and found.pending_syncs
        and found.state in {ClassicState.COMPLETING, ClassicState.STABLE}
    ):
        end_sync_phase(update)
    return update.result()


def _expire(update: ClassicUpdate, member_id: str) -> None:
    """Remove a member whose session ended, unless its request is waiting (H-16)."""
    group = update.group
    if member_id in group.pending_joins:
        update.drop_member(member_id)
        # Also during the delay of the first generation: Kafka does not check that here either.
        if group.state is ClassicState.PREPARING and group.have_all_joined():
            complete_join_phase(update)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member.parked_join is not None or member.parked_sync is not None
    if waits and not member.is_new:
        return
    update.turn_away(member_id)
    _members_went(update, Reason.SESSION_TIMEOUT, member_id)


def start_loaded_groups(state: State, config: Config, now_ms: int) -> Result:
    """Start the sessions of classic groups after the log was replayed (H-37).

    Every member gets a full session timeout plus check_ms: for that long, the previous coordinator
    may confirm heartbeats after this one's claim. A group that exceeds the maximum size rebalances,
    and the members that join last are refused.
    """
    timers: list[SetTimer] = []
    groups: list[ClassicGroup] = []
    for _, found in sorted(state.classic.items()):
        update = ClassicUpdate(found.draft(), config, now_ms)
        for member in found.members.values():
            update.start_session(member, member.session_timeout_ms + config.lease.check_ms)
        if len(found.members) > config.kafka.classic_max_size:
            prepare_rebalance(update, Reason.GROUP_MAX_SIZE_FELL)
        one = update.result()
        timers.extend(one.timers)
        groups.extend(one.classic)
    return Result(timers=timers, classic=groups)
