"""ownership_history: who owned what in one group, from when until when, and why it came and went.

The twin of the SQL view `assignment_history` (spark_jobs/sql), in the same words and with the same
rows; tests compare them. Pure: records in, rows out.

A member owns what is assigned to it and what it still has to give up (pending), from the first of
its records that has a range until the first that has it no more. It was given by the assignment
epoch then in force. It was taken by

- the end of the member: by the group epoch that began when it left or timed out, or by the return
  of the static member under another member id;
- the member itself, when the newest group epoch is its change of subscription;
- else the assignment epoch in force when the range became pending, or went without being pending.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import NamedTuple

from coordinator.events import JOIN
from coordinator.history.epoch_history import SUBSCRIBED_ANEW, Cause, Epochs
from coordinator.records import CurrentMember, GroupMetadata, MemberMetadata, Record, Tombstone
from coordinator.spans import Holding, TopicKey, minus, plain, split, stamped, union

STATIC_RETURN = "static member returned"


class Moment(NamedTuple):
    """A record, and why it gives or takes."""

    at_ms: int
    position: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Ownership:
    """A range of partitions and its owner; `until` is None while it owns it."""

    key: TopicKey
    first: int
    end: int
    member_id: str
    instance_id: str | None
    since: Moment
    until: Moment | None = None
    revoked: bool | None = None
    """Whether the member gave it up and stayed in the group; None while it owns it."""


@dataclass(frozen=True, slots=True)
class _Tenure:
    """How a member came to own ranges; while they are pending, what takes them."""

    since: Moment
    instance_id: str | None
    taken: Cause | None = None


@dataclass(slots=True)
class History:
    """Who owned what in one group, told record by record."""

    group_id: str
    epochs: Epochs = field(init=False)
    _instances: dict[str, str | None] = field(default_factory=dict)
    _owned: dict[str, Holding] = field(default_factory=dict)
    """By member; in place of the assignment epoch stands the number of the tenure."""
    _tenures: list[_Tenure] = field(default_factory=list)
    _past: list[Ownership] = field(default_factory=list)
    _ended: dict[str, list[Ownership]] = field(default_factory=dict)
    """What members owned when they ended; what follows in the log says why they did."""

    def __post_init__(self) -> None:
        self.epochs = Epochs(self.group_id)

    def tell(self, record: Record, position: int, at_ms: int) -> None:
        """Go on by one record; those of other groups change nothing."""
        self.epochs.tell(record, position, at_ms)
        if getattr(record, "group_id", None) == self.group_id:
            self._tell(record, position, at_ms)

    def rows(self) -> list[Ownership]:
        """Return the history up to here, ordered by topic, partition and time."""
        rows = [row for ended in self._ended.values() for row in ended]
        for member_id, holding in self._owned.items():
            rows += self._rows(member_id, holding)
        merged = _merged(self._past + rows)
        return sorted(merged, key=lambda row: (row.key, row.first, row.since.position))

    @singledispatchmethod
    def _tell(self, record: Record, position: int, at_ms: int) -> None:
        """Most records move no partition."""

    @_tell.register
    def _member(self, record: MemberMetadata, _position: int, _at_ms: int) -> None:
        self._instances[record.member_id] = record.instance_id
        self._past += self._ended.pop(record.member_id, [])

    @_tell.register
    def _group(self, record: GroupMetadata, _position: int, _at_ms: int) -> None:
        ended = self._ended.pop(record.member_id or "", [])
        newest = self.epochs.newest
        assert newest is not None  # the epochs were told of it before
        for row in ended:
            assert row.until is not None
            self._past.append(replace(row, until=row.until._replace(cause=newest.cause)))

    @_tell.register
    def _current(self, record: CurrentMember, position: int, at_ms: int) -> None:
        member_id, instance_id = record.member_id, self._instances.get(record.member_id)
        has = plain(sorted(record.assigned + record.pending))
        kept, gone = split(self._owned.get(member_id, ()), has)
        takes = self._takes(member_id)
        self._past += self._rows(member_id, gone, Moment(at_ms, position, takes))
        gives = Moment(at_ms, position, self._gives(record))
        came = stamped(minus(has, kept), self._number(_Tenure(gives, instance_id)))
        assigned, pending = split(union(kept, came), record.assigned)
        self._owned[member_id] = union(self._with(assigned, None), self._with(pending, takes))

    @_tell.register
    def _end(self, record: Tombstone, position: int, at_ms: int) -> None:
        if record.of != CurrentMember.kind or record.member_id is None:
            return
        returned = self._instances.get(record.member_id) is not None
        cause = Cause(None, STATIC_RETURN if returned else None, None)
        rows = self._rows(record.member_id, self._owned.pop(record.member_id, ()))
        until = Moment(at_ms, position, cause)
        self._ended[record.member_id] = [replace(r, until=until, revoked=False) for r in rows]

    def _gives(self, record: CurrentMember) -> Cause:
        """Return why this record gives its member what it had not before."""
        target = self.epochs.target
        if record.member_epoch == JOIN:
            # Only the next incarnation of a static member holds something before it is answered.
            epoch = target.assignment_epoch if target else None
            return Cause(epoch, STATIC_RETURN, record.member_id)
        return target.cause if target else Cause(None, None, None)

    def _takes(self, member_id: str) -> Cause:
        """Return why the member is to give something up at this moment."""
        newest, target = self.epochs.newest, self.epochs.target
        if newest and newest.member_id == member_id and newest.reason == SUBSCRIBED_ANEW:
            return newest.cause
        return target.cause if target else Cause(None, None, None)

    def _with(self, holding: Holding, takes: Cause | None) -> Holding:
        """Return ranges as assigned (None), or as pending: what took them first, takes them."""
        numbers: dict[int, int] = {}
        for _, _, _, number in holding:
            tenure = self._tenures[number]
            if number not in numbers:
                taken = takes and (tenure.taken or takes)
                same = tenure.taken is taken
                numbers[number] = number if same else self._number(replace(tenure, taken=taken))
        return tuple((key, first, end, numbers[n]) for key, first, end, n in holding)

    def _number(self, tenure: _Tenure) -> int:
        self._tenures.append(tenure)
        return len(self._tenures) - 1

    def _rows(
        self, member_id: str, holding: Holding, until: Moment | None = None
    ) -> list[Ownership]:
        """Return ranges as rows: owned until now, or given up at a moment."""
        rows = []
        for key, first, end, number in holding:
            tenure = self._tenures[number]
            row = Ownership(key, first, end, member_id, tenure.instance_id, tenure.since)
            if until is not None:
                left = until._replace(cause=tenure.taken or until.cause)
                row = replace(row, until=left, revoked=True)
            rows.append(row)
        return rows


def _merged(rows: Iterable[Ownership]) -> list[Ownership]:
    """Return rows with those merged that touch and are alike in all else."""
    merged: list[Ownership] = []
    for row in sorted(rows, key=lambda row: (_tenure(row), row.first)):
        if merged and merged[-1].end == row.first and _tenure(merged[-1]) == _tenure(row):
            merged[-1] = replace(merged[-1], end=row.end)
        else:
            merged.append(row)
    return merged


def _tenure(row: Ownership) -> tuple[object, ...]:
    """Return what tells a row from others but for its partitions; it sorts."""
    end: tuple[object, ...] = ()
    if row.until is not None:
        epoch, reason, member_id = row.until.cause
        end = (row.until.position, epoch or 0, reason or "", member_id or "")
    return (row.key, row.member_id, row.since.position, *end)
