"""epoch_history: what the log tells about the epochs of one group: a row of the view `epochs` each.

Pure: records in, rows out. A target takes in all group epochs since the target before it: their
reasons are why it gives and takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import NamedTuple

from coordinator.records import (
    GroupMetadata,
    MemberMetadata,
    Record,
    RegexResolved,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)

SUBSCRIBED_ANEW = "subscription changed"
"""The reason that lies with the epoch's member: what it gives up then, it gives up for that."""
NOTICED = {"topics changed", "finishing moves"}
"""Reasons that lie with nobody: the epoch's member was the first to send a heartbeat after."""
TOPICS_TOLD = 3
"""So many topics are told in a reason; `Epoch.topics_changed` has all."""


class Cause(NamedTuple):
    """Why something was given or taken: an epoch, its reason, and the member behind it."""

    epoch: int | None
    reason: str | None
    member_id: str | None


@dataclass(slots=True, eq=False)
class Epoch:
    """One group epoch."""

    group_id: str
    group_epoch: int
    position: int
    at_ms: int
    reason: str
    member_id: str | None
    topics_changed: list[str] | None
    """What happened to the topics of the group, when that is the reason."""
    assignment_epoch: int | None = None
    """The target that took it in: the first one computed for this group epoch or a later one."""
    # The rest is None unless the target was computed for exactly this group epoch.
    computed_at_ms: int | None = None
    assignor: str | None = None
    moved: int | None = None
    partial: bool | None = None

    @property
    def cause(self) -> Cause:
        """The epoch as a cause, with what happened to topics."""
        reason = self.reason
        if self.topics_changed:
            told = self.topics_changed[:TOPICS_TOLD]
            more = len(self.topics_changed) - len(told)
            reason += f" ({'; '.join(told)}{f' and {more} more' if more else ''})"
        member_id = None if self.reason in NOTICED else self.member_id
        return Cause(self.group_epoch, reason, member_id)


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
        return Cause(self.assignment_epoch, reasons or None, only)


@dataclass(slots=True)
class Epochs:
    """The epochs of one group, told record by record.

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
    _subscribed: set[str] = field(default_factory=set)
    _topics: dict[str, TopicChanged] = field(default_factory=dict)
    _changes: list[tuple[str, str]] = field(default_factory=list)
    """Topics and what happened to them since the newest group epoch."""

    def tell(self, record: Record, position: int, at_ms: int) -> None:
        """Go on by one record; those of other groups change nothing."""
        if getattr(record, "group_id", "") in {self.group_id, ""}:
            self._tell(record, position, at_ms)

    @singledispatchmethod
    def _tell(self, record: Record, position: int, at_ms: int) -> None:
        """Most records move no epoch."""

    @_tell.register
    def _group(self, record: GroupMetadata, position: int, at_ms: int) -> None:
        changed = None
        if record.reason == "topics changed":
            changed = [text for name, text in self._changes if name in self._subscribed]
        self._changes.clear()
        self.newest = Epoch(
            self.group_id, record.epoch, position, at_ms, record.reason, record.member_id, changed
        )
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
        self._subscribed.update(record.subscribed_topic_names)

    @_tell.register
    def _regex(self, record: RegexResolved, _position: int, _at_ms: int) -> None:
        self._subscribed.update(record.topics)

    @_tell.register
    def _topic(self, record: TopicChanged, _position: int, _at_ms: int) -> None:
        self._changes.append((record.topic, _change(self._topics.get(record.topic), record)))
        self._topics[record.topic] = record

    @_tell.register
    def _end(self, record: Tombstone, _position: int, _at_ms: int) -> None:
        if record.of == TopicChanged.kind and record.name is not None:
            self._changes.append((record.name, f"{record.name} was deleted"))
            self._topics.pop(record.name, None)
        elif record.of == TargetMetadata.kind:
            self.target = None
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
