"""Requests of the classic group protocol as events, and their answers as responses.

JoinGroup and SyncGroup may have to wait for other members. An answer that had to wait comes to
`Call.respond` as a Result, as one that was ready does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribeClassicGroup,
    DescribedGroup,
    DescribedMember,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Leaver,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
    is_unnamed_sync,
)
from coordinator.core.events import Answer, Result
from coordinator.errors import ErrorCode, GroupError
from coordinator.wire.call import Call, Cluster, respond_with, visible_to
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.decoder import TEXT_BYTES_MAX

MILLISECOND = timedelta(milliseconds=1)
NOT_NUMBERED = 0
"""The number of a request that may have to wait, before the runtime gives it one."""
REBALANCE_TIMEOUT_SINCE, MEMBER_ID_SINCE, SKIPPING_SINCE = 1, 4, 9
"""Versions of JoinGroup: before the first, a session's timeout was a rebalance's, too (H-1)."""
SEVERAL_SINCE = 3
"""Of LeaveGroup: more than one may leave at once (KIP-345)."""
GROUP_NOT_FOUND_SINCE = 6
"""Of DescribeGroups; before, an unknown group was a dead one."""
NO_PROTOCOL_SINCE = 7
"""Of JoinGroup, which since then has a null for a missing protocol."""
UUID_LETTERS = 36


# Joining -----------------------------------------------------------------------------------------


def join_group(request: Request, cluster: Cluster) -> Call:
    """JoinGroup; the id that a newcomer may get is drawn here, as Kafka makes it (H-10)."""
    asked, version = request.body, request.version
    session_timeout_ms = asked.session_timeout // MILLISECOND
    with_own = version >= REBALANCE_TIMEOUT_SINCE
    instance_id = getattr(asked, "group_instance_id", None)
    drawn_id = drawn_consumer_id = ""
    if not asked.member_id:  # drawing takes a twentieth of what a join takes
        drawn_consumer_id = str(uuid.uuid4())
        name = request.client_id if instance_id is None else instance_id
        drawn_id = f"{_shorten(name)}-{drawn_consumer_id}"
    event = JoinGroup(
        group_id=asked.group_id,
        member_id=asked.member_id,
        protocol_type=asked.protocol_type,
        protocols=[Protocol(one.name, one.metadata) for one in asked.protocols],
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout // MILLISECOND
        if with_own
        else session_timeout_ms,
        request_id=NOT_NUMBERED,
        drawn_id=drawn_id,
        drawn_consumer_id=drawn_consumer_id,
        instance_id=instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        client_software=request.session.named_software,
        knows_member_id=version >= MEMBER_ID_SINCE,
        knows_skipping=version >= SKIPPING_SINCE,
        find_visible=visible_to(request.session, cluster),
    )
    member_id = asked.member_id  # all that the answer needs of the request, which may be large
    return Call(lambda answers: _join_fields(member_id, answers[0], request.version), [event])


def _shorten(name: str) -> str:
    """Return a name that leaves room for what is drawn: both are one text of the protocol."""
    room = TEXT_BYTES_MAX - UUID_LETTERS - 1
    return name if len(name) * 4 <= room else name.encode()[:room].decode(errors="ignore")


def _no_name(version: int) -> str | None:
    return None if version >= NO_PROTOCOL_SINCE else ""


def _join_fields(member_id: str, answer: Answer, version: int) -> Values:
    found = (
        JoinGroupResponse(member_id, answer.code)
        if isinstance(answer, GroupError)
        else answer.response
    )
    assert isinstance(found, JoinGroupResponse), f"the answer to a JoinGroup is {found!r}"
    return {
        "error_code": found.error_code,
        "generation_id": found.generation,
        "protocol_type": found.protocol_type,
        "protocol_name": _no_name(version) if found.protocol_name is None else found.protocol_name,
        "leader": found.leader,
        "skip_assignment": found.skip_assignment,
        "member_id": found.member_id,
        "members": [_joined_fields(member) for member in found.members],
    }


def _joined_fields(member: JoinedMember) -> Values:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "metadata": member.metadata,
    }


def sync_group(request: Request, _cluster: Cluster) -> Call:
    """SyncGroup; of two assignments for one member the last counts."""
    if is_unnamed(request):
        return respond_with(_sync_fields(GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")))
    asked = request.body
    event = SyncGroup(
        group_id=asked.group_id,
        member_id=asked.member_id,
        generation=asked.generation_id,
        request_id=NOT_NUMBERED,
        assignments={one.member_id: one.assignment for one in asked.assignments},
        instance_id=getattr(asked, "group_instance_id", None),
        protocol_type=getattr(asked, "protocol_type", None),
        protocol_name=getattr(asked, "protocol_name", None),
    )
    return Call(lambda answers: _sync_fields(answers[0]), [event])


def is_unnamed(request: Request) -> bool:
    """Whether a SyncGroup must name its protocol, and does not."""
    body = request.body
    named = (getattr(body, "protocol_type", None), getattr(body, "protocol_name", None))
    return is_unnamed_sync(request.version, *named)


def _sync_fields(answer: Answer) -> Values:
    found = SyncGroupResponse(answer.code) if isinstance(answer, GroupError) else answer.response
    assert isinstance(found, SyncGroupResponse), f"the answer to a SyncGroup is {found!r}"
    return {
        "error_code": found.error_code,
        "protocol_type": found.protocol_type,
        "protocol_name": found.protocol_name,
        "assignment": found.assignment,
    }


# Staying and leaving -----------------------------------------------------------------------------


def heartbeat(request: Request, _cluster: Cluster) -> Call:
    """Heartbeat; while the log is replayed a member hears that all is well, as from Kafka (H-5)."""
    asked, conversation = request.body, request.conversation
    event = conversation.event_of(asked)
    if event is None:
        event = ClassicHeartbeat(
            group_id=asked.group_id,
            member_id=asked.member_id,
            generation=asked.generation_id,
            instance_id=getattr(asked, "group_instance_id", None),
        )
        conversation.note_event(asked, event)
    return Call(_beaten_fields, (event,))


def _beaten_fields(answers: Sequence[Answer]) -> Values:
    (answer,) = answers
    found = answer.code if isinstance(answer, GroupError) else answer.response
    assert isinstance(found, ErrorCode), f"the answer to a Heartbeat is {found!r}"
    loads = found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": ErrorCode.NONE if loads else found}


def leave_group(request: Request, _cluster: Cluster) -> Call:
    """LeaveGroup of several members; before version 3 of one, whose error is the answer's."""
    asked, several = request.body, request.version >= SEVERAL_SINCE
    leavers = (
        [Leaver(one.member_id, one.group_instance_id) for one in asked.members]
        if several
        else [Leaver(asked.member_id)]
    )

    def respond(answers: Sequence[Answer]) -> Values:
        (answer,) = answers
        if isinstance(answer, GroupError):
            return {"error_code": answer.code, "members": ()}
        found = answer.response
        assert isinstance(found, LeaveGroupResponse), f"the answer to a LeaveGroup is {found!r}"
        if not several:
            ((_, code),) = found.members
            return {"error_code": code}
        return {
            "error_code": ErrorCode.NONE,
            "members": [_left_fields(leaver, code) for leaver, code in found.members],
        }

    return Call(respond, [LeaveGroup(asked.group_id, leavers)])


def _left_fields(leaver: Leaver, code: ErrorCode) -> Values:
    return {
        "member_id": leaver.member_id,
        "group_instance_id": leaver.instance_id,
        "error_code": code,
    }


# Looking -----------------------------------------------------------------------------------------


def describe_groups(request: Request, _cluster: Cluster) -> Call:
    """DescribeGroups; clients also ask for a group where they found no consumer group."""
    group_ids = request.body.groups
    since = request.version >= GROUP_NOT_FOUND_SINCE

    def respond(answers: Sequence[Answer]) -> Values:
        pairs = zip(group_ids, answers, strict=True)
        return {"groups": [_described_fields(*pair, since=since) for pair in pairs]}

    return Call(respond, [DescribeClassicGroup(group_id) for group_id in group_ids])


def _described_fields(group_id: str, answer: Answer, *, since: bool) -> Values:
    """Return a group; one that cannot be shown is dead, and for newer clients an error, too."""
    if isinstance(answer, Result):
        group = answer.response
        assert isinstance(group, DescribedGroup), f"the answer to a DescribeGroups is {group!r}"
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "group_id": group_id,
            "group_state": group.state,
            "protocol_type": group.protocol_type,
            "protocol_data": group.protocol,
            "members": [_member_fields(member) for member in group.members],
        }
    hidden = not since and answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    return {
        "error_code": ErrorCode.NONE if hidden else answer.code,
        "error_message": None if hidden else answer.message,
        "group_id": group_id,
        "group_state": "Dead",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _member_fields(member: DescribedMember) -> Values:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = {Api.DESCRIBE_GROUPS: describe_groups}
CLASSIC_HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = {
    Api.JOIN_GROUP: join_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
    Api.SYNC_GROUP: sync_group,
}
"""Of members, for `codec.CLASSIC_VERSIONS`."""
