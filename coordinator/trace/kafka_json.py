"""Records and descriptions of groups as Kafka prints them, for traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.core.partition_spans import Holding, Spans, TopicKey
from coordinator.core.records import (
    PARTITION_METADATA,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    OffsetCommitted,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state import State

TYPES = {
    GroupMetadata.kind: "CONSUMER_GROUP_METADATA",
    PARTITION_METADATA: "CONSUMER_GROUP_PARTITION_METADATA",
    MemberMetadata.kind: "CONSUMER_GROUP_MEMBER_METADATA",
    TargetMetadata.kind: "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA",
    TargetMember.kind: "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER",
    CurrentMember.kind: "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT",
    RegexResolved.kind: "CONSUMER_GROUP_REGULAR_EXPRESSION",
    OffsetCommitted.kind: "OFFSET_COMMIT",
}
"""Kafka's names of the records that Kafka has; our own kinds are not told."""


def select_kafka_records(records: Iterable[Record]) -> list[Record]:
    """Return the records that Kafka has; an epoch-only advance counts as a current assignment."""
    return [
        record
        for record in records
        if isinstance(record, MembersAdvanced)
        or (record.of if isinstance(record, Tombstone) else record.kind) in TYPES
    ]


def record_json(record: Record, state: State) -> dict[str, Any]:
    """Return one record as Kafka's tools print it.

    Parameters
    ----------
    state
        After the record: the rest of a member that only advanced is taken from there.
    """
    if isinstance(record, Tombstone):
        return {"type": TYPES[record.of], "key": _key(record), "value": None}
    if isinstance(record, MembersAdvanced):
        group = state.groups[record.group_id]
        record = group.members[record.member_ids[0]].current
    return {"type": TYPES[record.kind], "key": _key(record), "value": _VALUES[type(record)](record)}


def to_camel_case(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value with its keys in Kafka's camel case."""
    if isinstance(value, dict):
        return {_camel(key): to_camel_case(found) for key, found in value.items()}
    if isinstance(value, list):
        return [to_camel_case(found) for found in value]
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _key(record: Record) -> dict[str, Any]:
    if isinstance(record, OffsetCommitted):
        return {"group": record.group_id, "topic": record.topic, "partition": record.partition}
    if isinstance(record, Tombstone) and record.of == OffsetCommitted.kind:
        return {"group": record.group_id, "topic": record.name, "partition": record.partition}
    key: dict[str, Any] = {"groupId": record.group_id}  # type: ignore[attr-defined]
    regex = getattr(record, "regex", None) or (
        record.name if isinstance(record, Tombstone) and record.of == RegexResolved.kind else None
    )
    if regex is not None:
        key["regularExpression"] = regex
    member_id = getattr(record, "member_id", None)
    if member_id is not None and not isinstance(record, GroupMetadata):
        key["memberId"] = member_id
    return key


def _group(record: GroupMetadata) -> dict[str, Any]:
    signed = record.metadata_hash - (1 << 64) * (record.metadata_hash >> 63)
    return {"epoch": record.epoch, **({"metadataHash": signed} if signed else {})}


def _member(record: MemberMetadata) -> dict[str, Any]:
    return {
        "instanceId": record.instance_id,
        "rackId": record.rack_id,
        "clientId": record.client_id,
        "clientHost": record.client_host,
        "subscribedTopicNames": list(record.subscribed_topic_names),
        "subscribedTopicRegex": record.subscribed_topic_regex,
        "rebalanceTimeoutMs": record.rebalance_timeout_ms,
        "serverAssignor": record.server_assignor,
        "classicMemberMetadata": None,
    }


def _target_metadata(record: TargetMetadata) -> dict[str, Any]:
    timestamp = record.assignment_timestamp
    return {
        "assignmentEpoch": record.assignment_epoch,
        **({"assignmentTimestamp": timestamp} if timestamp else {}),
    }


def _target(record: TargetMember) -> dict[str, Any]:
    return {"topicPartitions": _partitions(record.spans)}


def _current(record: CurrentMember) -> dict[str, Any]:
    return {
        "memberEpoch": record.member_epoch,
        "previousMemberEpoch": record.previous_member_epoch,
        "state": int(record.state),
        "assignedPartitions": _held(record.assigned),
        "partitionsPendingRevocation": _held(record.pending),
    }


def _regex(record: RegexResolved) -> dict[str, Any]:
    return {
        "topics": list(record.topics),
        "version": record.version,
        "timestamp": record.timestamp,
    }


def _offset(record: OffsetCommitted) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "leaderEpoch": record.leader_epoch,
        "metadata": record.metadata,
        "commitTimestamp": record.commit_timestamp,
        "topicId": record.topic_id,
    }


_VALUES: dict[type[Record], Callable[[Any], dict[str, Any]]] = {
    GroupMetadata: _group,
    MemberMetadata: _member,
    TargetMetadata: _target_metadata,
    TargetMember: _target,
    CurrentMember: _current,
    RegexResolved: _regex,
    OffsetCommitted: _offset,
}


def _partitions(spans: Spans) -> list[dict[str, Any]]:
    found: dict[TopicKey, list[int]] = {}
    for key, first, end in spans:
        found.setdefault(key, []).extend(range(first, end))
    return [{"topicId": key.topic_id, "partitions": found[key]} for key in found]


def _held(holding: Holding) -> list[dict[str, Any]]:
    found: dict[TopicKey, tuple[list[int], list[int]]] = {}
    for key, first, end, epoch in holding:
        partitions, epochs = found.setdefault(key, ([], []))
        partitions.extend(range(first, end))
        epochs.extend([epoch] * (end - first))
    return [
        {"topicId": key.topic_id, "partitions": partitions, "assignmentEpochs": epochs}
        for key, (partitions, epochs) in found.items()
    ]
