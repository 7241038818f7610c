"""Check a log's invariants on partition owners and epochs, recounted from its records.

`replay` enforces them too. This second count shares no code with it, because a coordinator with a
bug, or another program, may have written the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.core.state.partition_spans import Holding, TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    Record,
    TargetMetadata,
    Tombstone,
)

NO_MEMBER = -1
BEFORE_ALL = -1
AWAY = -2
"""The member epoch of a static member that left for a while; it returns with epoch 0."""


class Contradiction(ValueError):  # noqa: N818 - what a log may hold, no failure of ours
    """A record that contradicts the records before it."""


@dataclass(slots=True)
class _MemberCount:
    number: int
    epoch: int = 0
    held: Holding = ()


@dataclass(slots=True)
class _GroupCount:
    epoch: int = BEFORE_ALL
    assignment_epoch: int = BEFORE_ALL
    members: dict[str, _MemberCount] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Member ids by number, including members that have left."""
    owners: dict[TopicKey, NDArray[np.int32]] = field(default_factory=dict)
    """The number of each partition's owner."""


class InvariantChecker:
    """Tracks owners and epochs along a log, record by record."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupCount] = {}
        self._rules: dict[type[Record], Callable[[Any], None]] = {
            GroupMetadata: self._group,
            MemberMetadata: self._member,
            TargetMetadata: self._target,
            CurrentMember: self._current,
            MembersAdvanced: self._advance,
            Tombstone: self._end,
        }

    def check(self, record: Record) -> None:
        """Check the next record.

        Raises
        ------
        Contradiction
            A partition has two owners, an epoch falls, or an epoch is ahead of the group epoch.
        """
        rule = self._rules.get(type(record))
        if rule is not None:
            rule(record)

    def _group(self, record: GroupMetadata) -> None:
        group = self._groups.setdefault(record.group_id, _GroupCount())
        _refuse_fall(f"the epoch of group {record.group_id!r}", group.epoch, record.epoch)
        group.epoch = record.epoch

    def _member(self, record: MemberMetadata) -> None:
        group = self._groups.setdefault(record.group_id, _GroupCount())
        if record.member_id not in group.members:
            group.members[record.member_id] = _MemberCount(len(group.names))
            group.names.append(record.member_id)

    def _target(self, record: TargetMetadata) -> None:
        group = self._groups.setdefault(record.group_id, _GroupCount())
        what = f"the assignment epoch of group {record.group_id!r}"
        _refuse_fall(what, group.assignment_epoch, record.assignment_epoch)
        if group.epoch != BEFORE_ALL and record.assignment_epoch > group.epoch:
            raise Contradiction(
                f"{what} is {record.assignment_epoch}, ahead of the group epoch {group.epoch}"
            )
        group.assignment_epoch = record.assignment_epoch

    def _current(self, record: CurrentMember) -> None:
        group = self._groups.get(record.group_id)
        member = group.members.get(record.member_id) if group else None
        if group is None or member is None:
            return  # the member was removed, and nothing reads the rest of it (G-149)
        self._reach(record.group_id, group, record.member_id, record.member_epoch)
        held = (*record.assigned, *record.pending)
        if held != member.held:
            _give_up(group, member)
            _claim(record.group_id, group, member, held)
            member.held = held

    def _advance(self, record: MembersAdvanced) -> None:
        group = self._groups.get(record.group_id)
        for member_id in record.member_ids if group else ():
            if group is not None and member_id in group.members:
                self._reach(record.group_id, group, member_id, record.member_epoch)

    def _reach(self, group_id: str, group: _GroupCount, member_id: str, epoch: int) -> None:
        member = group.members[member_id]
        what = f"the epoch of member {member_id!r} of group {group_id!r}"
        if epoch > 0 or epoch < AWAY:
            _refuse_fall(what, max(member.epoch, 0), epoch)
        if group.epoch != BEFORE_ALL and epoch > group.epoch:
            raise Contradiction(f"{what} is {epoch}, ahead of the group epoch {group.epoch}")
        member.epoch = epoch

    def _end(self, record: Tombstone) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            return
        member = group.members.get(record.member_id or "")
        if record.of == GroupMetadata.kind:
            if group.members:
                raise Contradiction(f"group {record.group_id!r} is deleted while it has members")
            del self._groups[record.group_id]
        elif record.of == TargetMetadata.kind:
            group.assignment_epoch = BEFORE_ALL
        elif record.of == CurrentMember.kind and member is not None:
            _give_up(group, member)
        elif record.of == MemberMetadata.kind and member is not None:
            if member.held:
                raise Contradiction(
                    f"member {record.member_id!r} of group {record.group_id!r} is removed while "
                    f"it owns partitions"
                )
            del group.members[record.member_id or ""]


def _refuse_fall(what: str, before: int, after: int) -> None:
    if after < before:
        raise Contradiction(f"{what} falls from {before} to {after}")


def _give_up(group: _GroupCount, member: _MemberCount) -> None:
    for key, first, end, _ in member.held:
        group.owners[key][first:end] = NO_MEMBER
    member.held = ()


def _claim(group_id: str, group: _GroupCount, member: _MemberCount, held: Holding) -> None:
    for key, first, end, _ in held:
        owners = group.owners.get(key)
        if owners is None or len(owners) < end:
            grown = np.full(
                max(end, 2 * (0 if owners is None else len(owners))), NO_MEMBER, np.int32
            )
            if owners is not None:
                grown[: len(owners)] = owners
            owners = group.owners[key] = grown
        span = owners[first:end]
        taken = np.flatnonzero(span != NO_MEMBER)
        if len(taken):
            partition, other = first + int(taken[0]), group.names[int(span[taken[0]])]
            own = group.names[member.number]
            raise Contradiction(
                f"partition {partition} of topic {key.name!r} has two owners in group "
                f"{group_id!r}: {other!r} and {own!r}"
            )
        span[:] = member.number
