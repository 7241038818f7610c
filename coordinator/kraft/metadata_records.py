"""Read the records of `__cluster_metadata`: what they hold, by type and version.

Source: metadata/src/main/resources/common/metadata of Apache Kafka 4.4. A value is the version of
the frame, the type, the version, each of variable length, and the fields; there are no keys.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from coordinator.watcher.record_schemas import Schema, Shape, make_entity
from coordinator.wire.decoder import Reader, WireError, entity_reader, read_whole, varint

FRAME = 1
_ID = Shape("broker_id", "int32")
_EPOCH = Shape("broker_epoch", "int64")
_TOPIC_ID = Shape("topic_id", "uuid")
_NAME = Shape("name", "string")
_END_POINTS = Shape(
    "end_points",
    (
        _NAME,
        Shape("host", "string"),
        Shape("port", "uint16"),
        Shape("security_protocol", "int16"),
    ),
    array=True,
)
_FEATURES = Shape(
    "features",
    (
        _NAME,
        Shape("min_supported_version", "int16"),
        Shape("max_supported_version", "int16"),
    ),
    array=True,
)


def _ids(name: str, tag: int | None = None, since: int = 0) -> Shape:
    """Return a list of brokers; a tagged one may be none: not changed, or not known."""
    return Shape(name, "int32", array=True, null=tag is not None, since=since, tag=tag)


SCHEMAS: dict[int, Schema] = {
    0: Schema(
        "RegisterBrokerRecord",
        (
            _ID,
            Shape("is_migrating_zk_broker", "bool", since=2, default=False),
            Shape("incarnation_id", "uuid"),
            _EPOCH,
            _END_POINTS,
            _FEATURES,
            Shape("rack", "string", null=True),
            Shape("fenced", "bool"),
            Shape("in_controlled_shutdown", "bool", since=1, default=False),
            Shape("log_dirs", "uuid", array=True, since=3, default=(), tag=0),
            Shape("cordoned_log_dirs", "uuid", array=True, null=True, since=4, tag=1),
        ),
        newest=4,
    ),
    1: Schema("UnregisterBrokerRecord", (_ID, _EPOCH)),
    2: Schema("TopicRecord", (_NAME, _TOPIC_ID)),
    3: Schema(
        "PartitionRecord",
        (
            Shape("partition_id", "int32"),
            _TOPIC_ID,
            _ids("replicas"),
            _ids("isr"),
            _ids("removing_replicas"),
            _ids("adding_replicas"),
            Shape("leader", "int32"),
            Shape("leader_recovery_state", "int8", default=0, tag=0),
            Shape("leader_epoch", "int32"),
            Shape("partition_epoch", "int32"),
            Shape("directories", "uuid", array=True, since=1, default=()),
            _ids("eligible_leader_replicas", 1, since=2),
            _ids("last_known_elr", 2, since=2),
        ),
        newest=2,
    ),
    4: Schema(
        "ConfigRecord",
        (
            Shape("resource_type", "int8"),
            Shape("resource_name", "string"),
            _NAME,
            Shape("value", "string", null=True),
        ),
    ),
    5: Schema(
        "PartitionChangeRecord",
        (
            Shape("partition_id", "int32"),
            _TOPIC_ID,
            _ids("isr", 0),
            Shape("leader", "int32", default=-2, tag=1),
            _ids("replicas", 2),
            _ids("removing_replicas", 3),
            _ids("adding_replicas", 4),
            Shape("leader_recovery_state", "int8", default=-1, tag=5),
            Shape("directories", "uuid", array=True, null=True, since=1, tag=8),
            _ids("eligible_leader_replicas", 6, since=2),
            _ids("last_known_elr", 7, since=2),
        ),
        newest=2,
    ),
    7: Schema("FenceBrokerRecord", (Shape("id", "int32"), Shape("epoch", "int64"))),
    8: Schema("UnfenceBrokerRecord", (Shape("id", "int32"), Shape("epoch", "int64"))),
    9: Schema("RemoveTopicRecord", (_TOPIC_ID,)),
    11: Schema(
        "UserScramCredentialRecord",
        (
            _NAME,
            Shape("mechanism", "int8"),
            Shape("salt", "bytes"),
            Shape("stored_key", "bytes"),
            Shape("server_key", "bytes"),
            Shape("iterations", "int32"),
        ),
    ),
    12: Schema("FeatureLevelRecord", (_NAME, Shape("feature_level", "int16"))),
    17: Schema(
        "BrokerRegistrationChangeRecord",
        (
            _ID,
            _EPOCH,
            Shape("fenced", "int8", default=0, tag=0),
            Shape("in_controlled_shutdown", "int8", since=1, default=0, tag=1),
            Shape("log_dirs", "uuid", array=True, since=2, default=(), tag=2),
            Shape("cordoned_log_dirs", "uuid", array=True, null=True, since=3, tag=3),
        ),
        newest=3,
    ),
    18: Schema(
        "AccessControlEntryRecord",
        (
            Shape("id", "uuid"),
            Shape("resource_type", "int8"),
            Shape("resource_name", "string"),
            Shape("pattern_type", "int8"),
            Shape("principal", "string"),
            Shape("host", "string"),
            Shape("operation", "int8"),
            Shape("permission_type", "int8"),
        ),
    ),
    19: Schema("RemoveAccessControlEntryRecord", (Shape("id", "uuid"),)),
    20: Schema("NoOpRecord", ()),
    22: Schema("RemoveUserScramCredentialRecord", (_NAME, Shape("mechanism", "int8"))),
    23: Schema("BeginTransactionRecord", (Shape("name", "string", null=True, tag=0),)),
    24: Schema("EndTransactionRecord", ()),
    25: Schema("AbortTransactionRecord", (Shape("reason", "string", null=True, tag=0),)),
    28: Schema("ClearElrRecord", (Shape("topic_name", "string"),)),
}
PASSED_OVER = frozenset({10, 14, 15, 21, 26, 27, 29})
"""Delegation tokens, client quotas, producer ids, ZooKeeper's migration, and controllers."""


class MetadataError(Exception):
    """A record of the cluster's metadata that cannot be read: nothing after it can be trusted."""


class MetadataRecord(NamedTuple):
    """A record.

    Attributes
    ----------
    kind
        Kafka's name of its type; empty for a type that is passed over.
    fields
        As `SCHEMAS` names them; None for a type that is passed over.
    """

    kind: str
    fields: Any


def read_metadata_record(raw: bytes) -> MetadataRecord:
    """Take a value of `__cluster_metadata` apart.

    Raises
    ------
    MetadataError
        The bytes are not a record, or are of a type or a version that is newer than ours.
    """
    try:
        (frame, kind, version), at = _read_head(raw)
        if frame != FRAME:
            raise MetadataError(f"a record of the metadata has frame {frame}: Muster knows {FRAME}")
        if kind in PASSED_OVER:
            return MetadataRecord("", None)
        schema = SCHEMAS.get(kind)
        if schema is None or version > schema.newest:
            named, newest = (schema.name, schema.newest) if schema else (f"type {kind}", "none")
            raise MetadataError(
                f"the cluster's metadata has {named} of version {version}: Muster knows {newest}; "
                "a newer Muster may know it"
            )
        found, end = read_whole(_reader(kind, version), raw, at)
    except WireError as error:
        raise MetadataError(f"a record of the metadata cannot be read: {error}") from None
    if end != len(raw):
        raise MetadataError(f"a {schema.name} has {len(raw) - end} bytes after its end")
    return MetadataRecord(schema.name, found)


def _read_head(raw: bytes) -> tuple[tuple[int, int, int], int]:
    numbers, at = [], 0
    for _ in range(3):
        number, at = read_whole(varint, raw, at)
        numbers.append(number)
    return (numbers[0], numbers[1], numbers[2]), at


@cache
def _reader(kind: int, version: int) -> Reader:
    return entity_reader(make_entity(SCHEMAS[kind], version))
