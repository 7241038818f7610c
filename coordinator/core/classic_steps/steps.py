"""Decide one event of the classic protocol, for classic and consumer groups."""

from __future__ import annotations

from functools import partial

from coordinator.config import Config
from coordinator.core.classic.events import (
    ClassicEvent,
    ClassicHeartbeat,
    DescribeClassicGroup,
    GroupsLoaded,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.classic_steps import membership, mixed
from coordinator.core.classic_steps.describe import describe_group
from coordinator.core.classic_steps.downgrade import remove_or_downgrade
from coordinator.core.classic_steps.join import join_group
from coordinator.core.classic_steps.sync import sync_group
from coordinator.core.classic_steps.upgrade import upgrade_group
from coordinator.core.events import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Heartbeat,
    Result,
    TimerFired,
)
from coordinator.core.heartbeat import heartbeat
from coordinator.core.member_removal import Removal, expire_member
from coordinator.core.member_removal import leave_group as leave_consumer_group
from coordinator.core.member_update import check_heartbeat
from coordinator.core.state import Group, State
from coordinator.errors import ErrorCode, GroupError


def decide_classic(  # noqa: PLR0911 - one line a kind of event
    state: State, config: Config, event: ClassicEvent, now_ms: int
) -> Result:
    """Decide a request of the classic protocol.

    Raises
    ------
    GroupError
        The request is refused, and nothing is written. A refused join or sync gets an answer.
    """
    match event:
        case JoinGroup():
            return _decide_join(state, config, event, now_ms)
        case SyncGroup():
            return _decide_sync(state, config, event, now_ms)
        case ClassicHeartbeat():
            _check_group_id(event.group_id)
            group = _find_live(state, event.group_id)
            return (
                membership.heartbeat(state, event)
                if group is None
                else mixed.heartbeat(state, config, group, event, now_ms)
            )
        case LeaveGroup():
            _check_group_id(event.group_id)
            group = _find_live(state, event.group_id)
            if group is None:
                return membership.leave_group(state, config, event, now_ms)
            return mixed.leave_group(group, event, _removal(state, config, now_ms))
        case DescribeClassicGroup():
            return describe_group(state, event)
        case GroupsLoaded():
            return membership.start_loaded_groups(state, config, now_ms)


def decide_heartbeat(state: State, config: Config, event: Heartbeat, now_ms: int) -> Result:
    """Decide a heartbeat of the consumer protocol, for classic and consumer groups.

    Raises
    ------
    GroupError
        The request is refused, and nothing is written.
    """
    if event.member_epoch in {LEAVE, LEAVE_FOR_A_WHILE}:
        check_heartbeat(config, event)
        return leave_consumer_group(state, event, _removal(state, config, now_ms))
    classic = state.classic.get(event.group_id)
    if classic is not None and classic.is_running() and event.member_epoch == JOIN:
        check_heartbeat(config, event)
        return upgrade_group(state, config, classic, event, now_ms)
    return heartbeat(state, config, event, now_ms)


def fire_timer(state: State, config: Config, event: TimerFired, now_ms: int) -> Result:
    """Handle a timer, if it is still valid."""
    if event.group_id in state.groups:
        return expire_member(state, event, _removal(state, config, now_ms))
    return membership.fire_timer(state, config, event, now_ms)


def _decide_join(state: State, config: Config, event: JoinGroup, now_ms: int) -> Result:
    refusal = _check_join(config, event)
    if refusal is not None:
        return refusal
    group = _find_live(state, event.group_id)
    if group is not None:
        return mixed.join_group(state, config, group, event, now_ms)
    return join_group(state, config, event, now_ms)


def _decide_sync(state: State, config: Config, event: SyncGroup, now_ms: int) -> Result:
    if not event.group_id:
        return Result(response=SyncGroupResponse(ErrorCode.INVALID_GROUP_ID))
    group = _find_live(state, event.group_id)
    if group is not None:
        return mixed.sync_group(state, group, event)
    return sync_group(state, config, event, now_ms)


def _find_live(state: State, group_id: str) -> Group | None:
    """Return a consumer group that has members."""
    group = state.groups.get(group_id)
    return group if group is not None and group.members else None


def _removal(state: State, config: Config, now_ms: int) -> Removal:
    return partial(remove_or_downgrade, state, config, now_ms)


def _check_join(config: Config, event: JoinGroup) -> Result | None:
    """Check a join's own fields, in Kafka's order (H-5)."""
    low = config.kafka.classic_min_session_timeout_ms
    high = config.kafka.classic_max_session_timeout_ms
    if not event.group_id:
        code = ErrorCode.INVALID_GROUP_ID
    elif not low <= event.session_timeout_ms <= high:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
    else:
        return None
    return Result(response=JoinGroupResponse(event.member_id, code))


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID, "The group id is empty: give one.")
