"""Events and records of classic groups as one line of text each; no command brings them about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribeClassicGroup,
    GroupsLoaded,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from coordinator.core.state.records import ClassicGroupWritten

NOBODY = "nobody"


def _join(event: JoinGroup) -> str:
    names = " ".join(name for name, _ in event.protocols)
    timeouts = f"session={event.session_timeout_ms}ms rebalance={event.rebalance_timeout_ms}ms"
    who = _who(event.member_id or "a newcomer", event.instance_id)
    return f"# join {event.group_id} {who} {event.protocol_type}: {names} {timeouts}"


def _sync(event: SyncGroup) -> str:
    given = f" assigns {_list(event.assignments)}" if event.assignments else ""
    who = _who(event.member_id, event.instance_id)
    return f"# sync {event.group_id} {who} generation={event.generation}{given}"


def _heartbeat(event: ClassicHeartbeat) -> str:
    who = _who(event.member_id, event.instance_id)
    return f"# heartbeat {event.group_id} {who} generation={event.generation}"


def _leave(event: LeaveGroup) -> str:
    leavers = (_who(one.member_id or NOBODY, one.instance_id) for one in event.members)
    return f"# leave {event.group_id} {_list(leavers)}"


def classic_group_text(record: ClassicGroupWritten) -> str:
    """Return the record of a group."""
    members = _list(_who(one.member_id, one.instance_id) for one in record.members)
    led = f", led by {record.leader}" if record.leader else ""
    kind = " ".join(name for name in (record.protocol_type, record.protocol) if name)
    return f"classic group at generation {record.generation}, {kind or 'simple'}{led}: {members}"


def _who(member_id: str, instance_id: str | None) -> str:
    return member_id if instance_id is None else f"{member_id} instance={instance_id}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or NOBODY


CLASSIC_EVENTS: dict[type, Callable[[Any, object], str]] = {
    JoinGroup: lambda event, _: _join(event),
    SyncGroup: lambda event, _: _sync(event),
    ClassicHeartbeat: lambda event, _: _heartbeat(event),
    LeaveGroup: lambda event, _: _leave(event),
    DescribeClassicGroup: lambda event, _: f"# describe the classic group {event.group_id}",
    GroupsLoaded: lambda _, __: "# classic groups were loaded",
}
