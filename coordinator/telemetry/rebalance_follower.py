"""Follows the records of a coordinator, and tells each rebalance once it is over.

A rebalance begins with a group epoch and ends when every member has what the target gives it, or no
member is left: the definition of the views `rebalances` and `waits`, which the tests compare. It
knows no clock, and nothing that is not durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from coordinator.core.events import Event
from coordinator.core.reasons import SEPARATOR, codes_of
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.groups import GroupState, State
from coordinator.core.state.partition_spans import count_partitions
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    OffsetCommitted,
    Record,
    TargetMetadata,
    Tombstone,
)
from coordinator.telemetry.classic_follower import ClassicFollower
from coordinator.telemetry.follower import Follower
from coordinator.telemetry.shown_members import ShownMember, ShownMembers
from coordinator.telemetry.trace_values import (
    CLIENT,
    RebalanceTrace,
    SpanValue,
    Value,
    describe_client,
    describe_group,
)

AT_REST = {GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD}
OF_MEMBERS = {MemberMetadata.kind, CurrentMember.kind}
TAKEN_OVER = "taken over"
"""The reason of a rebalance that a predecessor began: when and why it did, its log says."""


@dataclass(frozen=True, slots=True)
class BegunEpoch:
    """A group epoch that its group has not settled in."""

    epoch: int
    at_ms: int
    reason: str
    member_id: str | None


@dataclass(slots=True)
class OpenRebalance:
    """A rebalance that goes on.

    Attributes
    ----------
    epochs
        Those that it has, one at least.
    targets
        When each target came, and its epoch.
    computed
        The spans of the targets, each since the epoch that made it due.
    due_ms
        Since when a target is due; None: none is.
    """

    epochs: list[BegunEpoch]
    members: ShownMembers
    targets: list[tuple[int, int]] = field(default_factory=list)
    computed: list[SpanValue] = field(default_factory=list)
    moved: int = 0
    due_ms: int | None = None

    def first_target_after(self, seen: int) -> int | None:
        """Return when the first target came after so many of this rebalance."""
        return self.targets[seen][0] if seen < len(self.targets) else None

    def take_until(self, epoch: int | None) -> list[BegunEpoch]:
        """Take the epochs up to one, or all of them; the later ones stay."""
        taken = [one for one in self.epochs if epoch is None or one.epoch <= epoch]
        self.epochs = self.epochs[len(taken) :]
        return taken


class RebalanceFollower(Follower):
    """Follows what one coordinator makes durable.

    Parameters
    ----------
    tell
        Takes each rebalance that is over; it must not wait.
    members_max
        How many members of a rebalance are shown.
    state
        Returns the state, with what is durable in it.
    """

    def __init__(
        self,
        tell: Callable[[RebalanceTrace], object],
        members_max: int,
        state: Callable[[], State],
    ) -> None:
        self._state = state
        self._tell = tell
        self._most = members_max
        self._open: dict[str, OpenRebalance] = {}
        self._classic = ClassicFollower(tell, members_max)

    def begin(self, now_ms: int) -> None:
        """Begin with a state that was loaded: what a predecessor left unfinished goes on."""
        self._classic.forget()
        unsettled = {
            group_id: group
            for group_id, group in self._state().groups.items()
            if group.state not in AT_REST
        }
        self._open = {one: kept for one, kept in self._open.items() if one in unsettled}
        for group_id, group in unsettled.items():
            if group_id not in self._open:
                begun = BegunEpoch(group.epoch, now_ms, TAKEN_OVER, None)
                found = self._begin(group_id, [begun])
                if group.assignment_epoch == group.epoch:
                    found.targets.append((now_ms, group.epoch))

    def end(self) -> None:
        """Forget all that goes on: another coordinator has the groups, and tells of them."""
        self._open.clear()
        self._classic.forget()

    # What was made durable -----------------------------------------------------------------------

    def committed(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> None:
        """Follow records that are durable, and in the state; each of one time, or of its own."""
        state, touched = self._state(), dict[str, int]()
        times: Iterable[int] = repeat(at_ms) if isinstance(at_ms, int) else at_ms
        for record, now in zip(records, times, strict=False):
            kind = type(record)
            if kind is OffsetCommitted:
                continue
            if isinstance(record, GroupMetadata):
                self._note_epoch(record, now)
            elif isinstance(record, TargetMetadata):
                self._note_target(record, now)
            elif isinstance(record, CurrentMember):
                self._note_current(state, record, now)
            elif isinstance(record, MembersAdvanced):
                self._note_advanced(state, record, now)
            elif isinstance(record, MemberMetadata):
                self._note_joined(record, now)
            elif isinstance(record, Tombstone) and record.of in OF_MEMBERS:
                self._note_gone(record, now)
            elif isinstance(record, Tombstone) and record.of == ClassicGroupWritten.kind:
                self._classic.forget(record.group_id)
            elif not isinstance(record, Tombstone):
                continue
            touched[record.group_id] = now
        for group_id, now in touched.items():
            self._look(state, group_id, now)

    def classic(self, event: Event, groups: Sequence[ClassicGroup], now_ms: int) -> None:
        """Follow the classic groups that an event changed, and that are durable."""
        for group in groups:
            self._classic.follow(event, group, now_ms)

    # A group's life ------------------------------------------------------------------------------

    def _begin(self, group_id: str, epochs: list[BegunEpoch]) -> OpenRebalance:
        found = OpenRebalance(epochs, ShownMembers(self._most), due_ms=epochs[0].at_ms)
        self._open[group_id] = found
        return found

    def _note_epoch(self, record: GroupMetadata, now_ms: int) -> None:
        begun = BegunEpoch(record.epoch, now_ms, record.reason, record.member_id)
        found = self._open.get(record.group_id)
        if found is None:
            self._begin(record.group_id, [begun])
            return
        found.epochs.append(begun)
        if found.due_ms is None:
            found.due_ms = now_ms

    def _note_target(self, record: TargetMetadata, now_ms: int) -> None:
        found = self._open.get(record.group_id)
        if found is None:
            return
        if found.targets and record.assignment_epoch == found.targets[-1][1]:
            return  # the same one: it only says that the next is due at once
        found.targets.append((now_ms, record.assignment_epoch))
        found.moved += record.moved or 0
        values: dict[str, Value] = {"muster.group.epoch": record.assignment_epoch}
        values |= {"muster.assignor": record.assignor} if record.assignor else {}
        values |= {"muster.moved": record.moved} if record.moved is not None else {}
        begin = now_ms if found.due_ms is None else found.due_ms
        found.computed.append(SpanValue("target", begin, now_ms, values))
        found.due_ms = None

    def _look(self, state: State, group_id: str, now_ms: int) -> None:
        """Tell of a group's rebalance if it is over; epochs that its target lacks are the next."""
        found = self._open.get(group_id)
        if found is None:
            return
        group = state.groups.get(group_id)
        members = 0 if group is None else len(group.members)
        if group is not None and group.stable_at[group.assignment_epoch] < members:
            return
        epochs = found.take_until(None if group is None or not members else group.assignment_epoch)
        if not epochs:
            return
        del self._open[group_id]
        reasons = SEPARATOR.join(dict.fromkeys(one.reason for one in epochs if one.reason))
        values: dict[str, Value] = describe_group(group_id, "consumer") | {
            "muster.group.epoch": epochs[0].epoch,
            "muster.group.last_epoch": epochs[-1].epoch,
            "muster.epochs": len(epochs),
            "muster.reason": reasons,
            "muster.reason_codes": [*codes_of(reasons)],
            "muster.moved": found.moved,
            "muster.members": members,
        }
        if epochs[0].member_id is not None:
            values["muster.member.id"] = epochs[0].member_id
        self._tell(found.members.show(epochs[0].at_ms, now_ms, values, found.computed))
        if found.epochs:
            self._begin(group_id, found.epochs)

    # Its members ---------------------------------------------------------------------------------

    def _find(self, group_id: str, member_id: str, now_ms: int) -> ShownMember | None:
        """Return a member of a group that rebalances; None of one that does not."""
        found = self._open.get(group_id)
        if found is None:
            return None
        first = found.first_target_after(0)
        return found.members.keep(member_id, now_ms if first is None else first)

    def _note_joined(self, record: MemberMetadata, now_ms: int) -> None:
        """A member came, or changed what it says of itself."""
        found = self._open.get(record.group_id)
        if found is None or found.members.get(record.member_id) is not None:
            return
        member = found.members.keep(record.member_id, now_ms)
        member.targets_seen = len(found.targets)
        member.last_ms, member.behind = now_ms, bool(found.targets)
        member.attributes |= describe_client(
            record.client_id, record.client_host, record.instance_id
        )

    def _note_current(self, state: State, record: CurrentMember, now_ms: int) -> None:
        """A member has something, or has to give it up."""
        member = self._find(record.group_id, record.member_id, now_ms)
        if member is None:
            return
        group = state.groups.get(record.group_id)
        known = None if group is None else group.metas.get(record.member_id)
        if known is not None and CLIENT not in member.attributes:
            member.attributes |= describe_client(
                known.client_id, known.client_host, known.instance_id
            )
        found = self._open[record.group_id]
        behind = bool(found.targets) and record.member_epoch < found.targets[-1][1]
        gives_up = bool(record.pending)
        if not behind and not gives_up:
            self._end_wait(found, record.member_id, member, now_ms)
        if gives_up and member.gives_up_ms is None:
            member.note(now_ms, "must revoke", partitions=count_partitions(record.pending))
        elif not gives_up and member.gives_up_ms is not None:
            member.note(now_ms, "has revoked")
        if record.state is MemberState.UNRELEASED_PARTITIONS:
            member.note_once(now_ms, "waits for partitions of others")
        there = record.state is MemberState.STABLE and not behind
        if there:
            member.note(
                now_ms, "has its target", partitions=count_partitions(record.assigned),
                epoch=record.member_epoch,
            )  # fmt: skip
        member.done_ms = now_ms if there else None
        member.gives_up_ms = (member.gives_up_ms or now_ms) if gives_up else None
        member.behind, member.last_ms = behind, now_ms
        member.targets_seen = len(found.targets)

    def _note_advanced(self, state: State, record: MembersAdvanced, now_ms: int) -> None:
        """Members have a target that changes nothing for them: of very many, some are looked at."""
        found = self._open.get(record.group_id)
        if found is None or not record.member_ids:
            return
        group = state.groups.get(record.group_id)
        begin = found.first_target_after(0)
        begin = now_ms if begin is None else begin
        room = max(1, found.members.room)
        for member_id in record.member_ids:
            member = found.members.get(member_id)
            if member is None and room <= 0:
                continue
            if member is None:
                room -= 1
                member = found.members.keep(member_id, begin)
                known = None if group is None else group.metas.get(member_id)
                if known is not None:
                    member.attributes |= describe_client(
                        known.client_id, known.client_host, known.instance_id
                    )
            self._end_wait(found, member_id, member, now_ms)
            member.note(now_ms, "has its target", epoch=record.member_epoch)
            member.done_ms = member.last_ms = now_ms
            member.gives_up_ms, member.behind = None, False
            member.targets_seen = len(found.targets)

    def _note_gone(self, record: Tombstone, now_ms: int) -> None:
        """A member is no longer in the group: what it owns ends first."""
        if record.member_id is None:
            return
        found = self._open.get(record.group_id)
        if found is None:
            return
        member = self._find(record.group_id, record.member_id, now_ms)
        if member is None or (member.moments and member.moments[-1].name == "is gone"):
            return
        self._end_wait(found, record.member_id, member, now_ms)
        member.note(now_ms, "is gone")
        member.done_ms = member.last_ms = now_ms
        member.gives_up_ms, member.behind = None, False

    @staticmethod
    def _end_wait(found: OpenRebalance, member_id: str, member: ShownMember, now_ms: int) -> None:
        """Count the time for which others waited for a member, if they did."""
        since = member.gives_up_ms
        if since is None and member.behind:
            since = member.last_ms
        elif since is None:
            since = found.first_target_after(member.targets_seen)
        if since is not None:
            member.wait(now_ms - since)
            found.members.waited(member_id, now_ms - since)
