"""Convert operations of a trace to requests of the classic protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.core.classic_events import (
    CONSUMER,
    ClassicHeartbeat,
    DescribeClassicGroup,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from coordinator.core.events import (
    DeleteGroup,
    Event,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
)
from coordinator.trace.classic_json import assignment_bytes, read_protocols
from coordinator.trace.fields import (
    TraceError,
    read_group_ids,
    read_names,
    read_object,
    read_offsets,
)

CLASSIC_FIELDS: dict[str, frozenset[str]] = {
    "join_group": frozenset(
        {
            *("group", "member_id", "instance_id", "protocol_type", "protocols"),
            *("session_timeout_ms", "rebalance_timeout_ms", "reason", "client_id", "client_host"),
            *("require_known_member_id", "supports_skipping_assignment"),
        }
    ),
    "sync_group": frozenset(
        {
            *("group", "member_id", "generation", "instance_id", "protocol_type", "protocol_name"),
            *("assignments", "version"),
        }
    ),
    "heartbeat_classic": frozenset({"group", "member_id", "generation", "instance_id", "offsets"}),
    "leave_group": frozenset({"group", "members"}),
    "describe_groups": frozenset({"group", "groups", "version"}),
    "list_groups": frozenset({"states", "types"}),
    "delete_groups": frozenset({"group", "groups"}),
    "offset_commit": frozenset({"group", "member_id", "generation", "instance_id", "offsets"}),
    "offset_fetch": frozenset({"group", "member_id", "epoch", "topics"}),
    "seed_group": frozenset({"group", "generation"}),
}
"""The fields of each operation. Recorded walks also give heartbeats `offsets`, without meaning."""


def requests_of(op: Mapping[str, Any], number: int, ids: tuple[str, str]) -> list[Event]:
    """Return the requests of an operation.

    Parameters
    ----------
    ids
        The next id of a new member: in a classic group, and in a consumer group.

    Raises
    ------
    TraceError
        A field that must be bytes or a list is not.
    """
    return _REQUESTS[op["op"]](op, number, ids)


def _join(op: Mapping[str, Any], number: int, ids: tuple[str, str]) -> list[Event]:
    drawn_id, drawn_consumer_id = ids
    knows_member_id = op.get("require_known_member_id", True)  # else its version is an old one
    return [
        JoinGroup(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            protocol_type=op.get("protocol_type", CONSUMER),
            protocols=read_protocols(op.get("protocols", [])),
            session_timeout_ms=op.get("session_timeout_ms", 45_000),
            rebalance_timeout_ms=op.get("rebalance_timeout_ms", 300_000),
            request_id=number,
            drawn_id=drawn_id,
            drawn_consumer_id=drawn_consumer_id,
            instance_id=op.get("instance_id"),
            client_id=op.get("client_id", "c"),
            client_host=f"/{op.get('client_host', '127.0.0.1')}",
            knows_member_id=knows_member_id,
            knows_skipping=knows_member_id and op.get("supports_skipping_assignment", True),
        )
    ]


def _sync(op: Mapping[str, Any], number: int, _ids: tuple[str, str]) -> list[Event]:
    given = read_object(op, "assignments")
    return [
        SyncGroup(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            generation=op.get("generation", -1),
            request_id=number,
            assignments={member: assignment_bytes(raw) for member, raw in given.items()},
            instance_id=op.get("instance_id"),
            protocol_type=op.get("protocol_type", CONSUMER),
            protocol_name=op.get("protocol_name"),
        )
    ]


def _heartbeat(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [
        ClassicHeartbeat(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            generation=op.get("generation", -1),
            instance_id=op.get("instance_id"),
        )
    ]


def _leave(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    given = op.get("members") or []
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise TraceError(f"members is {given!r}: give a list of {{member_id, instance_id}}")
    leavers = [Leaver(one.get("member_id", ""), one.get("instance_id")) for one in given]
    return [LeaveGroup(op.get("group", "g"), leavers)]


def _describe(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [DescribeClassicGroup(group_id) for group_id in read_group_ids(op)]


def _list(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [ListGroups(frozenset(read_names(op, "states")), frozenset(read_names(op, "types")))]


def _delete(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [DeleteGroup(group_id) for group_id in read_group_ids(op)]


def _commit(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [
        OffsetCommit(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            member_epoch=op.get("generation", -1),
            offsets=read_offsets({"offsets": {}, **op}),
            instance_id=op.get("instance_id"),
        )
    ]


def _fetch(op: Mapping[str, Any], _number: int, _ids: tuple[str, str]) -> list[Event]:
    return [
        OffsetFetch(
            group_id=op.get("group", "g"),
            topics=op.get("topics"),
            member_id=op.get("member_id"),
            member_epoch=op.get("epoch", -1),
        )
    ]


_REQUESTS: dict[str, Callable[[Mapping[str, Any], int, tuple[str, str]], list[Event]]] = {
    "join_group": _join,
    "sync_group": _sync,
    "heartbeat_classic": _heartbeat,
    "leave_group": _leave,
    "describe_groups": _describe,
    "list_groups": _list,
    "delete_groups": _delete,
    "offset_commit": _commit,
    "offset_fetch": _fetch,
}
