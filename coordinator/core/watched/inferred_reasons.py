"""Infer why Kafka raised a group epoch or began a generation: Kafka's records do not say.

What follows is read off one batch, which Kafka wrote at once, and off the group before it. Where a
batch can mean several things, the reason says so: a member that left and one whose session ended
leave the same records, and only the time since the member last wrote something tells them apart.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import NamedTuple

from coordinator.core.classic_events import CONSUMER
from coordinator.core.reasons import SEPARATOR, Reason
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.embedded import topics_of
from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    Record,
    RegexResolved,
    Tombstone,
)


class Cause(NamedTuple):
    """Why an epoch or a generation began, and the member that caused it, if it was one."""

    reason: str
    member_id: str | None = None


class Activity(NamedTuple):
    """When members were last seen to write something, and how long Kafka waits for them.

    Attributes
    ----------
    seen_ms
        By group and member.
    session_ms
        The least session timeout that a group of the consumer protocol can have.
    """

    seen_ms: Mapping[tuple[str, str], int]
    session_ms: int

    def why_gone(self, group_id: str, member_id: str, patience_ms: int, now_ms: int) -> Reason:
        """Return why a member is gone: it left, unless Kafka's patience may have ended by then."""
        seen = self.seen_ms.get((group_id, member_id))
        if seen is not None and 0 <= now_ms - seen < patience_ms:
            return Reason.MEMBER_LEFT
        return Reason.MEMBER_GONE


class EpochCauses:
    """Why each new epoch of one consumer group in a batch began.

    Parameters
    ----------
    state
        As it is before the batch.
    """

    def __init__(self, state: State, group_id: str, activity: Activity, now_ms: int) -> None:
        self._group = state.groups.get(group_id)
        classic = state.classic.get(group_id)
        self._was_classic = classic is not None and bool(classic.members)
        self._activity, self._now_ms = activity, now_ms
        self._known: ChainMap[str, MemberMetadata] = ChainMap(
            {}, {} if self._group is None else self._group.metas
        )
        self._hash = None if self._group is None else self._group.metadata_hash
        self._forget()

    def _forget(self) -> None:
        self._found: Cause | None = None
        self._ends_classic = False
        self._gone: dict[str, MemberMetadata] = {}
        self._resolved: Reason | None = None

    def see(self, record: Record) -> Cause | None:
        """Take the group's records in order; return the cause of one that raises the epoch."""
        if isinstance(record, MemberMetadata):
            self._see_member(record)
        elif isinstance(record, RegexResolved):
            self._see_regex(record)
        elif isinstance(record, Tombstone):
            self._see_end(record)
        elif isinstance(record, GroupMetadata):
            cause = self._conclude(record)
            self._hash = record.metadata_hash
            self._forget()
            return cause
        return None

    def _see_member(self, meta: MemberMetadata) -> None:
        """Compare a member with what it was; a static member's successor is not a new one."""
        before = self._known.get(meta.member_id)
        if before is None and meta.instance_id is not None:
            heirs = [m for m, old in self._gone.items() if old.instance_id == meta.instance_id]
            before = self._gone.pop(heirs[0]) if heirs else None
        self._known[meta.member_id] = meta
        if self._found is not None:
            return
        if self._ends_classic and meta.classic_member_metadata is not None:
            # Its first generation was not written yet, so the group had no members that we know.
            self._found = Cause(Reason.CLASSIC_GROUP_CONVERTED)
        elif before is None:
            self._found = Cause(Reason.MEMBER_JOINED, meta.member_id)
        elif _subscription(before) != _subscription(meta):
            self._found = Cause(Reason.SUBSCRIPTION_CHANGED, meta.member_id)
        elif before.server_assignor != meta.server_assignor:
            self._found = Cause(Reason.ASSIGNOR_CHANGED, meta.member_id)

    def _see_regex(self, record: RegexResolved) -> None:
        before = None if self._group is None else self._group.regexes.get(record.regex)
        same = (before.topics if before else ()) == record.topics
        if self._resolved is not Reason.TOPICS_MATCHED:
            self._resolved = Reason.TOPICS_CHANGED if same else Reason.TOPICS_MATCHED

    def _see_end(self, record: Tombstone) -> None:
        gone = record.member_id or ""
        if record.of == MemberMetadata.kind and gone in self._known:
            self._gone[gone] = self._known[gone]
        elif record.of == ClassicGroupWritten.kind:
            self._ends_classic = True
            if self._was_classic:
                self._found = Cause(Reason.CLASSIC_GROUP_CONVERTED)

    def _conclude(self, record: GroupMetadata) -> Cause:
        if self._found is not None:
            return self._found
        if self._gone:
            reasons = {self._why_gone(meta) for meta in self._gone.values()}
            reason = reasons.pop() if len(reasons) == 1 else Reason.MEMBER_GONE
            return Cause(reason, next(iter(self._gone)))
        if self._resolved is not None:
            return Cause(self._resolved)
        moved = self._hash is not None and record.metadata_hash != self._hash
        return Cause(Reason.TOPICS_CHANGED if moved else Reason.UNKNOWN)

    def _why_gone(self, meta: MemberMetadata) -> Reason:
        """Return why a member is gone: that it left only where no time-out can have passed."""
        classic = meta.classic_member_metadata
        patience_ms = self._activity.session_ms if classic is None else classic.session_timeout_ms
        member = None if self._group is None else self._group.members.get(meta.member_id)
        if member is not None and member.current.state is MemberState.UNREVOKED_PARTITIONS:
            return Reason.MEMBER_GONE  # its time to revoke may have ended, even if it wrote since
        if classic is not None:
            patience_ms = min(patience_ms, meta.rebalance_timeout_ms)
        return self._activity.why_gone(meta.group_id, meta.member_id, patience_ms, self._now_ms)


def infer_generation(
    state: State, record: ClassicGroupWritten, activity: Activity, now_ms: int
) -> Cause:
    """Return why a classic group is written: its members before and after tell."""
    if record.group_id in state.groups and state.groups[record.group_id].members:
        return Cause(Reason.CONSUMER_GROUP_CONVERTED)
    group = state.classic.get(record.group_id)
    before = {} if group is None else dict(group.members)
    after = {member.member_id: member for member in record.members}
    instances = {m.instance_id: i for i, m in before.items() if m.instance_id is not None}
    reasons: dict[str, str | None] = {}
    for member_id, member in after.items():
        if member_id in before:
            if group is not None and _sent_by(member) != _sent_before(group, member_id):
                reasons.setdefault(Reason.SUBSCRIPTION_CHANGED, member_id)
        elif member.instance_id is not None and member.instance_id in instances:
            del before[instances.pop(member.instance_id)]
            reasons.setdefault(Reason.STATIC_MEMBER_RETURNED, member_id)
        else:
            reasons.setdefault(Reason.MEMBER_JOINED, member_id)
    for member_id, old in before.items():
        if member_id not in after:
            why = activity.why_gone(record.group_id, member_id, old.session_timeout_ms, now_ms)
            reasons.setdefault(why, member_id)
    if not reasons:
        return Cause(Reason.MEMBER_JOINED_AGAIN if record.members else Reason.UNKNOWN)
    cause = next(iter(reasons.values())) if len(reasons) == 1 else None
    return Cause(SEPARATOR.join(reasons), cause)


def _subscription(meta: MemberMetadata) -> tuple[object, ...]:
    return meta.subscribed_topic_names, meta.subscribed_topic_regex


def _sent_by(member: ClassicMemberWritten) -> object:
    return member.subscribed_topic_names or member.subscription


def _sent_before(group: ClassicGroup, member_id: str) -> object:
    raw = group.members[member_id].metadata(group.protocol)
    topics = topics_of([raw]) if group.protocol_type == CONSUMER else None
    return tuple(sorted(topics)) if topics else raw
