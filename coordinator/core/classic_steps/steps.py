"""Decide one event of the classic protocol, whatever kind of group it is about."""

from __future__ import annotations

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
from coordinator.core.classic_steps.describe import describe_group
from coordinator.core.classic_steps.join import join_group
from coordinator.core.classic_steps.membership import heartbeat, leave_group, start_loaded_groups
from coordinator.core.classic_steps.sync import sync_group
from coordinator.core.events import Result
from coordinator.core.state import State
from coordinator.errors import ErrorCode, GroupError


def decide_classic(  # noqa: PLR0911 - one line a kind of event
    state: State, config: Config, event: ClassicEvent, now_ms: int
) -> Result:
    """Decide a request of the classic protocol.

    Raises
    ------
    GroupError
        The request is refused; nothing is to be written. Refusals of a join or a sync are answers.
    """
    match event:
        case JoinGroup():
            refusal = _check_join(config, event)
            return refusal or join_group(state, config, event, now_ms)
        case SyncGroup():
            if not event.group_id:
                return Result(response=SyncGroupResponse(ErrorCode.INVALID_GROUP_ID))
            return sync_group(state, config, event, now_ms)
        case ClassicHeartbeat():
            _check_group_id(event.group_id)
            return heartbeat(state, event)
        case LeaveGroup():
            _check_group_id(event.group_id)
            return leave_group(state, config, event, now_ms)
        case DescribeClassicGroup():
            return describe_group(state, event)
        case GroupsLoaded():
            return start_loaded_groups(state, config, now_ms)


def _check_join(config: Config, event: JoinGroup) -> Result | None:
    """Refuse a join by itself, in Kafka's order (H-5)."""
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
