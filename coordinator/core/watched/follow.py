"""Follow Kafka's coordinator: take what it wrote, say why, and refuse to decide in its place."""

from __future__ import annotations

import msgspec

from coordinator.core.events import (
    READING,
    Event,
    ExpireOffsets,
    RecordAudit,
    Result,
    TimerFired,
    TopicsReported,
)
from coordinator.core.state.groups import State, Watched
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    GroupUnread,
    KafkaWatched,
    MemberMetadata,
    OffsetCommitted,
    PartitionRead,
    Record,
    RegexResolved,
    Tombstone,
)
from coordinator.core.topic_metadata import update_topics
from coordinator.core.watched.inferred_reasons import Activity, Cause, EpochCauses, infer_generation
from coordinator.core.watched.kept_records import keep_records
from coordinator.core.watched.moves import TargetMoves
from coordinator.core.watched.replace_groups import replace_groups
from coordinator.core.watched.unread_groups import check_place, pass_over
from coordinator.core.watched_events import KafkaWrote, KeepRecords
from coordinator.errors import ErrorCode, GroupError

EXPLAINING = (GroupMetadata, MemberMetadata, RegexResolved, Tombstone)
"""What raises the epoch of a consumer group, and what tells why."""
KAFKAS: tuple[type[Event], ...] = (TimerFired, ExpireOffsets)
"""What Kafka's coordinator sees to: nothing is done about it here."""


def decide_watched(state: State, watched: Watched, event: Event) -> Result | None:
    """Decide an event where Kafka coordinates the groups.

    Returns
    -------
    Result or None
        None where it is decided as everywhere.

    Raises
    ------
    GroupError
        NOT_COORDINATOR: it would change a group.
    """
    if isinstance(event, KafkaWrote):
        return follow(state, event)
    if isinstance(event, KeepRecords):
        return keep_records(state, event)
    if isinstance(event, TopicsReported):
        # Offsets of a topic that is gone end when Kafka says so.
        return Result([one for one in update_topics(state, event).records if not _is_offset(one)])
    if isinstance(event, KAFKAS):
        return Result()
    if isinstance(event, READING | RecordAudit):
        _refuse_unread(watched, getattr(event, "group_id", ""))
        return None
    raise GroupError(
        ErrorCode.NOT_COORDINATOR,
        f"The Kafka cluster {watched.cluster.cluster_id} coordinates {_name_group(event)}; this "
        "store only shows what it does: ask that cluster.",
    )


def follow(state: State, event: KafkaWrote) -> Result:
    """Return what Kafka wrote as records, with the reasons that can be inferred.

    Raises
    ------
    GroupError
        INVALID_REQUEST: the store has groups of its own, or of another cluster, or was not read up
        to where the event begins.
    """
    for record in event.records:
        if isinstance(record, KafkaWatched):
            _refuse_others(state, record)
    if state.watched is None and not any(isinstance(one, KafkaWatched) for one in event.records):
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            "This store does not say which Kafka cluster it shows: begin with KafkaWatched.",
        )
    if state.watched is not None:
        wrong = check_place(state.watched, event)
        if wrong:
            raise GroupError(ErrorCode.INVALID_REQUEST, wrong)
        taken = replace_groups if event.replaces else pass_over
        event = taken(state, state.watched, event)
    return Result(_explain(state, event) if event.explains else [*event.records])


def find_places(state: State) -> dict[int, PartitionRead]:
    """Return how far each partition of a Kafka cluster's topic of groups is read."""
    return {} if state.watched is None else {p.partition: p for p in state.watched.read.values()}


def list_groups(state: State) -> set[str]:
    """Return the groups of the consumer protocol."""
    return set(state.groups)


def list_unread(state: State) -> list[GroupUnread]:
    """Return the groups of a Kafka cluster that cannot be read."""
    return [] if state.watched is None else [*state.watched.unread.values()]


def name_topics(state: State) -> dict[str, str]:
    """Return the names of the topics that groups have partitions of, by id."""
    keys = {
        span[0]
        for group in state.groups.values()
        for member_id, member in group.members.items()
        for spans in (group.targets.get(member_id, ()), member.current.assigned)
        for span in spans
    }
    return {key.topic_id: key.name for key in keys}


def _refuse_others(state: State, record: KafkaWatched) -> None:
    watched = state.watched
    if watched is None and (state.groups or state.classic or state.offsets or state.settings):
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            "The store has groups that Muster coordinates: give the groups of a Kafka cluster a "
            "store of their own.",
        )
    if watched is not None and watched.cluster.cluster_id != record.cluster_id:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"The store shows the Kafka cluster {watched.cluster.cluster_id}, and this is "
            f"{record.cluster_id}: give each cluster a store of its own.",
        )


def _explain(state: State, event: KafkaWrote) -> list[Record]:
    activity = Activity(event.seen_ms, event.session_ms)
    groups: dict[str, EpochCauses] = {}
    moves = TargetMoves(state)
    return [
        _with_cause(state, moves.see(record), groups, activity, event.at_ms)
        for record in event.records
    ]


def _with_cause(
    state: State,
    record: Record,
    groups: dict[str, EpochCauses],
    activity: Activity,
    now_ms: int,
) -> Record:
    if isinstance(record, ClassicGroupWritten):
        cause: Cause | None = infer_generation(state, record, activity, now_ms)
    elif isinstance(record, EXPLAINING):
        group_id = record.group_id
        if group_id not in groups:
            groups[group_id] = EpochCauses(state, group_id, activity, now_ms)
        cause = groups[group_id].see(record)
    else:
        return record
    has_reason = isinstance(record, GroupMetadata | ClassicGroupWritten) and record.reason
    if cause is None or has_reason:  # a leader of Muster's knew why
        return record
    return msgspec.structs.replace(record, reason=cause.reason, member_id=cause.member_id)


def _refuse_unread(watched: Watched, group_id: str) -> None:
    """Refuse questions about a group that cannot be read: "not found" would be wrong."""
    found = watched.unread.get(group_id)
    if found is not None:
        raise GroupError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} cannot be read: the record at offset {found.offset} of partition "
            f"{found.partition} of Kafka's topic of groups is wrong, {found.reason}.",
        )


def _is_offset(record: Record) -> bool:
    return isinstance(record, Tombstone) and record.of == OffsetCommitted.kind


def _name_group(event: Event) -> str:
    group_id = getattr(event, "group_id", "")
    return f"group {group_id}" if group_id else "these groups"
