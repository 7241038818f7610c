"""Make our records of Kafka's: a key and a value of `__consumer_offsets`, as bytes.

Kafka's records of groups are Muster's own kinds, so nothing is lost but names of topics: Kafka
writes ids. Reasons are not written by Kafka at all: core infers them (`core/watched`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from coordinator.core.state.embedded import MalformedError, read_assignment, read_subscription
from coordinator.core.state.partition_spans import Holding, Spans, TopicKey, spans_of
from coordinator.core.state.records import (
    PARTITION_METADATA,
    ClassicGroupWritten,
    ClassicMemberMetadata,
    ClassicMemberWritten,
    ClassicProtocol,
    ClassicRange,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    OffsetCommitted,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.watcher.record_schemas import KEYS, VALUES, make_entity
from coordinator.wire.decoder import (
    Reader,
    WireError,
    entity_reader,
    legacy_text,
    read_whole,
)

TYPE_BYTES = 2
OFFSET_TYPES = frozenset({0, 1})
PASSED_OVER = frozenset(range(9, 16))
"""Types of share and streams groups."""
CONSUMER = "consumer"
HASHES = 1 << 64
PARTITIONS_MAX = 1 << 24
"""Of one topic: a cluster has fewer, and owners of partitions are kept in arrays."""
KINDS = {
    0: OffsetCommitted.kind,
    1: OffsetCommitted.kind,
    2: ClassicGroupWritten.kind,
    3: GroupMetadata.kind,
    4: PARTITION_METADATA,
    5: MemberMetadata.kind,
    6: TargetMetadata.kind,
    7: TargetMember.kind,
    8: CurrentMember.kind,
    16: RegexResolved.kind,
}
NameOf: TypeAlias = Callable[[str], str]
"""From a topic's id to its name; to the id itself if the name is unknown."""
IdOf: TypeAlias = Callable[[str], str]
"""From a topic's name to the id of the one that has it now, or had it last; to "" without one."""


class UndecodableError(Exception):
    """A record that is not as its type and version say, or of a version that is newer than ours.

    Attributes
    ----------
    group_id
        Of the group that it is about; None where not even that can be read.
    """

    def __init__(self, text: str, group_id: str | None = None) -> None:
        super().__init__(text)
        self.group_id = group_id


class Key(NamedTuple):
    """The key of a record.

    Attributes
    ----------
    kind
        Kafka's type.
    fields
        Of that type, as `record_schemas.KEYS` names them.
    """

    kind: int
    fields: Any

    @property
    def group_id(self) -> str:
        """The group that the record is about."""
        return str(self.fields.group_id)


class Names(NamedTuple):
    """What is known of topics: Kafka's records have either the id or the name."""

    name_of: NameOf
    id_of: IdOf


def read_key(raw: bytes) -> Key | None:
    """Take a key apart.

    Returns
    -------
    Key or None
        None for a type that is passed over: of share and streams groups, or one that is unknown.

    Raises
    ------
    UndecodableError
        The bytes are not such a key.
    """
    kind = _read_number(raw, "key")
    if kind not in KEYS:
        return None
    what = f"key of type {kind}"
    try:
        return Key(kind, _decode(_reader(kind, key=True, version=0), raw, what))
    except UndecodableError as error:
        raise UndecodableError(str(error), _read_group(raw)) from None


def make_record(key: Key, value: bytes | None, names: Names) -> Record | None:
    """Return the record of a key and a value; None for one that says nothing (type 4, before 4.1).

    Raises
    ------
    UndecodableError
        The value's bytes are not of the key's type, or its version is unknown.
    """
    try:
        return _tombstone(key) if value is None else _read_value(key, value, names)
    except UndecodableError as error:
        raise UndecodableError(str(error), key.group_id) from None


def _read_value(key: Key, value: bytes, names: Names) -> Record | None:
    version = _read_number(value, f"value of type {key.kind}")
    newest = VALUES[key.kind].newest
    if not 0 <= version <= newest:
        raise UndecodableError(
            f"the value of type {key.kind} has version {version}: Muster knows 0 to {newest}; "
            "a newer Muster may know it"
        )
    what = f"value of type {key.kind}, version {version}"
    found = _decode(_reader(key.kind, key=False, version=version), value, what)
    make = _MAKERS.get(key.kind)
    return None if make is None else make(key.fields, found, names)


@cache
def _reader(kind: int, *, key: bool, version: int) -> Reader:
    return entity_reader(make_entity((KEYS if key else VALUES)[kind], version))


def _read_number(raw: bytes, what: str) -> int:
    if len(raw) < TYPE_BYTES:
        raise UndecodableError(f"a {what} has {len(raw)} bytes: it begins with {TYPE_BYTES}")
    return int.from_bytes(raw[:TYPE_BYTES], signed=True)


def _read_group(raw: bytes) -> str | None:
    """Return the group of a key, with which all of them begin; None where it is not there."""
    try:
        found, _ = read_whole(legacy_text, raw, TYPE_BYTES)
    except WireError:
        return None
    return None if found is None else str(found)


def _decode(read: Reader, raw: bytes, what: str) -> Any:  # noqa: ANN401 - an entity
    try:
        found, end = read_whole(read, raw, TYPE_BYTES)
    except WireError as error:
        raise UndecodableError(f"a {what} cannot be decoded: {error}") from None
    if end != len(raw):
        raise UndecodableError(f"a {what} has {len(raw) - end} bytes after its end")
    return found


# One function a type -------------------------------------------------------------------------


def _tombstone(key: Key) -> Tombstone:
    fields = key.fields
    check_partition(getattr(fields, "partition", 0), getattr(fields, "topic", ""))
    name = getattr(fields, "topic", None) or getattr(fields, "regex", None)
    return Tombstone(
        KINDS[key.kind],
        fields.group_id,
        getattr(fields, "member_id", None),
        name,
        getattr(fields, "partition", None),
    )


def _offset(key: Any, value: Any, names: Names) -> OffsetCommitted:  # noqa: ANN401 - entities
    check_partition(key.partition, key.topic)
    topic_id = names.id_of(key.topic) if value.topic_id is None else _text(value.topic_id)
    return OffsetCommitted(
        key.group_id,
        key.topic,
        topic_id,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
    )


def _classic_group(key: Any, value: Any, names: Names) -> ClassicGroupWritten:  # noqa: ANN401
    is_consumer = value.protocol_type == CONSUMER
    return ClassicGroupWritten(
        key.group_id,
        value.generation,
        value.protocol_type,
        value.protocol,
        value.leader,
        max(value.current_state_timestamp, 0),
        tuple(_classic_member(one, names, is_consumer=is_consumer) for one in value.members),
    )


def _classic_member(
    one: Any,  # noqa: ANN401 - an entity
    names: Names,
    *,
    is_consumer: bool,
) -> ClassicMemberWritten:
    rebalance_ms = one.session_timeout if one.rebalance_timeout < 0 else one.rebalance_timeout
    who = ClassicMemberWritten(
        one.member_id,
        one.instance_id,
        one.client_id,
        one.client_host,
        rebalance_ms,
        one.session_timeout,
        one.subscription,
        one.assignment,
    )
    return read_classic_member(who, names) if is_consumer else who


def read_classic_member(who: ClassicMemberWritten, names: Names) -> ClassicMemberWritten:
    """Return a consumer with what its bytes say: its subscription and its assignment."""
    return msgspec.structs.replace(
        who,
        subscribed_topic_names=_subscribed(who.subscription),
        assigned=_assigned(who.assignment, names),
    )


def _subscribed(raw: bytes) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(read_subscription(raw, 0).topics)))
    except MalformedError:
        return ()


def _assigned(raw: bytes, names: Names) -> tuple[ClassicRange, ...]:
    try:
        partitions = read_assignment(raw).partitions
    except MalformedError:
        return ()
    spans = spans_of(
        (TopicKey(name, names.id_of(name)), int(number))
        for name, numbers in partitions.items()
        for number in numbers
    )
    return tuple(
        ClassicRange(key.name, key.topic_id, first, end - first) for key, first, end in spans
    )


def _group(key: Any, value: Any, _names: Names) -> GroupMetadata:  # noqa: ANN401
    return GroupMetadata(key.group_id, value.epoch, value.metadata_hash % HASHES)


def _member(key: Any, value: Any, _names: Names) -> MemberMetadata:  # noqa: ANN401
    classic = value.classic_member_metadata
    return MemberMetadata(
        key.group_id,
        key.member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(sorted(set(value.subscribed_topic_names))),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        None if classic is None else _classic_metadata(classic),
    )


def _classic_metadata(classic: Any) -> ClassicMemberMetadata:  # noqa: ANN401 - an entity
    return ClassicMemberMetadata(
        classic.session_timeout_ms,
        tuple(ClassicProtocol(one.name, one.metadata) for one in classic.supported_protocols),
    )


def _target_metadata(key: Any, value: Any, _names: Names) -> TargetMetadata:  # noqa: ANN401
    return TargetMetadata(
        key.group_id, value.assignment_epoch, value.assignment_timestamp, moved=None
    )


def _target_member(key: Any, value: Any, names: Names) -> TargetMember:  # noqa: ANN401
    return TargetMember(key.group_id, key.member_id, _spans(value.topic_partitions, names))


def _current(key: Any, value: Any, names: Names) -> CurrentMember:  # noqa: ANN401
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN  # as Kafka reads a state that is newer than it is
    return CurrentMember(
        key.group_id,
        key.member_id,
        value.member_epoch,
        value.previous_member_epoch,
        state,
        _holding(value.assigned_partitions, names, value.member_epoch),
        _holding(value.partitions_pending_revocation, names, value.member_epoch),
    )


def _regex(key: Any, value: Any, _names: Names) -> RegexResolved:  # noqa: ANN401
    topics = tuple(sorted(set(value.topics)))
    return RegexResolved(key.group_id, key.regex, topics, value.version, value.timestamp)


_MAKERS: dict[int, Callable[[Any, Any, Names], Record]] = {
    0: _offset,
    1: _offset,
    2: _classic_group,
    3: _group,
    5: _member,
    6: _target_metadata,
    7: _target_member,
    8: _current,
    16: _regex,
}


def _spans(topics: Iterable[Any], names: Names) -> Spans:
    return spans_of(
        (topic, check_partition(number, topic.name))
        for one in topics
        for topic in (_topic(one, names),)
        for number in one.partitions
    )


def _holding(topics: Iterable[Any], names: Names, member_epoch: int) -> Holding:
    """Return partitions with the epoch at which each was given (4.3 and later write it)."""
    held: list[tuple[TopicKey, int, int, int]] = []
    for one in topics:
        topic = _topic(one, names)
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = (member_epoch,) * len(one.partitions)
        given = dict(zip(one.partitions, epochs, strict=True))
        for number in sorted(given):
            check_partition(number, topic.name)
            last = held[-1] if held else None
            if last and last[0] == topic and last[2] == number and last[3] == given[number]:
                held[-1] = (topic, last[1], number + 1, last[3])
            else:
                held.append((topic, number, number + 1, given[number]))
    return tuple(sorted(held))


def check_partition(number: int, topic: str) -> int:
    """Return the number of a partition that there can be."""
    if not 0 <= number < PARTITIONS_MAX:
        raise UndecodableError(
            f"it names partition {number} of {topic or 'a topic'}: they are 0 to "
            f"{PARTITIONS_MAX - 1}"
        )
    return number


def _topic(one: Any, names: Names) -> TopicKey:  # noqa: ANN401 - an entity
    topic_id = _text(one.topic_id)
    return TopicKey(names.name_of(topic_id), topic_id)


def _text(topic_id: UUID | None) -> str:
    """Return an id as Kafka prints it; None is the id of 16 zero bytes."""
    raw = bytes(16) if topic_id is None else topic_id.bytes
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
