"""Groups of a Kafka cluster that cannot be read: each is taken out, alone, until it can be.

A record that cannot be decoded, or that contradicts what the group was, says nothing about others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from coordinator.core.state.groups import Group, State, Watched
from coordinator.core.state.record_fields import Mark, fields_of
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    GroupUnread,
    LoadsNoted,
    LoadsUsed,
    MemberMetadata,
    OffsetCommitted,
    PartitionRead,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.core.watched_events import KafkaWrote, Unreadable

OF_MEMBERS = (CurrentMember.kind, TargetMember.kind, MemberMetadata.kind)
OF_GROUPS = frozenset({GroupMetadata.kind, ClassicGroupWritten.kind})
"""Their end is the group's, unless the other one follows: then it only has another protocol."""
MAKING = (GroupMetadata, ClassicGroupWritten)
TEXT_MAX = 500
"""Of what is wrong with a record, which the record itself may have written."""


def pass_over(state: State, watched: Watched, event: KafkaWrote) -> KafkaWrote:
    """Return an event without groups that cannot be read, and without records that cannot.

    A group that Kafka ends is forgotten. What is read again goes to `replace_groups`.
    """
    named = {group_of(one) for one in event.records} - {""}
    faulty = {one.group_id: one for one in event.unreadable}
    unread = (named | faulty.keys()) & watched.unread.keys()
    if not unread and not faulty:
        return event
    again = _find_ended(event, unread) - faulty.keys()
    begun: list[Record] = [Tombstone(GroupUnread.kind, group_id) for group_id in sorted(again)]
    for group_id, one in sorted(faulty.items()):
        if group_id not in unread:
            begun += take_out(state, one, event.partition, event.records)
    out = unread | faulty.keys()
    return begin_with(event, begun, lambda record: group_of(record) not in out)


def begin_with(
    event: KafkaWrote, begun: Sequence[Record], keeps: Callable[[Record], bool]
) -> KafkaWrote:
    """Return an event with other records before those of its own that are kept."""
    pairs = zip(event.records, offsets_of(event), strict=True)
    kept = [(record, offset) for record, offset in pairs if keeps(record)]
    return replace(
        event,
        records=(*begun, *(record for record, _ in kept)),
        offsets=(*(-1 for _ in begun), *(offset for _, offset in kept)),
    )


def replay_written(state: State, event: KafkaWrote, records: Sequence[Record]) -> list[Record]:
    """Change the state by what Kafka wrote, and return the records to keep.

    A group whose records contradict the state is taken out; those of others stand.
    """
    kept: list[Record] = []
    out: dict[str, int] = {}
    for record in records:
        group_id = group_of(record)
        if group_id in out:
            continue
        try:
            replay(state, record)
        except Exception as error:
            if not group_id:
                raise
            found = Unreadable(group_id, _find_offset(event, record), str(error) or repr(error))
            removal = take_out(state, found, event.partition, records)
            for one in removal:
                replay(state, one)
            out[group_id] = len(kept)
            kept += removal
        else:
            kept.append(record)
    if not out:
        return kept
    return [one for at, one in enumerate(kept) if at >= out.get(group_of(one), 0)]


def take_out(
    state: State, fault: Unreadable, partition: int, written: Iterable[Record]
) -> list[Record]:
    """Return records that end a group, and say why.

    The first alone ends it in memory, even with half of a change; the others end its rows.

    Parameters
    ----------
    written
        What the group may have besides: a part of it may have been replayed.
    """
    group_id = fault.group_id
    ends = [*ends_of(state, group_id)]
    ends += [end_of(one) for one in written if group_of(one) == group_id]
    each = [one for one in dict.fromkeys(ends) if one.of != GroupUnread.kind]
    last = sorted(each, key=lambda one: one.of in OF_GROUPS)
    return [GroupUnread(group_id, partition, fault.offset, fault.reason[:TEXT_MAX]), *last]


def group_of(record: Record) -> str:
    """Return the id of the group that a record is about; empty where it is about none."""
    return getattr(record, "group_id", "")


def end_of(record: Record) -> Tombstone:
    """Return the end of a record's key."""
    if isinstance(record, Tombstone):
        return record
    name = getattr(record, "regex", None) or getattr(record, "topic", None)
    keys = {field.name for field in fields_of(type(record)) if Mark.KEY in field.marks}
    return Tombstone(
        record.kind,
        group_of(record),
        getattr(record, "member_id", None) if "member_id" in keys else None,
        name,
        getattr(record, "partition", None) if "partition" in keys else None,
    )


def offsets_of(event: KafkaWrote) -> Sequence[int]:
    """Return Kafka's offset of each record; -1 where it is not known."""
    return event.offsets or (-1,) * len(event.records)


def check_place(watched: Watched, event: KafkaWrote) -> str:
    """Return what is wrong with where an event begins; empty where it follows what was read."""
    for record in event.records:
        if isinstance(record, PartitionRead) and event.follows is not None:
            before = watched.read.get((record.topic, record.partition))
            known = 0 if before is None else before.offset
            if known != event.follows:
                return (
                    f"partition {record.partition} of {record.topic} is read up to {known}, and "
                    f"what is brought begins at {event.follows}: read on from {known}"
                )
    return ""


def _find_ended(event: KafkaWrote, groups: AbstractSet[str]) -> set[str]:
    """Return those of some groups that Kafka ends, and does not recreate."""
    ends = (one for one in event.records if isinstance(one, Tombstone) and one.of in OF_GROUPS)
    made = {one.group_id for one in event.records if isinstance(one, MAKING)}
    return {one.group_id for one in ends if one.group_id in groups} - made


def _find_offset(event: KafkaWrote, record: Record) -> int:
    """Return Kafka's offset of a record, which may have got a reason since."""
    wanted = end_of(record)
    pairs = zip(event.records, offsets_of(event), strict=True)
    found = [
        offset
        for one, offset in pairs
        if isinstance(one, Tombstone) is isinstance(record, Tombstone) and end_of(one) == wanted
    ]
    return found[-1] if found else -1


def ends_of(state: State, group_id: str) -> Iterator[Tombstone]:
    """Yield the end of each key that a group has."""
    for topic, partition in state.offsets.get(group_id, ()):
        yield Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)
    if group_id in state.loads:
        yield Tombstone(LoadsNoted.kind, group_id)
    if group_id in state.loads_used:
        yield Tombstone(LoadsUsed.kind, group_id)
    yield from ends_of_members(state, group_id)


def ends_of_members(state: State, group_id: str) -> Iterator[Tombstone]:
    """Yield the end of each key that a group has, but of its offsets."""
    group = state.groups.get(group_id)
    if group is not None:
        yield from _ends_of_consumers(group)
    if group_id in state.classic:
        yield Tombstone(ClassicGroupWritten.kind, group_id)


def _ends_of_consumers(group: Group) -> Iterator[Tombstone]:
    ids = [*group.members, *(one for one, _ in group.targets.own() if one not in group.members)]
    for kind in OF_MEMBERS:
        yield from (Tombstone(kind, group.group_id, member_id) for member_id in ids)
    for regex in group.regexes:
        yield Tombstone(RegexResolved.kind, group.group_id, name=regex)
    yield Tombstone(TargetMetadata.kind, group.group_id)
    yield Tombstone(GroupMetadata.kind, group.group_id)
