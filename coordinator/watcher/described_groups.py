"""Make records of what Kafka answers about its groups, where its topic of groups may not be read.

Two answers are compared, and only what differs becomes records: what happened to a group between
them is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from coordinator.core.reasons import Reason
from coordinator.core.state.partition_spans import Holding, Spans, TopicKey
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberMetadata,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    OffsetCommitted,
    Record,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.watched.lags import Place


class DescribedMember(NamedTuple):
    """A member of a consumer group, as ConsumerGroupDescribe answers."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    names: tuple[str, ...]
    regex: str
    is_classic: bool
    assigned: Spans
    target: Spans

    @property
    def metadata(self) -> tuple[object, ...]:
        """What it says of itself."""
        return self[1:3] + self[4:9]


class DescribedGroup(NamedTuple):
    """A consumer group, as ConsumerGroupDescribe answers."""

    group_id: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Mapping[str, DescribedMember]


class Committed(NamedTuple):
    """An offset, as OffsetFetch answers."""

    offset: int
    leader_epoch: int
    metadata: str


def compare_groups(before: DescribedGroup | None, now: DescribedGroup) -> tuple[list[Record], bool]:
    """Return the records that lead from one answer to the next.

    Returns
    -------
    list, bool
        In Kafka's order; and whether they tell why the epoch rose. A group that changed several
        times between the answers does not.
    """
    if before is not None and _is_another(before, now):
        return [*end_group(before), *compare_groups(None, now)[0]], False
    old = DescribedGroup(now.group_id, 0, 0, "", {}) if before is None else before
    group_id, records = now.group_id, list(_end_members(old, now))
    records += [
        _metadata(group_id, member)
        for member_id, member in now.members.items()
        if member_id not in old.members or old.members[member_id].metadata != member.metadata
    ]
    if now.epoch != old.epoch:
        is_next = now.epoch == old.epoch + 1
        reason = "" if is_next or before is None else Reason.UNKNOWN
        records.append(GroupMetadata(group_id, now.epoch, 0, reason))
    records += [
        TargetMember(group_id, member_id, member.target)
        for member_id, member in now.members.items()
        if (member_id not in old.members and member.target)
        or (member_id in old.members and old.members[member_id].target != member.target)
    ]
    if now.assignment_epoch != old.assignment_epoch:
        target = TargetMetadata(group_id, now.assignment_epoch, assignor=now.assignor, moved=None)
        records.append(target)
    records += _hold(old, now)
    return records, before is not None and now.epoch == old.epoch + 1


def _is_another(before: DescribedGroup, now: DescribedGroup) -> bool:
    """Whether a group was deleted and recreated: the epochs of one never fall."""
    return now.epoch < before.epoch or now.assignment_epoch < before.assignment_epoch


def _end_members(old: DescribedGroup, now: DescribedGroup) -> Iterator[Record]:
    for member_id in old.members.keys() - now.members.keys():
        for kind in (CurrentMember.kind, TargetMember.kind, MemberMetadata.kind):
            yield Tombstone(kind, now.group_id, member_id)


def _metadata(group_id: str, member: DescribedMember) -> MemberMetadata:
    return MemberMetadata(
        group_id,
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.names,
        member.regex,
        classic_member_metadata=ClassicMemberMetadata() if member.is_classic else None,
    )


def _hold(old: DescribedGroup, now: DescribedGroup) -> Iterator[Record]:
    """Yield what members have now: first those that give partitions away, then those that get."""
    changed = {
        member_id: _current(now, member)
        for member_id, member in now.members.items()
        if member_id not in old.members
        or _current(now, member) != _current(old, old.members[member_id])
    }
    gets: list[CurrentMember] = []
    for member_id, current in changed.items():
        was = old.members[member_id].assigned if member_id in old.members else ()
        kept = _common(was, now.members[member_id].assigned)
        if kept == now.members[member_id].assigned:
            yield current
            continue
        gets.append(current)
        if kept != was:  # what it gave away may be another's by now
            yield CurrentMember(
                now.group_id,
                member_id,
                current.member_epoch,
                state=MemberState.UNRELEASED_PARTITIONS,
                assigned=_held(kept, current.member_epoch),
            )
    yield from gets


def _current(group: DescribedGroup, member: DescribedMember) -> CurrentMember:
    if _common(member.assigned, member.target) != member.assigned:
        state = MemberState.UNREVOKED_PARTITIONS
    elif member.assigned != member.target:
        state = MemberState.UNRELEASED_PARTITIONS
    else:
        state = MemberState.STABLE
    held = _held(member.assigned, member.epoch)
    return CurrentMember(group.group_id, member.member_id, member.epoch, 0, state, held)


def _held(spans: Spans, epoch: int) -> Holding:
    return tuple((key, first, end, epoch) for key, first, end in spans)


def _common(some: Spans, others: Spans) -> Spans:
    """Return the partitions that are in both."""
    by_topic: dict[TopicKey, list[tuple[int, int]]] = {}
    for key, first, end in others:
        by_topic.setdefault(key, []).append((first, end))
    return tuple(
        (key, max(first, start), min(end, stop))
        for key, first, end in some
        for start, stop in by_topic.get(key, ())
        if max(first, start) < min(end, stop)
    )


def end_group(group: DescribedGroup) -> list[Record]:
    """Return the records that end a consumer group."""
    empty = DescribedGroup(group.group_id, 0, 0, "", {})
    return [
        *_end_members(group, empty),
        Tombstone(TargetMetadata.kind, group.group_id),
        Tombstone(GroupMetadata.kind, group.group_id),
    ]


def compare_classic(before: ClassicGroupWritten | None, now: ClassicGroupWritten) -> list[Record]:
    """Return a classic group's record, if it differs.

    Kafka's answer has no generation: those of the store count the answers that differ.
    """
    if before is None:
        return [msgspec.structs.replace(now, generation=1)]
    if _compared(before) == _compared(now):
        return []
    return [msgspec.structs.replace(now, generation=before.generation + 1)]


def _compared(group: ClassicGroupWritten) -> tuple[object, ...]:
    members = [
        (one.member_id, one.instance_id, one.client_id, one.client_host, one.subscription)
        for one in group.members
    ]
    given = [one.assignment for one in group.members]
    return group.protocol_type, group.protocol, members, given


def compare_offsets(
    group_id: str, before: Mapping[Place, Committed], now: Mapping[Place, Committed], at_ms: int
) -> list[Record]:
    """Return the records of offsets that differ; Kafka's answer does not say since when."""
    gone: list[Record] = [
        Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)
        for topic, partition in sorted(before.keys() - now.keys())
    ]
    return gone + [
        OffsetCommitted(
            group_id, topic, "", partition, one.offset, one.leader_epoch, one.metadata, at_ms
        )
        for (topic, partition), one in sorted(now.items())
        if before.get((topic, partition)) != one
    ]
