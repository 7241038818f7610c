"""`step`: which handler decides an event, as a table.

`coordinator/core/__init__.py` says what `step` and `replay` promise. A handler reads the state and
returns records, the response, timers and tasks as data. Time, new ids and settings are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from coordinator.config import Config
from coordinator.core import group_admin, offsets, topic_metadata, transactions
from coordinator.core.audit import with_audit
from coordinator.core.classic import membership
from coordinator.core.classic.describe import describe_group
from coordinator.core.classic.join import join_group
from coordinator.core.classic.sync import sync_group
from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribeClassicGroup,
    GroupsLoaded,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.consumer.heartbeat import heartbeat
from coordinator.core.consumer.member_removal import Removal, expire_member
from coordinator.core.consumer.member_removal import leave_group as leave_consumer_group
from coordinator.core.consumer.member_update import check_heartbeat
from coordinator.core.events import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    AlterConfig,
    ConfigureGroup,
    DecidePlan,
    DeleteGroup,
    DescribeConfig,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Heartbeat,
    InstallAssignment,
    ListConfiguredGroups,
    ListGroupIds,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    RecordAudit,
    RegexesResolved,
    ReportLoads,
    Result,
    TargetFailed,
    TargetLost,
    TimerFired,
    TopicsReported,
    TxnOffsetCommit,
)
from coordinator.core.migration import mixed
from coordinator.core.migration.downgrade import remove_or_downgrade
from coordinator.core.migration.upgrade import upgrade_group
from coordinator.core.plans import decide as plans
from coordinator.core.plans import note_loads
from coordinator.core.state.groups import Group, State
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets import install
from coordinator.core.watched.follow import decide_watched, follow
from coordinator.core.watched.kept_records import restore_records
from coordinator.core.watched_events import KafkaWrote, KeepRecords
from coordinator.errors import ErrorCode, GroupError

Handler: TypeAlias = Callable[[State, Config, Any, int], Result]
"""Takes the state, the settings, an event of its kind, and the time in ms since 1970."""


def step(state: State, config: Config, event: Event, now_ms: int) -> Result:
    """Decide one event, and say in the log who deleted or altered something by it.

    Parameters
    ----------
    state
        Read, never written.
    event
        What came; its fields are not trusted.
    now_ms
        The time, in ms since 1970.

    Raises
    ------
    GroupError
        The request is refused; nothing is written.
    """
    result = None if state.watched is None else decide_watched(state, state.watched, event)
    if result is None:
        result = HANDLERS[type(event)](state, config, event, now_ms)
    records = with_audit(event, result.records)
    return result if records is result.records else msgspec.structs.replace(result, records=records)


# The consumer or the classic protocol, for either type of group ----------------------------------


def _decide_heartbeat(state: State, config: Config, event: Heartbeat, now_ms: int) -> Result:
    if event.member_epoch in {LEAVE, LEAVE_FOR_A_WHILE}:
        check_heartbeat(config, event)
        return leave_consumer_group(state, event, _removal(state, config, now_ms))
    classic = state.classic.get(event.group_id)
    if classic is not None and classic.is_running() and event.member_epoch == JOIN:
        check_heartbeat(config, event)
        return upgrade_group(state, config, classic, event, now_ms)
    return heartbeat(state, config, event, now_ms)


def _fire_timer(state: State, config: Config, event: TimerFired, now_ms: int) -> Result:
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


def _decide_classic_heartbeat(
    state: State, config: Config, event: ClassicHeartbeat, now_ms: int
) -> Result:
    _check_group_id(event.group_id)
    group = _find_live(state, event.group_id)
    if group is None:
        return membership.heartbeat(state, event)
    return mixed.heartbeat(state, config, group, event, now_ms)


def _decide_leave(state: State, config: Config, event: LeaveGroup, now_ms: int) -> Result:
    _check_group_id(event.group_id)
    group = _find_live(state, event.group_id)
    if group is None:
        return membership.leave_group(state, config, event, now_ms)
    return mixed.leave_group(group, event, _removal(state, config, now_ms))


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


# The table ---------------------------------------------------------------------------------------


def _untimed(handler: Callable[[State, Config, Any], Result]) -> Handler:
    """Return the handler of an event that is decided alike at any time."""
    return lambda state, config, event, _now_ms: handler(state, config, event)


def _unset(handler: Callable[[State, Any], Result]) -> Handler:
    """Return the handler of an event that is decided alike at any time, by any settings."""
    return lambda state, _config, event, _now_ms: handler(state, event)


def _dated(handler: Callable[[State, Any, int], Result]) -> Handler:
    """Return the handler of an event that is decided alike by any settings."""
    return lambda state, _config, event, now_ms: handler(state, event, now_ms)


HANDLERS: Mapping[type[Event], Handler] = MappingProxyType(
    {
        # Members, by the consumer protocol and by the classic one
        Heartbeat: _decide_heartbeat,
        JoinGroup: _decide_join,
        SyncGroup: _decide_sync,
        ClassicHeartbeat: _decide_classic_heartbeat,
        LeaveGroup: _decide_leave,
        TimerFired: _fire_timer,
        GroupsLoaded: lambda state, config, _event, now_ms: membership.start_loaded_groups(
            state, config, now_ms
        ),
        # Offsets
        OffsetCommit: offsets.commit_offsets,
        TxnOffsetCommit: transactions.commit_offsets,
        EndTransaction: _dated(transactions.end_transaction),
        OffsetFetch: _unset(offsets.fetch_offsets),
        OffsetDelete: _unset(offsets.delete_offsets),
        ExpireOffsets: offsets.expire_offsets,
        # Targets that are not computed in a step
        PrepareAssignment: install.prepare_computation,
        InstallAssignment: _dated(install.install_assignment),
        TargetCandidate: _dated(install.install_computed),
        TargetFailed: _unset(install.give_up_computation),
        TargetLost: _unset(install.drop_lost_target),
        # Plans, and what they are made from
        DecidePlan: plans.decide_plan,
        ReportLoads: note_loads.note_loads,
        # Topics
        TopicsReported: _unset(topic_metadata.update_topics),
        RegexesResolved: _unset(topic_metadata.update_regexes),
        # Administrators
        DescribeGroup: _untimed(group_admin.describe_group),
        DescribeClassicGroup: _unset(describe_group),
        ListGroups: _unset(group_admin.list_groups),
        ListGroupIds: lambda state, *_: Result(response=group_admin.list_group_ids(state)),
        DeleteGroup: _unset(group_admin.delete_group),
        ConfigureGroup: _untimed(group_admin.configure_group),
        AlterConfig: _untimed(group_admin.alter_config),
        DescribeConfig: _untimed(group_admin.describe_config),
        ListConfiguredGroups: lambda state, *_: Result(response=sorted(state.settings)),
        RecordAudit: lambda _state, _config, event, _now_ms: Result(list(event.records)),
        # Groups that Kafka coordinates
        KafkaWrote: _unset(follow),
        KeepRecords: _unset(restore_records),
    }
)
"""What decides each kind of event."""
