"""Groups whose records were all read again, which replace what the store has of them.

Only what differs is written. A group that is as it was keeps its history, and one that Kafka has no
more ends. One that could not be read comes back if all of its records are sound by now.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec

from coordinator.core.java_hash import place_of
from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import State, Watched
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    GroupUnread,
    MemberMetadata,
    OffsetCommitted,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.state_records import records_of_group, replay_alone
from coordinator.core.watched.unread_groups import (
    begin_with,
    ends_of,
    ends_of_members,
    group_of,
    take_out,
)
from coordinator.core.watched_events import KafkaWrote

KAFKAS = (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    RegexResolved,
    TargetMember,
    TargetMetadata,
)
"""What Kafka writes of a consumer group."""


def replace_groups(state: State, watched: Watched, event: KafkaWrote) -> KafkaWrote:
    """Return how groups that were read again differ from what the store has of them."""
    faulty = {one.group_id: one for one in event.unreadable}
    known = state.groups.keys() | state.classic.keys() | state.offsets.keys()
    theirs: dict[str, list[Record]] = {}
    named = {group_of(record) for record in event.records} - {""}
    for record in event.records:
        group_id = group_of(record)
        if group_id in known or group_id in watched.unread:
            theirs.setdefault(group_id, []).append(record)
    begun: list[Record] = []
    same, out = set[str](), set(faulty)
    for group_id in sorted(theirs.keys() - faulty.keys()):
        alone = _replay_alone(state, theirs[group_id])
        if group_id in watched.unread and alone is None:
            out.add(group_id)  # it is as wrong as it was
        elif group_id in watched.unread:
            begun.append(Tombstone(GroupUnread.kind, group_id))
        else:
            begun += _ends_of_offsets(state, group_id, theirs[group_id])
            if alone is not None and _records_of(alone, group_id) == _records_of(state, group_id):
                same.add(group_id)
            else:
                begun += ends_of_members(state, group_id)
    for group_id in sorted(_find_gone(event, known | watched.unread.keys(), named | out)):
        begun += ends_of(state, group_id)
        if group_id in watched.unread:
            begun.append(Tombstone(GroupUnread.kind, group_id))
    for group_id in sorted(faulty.keys() - watched.unread.keys()):
        begun += take_out(state, faulty[group_id], event.partition, event.records)

    def differs(record: Record) -> bool:
        group_id = group_of(record)
        if isinstance(record, OffsetCommitted):
            before = state.offsets.get(group_id, {}).get((record.topic, record.partition))
            return group_id not in out and record != before
        return group_id not in out and group_id not in same

    return begin_with(event, begun, differs)


def _find_gone(event: KafkaWrote, known: AbstractSet[str], named: AbstractSet[str]) -> set[str]:
    """Return the groups of the partition that Kafka no longer has a record of."""
    if not event.partitions:
        return set()
    return {one for one in known - named if place_of(one, event.partitions) == event.partition}


def _replay_alone(state: State, records: Iterable[Record]) -> State | None:
    """Return what the records of a group make of it; None where they contradict each other."""
    try:
        return replay_alone(state, records)
    except Exception:  # noqa: BLE001 - any error, as for records that are read in order
        return None


def _ends_of_offsets(state: State, group_id: str, records: Iterable[Record]) -> list[Record]:
    had = state.offsets.get(group_id, {})
    now = {(one.topic, one.partition) for one in records if isinstance(one, OffsetCommitted)}
    return [
        Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)
        for topic, partition in had
        if (topic, partition) not in now
    ]


def _records_of(state: State, group_id: str) -> set[Record]:
    """Return what Kafka's records say of a group's members: nothing that is ours."""
    group, classic = state.groups.get(group_id), state.classic.get(group_id)
    found: set[Record] = set()
    if group is not None:
        found |= {one for one in records_of_group(state, group) if isinstance(one, KAFKAS)}
        found.add(GroupMetadata(group_id, group.epoch, group.metadata_hash))
        found -= {GroupMetadata(group_id, group.epoch, group.metadata_hash, owner_left=True)}
    if classic is not None:
        written: ClassicGroupWritten = record_of(classic)
        found.add(msgspec.structs.replace(written, reason="", member_id=None, moved=0))
    return found
