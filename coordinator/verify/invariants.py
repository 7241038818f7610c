"""Check a log's invariants on partition owners and epochs, recounted from its records.

`replay` enforces them too. This second count shares no code with it, because a coordinator with a
bug, or another program, may have written the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assignors.arrays import expand_runs
from coordinator.core.state.member_rows import CurrentRows, MemberRows, RecordRows
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
    columns: tuple[CurrentRows, int] | None = None
    """Where `held` is of a member that came in columns, until it is asked for."""

    def take_held(self) -> Holding:
        """Return what the member has."""
        if self.columns is not None:
            rows, at = self.columns
            self.held, self.columns = (*rows.assigned.spans(at), *rows.pending.spans(at)), None
        return self.held


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

    def check_rows(self, rows: RecordRows) -> bool:
        """Check the records of many members at once.

        Returns
        -------
        bool
            False, and nothing is done, where that cannot be: a member had something before, or a
            record contradicts others. Checked one by one, they say which.
        """
        if isinstance(rows, CurrentRows):
            return self._hold_rows(rows)
        if isinstance(rows, MemberRows):
            for member_id in rows.member_ids.to_pylist():
                self._come(rows.group_id, member_id)
        return True

    def _hold_rows(self, rows: CurrentRows) -> bool:
        group, ids = self._groups.get(rows.group_id), rows.member_ids.to_pylist()
        if group is None or len(set(ids)) < len(ids) or not group.members.keys() >= set(ids):
            return False
        members = list(map(group.members.__getitem__, ids))
        epochs = rows.numbers[0]
        ahead = group.epoch != BEFORE_ALL and int(epochs.max(initial=0)) > group.epoch
        if ahead or int(epochs.min(initial=0)) < AWAY:
            return False
        if any(member.epoch or member.take_held() for member in members):
            return False
        if not _claim_rows(group, members, rows):
            return False
        for at, (member, epoch) in enumerate(zip(members, epochs.tolist(), strict=True)):
            member.epoch, member.columns = epoch, (rows, at)
        return True

    def _group(self, record: GroupMetadata) -> None:
        group = self._groups.setdefault(record.group_id, _GroupCount())
        _refuse_fall(f"the epoch of group {record.group_id!r}", group.epoch, record.epoch)
        group.epoch = record.epoch

    def _member(self, record: MemberMetadata) -> None:
        self._come(record.group_id, record.member_id)

    def _come(self, group_id: str, member_id: str) -> None:
        group = self._groups.setdefault(group_id, _GroupCount())
        if member_id not in group.members:
            group.members[member_id] = _MemberCount(len(group.names))
            group.names.append(member_id)

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
        if held != member.take_held():
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
            if member.take_held():
                raise Contradiction(
                    f"member {record.member_id!r} of group {record.group_id!r} is removed while "
                    f"it owns partitions"
                )
            del group.members[record.member_id or ""]


def _refuse_fall(what: str, before: int, after: int) -> None:
    if after < before:
        raise Contradiction(f"{what} falls from {before} to {after}")


def _give_up(group: _GroupCount, member: _MemberCount) -> None:
    for key, first, end, _ in member.take_held():
        group.owners[key][first:end] = NO_MEMBER
    member.held = ()


def _claim(group_id: str, group: _GroupCount, member: _MemberCount, held: Holding) -> None:
    for key, first, end, _ in held:
        span = _reserve(group, key, end)[first:end]
        taken = np.flatnonzero(span != NO_MEMBER)
        if len(taken):
            partition, other = first + int(taken[0]), group.names[int(span[taken[0]])]
            own = group.names[member.number]
            raise Contradiction(
                f"partition {partition} of topic {key.name!r} has two owners in group "
                f"{group_id!r}: {other!r} and {own!r}"
            )
        span[:] = member.number


def _claim_rows(group: _GroupCount, members: list[_MemberCount], rows: CurrentRows) -> bool:
    """Let members own partitions; False, and nothing is done, if one would have two owners."""
    number_of: dict[TopicKey, int] = {}
    numbers = np.array([member.number for member in members], np.int32)
    parts = []
    for spans in (rows.assigned, rows.pending):
        known = [number_of.setdefault(key, len(number_of)) for key in spans.keys]
        topic, first, end, *_ = spans.columns()
        if len(topic):
            parts.append((np.array(known)[topic], first, end, numbers.repeat(spans.counts())))
    if not parts:
        return True
    topic, first, end, who = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((first, topic))
    topic, first, end, who = (column[order] for column in (topic, first, end, who))
    new = topic[1:] != topic[:-1]
    if (~new & (first[1:] < end[:-1])).any():
        return False
    keys, claims = list(number_of), []
    for low, high in pairwise([0, *(np.flatnonzero(new) + 1).tolist(), len(topic)]):
        counts = end[low:high] - first[low:high]
        at = expand_runs(first[low:high], counts)
        owners = _reserve(group, keys[int(topic[low])], int(end[high - 1]))
        if (owners[at] != NO_MEMBER).any():
            return False
        claims.append((owners, at, who[low:high].repeat(counts)))
    for owners, at, claimants in claims:
        owners[at] = claimants
    return True


def _reserve(group: _GroupCount, key: TopicKey, end: int) -> NDArray[np.int32]:
    """Return the owners of a topic's partitions, with room up to one of them."""
    owners = group.owners.get(key)
    if owners is None or len(owners) < end:
        known = 0 if owners is None else len(owners)
        grown = np.full(max(end, 2 * known), NO_MEMBER, np.int32)
        if owners is not None:
            grown[:known] = owners
        owners = group.owners[key] = grown
    return owners
