"""The operations of a trace that are requests: how each is read, and how its answers are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from coordinator.core.classic_events import (
    CONSUMER,
    NAMED_SINCE,
    WAITING,
    ClassicHeartbeat,
    DescribeClassicGroup,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
    SyncGroupResponse,
    is_unnamed_sync,
)
from coordinator.core.events import (
    Answer,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
)
from coordinator.core.state.partition_spans import kafka_id, make_id
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime import responses
from coordinator.trace.classic_json import (
    assignment_bytes,
    read_protocols,
    show_error,
    show_group,
    show_leave,
    show_no_group,
    show_parked,
)
from coordinator.trace.fields import (
    TraceError,
    or_default,
    read_group_ids,
    read_names,
    read_object,
    read_offsets,
)
from coordinator.trace.kafka_json import to_camel_case
from coordinator.trace.player import Player

Op: TypeAlias = Mapping[str, Any]
STRICT_DESCRIBE_VERSION = 6
"""The first version in which an unknown group is an error."""


class Request(NamedTuple):
    """One kind of operation.

    Attributes
    ----------
    fields
        Those that it may have, with spaces between them.
    read
        Makes the requests of an operation, which is the player's `number`-th.
    show
        Makes the answer to an operation of the answers to its requests.
    classic
        Whether it came with the classic protocol. Answers then have a number, for some come late.
    """

    fields: str
    read: Callable[[Op, Player, int], Sequence[Event]]
    show: Callable[[Op, Sequence[Answer]], dict[str, Any]]
    classic: bool = True


def read_requests(op: Op, player: Player, number: int) -> Sequence[Event]:
    """Return the requests of an operation.

    Raises
    ------
    TraceError
        A field that the requests themselves could not carry.
    """
    request = REQUESTS[op.get("op", HEARTBEAT)]
    if request.classic and not isinstance(op.get("group", ""), str):
        raise TraceError(f"group is {op['group']!r}: give a group id")
    if request.classic and type(op.get("version", 0)) is not int:
        raise TraceError(f"version is {op['version']!r}: give a number")
    return request.read(op, player, number)


# Reading -----------------------------------------------------------------------------------------


def _consumer_heartbeat(op: Op, player: Player, _number: int) -> list[Event]:
    fields = {
        "group_id": op.get("group", "g"),
        "member_id": op.get("member", ""),
        "member_epoch": op.get("epoch"),
        "instance_id": op.get("instance_id"),
        "rack_id": op.get("rack"),
        "rebalance_timeout_ms": or_default(op.get("rebalance_timeout_ms"), -1),
        "subscribed_topic_names": op.get("subscribed"),
        "subscribed_topic_regex": op.get("regex"),
        "server_assignor": op.get("server_assignor"),
        "topic_partitions": _by_id(op.get("owned"), player),
        "by_topic_id": True,
        "client_id": "client",
        "client_host": "localhost/127.0.0.1",
    }
    return [Heartbeat(**fields)]


def _by_id(owned: object, player: Player) -> object:
    """Replace topic names by the topics' current ids, as clients report partitions."""
    if not isinstance(owned, Mapping):
        return owned
    topics = player.catalog.topics()
    return {
        kafka_id(topics[name].topic_id if name in topics else make_id(name)): partitions
        for name, partitions in owned.items()
    }


def _join(op: Op, player: Player, number: int) -> list[Event]:
    drawn_id, drawn_consumer_id = player.next_ids()
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


def _sync(op: Op, _player: Player, number: int) -> list[Event]:
    version, protocol_type = op.get("version", NAMED_SINCE), op.get("protocol_type", CONSUMER)
    if is_unnamed_sync(version, protocol_type, op.get("protocol_name")):
        return []  # refused before it comes to the coordinator
    given = read_object(op, "assignments")
    return [
        SyncGroup(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            generation=op.get("generation", -1),
            request_id=number,
            assignments={member: assignment_bytes(raw) for member, raw in given.items()},
            instance_id=op.get("instance_id"),
            protocol_type=protocol_type,
            protocol_name=op.get("protocol_name"),
        )
    ]


def _classic_heartbeat(op: Op, _player: Player, _number: int) -> list[Event]:
    return [
        ClassicHeartbeat(
            group_id=op.get("group", "g"),
            member_id=op.get("member_id", ""),
            generation=op.get("generation", -1),
            instance_id=op.get("instance_id"),
        )
    ]


def _leave(op: Op, _player: Player, _number: int) -> list[Event]:
    given = op.get("members") or []
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise TraceError(f"members is {given!r}: give a list of {{member_id, instance_id}}")
    leavers = [Leaver(one.get("member_id", ""), one.get("instance_id")) for one in given]
    return [LeaveGroup(op.get("group", "g"), leavers)]


def _describe(op: Op, _player: Player, _number: int) -> list[Event]:
    return [DescribeGroup(op.get("group", "g"))]


def _delete_group(op: Op, _player: Player, _number: int) -> list[Event]:
    return [DeleteGroup(op.get("group", "g"))]


def _describe_groups(op: Op, _player: Player, _number: int) -> list[Event]:
    return [DescribeClassicGroup(group_id) for group_id in read_group_ids(op)]


def _list(op: Op, _player: Player, _number: int) -> list[Event]:
    return [ListGroups(frozenset(read_names(op, "states")), frozenset(read_names(op, "types")))]


def _delete_groups(op: Op, _player: Player, _number: int) -> list[Event]:
    return [DeleteGroup(group_id) for group_id in read_group_ids(op)]


def _commit(op: Op, _player: Player, _number: int) -> list[Event]:
    return [_offset_commit(op, op.get("member", ""), op.get("epoch"))]


def _commit_by_generation(op: Op, _player: Player, _number: int) -> list[Event]:
    generation = op.get("generation", -1)
    return [_offset_commit({"offsets": {}, **op}, op.get("member_id", ""), generation)]


def _offset_commit(op: Op, member_id: Any, epoch: Any) -> Event:  # noqa: ANN401 - as it is given
    group_id, instance_id = op.get("group", "g"), op.get("instance_id")
    return OffsetCommit(group_id, member_id, epoch, read_offsets(op), instance_id=instance_id)


def _configure(op: Op, _player: Player, _number: int) -> list[Event]:
    settings = {name: str(value) for name, value in read_object(op, "props").items()}
    return [ConfigureGroup(op.get("group", "g"), settings)]


def _fetch(op: Op, _player: Player, _number: int) -> list[Event]:
    return [
        OffsetFetch(
            group_id=op.get("group", "g"),
            topics=op.get("topics"),
            member_id=op.get("member_id"),
            member_epoch=op.get("epoch", -1),
        )
    ]


# Showing -----------------------------------------------------------------------------------------


def show_refusal(error: GroupError) -> dict[str, Any]:
    """Return an error with its message."""
    return {"error": error.code.name, "error_code": int(error.code), "error_message": error.message}


def _show_heartbeat(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    answer = responses.heartbeat_answer(answers[0])
    shown: dict[str, Any] = {
        "error": answer.error,
        "error_code": answer.error_code,
        "error_message": answer.error_message,
    }
    if answer.error_code == 0:
        shown = {
            "member_id": answer.member_id,
            "member_epoch": answer.member_epoch,
            "heartbeat_interval_ms": answer.heartbeat_interval_ms,
            "assignment": answer.assignment,
            **shown,
        }
    return {"response": shown}


def _show_commit(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    if isinstance(answers[0], GroupError):
        return {"response": show_refusal(answers[0])}
    return {"response": _show_results(answers[0].response)}


def _show_results(found: Any) -> dict[str, Any]:  # noqa: ANN401 - the answer to OffsetCommit
    """Return the name of an error code per partition."""
    results_by_name = {
        topic: {str(partition): code.name for partition, code in partitions.items()}
        for topic, partitions in found.items()
    }
    return {"results": results_by_name}


def _show_description(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    if isinstance(answers[0], GroupError):
        return {"response": show_refusal(answers[0])}
    described: Any = answers[0].response
    return {"group": to_camel_case(described.fields())}


def _show_configured(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    answer = answers[0]
    return {"response": show_refusal(answer)} if isinstance(answer, GroupError) else {}


def _show_join(op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    return _show_classic(answers[0], show_parked, member_id=op.get("member_id", ""))


def _show_sync(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    if not answers:
        unnamed = SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return {"response": show_parked(unnamed)}
    return _show_classic(answers[0], show_parked)


def _show_classic(
    answer: Answer,
    show: Callable[[Any], dict[str, Any]],
    **of_error: object,
) -> dict[str, Any]:
    """Return an answer, or its error with these fields, or that it comes later."""
    if isinstance(answer, GroupError):
        return {"response": show_error(answer.code) | of_error}
    return {"waiting": True} if answer.response is WAITING else {"response": show(answer.response)}


def _show_groups(op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    strict = op.get("version", STRICT_DESCRIBE_VERSION) >= STRICT_DESCRIBE_VERSION
    shown = []
    for group_id, answer in zip(read_group_ids(op), answers, strict=True):
        if isinstance(answer, GroupError):
            shown.append(show_no_group(group_id, answer.code if strict else ErrorCode.NONE))
        else:
            shown.append(show_group(answer.response))  # type: ignore[arg-type]
    return {"groups": shown}


def _show_deletion(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    return {"error": _name_of(answers[0])}


def _show_deletions(op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    return {"results": dict(zip(read_group_ids(op), map(_name_of, answers), strict=True))}


def _name_of(answer: Answer) -> str:
    return (answer.code if isinstance(answer, GroupError) else ErrorCode.NONE).name


def _show_list(_op: Op, answers: Sequence[Answer]) -> dict[str, Any]:
    if isinstance(answers[0], GroupError):
        return {"response": show_error(answers[0].code)}
    names = {"group_id": "group", "group_state": "state", "group_type": "type"}
    rows: Any = answers[0].response
    return {"groups": [{names.get(key, key): row[key] for key in row} for row in rows]}


def _show_offsets(found: Any) -> dict[str, Any]:  # noqa: ANN401 - the answer to OffsetFetch
    offsets = {
        topic: {str(p): -1 if one is None else one.offset for p, one in partitions.items()}
        for topic, partitions in found.items()
    }
    return {**show_error(ErrorCode.NONE), "offsets": offsets}


# All of them -------------------------------------------------------------------------------------


HEARTBEAT = "heartbeat"
"""The operation of a line that names none."""

REQUESTS: dict[str, Request] = {
    HEARTBEAT: Request(
        "group member epoch instance_id rack rebalance_timeout_ms subscribed regex server_assignor "
        "owned version",
        _consumer_heartbeat,
        _show_heartbeat,
        classic=False,
    ),
    "commit": Request("group member epoch offsets", _commit, _show_commit, classic=False),
    "describe": Request("group", _describe, _show_description, classic=False),
    "delete_group": Request("group", _delete_group, _show_deletion, classic=False),
    "group_config": Request("group props", _configure, _show_configured, classic=False),
    "join_group": Request(
        "group member_id instance_id protocol_type protocols session_timeout_ms reason client_id "
        "rebalance_timeout_ms client_host require_known_member_id supports_skipping_assignment",
        _join,
        _show_join,
    ),
    "sync_group": Request(
        "group member_id generation instance_id protocol_type protocol_name assignments version",
        _sync,
        _show_sync,
    ),
    "heartbeat_classic": Request(  # recorded walks also give `offsets`, without meaning
        "group member_id generation instance_id offsets",
        _classic_heartbeat,
        lambda _op, answers: _show_classic(answers[0], show_error),
    ),
    "leave_group": Request(
        "group members",
        _leave,
        lambda _op, answers: _show_classic(answers[0], show_leave, members=[]),
    ),
    "describe_groups": Request("group groups version", _describe_groups, _show_groups),
    "list_groups": Request("states types", _list, _show_list),
    "delete_groups": Request("group groups", _delete_groups, _show_deletions),
    "offset_commit": Request(
        "group member_id generation instance_id offsets",
        _commit_by_generation,
        lambda _op, answers: _show_classic(answers[0], _show_results),
    ),
    "offset_fetch": Request(
        "group member_id epoch topics",
        _fetch,
        lambda _op, answers: _show_classic(answers[0], _show_offsets),
    ),
}
