"""Convert records and descriptions of groups to Kafka's JSON, for traces.

The definition of a record (core/records.py) says which fields it has in that JSON, and their names.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import Holding, Spans, TopicKey, partitions_by
from coordinator.core.state.record_fields import Mark, RecordField, camel_case, fields_of, is_struct
from coordinator.core.state.records import (
    KINDS,
    PARTITION_METADATA,
    ClassicGroupWritten,
    MemberMetadata,
    MembersAdvanced,
    Record,
    Tombstone,
)
from coordinator.trace.classic_json import show_protocols, show_written_members

TYPES = {kind: record.kafka for kind, record in KINDS.items() if record.kafka}
TYPES[PARTITION_METADATA] = "CONSUMER_GROUP_PARTITION_METADATA"
"""Kafka's names of the kinds of records that Kafka has; Muster's own kinds are not printed."""


def select_kafka_records(records: Iterable[Record]) -> list[Record]:
    """Return the records that Kafka has. A change of the epoch alone is a current assignment."""
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
        The state after the record. If only a member's epoch advanced, its other fields come from
        the state.
    """
    if isinstance(record, Tombstone):
        return {"type": TYPES[record.of], "key": _take_ended_key(record), "value": None}
    if isinstance(record, MembersAdvanced):
        group = state.groups[record.group_id]
        record = group.members[record.member_ids[0]].current
    fields = fields_of(type(record))
    key = _take_fields(record, [field for field in fields if Mark.KEY in field.marks])
    theirs = [field for field in fields if not field.marks & {Mark.KEY, Mark.OWN}]
    value = _take_fields(record, sorted(theirs, key=_is_tagged))
    if isinstance(record, ClassicGroupWritten):
        value["members"] = show_written_members(record, value["members"])
    if isinstance(record, MemberMetadata):
        show_protocols(value["classicMemberMetadata"])
    return {"type": TYPES[record.kind], "key": key, "value": value}


def to_camel_case(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value with its keys in Kafka's camel case."""
    if isinstance(value, dict):
        return {camel_case(key): to_camel_case(found) for key, found in value.items()}
    if isinstance(value, list):
        return [to_camel_case(found) for found in value]
    return value


def _take_fields(record: Record, fields: Iterable[RecordField]) -> dict[str, Any]:
    """Return fields of a record. Tagged fields that are 0 or empty are omitted, as in Kafka."""
    values = [(field, getattr(record, field.name)) for field in fields]
    return {
        field.kafka: _to_json(value, field)
        for field, value in values
        if value or not _is_tagged(field)
    }


def _is_tagged(field: RecordField) -> bool:
    return Mark.TAGGED in field.marks


def _to_json(value: Any, field: RecordField) -> Any:  # noqa: ANN401 - any JSON value
    if field.type == Spans:
        return _partitions(value)
    if field.type == Holding:
        return _held(value)
    if Mark.UINT64 in field.marks:
        return value - (1 << 64) * (value >> 63)
    return _to_plain_json(value)


def _to_plain_json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Convert a value to JSON: bytes to base64, states to numbers, structs to objects."""
    kind: Any = type(value)
    if is_struct(kind):
        fields = fields_of(kind)
        theirs = [field for field in fields if Mark.OWN not in field.marks]
        return {field.kafka: _to_json(getattr(value, field.name), field) for field in theirs}
    if isinstance(value, tuple):
        return [_to_plain_json(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return int(value) if isinstance(value, IntEnum) else value


def _take_ended_key(ended: Tombstone) -> dict[str, Any]:
    """Return the key that a tombstone deletes."""
    if ended.of not in KINDS:
        return {"groupId": ended.group_id}
    parts = {
        "group_id": ended.group_id,
        "member_id": ended.member_id,
        "partition": ended.partition,
    }
    keys = [field for field in fields_of(KINDS[ended.of]) if Mark.KEY in field.marks]
    return {field.kafka: parts.get(field.name, ended.name) for field in keys}


def _partitions(spans: Spans) -> list[dict[str, Any]]:
    found = partitions_by(lambda key: key, spans)
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
