"""Commit, fetch, delete and expire offsets, fenced by epochs.

See docs/design/behaviours.md#offsets-list-describe-delete.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from coordinator.config import Config
from coordinator.core.classic_events import CONSUMER
from coordinator.core.consumer.member_removal import not_found, unknown_member
from coordinator.core.consumer.member_update import refuse_new_group
from coordinator.core.events import (
    HEARTBEAT,
    CommittedOffset,
    ExpireOffsets,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Result,
    SetTimer,
)
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.partition_spans import epoch_of, put_together
from coordinator.core.state.records import (
    PARTITION_METADATA,
    ClassicGroupWritten,
    GroupMetadata,
    LoadsNoted,
    OffsetCommitted,
    Record,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.transactions import Place, ProducerForgotten
from coordinator.errors import ErrorCode, GroupError

MINUTE_MS = 60_000
PRODUCER_MS = 24 * 60 * MINUTE_MS
NEVER = 2**63
NO_MEMBER = -1
"""The epoch of a commit in a transaction that no member makes."""
MUCH = 1_000
"""Topics, or offsets, that are looked up in about a millisecond."""
OffsetsOfTopic: TypeAlias = dict[int, OffsetCommitted | ErrorCode | None]
Offsets: TypeAlias = dict[Place, OffsetCommitted]


def commit_offsets(state: State, config: Config, event: OffsetCommit, now_ms: int) -> Result:
    """Store offsets; the response is {topic: {partition: ErrorCode}}.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, POLICY_VIOLATION: for the whole
        request.
    """
    if not event.as_kafka:
        _check_offsets(event)
    classic = state.classic.get(event.group_id)
    timers = [] if classic is None else check_classic_commit(classic, event)
    if classic is None:
        _check_commit(state, event)
    refuse_new_group(config, state.offsets, event.group_id)
    records: list[Record] = []
    results: dict[str, dict[int, ErrorCode]] = {}
    most = config.kafka.offset_metadata_max_bytes  # a letter is one or two of UTF-16
    for topic, partitions in event.offsets.items():
        known = state.topics.get(topic)
        topic_id = known.key.topic_id if known else ""
        codes: dict[int, ErrorCode] = {}
        for partition, committed in partitions.items():
            offset, metadata, leader_epoch = CommittedOffset(*committed)
            too_large = len(metadata) > most // 2 and _count_letters(metadata) > most
            codes[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE
            if not too_large:
                records.append(
                    OffsetCommitted(
                        group_id=event.group_id,
                        topic=topic,
                        topic_id=topic_id,
                        partition=partition,
                        offset=offset,
                        leader_epoch=leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms,
                    )
                )
        if codes:
            results[topic] = codes
    return Result(records, results, timers)


def _count_letters(text: str) -> int:
    """Return the length that Kafka limits: in UTF-16, not in bytes."""
    return len(text.encode("utf-16-le")) // 2


def _check_offsets(event: OffsetCommit) -> None:
    """Refuse a request that says nothing that could be kept."""
    if not event.group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID, "The group id is empty: give one.")
    for topic, partitions in event.offsets.items():
        for partition, (offset, *_) in partitions.items():
            if partition < 0 or offset < 0:
                raise GroupError(
                    ErrorCode.INVALID_REQUEST,
                    f"Offset {offset} of partition {topic}-{partition}: give neither below 0.",
                )


def check_classic_commit(group: ClassicGroup, event: OffsetCommit) -> list[SetTimer]:
    """Fence by generation, and return what restarts the member's session (H-34).

    Without a member only an Empty group takes offsets. While the leader assigns, a partition's
    next owner is unknown.

    Raises
    ------
    GroupError
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
    """
    if event.member_epoch < 0 and group.state is ClassicState.EMPTY:
        return []
    if event.member_epoch < 0 and not event.member_id and event.instance_id is None:
        if event.in_transaction:
            return []
        raise unknown_member(event.group_id, event.member_id)
    member = group.find_member(event.member_id, event.instance_id)
    group.check_generation(event.member_epoch)
    if event.in_transaction:
        return []  # it proves nothing of a member that lives on without it
    if group.state is ClassicState.COMPLETING:
        raise GroupError(
            ErrorCode.REBALANCE_IN_PROGRESS, "The leader assigns: commit after the next SyncGroup."
        )
    return [SetTimer(HEARTBEAT, group.group_id, member.member_id, member.session_timeout_ms)]


def _check_commit(state: State, event: OffsetCommit) -> None:
    """Fence by member epoch, and per partition by assignment epoch (G-121…G-123)."""
    group = state.groups.get(event.group_id)
    if group is None:
        if event.member_epoch < 0:
            return
        if event.group_id in state.offsets:
            raise unknown_member(event.group_id, event.member_id)
        raise not_found(event.group_id)
    if event.member_epoch < 0 and not group.members:
        return
    is_unnamed = event.member_epoch == NO_MEMBER and not event.member_id
    if event.in_transaction and is_unnamed and event.instance_id is None:
        return
    member = _get_member(group, event.member_id)
    if not event.knows_epochs and not event.in_transaction and not member.is_classic:
        raise GroupError(
            ErrorCode.UNSUPPORTED_VERSION,
            "A member of a consumer group commits by OffsetCommit version 9 or newer.",
        )
    if event.member_epoch == member.epoch:
        return
    if event.member_epoch > member.epoch:
        raise _refuse_epoch(
            member,
            f"Received member epoch {event.member_epoch} is newer than current member epoch "
            f"{member.epoch}.",
        )
    _check_older_epoch(state, member, event)


def _check_older_epoch(state: State, member: Member, event: OffsetCommit) -> None:
    """Take an older epoch for partitions that the member was given no later (G-122).

    Of the topic that has the name now: offsets of one that is gone mean nothing in its successor.
    """
    held = put_together(member.current.assigned, member.current.pending)
    for topic, partitions in event.offsets.items():
        key = state.topics[topic].key if topic in state.topics else None
        for partition in partitions:
            given = None if key is None else epoch_of(held, key, partition)
            if given is None:
                raise _refuse_epoch(
                    member,
                    f"Partition {topic}-{partition} is not assigned or pending revocation for "
                    "member.",
                )
            if given > event.member_epoch:
                raise _refuse_epoch(
                    member,
                    f"Received member epoch {event.member_epoch} is older than assignment epoch "
                    f"{given} for partition {topic}-{partition}.",
                )


def _get_member(group: Group, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member


def _refuse_epoch(member: Member, message: str) -> GroupError:
    """Return the refusal of an epoch, in the words of the protocol that the member speaks."""
    classic = member.is_classic
    return GroupError(
        ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH, message
    )


def fetch_offsets(state: State, event: OffsetFetch) -> Result:
    """Return {topic: {partition: OffsetCommitted, None, or UNSTABLE_OFFSET_COMMIT}} (G-125).

    A group that does not exist has committed nothing; that is not an error.

    Raises
    ------
    GroupError
        UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH when the epoch is not exactly the member's.
    """
    group = state.groups.get(event.group_id)
    of_a_member = event.member_id is not None or event.member_epoch >= 0
    if group is not None and of_a_member:
        member = _get_member(group, event.member_id or "")
        if member.epoch != event.member_epoch:
            raise _refuse_epoch(
                member,
                f"Received member epoch {event.member_epoch}, the current member epoch is "
                f"{member.epoch}.",
            )
    offsets = state.offsets.get(event.group_id, {})
    unstable = state.transactions.places(event.group_id) if event.require_stable else ()
    if len(offsets if event.topics is None else event.topics) > MUCH:
        return Result(response=FoundOffsets(offsets.copy(), event.topics, frozenset(unstable)))
    return Result(response=_find_offsets(offsets, event.topics, unstable))


class FoundOffsets(Mapping[str, "OffsetsOfTopic"]):
    """Very many offsets as they are at one moment: the caller looks them up, not the core."""

    def __init__(
        self,
        offsets: Offsets,
        topics: Mapping[str, Sequence[int]] | None,
        unstable: Container[Place],
    ) -> None:
        self._offsets, self._topics, self._unstable = offsets, topics, unstable

    @cached_property
    def _found(self) -> dict[str, OffsetsOfTopic]:
        return _find_offsets(self._offsets, self._topics, self._unstable)

    def __getitem__(self, topic: str) -> OffsetsOfTopic:
        return self._found[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _find_offsets(
    offsets: Offsets, topics: Mapping[str, Sequence[int]] | None, unstable: Container[Place]
) -> dict[str, OffsetsOfTopic]:
    def find(place: Place) -> OffsetCommitted | ErrorCode | None:
        return ErrorCode.UNSTABLE_OFFSET_COMMIT if place in unstable else offsets.get(place)

    if topics is not None:
        return {
            topic: {partition: find((topic, partition)) for partition in partitions}
            for topic, partitions in topics.items()
        }
    found: dict[str, OffsetsOfTopic] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[partition] = find((topic, partition))
    return found


def delete_offsets(state: State, event: OffsetDelete) -> Result:
    """Delete offsets; the response is {topic: {partition: ErrorCode}} (G-126).

    Raises
    ------
    GroupError
        INVALID_GROUP_ID; GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP: a live classic group that does not
        consist of consumers.
    """
    if not event.group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID, "The group id is empty: give one.")
    group = state.groups.get(event.group_id)
    classic = state.classic.get(event.group_id)
    places = places_of(state, event.group_id)
    if group is None and classic is None and event.group_id not in state.offsets:
        raise not_found(event.group_id)
    if classic is not None and classic.protocol_type != CONSUMER and classic.is_running():
        message = f"Group {event.group_id} is not empty: its members use its offsets."
        raise GroupError(ErrorCode.NON_EMPTY_GROUP, message)
    records: list[Record] = []
    results: dict[str, dict[int, ErrorCode]] = {}
    for topic, partitions in event.topics.items():
        subscribed = (group is not None and group.names[topic] > 0) or (
            classic is not None and classic.is_subscribed(topic)
        )
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        for partition in partitions:
            results.setdefault(topic, {})[partition] = code
            if not subscribed and (topic, partition) in places:
                records.append(end_of_offset(event.group_id, topic, partition))
    return Result(records, results)


def expire_offsets(state: State, config: Config, _event: ExpireOffsets, now_ms: int) -> Result:
    """End offsets older than the retention, and empty groups left without any (G-127, G-128)."""
    kept_ms = config.kafka.offsets_retention_minutes * MINUTE_MS
    records: list[Record] = []
    for group_id in sorted(state.groups.keys() | state.classic.keys() | state.offsets.keys()):
        group, classic = state.groups.get(group_id), state.classic.get(group_id)
        offsets = state.offsets.get(group_id, {})
        waiting = state.transactions.places(group_id)
        old = [
            place
            for place, record in offsets.items()
            if _unused_since(group, classic, record) + kept_ms <= now_ms and place not in waiting
        ]
        records += [end_of_offset(group_id, *key) for key in sorted(old)]
        live = waiting or (group and group.members) or (classic and classic.is_running())
        if len(old) == len(offsets) and not live:
            records += end_of_group(group_id, group)
            if group_id in state.loads:
                records.append(Tombstone(LoadsNoted.kind, group_id))
    return Result([*records, *forget_producers(state, now_ms)])


def places_of(state: State, group_id: str) -> Collection[Place]:
    """Return where a group has offsets, those of open transactions included."""
    offsets, waiting = state.offsets.get(group_id, {}), state.transactions.places(group_id)
    return {*offsets, *waiting} if waiting else offsets.keys()


def forget_producers(state: State, now_ms: int) -> Iterator[ProducerForgotten]:
    """Forget producers that have had no transaction for a day (`producer.id.expiration.ms`)."""
    for producer_id, one in state.transactions.producers.items():
        if not one.is_open and one.seen_ms + PRODUCER_MS <= now_ms:
            yield ProducerForgotten(producer_id)


def _unused_since(
    group: Group | None, classic: ClassicGroup | None, record: OffsetCommitted
) -> int:
    """Return since when no member needs an offset; NEVER while one does.

    Of a classic group that is Empty since it is so; of one that runs only those of topics that no
    consumer subscribes to, and only while it is Stable.
    """
    if group is not None:
        return NEVER if group.names[record.topic] else record.commit_timestamp
    if classic is None or classic.protocol_type is None:
        return record.commit_timestamp
    if classic.is_subscribed(record.topic):
        return NEVER
    if classic.state is ClassicState.EMPTY:
        return classic.state_since_ms
    known = classic.state is ClassicState.STABLE and classic.subscribed is not None
    return record.commit_timestamp if known else NEVER


def end_of_offset(group_id: str, topic: str, partition: int) -> Tombstone:
    """Return the tombstone of one offset."""
    return Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)


def end_of_group(group_id: str, group: Group | None) -> list[Record]:
    """Return the tombstones of an empty group, as Kafka writes them.

    Parameters
    ----------
    group
        A consumer group; None is a classic one, be it of offsets only.
    """
    if group is None:
        return [Tombstone(ClassicGroupWritten.kind, group_id)]
    kinds = (TargetMetadata.kind, PARTITION_METADATA, GroupMetadata.kind)
    return [Tombstone(kind, group_id) for kind in kinds]
