"""Follows the rebalances of classic groups, of which the log has only the ends.

A rebalance begins when members have to join again. It has two phases: all join, then the leader
sends the assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.core.classic_events import JoinGroup, SyncGroup
from coordinator.core.events import Event
from coordinator.core.reasons import codes_of
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from coordinator.telemetry.shown_members import ShownMember, ShownMembers
from coordinator.telemetry.trace_values import (
    RebalanceTrace,
    SpanValue,
    Value,
    describe_client,
    describe_group,
)

MOVING = {ClassicState.PREPARING, ClassicState.COMPLETING}
OPEN_MAX = 10_000
"""Rebalances that go on: for one more, the oldest is forgotten."""


@dataclass(slots=True)
class OpenGeneration:
    """The rebalance of a classic group.

    Attributes
    ----------
    before
        The members that must join again.
    phase_ms
        When its phase began.
    joined
        Whether all have joined, so that the leader is waited for.
    """

    begin_ms: int
    before: frozenset[str]
    members: ShownMembers
    phase_ms: int
    joined: bool = False
    phases: list[SpanValue] = field(default_factory=list)

    def end_phase(self, now_ms: int, *, joined: bool) -> None:
        """Begin the other phase."""
        name = "sync phase" if self.joined else "join phase"
        self.phases.append(SpanValue(name, self.phase_ms, max(self.phase_ms, now_ms)))
        self.phase_ms, self.joined = now_ms, joined


class ClassicFollower:
    """Follows the classic groups of one coordinator; its parameters are those of the other."""

    def __init__(self, tell: Callable[[RebalanceTrace], object], members_max: int) -> None:
        self._tell = tell
        self._most = members_max
        self._open: dict[str, OpenGeneration] = {}

    def forget(self, group_id: str | None = None) -> None:
        """Forget what goes on: of a group that is gone, or of all."""
        if group_id is None:
            self._open.clear()
        else:
            self._open.pop(group_id, None)

    def follow(self, event: Event, group: ClassicGroup, now_ms: int) -> None:
        """Follow what an event made of a group."""
        found = self._open.get(group.group_id)
        if found is None:
            if group.state not in MOVING:
                return
            found = self._begin(group, now_ms)
        if isinstance(event, JoinGroup):
            self._note_join(found, group, event.member_id or event.drawn_id, event, now_ms)
        elif isinstance(event, SyncGroup):
            member = self._keep(found, group, event.member_id)
            if member is not None:
                member.note(now_ms, "has synced")
                member.done_ms = now_ms
        if group.state is ClassicState.PREPARING:
            if found.joined:
                found.end_phase(now_ms, joined=False)
            return
        if not found.joined:
            self._note_gone(found, group, now_ms)
            found.end_phase(now_ms, joined=True)
        if group.state is ClassicState.COMPLETING:
            return
        if group.state is ClassicState.STABLE:
            self._note_leader(found, group, now_ms)
            found.end_phase(now_ms, joined=True)
        self._end(found, group, now_ms)

    def _begin(self, group: ClassicGroup, now_ms: int) -> OpenGeneration:
        before = frozenset(one.member_id for one in group.members.values() if not one.is_new)
        found = OpenGeneration(now_ms, before, ShownMembers(self._most), now_ms)
        if len(self._open) >= OPEN_MAX:
            del self._open[next(iter(self._open))]
        self._open[group.group_id] = found
        return found

    def _keep(
        self, found: OpenGeneration, group: ClassicGroup, member_id: str, begin_ms: int = -1
    ) -> ShownMember | None:
        """Return a member of the group; its span begins with the rebalance, or then."""
        known = group.members.get(member_id)
        if known is None:
            return None
        member = found.members.keep(member_id, found.begin_ms if begin_ms < 0 else begin_ms)
        member.attributes |= describe_client(known.client_id, known.client_host, known.instance_id)
        return member

    def _note_join(
        self,
        found: OpenGeneration,
        group: ClassicGroup,
        member_id: str,
        event: JoinGroup,
        now_ms: int,
    ) -> None:
        """A member has joined; one of before was waited for."""
        if event.instance_id is not None:
            member_id = group.instances.get(event.instance_id, member_id)
        was_there = member_id in found.before
        member = self._keep(found, group, member_id, -1 if was_there else now_ms)
        if member is None:
            return
        member.note(now_ms, "has joined")
        if was_there and not found.joined:
            self._wait(found, member_id, member, now_ms)

    def _note_gone(self, found: OpenGeneration, group: ClassicGroup, now_ms: int) -> None:
        """Some that had to join have not: they left, or time was up."""
        for member_id in sorted(found.before - group.members.keys()):
            member = found.members.keep(member_id, found.begin_ms)
            member.note(now_ms, "is gone")
            member.done_ms = now_ms
            self._wait(found, member_id, member, now_ms)

    def _note_leader(self, found: OpenGeneration, group: ClassicGroup, now_ms: int) -> None:
        """The leader has sent the assignment, which all waited for."""
        if group.leader is None or group.assignor:
            return
        member = self._keep(found, group, group.leader)
        if member is not None:
            member.note(now_ms, "has sent the assignment")
            member.done_ms = now_ms
            self._wait(found, group.leader, member, now_ms)

    @staticmethod
    def _wait(found: OpenGeneration, member_id: str, member: ShownMember, now_ms: int) -> None:
        member.wait(now_ms - found.phase_ms)
        found.members.waited(member_id, now_ms - found.phase_ms)

    def _end(self, found: OpenGeneration, group: ClassicGroup, now_ms: int) -> None:
        del self._open[group.group_id]
        values: dict[str, Value] = describe_group(group.group_id, "classic") | {
            "muster.generation": group.generation,
            "muster.reason": group.reason,
            "muster.reason_codes": [*codes_of(group.reason)],
            "muster.assignor": group.assignor or "leader",
            "muster.moved": group.moved,
            "muster.members": len(group.members),
        }
        if group.cause is not None:
            values["muster.member.id"] = group.cause
        self._tell(found.members.show(found.begin_ms, now_ms, values, found.phases))
