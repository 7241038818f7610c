"""The histories of a group, record by record: the naive twin of coordinator/history.

A target takes in all group epochs since the target before it: their reasons are why it gives and
takes. What tests ask of the columns, they ask of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import NamedTuple

from coordinator.core.events import JOIN
from coordinator.core.reasons import codes_of
from coordinator.core.state.partition_spans import (
    Holding,
    TopicKey,
    add_epoch,
    drop_epochs,
    split,
    subtract_spans,
    union,
)
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    Record,
    RegexResolved,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.display.times import format_time
from coordinator.history.epoch_views import NOTICED, RESUBSCRIBED, TOPICS_NAMED
from coordinator.history.ownership_view import STATIC_RETURN

MOMENTS = (MemberMetadata, CurrentMember, MembersAdvanced, TargetMetadata, Tombstone)
"""Records that say who is there, what is wanted, and how far members are."""


class Cause(NamedTuple):
    """Why something was given or taken: an epoch, its reason, and the member behind it."""

    epoch: int | None
    reason: str | None
    member_id: str | None
    codes: tuple[str, ...] | None = None

    @property
    def reason_codes(self) -> list[str] | None:
        """The codes of the reason: those given, or else of its text."""
        codes = codes_of(self.reason or "") if self.codes is None else self.codes
        return list(codes) or None


@dataclass(slots=True, eq=False)
class Epoch:
    """One group epoch."""

    group_id: str
    group_epoch: int
    position: int
    at_ms: int
    reason: str
    member_id: str | None
    who: MemberMetadata | None
    topics_changed: list[str] | None
    """What happened to the topics of the group, when that is the reason."""
    assignment_epoch: int | None = None
    """The target that took it in: the first one computed for this group epoch or a later one."""
    # The rest is None unless the target was computed for exactly this group epoch.
    computed_at_ms: int | None = None
    assignor: str | None = None
    moved: int | None = None
    partial: bool | None = None
    incarnation: int = 1
    ended: bool = False
    """Whether its group has ended since."""
    reached_at_ms: int | None = None

    @property
    def cause(self) -> Cause:
        """The epoch as a cause, with what happened to topics."""
        reason = self.reason
        if self.topics_changed:
            named = self.topics_changed[:TOPICS_NAMED]
            more = len(self.topics_changed) - len(named)
            reason += f" ({'; '.join(named)}{f' and {more} more' if more else ''})"
        member_id = None if self.reason in NOTICED else self.member_id
        return Cause(self.group_epoch, reason, member_id, codes_of(self.reason))


@dataclass(frozen=True, slots=True)
class Target:
    """A target assignment, and the group epochs that it took in."""

    assignment_epoch: int
    epochs: list[Epoch]

    @property
    def cause(self) -> Cause:
        """Why this target gives and takes: all reasons, and their member if they have but one."""
        causes = [epoch.cause for epoch in self.epochs]
        reasons = ", ".join(dict.fromkeys(cause.reason for cause in causes if cause.reason))
        members = {cause.member_id for cause in causes}
        only = members.pop() if len(members) == 1 else None
        codes = tuple(dict.fromkeys(code for cause in causes for code in cause.codes or ()))
        return Cause(self.assignment_epoch, reasons or None, only, codes)


@dataclass(slots=True)
class Epochs:
    """The epochs of one group, record by record.

    Attributes
    ----------
    rows
        All group epochs, also of the times before the group was deleted.
    newest, target
        What is in force; None when there is none.
    """

    group_id: str
    rows: list[Epoch] = field(default_factory=list)
    newest: Epoch | None = None
    target: Target | None = None
    _waiting: list[Epoch] = field(default_factory=list)
    _who: dict[str, MemberMetadata] = field(default_factory=dict)
    _subscribed: set[str] = field(default_factory=set)
    _topics: dict[str, TopicChanged] = field(default_factory=dict)
    _changes: list[tuple[str, str]] = field(default_factory=list)
    """Topics and what happened to them since the newest group epoch."""
    incarnation: int = 1
    _written: bool = False
    """Whether the group has a record since it ended last."""
    _members: dict[str, int] = field(default_factory=dict)
    """The epoch at which each member is STABLE, else -1."""
    _at_ms: int = 0
    """Of the last record that says who is there and how far it is."""

    def tell(self, record: Record, position: int, at_ms: int) -> None:
        """Go on by one record; those of other groups change nothing."""
        if isinstance(record, MOMENTS) and record.group_id == self.group_id:
            if at_ms != self._at_ms:
                self.settle()
            self._at_ms = at_ms
        if getattr(record, "group_id", "") in {self.group_id, ""}:
            self._tell(record, position, at_ms)

    def settle(self) -> None:
        """Note which epochs are reached, now that a moment is over."""
        if self.target and set(self._members.values()) == {self.target.assignment_epoch}:
            for row in self.rows:
                open_ = row.reached_at_ms is None and not row.ended
                if open_ and row.assignment_epoch is not None:
                    row.reached_at_ms = self._at_ms

    @singledispatchmethod
    def _tell(self, record: Record, position: int, at_ms: int) -> None:
        """Most records move no epoch."""

    @_tell.register
    def _current(self, record: CurrentMember, _position: int, _at_ms: int) -> None:
        stable = record.state is MemberState.STABLE
        self._members[record.member_id] = record.member_epoch if stable else -1

    @_tell.register
    def _advanced(self, record: MembersAdvanced, _position: int, _at_ms: int) -> None:
        self._members |= dict.fromkeys(record.member_ids, record.member_epoch)

    @_tell.register
    def _group(self, record: GroupMetadata, position: int, at_ms: int) -> None:
        changed = None
        if record.reason == "topics changed":
            changed = [text for name, text in self._changes if name in self._subscribed]
        self._changes.clear()
        self._written = True
        self.newest = Epoch(
            self.group_id, record.epoch, position, at_ms, record.reason, record.member_id,
            self._who.get(record.member_id), changed, incarnation=self.incarnation,
        )  # fmt: skip
        self.rows.append(self.newest)
        self._waiting.append(self.newest)

    @_tell.register
    def _target(self, record: TargetMetadata, _position: int, at_ms: int) -> None:
        epoch = record.assignment_epoch
        taken = [e for e in self._waiting if e.group_epoch <= epoch]
        self._waiting = [e for e in self._waiting if e.group_epoch > epoch]
        self.target = Target(epoch, taken)
        for row in taken:
            row.assignment_epoch = epoch
        if taken and taken[-1].group_epoch == epoch:
            row = taken[-1]
            row.computed_at_ms, row.assignor = at_ms, record.assignor or None
            row.moved, row.partial = record.moved, record.partial

    @_tell.register
    def _member(self, record: MemberMetadata, _position: int, _at_ms: int) -> None:
        self._who[record.member_id] = record
        self._members.setdefault(record.member_id, -1)
        self._subscribed.update(record.subscribed_topic_names)

    @_tell.register
    def _regex(self, record: RegexResolved, _position: int, _at_ms: int) -> None:
        self._subscribed.update(record.topics)

    @_tell.register
    def _topic(self, record: TopicChanged, _position: int, _at_ms: int) -> None:
        self._changes.append((record.topic, _change(self._topics.get(record.topic), record)))
        self._topics[record.topic] = record

    @_tell.register
    def _classic(self, _record: ClassicGroupWritten, _position: int, _at_ms: int) -> None:
        self._written = True

    @_tell.register
    def _end(self, record: Tombstone, _position: int, _at_ms: int) -> None:
        if record.of in {GroupMetadata.kind, ClassicGroupWritten.kind}:
            self.incarnation += self._written
            self._written = False
        if record.of == TopicChanged.kind and record.name is not None:
            self._changes.append((record.name, f"{record.name} was deleted"))
            self._topics.pop(record.name, None)
        elif record.of == MemberMetadata.kind:
            self._members.pop(record.member_id or "", None)
        elif record.of == CurrentMember.kind and record.member_id in self._members:
            self._members[record.member_id] = -1
        elif record.of == TargetMetadata.kind:
            self.target = None
            for row in self.rows:
                row.ended = True
        elif record.of == GroupMetadata.kind:
            self.newest = None
            self._waiting.clear()
            self._changes.clear()


def _change(old: TopicChanged | None, new: TopicChanged) -> str:
    """Say what happened to a topic."""
    if old is None:
        return f"{new.topic} was created"
    if old.topic_id != new.topic_id:
        return f"{new.topic} was re-created"
    if old.partitions != new.partitions:
        grew = "grew" if old.partitions < new.partitions else "shrank"
        return f"{new.topic} {grew} from {old.partitions} to {new.partitions} partitions"
    return f"{new.topic} has other racks"


class Moment(NamedTuple):
    """A record, and why it gives or takes."""

    at_ms: int
    position: int
    cause: Cause
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class Ownership:
    """A range of partitions and its owner; `until` is None while it owns it."""

    key: TopicKey
    first: int
    end: int
    member_id: str
    who: MemberMetadata
    since: Moment
    until: Moment | None = None
    revoked: bool | None = None
    """Whether the member gave it up and stayed in the group; None while it owns it."""


@dataclass(frozen=True, slots=True)
class _Tenure:
    """How a member came to own ranges; while they are pending, what takes them."""

    since: Moment
    who: MemberMetadata
    taken: Cause | None = None


@dataclass(slots=True)
class History:
    """Who owned what in one group, record by record."""

    group_id: str
    epochs: Epochs = field(init=False)
    _who: dict[str, MemberMetadata] = field(default_factory=dict)
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
        self._who[record.member_id] = record
        self._past += self._ended.pop(record.member_id, [])

    @_tell.register
    def _group(self, record: GroupMetadata, _position: int, _at_ms: int) -> None:
        ended = self._ended.pop(record.member_id or "", [])
        newest = self.epochs.newest
        assert newest is not None  # the epochs have it already
        for row in ended:
            assert row.until is not None
            self._past.append(replace(row, until=row.until._replace(cause=newest.cause)))

    @_tell.register
    def _current(self, record: CurrentMember, position: int, at_ms: int) -> None:
        member_id, who = record.member_id, self._who[record.member_id]
        has = drop_epochs(sorted([*record.assigned, *record.pending]))
        kept, gone = split(self._owned.get(member_id, ()), has)
        takes = self._takes(member_id)
        self._past += self._rows(member_id, gone, Moment(at_ms, position, takes))
        gives = Moment(at_ms, position, self._gives(record), self.epochs.incarnation)
        came = add_epoch(subtract_spans(has, kept), self._number(_Tenure(gives, who)))
        assigned, pending = split(union(kept, came), record.assigned)
        self._owned[member_id] = union(self._with(assigned, None), self._with(pending, takes))

    @_tell.register
    def _end(self, record: Tombstone, position: int, at_ms: int) -> None:
        if record.of != CurrentMember.kind or record.member_id is None:
            return
        returned = self._who[record.member_id].instance_id is not None
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
        if newest and newest.member_id == member_id and newest.reason == RESUBSCRIBED:
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
            row = Ownership(key, first, end, member_id, tenure.who, tenure.since)
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
        epoch, reason, member_id, _ = row.until.cause
        end = (row.until.position, epoch or 0, reason or "", member_id or "")
    return (row.key, row.member_id, row.since.position, *end)


# Rows of views ------------------------------------------------------------------------------------


def epoch_rows(history: History):
    """Return the epochs of a group as rows of the view `epochs`."""
    history.epochs.settle()
    return [_epoch(epoch) for epoch in history.epochs.rows]


def _epoch(epoch: Epoch):
    computed, reached = epoch.computed_at_ms, epoch.reached_at_ms
    return {
        "group_id": epoch.group_id,
        "incarnation": epoch.incarnation,
        "group_epoch": epoch.group_epoch,
        "position": epoch.position,
        "recorded_at": format_time(epoch.at_ms),
        "reason": epoch.reason,
        "reason_codes": list(codes_of(epoch.reason)) or None,
        "member_id": epoch.member_id,
        **_client(epoch.who),
        "topics_changed": epoch.topics_changed,
        "assignment_epoch": epoch.assignment_epoch,
        "computed_at": None if computed is None else format_time(computed),
        "assignor": epoch.assignor,
        "moved": epoch.moved,
        "partial": epoch.partial,
        "reached_at": None if reached is None else format_time(reached),
    }


def history_rows(history: History):
    """Return who owned what in a group as rows of the view `assignment_history`."""
    return [_ownership(history.group_id, row) for row in history.rows()]


def _ownership(group_id: str, row: Ownership):
    since, until = row.since, row.until
    return {
        "group_id": group_id,
        "incarnation": since.incarnation,
        "topic": row.key.name,
        "topic_id": row.key.topic_id,
        "first_partition": row.first,
        "last_partition": row.end - 1,
        "partition_count": row.end - row.first,
        "member_id": row.member_id,
        **_client(row.who),
        "since": format_time(since.at_ms),
        "since_position": since.position,
        "assignment_epoch": since.cause.epoch,
        "reason": since.cause.reason,
        "reason_codes": since.cause.reason_codes,
        "reason_member_id": since.cause.member_id,
        "until": format_time(until.at_ms) if until else None,
        "until_position": until.position if until else None,
        "until_epoch": until.cause.epoch if until else None,
        "until_reason": until.cause.reason if until else None,
        "until_reason_codes": until.cause.reason_codes if until else None,
        "until_member_id": until.cause.member_id if until else None,
        "revoked": row.revoked,
    }


def _client(who):
    names = ("instance_id", "client_id", "client_host")
    return {name: None if who is None else getattr(who, name) for name in names}
