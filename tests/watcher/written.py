"""Keys and values of `__consumer_offsets` as bytes, written by the schemas of Kafka's versions.

The obvious twin of the decoder: field by field, as Apache Kafka's JSON files say.
"""

import struct
from uuid import UUID

from coordinator.watcher.record_batches import KafkaRecord, RecordBatch
from coordinator.watcher.record_schemas import KEYS, VALUES

NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}


def write_key(kind, /, **fields):
    return struct.pack(">h", kind) + _fields(KEYS[kind].fields, fields, 0, flexible=False)


def write_value(kind, version, /, **fields):
    schema = VALUES[kind]
    flexible = version >= schema.flexible
    return struct.pack(">h", version) + _fields(schema.fields, fields, version, flexible=flexible)


def record(kind, key, value=None, *, version=0, offset=0, at_ms=1):
    raw = None if value is None else write_value(kind, version, **value)
    return KafkaRecord(offset, at_ms, write_key(kind, **key), raw)


def batch(records, *, producer_id=-1, transactional=False, marker=None, at=None, end=None):
    first = records[0].offset if at is None else at
    last = (records[-1].offset if records else first) if end is None else end
    return RecordBatch(first, last, 0, producer_id, 0, transactional, marker, records)


def group_of(group_id, member_id="m", *, epoch=1, partitions=(0,), topic=1, at=0, at_ms=1):
    """What Kafka writes when the first member of a consumer group joins, as one batch."""
    key, topics = {"group_id": group_id}, _held(topic, partitions)
    member = {**key, "member_id": member_id}
    rows = [
        (5, member, MEMBER),
        (3, key, {"epoch": epoch}),
        (7, member, {"topic_partitions": topics}),
        (6, key, {"assignment_epoch": epoch, "assignment_timestamp": at_ms}),
        (8, member, current(epoch, topics)),
    ]
    return [
        record(kind, at_key, value, offset=at + n, at_ms=at_ms)
        for n, (kind, at_key, value) in enumerate(rows)
    ]


def current(epoch, topics, pending=()):
    return {
        "member_epoch": epoch,
        "previous_member_epoch": 0,
        "state": 1,
        "assigned_partitions": topics,
        "partitions_pending_revocation": pending,
    }


def held(topic, partitions):
    return _held(topic, partitions)


def _held(topic, partitions):
    return [{"topic_id": UUID(int=topic), "partitions": list(partitions)}]


MEMBER = {
    "instance_id": None,
    "rack_id": None,
    "client_id": "c",
    "client_host": "/h",
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "rebalance_timeout_ms": 300_000,
    "server_assignor": None,
}


def offset_of(group_id, topic="t", partition=0, offset=1, *, at=0, at_ms=1):
    key = {"group_id": group_id, "topic": topic, "partition": partition}
    value = {"offset": offset, "leader_epoch": -1, "metadata": "", "commit_timestamp": at_ms}
    return record(1, key, value, version=3, offset=at, at_ms=at_ms)


def _fields(shapes, values, version, *, flexible):
    here = [s for s in shapes if s.since <= version < s.until]
    plain = [s for s in here if s.tag is None]
    out = b"".join(_one(s, values[s.name], version, flexible=flexible) for s in plain)
    if not flexible:
        return out
    tagged = [s for s in here if s.tag is not None and values.get(s.name) is not None]
    out += _varint(len(tagged))
    for s in tagged:
        raw = _one(s, values[s.name], version, flexible=True)
        if isinstance(s.kind, tuple) and not s.array:
            raw = _varint(1) + raw
        out += _varint(s.tag) + _varint(len(raw)) + raw
    return out


def _one(shape, value, version, *, flexible):
    if not shape.array:
        return _scalar(shape.kind, value, version, flexible=flexible)
    if value is None:
        return _count(-1, flexible=flexible)
    parts = [_scalar(shape.kind, one, version, flexible=flexible) for one in value]
    return _count(len(parts), flexible=flexible) + b"".join(parts)


def _scalar(kind, value, version, *, flexible):
    if isinstance(kind, tuple):
        return _fields(kind, value, version, flexible=flexible)
    if kind == "uuid":
        return value.bytes
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    raw = value.encode() if isinstance(value, str) else value
    length = -1 if raw is None else len(raw)
    if flexible:
        return _varint(length + 1) + (raw or b"")
    return struct.pack(">h" if kind == "string" else ">i", length) + (raw or b"")


def _count(number, *, flexible):
    return _varint(number + 1) if flexible else struct.pack(">i", number)


def _varint(number):
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])
