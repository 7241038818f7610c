"""What the records of `__consumer_offsets` hold, by type and version, as Kafka 4.4 defines them.

A key is its type and its fields, a value its version and its fields; a null value is a tombstone.
Source: group-coordinator/src/main/resources/common/message of Apache Kafka. Types 9 to 15 are of
share and streams groups, which are not decoded.

The classes are shaped as kio's, so that the decoder of requests reads them.
"""

from dataclasses import field, make_dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

Entity: TypeAlias = Any
NEVER = 1 << 15


class Shape(NamedTuple):
    """A field of a key or a value.

    Attributes
    ----------
    kind
        Kafka's type, or the shapes of a struct's fields.
    since, until
        The first version that has it, and the first that no longer has it.
    default
        Its value where the version does not have it, or the tag is left out.
    tag
        Of a tagged field of flexible versions.
    """

    name: str
    kind: str | tuple["Shape", ...]
    array: bool = False
    null: bool = False
    since: int = 0
    until: int = NEVER
    default: Any = None
    tag: int | None = None


class Schema(NamedTuple):
    """The fields of a kind of key or value.

    Attributes
    ----------
    flexible
        The first version with compact lengths and tagged fields.
    """

    name: str
    fields: tuple[Shape, ...]
    newest: int = 0
    flexible: int = 0


_TYPES = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), int),
    "bool": bool,
    "string": str,
    "bytes": bytes,
}
_PARTITIONS = Shape("partitions", "int32", array=True)
_TOPIC = (Shape("topic_id", "uuid"), _PARTITIONS)
_HELD = (
    *_TOPIC,
    Shape("assignment_epochs", "int32", array=True, null=True, default=None, tag=0),
)
_GROUP = Shape("group_id", "string")
_MEMBER = Shape("member_id", "string")

KEYS: dict[int, Schema] = {
    kind: Schema(name, fields, flexible=NEVER)
    for kind, name, fields in (
        (0, "OffsetCommitKey", (_GROUP, Shape("topic", "string"), Shape("partition", "int32"))),
        (1, "OffsetCommitKey", (_GROUP, Shape("topic", "string"), Shape("partition", "int32"))),
        (2, "GroupMetadataKey", (_GROUP,)),
        (3, "ConsumerGroupMetadataKey", (_GROUP,)),
        (4, "ConsumerGroupPartitionMetadataKey", (_GROUP,)),
        (5, "ConsumerGroupMemberMetadataKey", (_GROUP, _MEMBER)),
        (6, "ConsumerGroupTargetAssignmentMetadataKey", (_GROUP,)),
        (7, "ConsumerGroupTargetAssignmentMemberKey", (_GROUP, _MEMBER)),
        (8, "ConsumerGroupCurrentMemberAssignmentKey", (_GROUP, _MEMBER)),
        (16, "ConsumerGroupRegularExpressionKey", (_GROUP, Shape("regex", "string"))),
    )
}

_OFFSET = Schema(
    "OffsetCommitValue",
    (
        Shape("offset", "int64"),
        Shape("leader_epoch", "int32", since=3, default=-1),
        Shape("metadata", "string"),
        Shape("commit_timestamp", "int64"),
        Shape("expire_timestamp", "int64", since=1, until=2, default=-1),
        Shape("topic_id", "uuid", since=4, null=True, tag=0),
    ),
    newest=4,
    flexible=4,
)
_CLASSIC_MEMBER = (
    _MEMBER,
    Shape("instance_id", "string", null=True, since=3),
    Shape("client_id", "string"),
    Shape("client_host", "string"),
    Shape("rebalance_timeout", "int32", since=1, default=-1),
    Shape("session_timeout", "int32"),
    Shape("subscription", "bytes"),
    Shape("assignment", "bytes"),
)

VALUES: dict[int, Schema] = {
    0: _OFFSET,
    1: _OFFSET,
    2: Schema(
        "GroupMetadataValue",
        (
            Shape("protocol_type", "string"),
            Shape("generation", "int32"),
            Shape("protocol", "string", null=True),
            Shape("leader", "string", null=True),
            Shape("current_state_timestamp", "int64", since=2, default=-1),
            Shape("members", _CLASSIC_MEMBER, array=True),
        ),
        newest=4,
        flexible=4,
    ),
    3: Schema(
        "ConsumerGroupMetadataValue",
        (Shape("epoch", "int32"), Shape("metadata_hash", "int64", default=0, tag=0)),
    ),
    4: Schema(
        "ConsumerGroupPartitionMetadataValue",
        (
            Shape(
                "topics",
                (
                    Shape("topic_id", "uuid"),
                    Shape("topic_name", "string"),
                    Shape("partition_count", "int32"),
                    Shape(
                        "partition_metadata",
                        (Shape("partition", "int32"), Shape("racks", "string", array=True)),
                        array=True,
                    ),
                ),
                array=True,
            ),
        ),
    ),
    5: Schema(
        "ConsumerGroupMemberMetadataValue",
        (
            Shape("instance_id", "string", null=True),
            Shape("rack_id", "string", null=True),
            Shape("client_id", "string"),
            Shape("client_host", "string"),
            Shape("subscribed_topic_names", "string", array=True),
            Shape("subscribed_topic_regex", "string", null=True),
            Shape("rebalance_timeout_ms", "int32", default=-1),
            Shape("server_assignor", "string", null=True),
            Shape(
                "classic_member_metadata",
                (
                    Shape("session_timeout_ms", "int32"),
                    Shape(
                        "supported_protocols",
                        (Shape("name", "string"), Shape("metadata", "bytes")),
                        array=True,
                    ),
                ),
                null=True,
                tag=0,
            ),
        ),
    ),
    6: Schema(
        "ConsumerGroupTargetAssignmentMetadataValue",
        (
            Shape("assignment_epoch", "int32"),
            Shape("assignment_timestamp", "int64", default=0, tag=0),
        ),
    ),
    7: Schema(
        "ConsumerGroupTargetAssignmentMemberValue",
        (Shape("topic_partitions", _TOPIC, array=True),),
    ),
    8: Schema(
        "ConsumerGroupCurrentMemberAssignmentValue",
        (
            Shape("member_epoch", "int32"),
            Shape("previous_member_epoch", "int32"),
            Shape("state", "int8"),
            Shape("assigned_partitions", _HELD, array=True),
            Shape("partitions_pending_revocation", _HELD, array=True),
        ),
    ),
    16: Schema(
        "ConsumerGroupRegularExpressionValue",
        (
            Shape("topics", "string", array=True),
            Shape("version", "int64"),
            Shape("timestamp", "int64"),
        ),
    ),
}


def make_entity(schema: Schema, version: int) -> Entity:
    """Return the class of a key or value in a version."""
    return _make(schema.name, schema.fields, version, flexible=version >= schema.flexible)


def _make(name: str, shapes: tuple[Shape, ...], version: int, *, flexible: bool) -> Entity:
    here = [s for s in shapes if s.since <= version < s.until]
    made = [_field(name, shape, version, flexible=flexible) for shape in here]
    entity = make_dataclass(name, made, frozen=True, slots=True, kw_only=True)
    absent = {s.name: s.default for s in shapes if s not in here}
    for field_name, value in absent.items():
        setattr(entity, field_name, value)
    entity.__flexible__ = flexible  # type: ignore[attr-defined]
    return entity


def _field(name: str, shape: Shape, version: int, *, flexible: bool) -> tuple[str, Any, Any]:
    if isinstance(shape.kind, tuple):
        part = f"{name}.{shape.name}"
        kind: Any = _make(part, shape.kind, version, flexible=flexible)
        says: dict[str, Any] = {}
    else:
        kind = _TYPES.get(shape.kind, UUID)
        says = {"kafka_type": shape.kind}
    if shape.kind == "uuid":
        kind = kind | None  # an id of 16 zero bytes
    if shape.array:
        kind = tuple[kind, ...]
    if shape.null:
        kind = kind | None
    if shape.tag is None:
        return shape.name, kind, field(metadata=says)
    return shape.name, kind, field(default=shape.default, metadata={**says, "tag": shape.tag})
