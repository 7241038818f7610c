"""Requests about groups as events, and answers as responses.

Pure: a request in, a call out. Nothing is decided here; what a request means is the coordinator's
business, how it looks on the wire is the codec's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode as Code

from coordinator.core.classic_events import JoinGroupResponse
from coordinator.core.events import (
    Answer,
    CommittedOffset,
    DeleteGroup,
    DescribeGroup,
    HeartbeatResponse,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Result,
)
from coordinator.core.large_requests import cut, join
from coordinator.core.state.partition_spans import count_partitions
from coordinator.core.state.records import OffsetCommitted
from coordinator.errors import ErrorCode, GroupError
from coordinator.wire.apis import admin_apis, classic_apis, config_apis
from coordinator.wire.apis import cluster_apis as node
from coordinator.wire.apis.heartbeat_api import heartbeat
from coordinator.wire.apis.list_offsets_api import END, list_offsets
from coordinator.wire.call import Call, Cluster, Place, from_uuid, respond_with, to_uuid
from coordinator.wire.codec import (
    Api,
    Request,
    Values,
    encode,
    encode_steady_classic_heartbeat,
    encode_steady_heartbeat,
)

NONE_REFUSED: Mapping[Place, Code] = MappingProxyType({})
GROUP_ERROR_SINCE = 2
"""Of OffsetFetch: an error of the group stands alone; before, it is that of each partition."""
MUCH = 500
"""Partitions, or members, of an answer that are written in about a millisecond."""
EPOCHS_SINCE, IDS_SINCE = 9, 10
"""Versions of OffsetCommit and OffsetFetch that know member epochs, and that name topics by id."""


def note_answers(request: Request, answers: Sequence[Answer]) -> None:
    """Have a conversation remember what a heartbeat's answer brings, in the order of answers."""
    if request.api is Api.CONSUMER_GROUP_HEARTBEAT and answers:
        (answer,) = answers
        if isinstance(answer, Result) and isinstance(answer.response, HeartbeatResponse):
            request.conversation.note_answer(request.body.group_id, answer.response)


def encode_noted(request: Request, call: Call, answers: Sequence[Answer]) -> bytes:
    """Return the frame of a response whose answers were noted; any thread may."""
    if request.api is Api.CONSUMER_GROUP_HEARTBEAT and answers:
        (answer,) = answers
        if isinstance(answer, Result) and isinstance(answer.response, HeartbeatResponse):
            frame = encode_steady_heartbeat(request, answer.response)
            if frame is not None:
                return frame
    elif request.api is Api.HEARTBEAT and answers:
        (answer,) = answers
        if isinstance(answer, Result) and answer.response is ErrorCode.NONE:
            return encode_steady_classic_heartbeat(request)
    return encode(request, call.respond(answers))


def brings_much(answers: Sequence[Answer]) -> bool:
    """Whether answers bring so much that writing them takes a while."""
    for answer in answers:
        response = answer.response if isinstance(answer, Result) else None
        if isinstance(response, HeartbeatResponse):
            spans = response.assignment or ()
            return len(spans) > MUCH or (bool(spans) and count_partitions(spans) > MUCH)
        if isinstance(response, JoinGroupResponse):
            return len(response.members) > MUCH
    return False


# Groups ------------------------------------------------------------------------------------------


def describe(request: Request, _cluster: Cluster) -> Call:
    """ConsumerGroupDescribe."""
    group_ids = request.body.group_ids

    def respond(answers: Sequence[Answer]) -> Values:
        pairs = zip(group_ids, answers, strict=True)
        return {"groups": [_group_fields(group_id, answer) for group_id, answer in pairs]}

    return Call(respond, [DescribeGroup(group_id) for group_id in group_ids])


def _group_fields(group_id: str, answer: Answer) -> Values:
    if isinstance(answer, GroupError):
        return {
            "error_code": answer.code,
            "error_message": answer.message,
            "group_id": group_id,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": (),
        }
    described: Any = answer.response
    group = described.fields()
    return group | {"members": [_member_fields(member) for member in group["members"]]}  # type: ignore[no-any-return]


def _member_fields(member: dict[str, Any]) -> Values:
    names = ("assignment", "target_assignment")
    return member | {name: _add_uuids(member[name]["topic_partitions"]) for name in names}


def _add_uuids(topics: Iterable[dict[str, Any]]) -> Values:
    return {
        "topic_partitions": [topic | {"topic_id": to_uuid(topic["topic_id"])} for topic in topics]
    }


def list_groups(request: Request, _cluster: Cluster) -> Call:
    """ListGroups."""
    asked = request.body
    states = frozenset(getattr(asked, "states_filter", ()))
    types = frozenset(getattr(asked, "types_filter", ()))

    def respond(answers: Sequence[Answer]) -> Values:
        answer = answers[0]
        if isinstance(answer, GroupError):
            return {"error_code": answer.code, "groups": ()}
        return {"error_code": Code.none, "groups": answer.response}

    return Call(respond, [ListGroups(states, types, request.group_ids)])


def delete_groups(request: Request, _cluster: Cluster) -> Call:
    """DeleteGroups."""
    group_ids = list(dict.fromkeys(request.body.groups_names))  # each is answered once

    def respond(answers: Sequence[Answer]) -> Values:
        pairs = zip(group_ids, answers, strict=True)
        return {
            "results": [{"group_id": g, "error_code": _error_code(answer)} for g, answer in pairs]
        }

    return Call(respond, [DeleteGroup(group_id) for group_id in group_ids])


def _error_code(answer: Answer) -> int:
    return answer.code if isinstance(answer, GroupError) else ErrorCode.NONE


# Offsets -----------------------------------------------------------------------------------------


class RequestedTopic(NamedTuple):
    """A topic as a request names it, by name or by id; an id that nothing has gives no name."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[Any]


def find_names(topics: Iterable[Any], cluster: Cluster) -> list[RequestedTopic]:
    """Return the topics of a request with their names, and with what it says of partitions."""
    found = []
    for topic in topics:
        fetched = hasattr(topic, "partition_indexes")
        partitions = topic.partition_indexes if fetched else topic.partitions
        if not hasattr(topic, "topic_id"):
            found.append(RequestedTopic(topic.name, None, partitions))
        else:
            known = cluster.topics().by_id.get(from_uuid(topic.topic_id))
            found.append(
                RequestedTopic(known.key.name if known else None, topic.topic_id, partitions)
            )
    return found


def find_missing(topics: Iterable[RequestedTopic], cluster: Cluster) -> dict[Place, Code]:
    """Return the partitions that do not exist; of no known topics, only those below 0.

    Kafka's broker answers these by themselves, before it asks who commits.
    """
    known = cluster.topics().by_name

    def exists(name: str, partition: int) -> bool:
        count = known[name].partitions if name in known else 0
        return partition >= 0 and (not known or partition < count)

    return {
        (topic.name, partition): Code.unknown_topic_or_partition
        for topic in topics
        if topic.name is not None
        for partition in _indexes(topic)
        if not exists(topic.name, partition)
    }


def _find_unknown_ends(topics: Iterable[RequestedTopic], cluster: Cluster) -> dict[Place, Code]:
    """Return the partitions whose end would be committed although it is unknown.

    A tool that resets offsets gets an error; a member that reads elsewhere may commit where it is.
    """
    if cluster.find_offsets is not None:
        return {}
    return {
        (topic.name, one.partition_index): Code.offset_out_of_range
        for topic in topics
        if topic.name is not None
        for one in topic.partitions
        if one.committed_offset == END
    }


def by_topic(topics: Iterable[RequestedTopic], but: Container[Place]) -> dict[str, list[Any]]:
    """Return what a request says of partitions by topic, which it may name more than once."""
    found: dict[str, list[Any]] = {}
    for topic in topics:
        if topic.name is not None:
            pairs = zip(_indexes(topic), topic.partitions, strict=True)
            kept = [one for index, one in pairs if (topic.name, index) not in but]
            found.setdefault(topic.name, []).extend(kept)
    return {name: kept for name, kept in found.items() if kept}


def offset_commit(request: Request, cluster: Cluster) -> Call:
    """OffsetCommit; an error of the whole request is that of each partition that exists."""
    asked = request.body
    topics = find_names(asked.topics, cluster)
    epoch = asked.generation_id_or_member_epoch
    knows_epochs = request.version >= EPOCHS_SINCE
    if not knows_epochs and epoch >= 0 and not cluster.has_classic_members:  # (G-120)
        return respond_with(outcome_fields(topics, Code.unsupported_version))
    by_member = bool(asked.member_id) or epoch >= 0
    refused = ({} if by_member else _find_unknown_ends(topics, cluster)) | find_missing(
        topics, cluster
    )
    named = by_topic(topics, refused)
    if not named:
        return respond_with(outcome_fields(topics, Code.unknown_topic_or_partition, refused))
    event = OffsetCommit(
        group_id=asked.group_id,
        member_id=asked.member_id,
        member_epoch=epoch,
        offsets=read_offsets(named),
        instance_id=getattr(asked, "group_instance_id", None),
        knows_epochs=knows_epochs,
        as_kafka=True,
    )
    pieces = cut(event)

    def respond(answers: Sequence[Answer]) -> Values:
        answer: Answer | Code = join(pieces, answers)
        if not knows_epochs and _error_code(answers[0]) == ErrorCode.GROUP_ID_NOT_FOUND:
            answer = Code.illegal_generation
        return outcome_fields(topics, answer, refused)

    return Call(respond, pieces)


def read_offsets(named: Mapping[str, Iterable[Any]]) -> dict[str, dict[int, CommittedOffset]]:
    """Return what is to be committed, by topic and partition."""
    return {
        name: {
            one.partition_index: CommittedOffset(
                one.committed_offset,
                one.committed_metadata or "",
                getattr(one, "committed_leader_epoch", -1),
            )
            for one in partitions
        }
        for name, partitions in named.items()
    }


def offset_delete(request: Request, cluster: Cluster) -> Call:
    """OffsetDelete."""
    topics = find_names(request.body.topics, cluster)
    missing = find_missing(topics, cluster)
    named = by_topic(topics, missing)
    wanted = {name: [one.partition_index for one in found] for name, found in named.items()}

    def respond(answers: Sequence[Answer]) -> Values:
        if isinstance(answers[0], GroupError):
            return {"error_code": answers[0].code, "topics": ()}
        return {"error_code": Code.none} | outcome_fields(topics, answers[0], missing)

    return Call(respond, [OffsetDelete(request.body.group_id, wanted)])


def _indexes(topic: RequestedTopic) -> list[int]:
    return [getattr(one, "partition_index", one) for one in topic.partitions]


def outcome_fields(
    topics: Iterable[RequestedTopic],
    answer: Answer | Code,
    refused: Mapping[Place, Code] = NONE_REFUSED,
) -> dict[str, object]:
    """Return the outcome of each partition."""

    def code(name: str | None, partition: int) -> int:
        if name is None:
            return Code.unknown_topic_id
        if (name, partition) in refused:
            return refused[name, partition]
        if isinstance(answer, GroupError):
            return answer.code
        if isinstance(answer, Code):
            return answer
        found: Any = answer.response
        return int(found[name][partition])

    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": p, "error_code": code(topic.name, p)}
                    for p in _indexes(topic)
                ],
            }
            for topic in topics
            if topic.partitions
        ]
    }


def offset_fetch(request: Request, cluster: Cluster) -> Call:
    """OffsetFetch of one group or, since version 8, of several; of no topics, it means all."""
    groups = getattr(request.body, "groups", [request.body])
    topics = [
        None if group.topics is None else find_names(group.topics, cluster) for group in groups
    ]
    events = [
        OffsetFetch(
            group.group_id,
            None if asked is None else _indexes_by_topic(asked),
            getattr(group, "member_id", None),
            getattr(group, "member_epoch", -1),
            getattr(request.body, "require_stable", False),
        )
        for group, asked in zip(groups, topics, strict=True)
    ]

    def respond(answers: Sequence[Answer]) -> Values:
        found = [
            {"group_id": group.group_id} | _offsets_fields(asked, answer, request.version, cluster)
            for group, asked, answer in zip(groups, topics, answers, strict=True)
        ]
        return (found[0] if found else {}) | {"groups": found}

    return Call(respond, events)


def _indexes_by_topic(topics: Iterable[RequestedTopic]) -> dict[str, list[int]]:
    """Return the partitions to look up: those below 0 do not exist, and have no offset."""
    wanted: dict[str, list[int]] = {}
    for topic in topics:
        if topic.name is not None:
            wanted.setdefault(topic.name, []).extend(p for p in _indexes(topic) if p >= 0)
    return wanted


def _offsets_fields(
    topics: Sequence[RequestedTopic] | None, answer: Answer, version: int, cluster: Cluster
) -> dict[str, object]:
    """Return a group's offsets; those of all topics are named as the request's version does."""
    code = _error_code(answer)
    found: Any = {} if isinstance(answer, GroupError) else answer.response
    if code and version >= GROUP_ERROR_SINCE:
        return {"error_code": code, "topics": []}
    if topics is None:
        known = cluster.topics().by_name
        topics = [
            RequestedTopic(
                name, to_uuid(known[name].key.topic_id) if name in known else None, list(of_one)
            )
            for name, of_one in found.items()
            if version < IDS_SINCE or name in known
        ]
    return {
        "error_code": code,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"error_code": code if topic.name is not None else Code.unknown_topic_id}
                    | _offset_fields(p, found.get(topic.name, {}).get(p))
                    for p in _indexes(topic)
                ],
            }
            for topic in topics
        ],
    }


def _offset_fields(partition: int, record: OffsetCommitted | ErrorCode | None) -> dict[str, object]:
    """Return a committed offset; −1 without one, or where an error stands in its place."""
    if isinstance(record, ErrorCode):
        return _offset_fields(partition, None) | {"error_code": record}
    return {
        "partition_index": partition,
        "committed_offset": -1 if record is None else record.offset,
        "committed_leader_epoch": -1 if record is None else record.leader_epoch,
        "metadata": "" if record is None else record.metadata,
    }


HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = (
    node.HANDLERS
    | admin_apis.HANDLERS
    | config_apis.HANDLERS
    | classic_apis.HANDLERS
    | classic_apis.CLASSIC_HANDLERS
    | {
        Api.CONSUMER_GROUP_HEARTBEAT: heartbeat,
        Api.CONSUMER_GROUP_DESCRIBE: describe,
        Api.LIST_GROUPS: list_groups,
        Api.LIST_OFFSETS: list_offsets,
        Api.DELETE_GROUPS: delete_groups,
        Api.OFFSET_COMMIT: offset_commit,
        Api.OFFSET_FETCH: offset_fetch,
        Api.OFFSET_DELETE: offset_delete,
    }
)


def find_handler(api: Api, cluster: Cluster) -> Callable[[Request, Cluster], Call]:
    """Return what answers an API: what the cluster has in its place, else what all servers have."""
    return cluster.own.get(api) or HANDLERS[api]
