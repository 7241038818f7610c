"""Requests and answers of the classic protocol, as JSON values of a trace.

Bytes of the embedded consumer protocol are shown decoded, and all other bytes as base64.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any

from coordinator.core.classic_events import (
    CONSUMER,
    DescribedGroup,
    JoinGroupResponse,
    LeaveGroupResponse,
    Parked,
    Protocol,
)
from coordinator.core.state.embedded import (
    HIGHEST_VERSION,
    Assignment,
    MalformedError,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from coordinator.core.state.records import ClassicGroupWritten
from coordinator.errors import ErrorCode
from coordinator.trace.fields import TraceError, or_default

# Bytes -------------------------------------------------------------------------------------------


def subscription_bytes(given: object) -> bytes:
    """Return the bytes of a subscription, which is given as an object or as base64.

    Raises
    ------
    TraceError
        It is neither.
    """
    if not isinstance(given, Mapping):
        return _from_base64(given)
    user_data = given.get("user_data")
    try:
        return write_subscription(
            Subscription(
                version=or_default(given.get("version"), HIGHEST_VERSION),
                topics=given.get("topics") or [],
                user_data=None if user_data is None else _from_base64(user_data),
                owned=given.get("owned") or {},
                generation=or_default(given.get("generation"), -1),
                rack=given.get("rack"),
            )
        )
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        raise TraceError(f"{given!r} is not a subscription: {error}") from None


def assignment_bytes(given: object) -> bytes:
    """Return the bytes of an assignment, which is given as {topic: [partitions]} or as base64.

    Raises
    ------
    TraceError
        It is neither.
    """
    if not isinstance(given, Mapping):
        return _from_base64(given)
    try:
        return write_assignment(Assignment(HIGHEST_VERSION, given))
    except (AttributeError, TypeError, ValueError, struct.error) as error:
        raise TraceError(f"{given!r} is not an assignment: {error}") from None


def show_subscription(protocol_type: str | None, raw: bytes) -> object:
    """Return a member's metadata as a trace shows it."""
    if protocol_type != CONSUMER:
        return _base64(raw)
    try:
        found = read_subscription(raw)
    except MalformedError:
        return _base64(raw)
    shown: dict[str, object] = {
        "version": found.version,
        "topics": list(found.topics),
        "owned": {topic: list(partitions) for topic, partitions in found.owned.items()},
        "generation": found.generation,
    }
    if found.rack is not None:
        shown["rack"] = found.rack
    if found.user_data is not None:
        shown["user_data"] = _base64(found.user_data)
    return shown


def show_assignment(protocol_type: str | None, raw: bytes) -> object:
    """Return a member's assignment as a trace shows it."""
    if protocol_type != CONSUMER:
        return _base64(raw)
    try:
        found = read_assignment(raw)
    except MalformedError:
        return _base64(raw)
    shown: dict[str, object] = {
        "version": found.version,
        "partitions": {topic: list(numbers) for topic, numbers in found.partitions.items()},
    }
    if found.user_data is not None:
        shown["user_data"] = _base64(found.user_data)
    return shown


def read_protocols(given: object) -> list[Protocol]:
    """Return the protocols of a join.

    Raises
    ------
    TraceError
        They are not a list of {name, metadata}.
    """
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise TraceError(f"protocols is {given!r}: give a list of {{name, metadata}}")
    return [
        Protocol(one.get("name", ""), subscription_bytes(one.get("metadata", ""))) for one in given
    ]


# Answers -----------------------------------------------------------------------------------------


def show_error(code: ErrorCode) -> dict[str, Any]:
    """Return the number and the name of an error code; NONE means no error."""
    return {"error_code": int(code), "error": code.name}


def show_parked(answer: Parked) -> dict[str, Any]:
    """Return the answer to a join or a sync."""
    if isinstance(answer, JoinGroupResponse):
        return _show_join(answer)
    error = show_error(answer.error_code)
    if answer.error_code is not ErrorCode.NONE:
        return error
    return {
        **error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "assignment": show_assignment(answer.protocol_type, answer.assignment),
    }


def _show_join(answer: JoinGroupResponse) -> dict[str, Any]:
    error = {**show_error(answer.error_code), "member_id": answer.member_id}
    if answer.error_code is not ErrorCode.NONE:
        return error
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "metadata": show_subscription(answer.protocol_type, member.metadata),
        }
        for member in sorted(answer.members, key=lambda member: member.member_id)
    ]
    return {
        **error,
        "generation": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol_name,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "members": members,
    }


def show_leave(answer: LeaveGroupResponse) -> dict[str, Any]:
    """Return the answer to a leave."""
    members = [
        {"member_id": leaver.member_id, "instance_id": leaver.instance_id, **show_error(code)}
        for leaver, code in answer.members
    ]
    return {**show_error(ErrorCode.NONE), "members": members}


def show_group(group: DescribedGroup) -> dict[str, Any]:
    """Return a group as DescribeGroups describes it."""
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "metadata": show_subscription(group.protocol_type, member.metadata),
            "assignment": show_assignment(group.protocol_type, member.assignment),
        }
        for member in group.members
    ]
    return {
        "group": group.group_id,
        **show_error(ErrorCode.NONE),
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": members,
    }


def show_no_group(group_id: str, code: ErrorCode) -> dict[str, Any]:
    """Return the answer of DescribeGroups for a group that it does not find."""
    return {
        "group": group_id,
        **show_error(code),
        "state": "Dead",
        "protocol_type": "",
        "protocol": "",
        "members": [],
    }


def show_written_members(
    record: ClassicGroupWritten, shown: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the members of a record by id, with their bytes decoded."""
    members = [
        {
            **one,
            "subscription": show_subscription(record.protocol_type, member.subscription),
            "assignment": show_assignment(record.protocol_type, member.assignment),
        }
        for member, one in zip(record.members, shown, strict=True)
    ]
    return sorted(members, key=lambda member: str(member["memberId"]))


def show_protocols(shown: dict[str, Any] | None) -> None:
    """Replace the bytes of a member's protocols by their decoded content."""
    for protocol in shown["supportedProtocols"] if shown else ():
        raw = base64.b64decode(protocol["metadata"])
        protocol["metadata"] = show_subscription(CONSUMER, raw)


def _from_base64(given: object) -> bytes:
    try:
        return base64.b64decode(given, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error):
        raise TraceError(f"{given!r} is not base64") from None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
