"""Write Muster's records as Kafka 4.4.0 does: keys and values of `__consumer_offsets`, as bytes.

A leader of the topic must leave nothing in it that Kafka's coordinator could not load: one record
that fails there fails its whole partition. What Kafka has no record for is left out (`LEFT_OUT`);
fields that are Muster's own are in a header. `watcher/kafka_records.py` reads the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard
from uuid import UUID

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import Holding, Spans, kafka_id, partitions_by
from coordinator.core.state.records import (
    PARTITION_METADATA,
    Audited,
    ClassicGroupWritten,
    ClassicMemberWritten,
    ComputationPrepared,
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    GroupUnread,
    KafkaWatched,
    LoadsNoted,
    LoadsUsed,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    OffsetCommitted,
    PartitionRead,
    PlanDecided,
    PlanMade,
    Record,
    RegexResolved,
    RequestAnswered,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.transactions import OffsetPending, TransactionEnded
from coordinator.kraft.batch_writer import PLAIN, BatchKind, KeyValue
from coordinator.watcher.own_fields import write_own
from coordinator.watcher.record_batches import ABORT, COMMIT, END_MARKER, MARKER
from coordinator.watcher.record_schemas import KEYS, VALUES, make_entity
from coordinator.wire.encoder import EntityWriter, entity_writer

Values: TypeAlias = dict[str, Any]
Members: TypeAlias = dict[tuple[str, str], CurrentMember | None]
HashOf: TypeAlias = Callable[[GroupMetadata], int]
"""From a record to Kafka's own hash of the group's topics, as of that record; unsigned."""

LEFT_OUT = frozenset(
    one.kind
    for one in (
        Audited, ComputationPrepared, GroupConfigured, GroupUnread, KafkaWatched, LoadsNoted,
        LoadsUsed, PartitionRead, PlanDecided, PlanMade, RequestAnswered, TopicChanged,
    )
)  # fmt: skip
"""Kinds that Kafka's coordinator has no record for. Settings of groups, and topics, are records of
the cluster's metadata, which its controllers write."""
TYPES = {
    OffsetCommitted.kind: 1,
    OffsetPending.kind: 1,
    ClassicGroupWritten.kind: 2,
    GroupMetadata.kind: 3,
    PARTITION_METADATA: 4,
    MemberMetadata.kind: 5,
    TargetMetadata.kind: 6,
    TargetMember.kind: 7,
    CurrentMember.kind: 8,
    RegexResolved.kind: 16,
}
"""Kafka's type of each kind."""
VERSIONS = {1: 4, 2: 3}
"""Of values, as Kafka 4.4.0 writes them; of all others 0."""
ASSIGNORS = ("uniform", "range")
"""Kafka's own, the first for members that ask for another: it keeps what it can where it is."""


class UnwritableError(Exception):
    """A record that cannot be made Kafka's."""


class Written(NamedTuple):
    """A change as Kafka's records.

    Attributes
    ----------
    records
        Of one batch.
    members
        What members have after it, by group and member; None of those who are gone.
    """

    records: list[KeyValue]
    members: Members


class RecordWriter:
    """Writes changes of one log, in their order.

    Muster's records of many members that reach an epoch say no more than that, and a whole target
    names the members that have something: it keeps what the members have, which Kafka's say.

    Parameters
    ----------
    assignors
        Those of the cluster's brokers (`group.consumer.assignors`), the default one first.
    """

    def __init__(self, assignors: Sequence[str] = ASSIGNORS) -> None:
        self.assignors = tuple(assignors)
        self._members: dict[str, dict[str, CurrentMember]] = {}

    def write(self, records: Sequence[Record], hash_of: HashOf) -> Written:
        """Return a change as Kafka's records, in the same order.

        It counts once it is kept: a change whose append fails did not happen.

        Raises
        ------
        UnwritableError
            A target is in the table `targets`, and its rows are not here.
        """
        written = Written([], {})
        targets = {
            one.group_id: place
            for place, one in enumerate(records)
            if isinstance(one, TargetMetadata)
        }
        for place, record in enumerate(records):
            if _is_end_of_target(record) and targets.get(record.group_id, -1) > place:
                continue  # Kafka takes it as the end of a group, whose members have no target
            for one in self._spell_out(record, written.members):
                self._note(one, written.members)
                written.records.append(self._bytes_of(one, hash_of))
        return written

    def keep(self, written: Written) -> None:
        """Note that a change is in the log; changes are kept in their order."""
        for (group_id, member_id), current in written.members.items():
            members = self._members.setdefault(group_id, {})
            if current is None:
                members.pop(member_id, None)
            else:
                members[member_id] = current
            if not members:
                del self._members[group_id]

    def load(self, state: State) -> None:
        """Begin where a log is that makes this state."""
        self._members = {
            group_id: {member_id: one.current for member_id, one in group.members.items()}
            for group_id, group in state.groups.items()
            if group.members
        }

    def _spell_out(self, record: Record, changed: Members) -> Iterable[Record]:
        """Return the records that Kafka has in place of one of ours."""
        if isinstance(record, MembersAdvanced):
            return [
                _advance(record, one, self._current(record.group_id, one, changed))
                for one in record.member_ids
            ]
        if isinstance(record, TargetMetadata) and record.computation_id is not None:
            return [*self._targets_of(record, changed), record]
        kind = record.of if isinstance(record, Tombstone) else record.kind
        return [record] if kind in TYPES or kind == TransactionEnded.kind else []

    def _targets_of(self, record: TargetMetadata, changed: Members) -> Iterable[TargetMember]:
        """Return the targets of all members: a whole target ends those that are not in it."""
        if record.whole is None:
            raise UnwritableError(
                f"the target of group {record.group_id!r} is computation {record.computation_id} "
                "of the table `targets`, whose rows are not read: Kafka's log needs them, member "
                "by member; read the target first"
            )
        group_id = record.group_id
        members = set(self._members.get(group_id, ())) | set(record.whole.member_ids.to_pylist())
        members |= {one for at, one in changed if at == group_id}
        for member_id in sorted(members):
            if self._current(group_id, member_id, changed) is not None:
                yield TargetMember(group_id, member_id, record.whole.spans(member_id))

    def _note(self, record: Record, changed: Members) -> None:
        """Note what a record says of a member."""
        if isinstance(record, CurrentMember):
            changed[record.group_id, record.member_id] = record
        elif isinstance(record, MemberMetadata):
            group_id, member_id = record.group_id, record.member_id
            if self._current(group_id, member_id, changed) is None:
                changed[group_id, member_id] = CurrentMember(group_id, member_id)
        elif isinstance(record, Tombstone) and record.of == MemberMetadata.kind:
            changed[record.group_id, record.member_id or ""] = None

    def _current(self, group_id: str, member_id: str, changed: Members) -> CurrentMember | None:
        key = group_id, member_id
        return changed[key] if key in changed else self._members.get(group_id, {}).get(member_id)

    def _bytes_of(self, record: Record, hash_of: HashOf) -> KeyValue:
        if isinstance(record, TransactionEnded):
            return write_marker(record)
        if isinstance(record, Tombstone):
            return KeyValue(_key(record.of, _ended_key(record)), None)
        key, value = _MAKERS[record.kind](record)
        if isinstance(record, GroupMetadata):
            value |= _unless_zero("metadata_hash", _as_signed(hash_of(record)))
        also: Values = {}
        if isinstance(record, MemberMetadata):
            value["server_assignor"] = known = self._assignor(record.server_assignor)
            if known != record.server_assignor:
                also = {"server_assignor": record.server_assignor}
        return KeyValue(_key(record.kind, key), _value(record.kind, value), write_own(record, also))

    def _assignor(self, name: str | None) -> str | None:
        return name if name is None or name in self.assignors else self.assignors[0]


def _advance(record: MembersAdvanced, member_id: str, old: CurrentMember | None) -> CurrentMember:
    group_id = record.group_id
    old = old or CurrentMember(group_id, member_id)
    epoch, before = record.member_epoch, old.member_epoch
    return CurrentMember(group_id, member_id, epoch, before, MemberState.STABLE, old.assigned)


def _is_end_of_target(record: Record) -> TypeGuard[Tombstone]:
    return isinstance(record, Tombstone) and record.of == TargetMetadata.kind


# Bytes -------------------------------------------------------------------------------------------


@cache
def _writer(kind: int, version: int, *, key: bool) -> EntityWriter:
    return entity_writer(make_entity((KEYS if key else VALUES)[kind], version))


def _key(kind: str, fields: Values) -> bytes:
    number = TYPES[kind]
    out = bytearray(number.to_bytes(2, signed=True))
    _writer(number, 0, key=True)(out, fields)
    return bytes(out)


def _value(kind: str, fields: Values) -> bytes:
    number = TYPES[kind]
    version = VERSIONS.get(number, 0)
    out = bytearray(version.to_bytes(2, signed=True))
    _writer(number, version, key=False)(out, fields)
    return bytes(out)


@lru_cache(maxsize=100_000)
def _uuid(topic_id: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(kafka_id(topic_id) + "=="))


def _as_signed(number: int) -> int:
    return number - (1 << 64) * (number >> 63)


def _unless_zero(name: str, number: int) -> Values:
    """Return a tagged field, which Kafka leaves out where it is 0."""
    return {name: number} if number else {}


def write_marker(record: TransactionEnded) -> KeyValue:
    """Return the record that ends a transaction, of a batch of its own (`kind_of`)."""
    kind = COMMIT if record.committed else ABORT
    return KeyValue(MARKER.pack(0, kind), END_MARKER.pack(0, record.coordinator_epoch))


def kind_of(record: Record) -> BatchKind:
    """Return in what kind of batch a record stands."""
    if isinstance(record, OffsetPending | TransactionEnded):
        return BatchKind(*record.producer, is_marker=isinstance(record, TransactionEnded))
    return PLAIN


# One function a kind: the fields of the key, and of the value ----------------------------------


def _ended_key(record: Tombstone) -> Values:
    key = {
        "group_id": record.group_id,
        "member_id": record.member_id,
        "topic": record.name,
        "regex": record.name,
        "partition": record.partition,
    }
    return {shape.name: key[shape.name] for shape in KEYS[TYPES[record.of]].fields}


def _offset(record: OffsetCommitted) -> tuple[Values, Values]:
    key = {
        "group_id": record.group_id,
        "topic": record.topic,
        "partition": record.partition,
    }
    value = {
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "metadata": record.metadata,
        "commit_timestamp": record.commit_timestamp,
    }
    topic_id = _uuid(record.topic_id) if record.topic_id else None
    return key, value | ({"topic_id": topic_id} if topic_id and topic_id.int else {})


def _classic_group(record: ClassicGroupWritten) -> tuple[Values, Values]:
    return {"group_id": record.group_id}, {
        "protocol_type": record.protocol_type,
        "generation": record.generation,
        "protocol": record.protocol,
        "leader": record.leader,
        "current_state_timestamp": record.state_timestamp,
        "members": [_classic_member(one) for one in record.members],
    }


def _classic_member(one: ClassicMemberWritten) -> Values:
    return {
        "member_id": one.member_id,
        "instance_id": one.instance_id,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "rebalance_timeout": one.rebalance_timeout_ms,
        "session_timeout": one.session_timeout_ms,
        "subscription": one.subscription,
        "assignment": one.assignment,
    }


def _group(record: GroupMetadata) -> tuple[Values, Values]:
    return {"group_id": record.group_id}, {"epoch": record.epoch}


def _member(record: MemberMetadata) -> tuple[Values, Values]:
    classic = record.classic_member_metadata
    speaks = classic and {
        "session_timeout_ms": classic.session_timeout_ms,
        "supported_protocols": [
            {"name": one.name, "metadata": one.metadata} for one in classic.supported_protocols
        ],
    }
    return {"group_id": record.group_id, "member_id": record.member_id}, {
        "instance_id": record.instance_id,
        "rack_id": record.rack_id,
        "client_id": record.client_id,
        "client_host": record.client_host,
        "subscribed_topic_names": record.subscribed_topic_names,
        "subscribed_topic_regex": record.subscribed_topic_regex,
        "rebalance_timeout_ms": record.rebalance_timeout_ms,
        "classic_member_metadata": speaks,  # Kafka writes that there is none
    }


def _target_metadata(record: TargetMetadata) -> tuple[Values, Values]:
    at_ms = _unless_zero("assignment_timestamp", record.assignment_timestamp)
    return {"group_id": record.group_id}, {"assignment_epoch": record.assignment_epoch} | at_ms


def _target_member(record: TargetMember) -> tuple[Values, Values]:
    key = {"group_id": record.group_id, "member_id": record.member_id}
    return key, {"topic_partitions": _topics(record.spans)}


def _current(record: CurrentMember) -> tuple[Values, Values]:
    return {"group_id": record.group_id, "member_id": record.member_id}, {
        "member_epoch": record.member_epoch,
        "previous_member_epoch": record.previous_member_epoch,
        "state": int(record.state),
        "assigned_partitions": _held(record.assigned),
        "partitions_pending_revocation": _held(record.pending),
    }


def _regex(record: RegexResolved) -> tuple[Values, Values]:
    return {"group_id": record.group_id, "regex": record.regex}, {
        "topics": record.topics,
        "version": record.version,
        "timestamp": record.timestamp,
    }


_MAKERS: dict[str, Callable[[Any], tuple[Values, Values]]] = {
    OffsetCommitted.kind: _offset,
    OffsetPending.kind: lambda record: _offset(record.offset),
    ClassicGroupWritten.kind: _classic_group,
    GroupMetadata.kind: _group,
    MemberMetadata.kind: _member,
    TargetMetadata.kind: _target_metadata,
    TargetMember.kind: _target_member,
    CurrentMember.kind: _current,
    RegexResolved.kind: _regex,
}


def _topics(spans: Spans) -> list[Values]:
    found = partitions_by(lambda topic: _uuid(topic.topic_id), spans)
    return [{"topic_id": one, "partitions": numbers} for one, numbers in found.items()]


def _held(holding: Holding) -> list[Values]:
    found: dict[UUID, tuple[list[int], list[int]]] = {}
    for topic, first, end, epoch in holding:
        numbers, epochs = found.setdefault(_uuid(topic.topic_id), ([], []))
        numbers.extend(range(first, end))
        epochs.extend([epoch] * (end - first))
    return [
        {"topic_id": one, "partitions": numbers, "assignment_epochs": epochs}
        for one, (numbers, epochs) in found.items()
    ]
