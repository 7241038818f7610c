"""The rebalance of a classic group, from one generation to the next.

Prepare: every member must join again. Complete: the members that joined are the new generation, and
one of them is the leader. Then every member sends a SyncGroup, the leader with the assignment, and
the group is Stable.

A step changes a draft of the group in a `ClassicUpdate`, which also collects records, answers and
timers. Nothing else sees the draft until the step is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from coordinator.config import Config
from coordinator.core.classic.protocol_vote import choose_protocol
from coordinator.core.classic_events import (
    WAITING,
    JoinedMember,
    JoinGroupResponse,
    Parked,
    SyncGroupResponse,
    Waiting,
)
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, SYNC_PHASE, Result, SetTimer
from coordinator.core.reasons import Reason
from coordinator.core.state.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    InitialDelay,
)
from coordinator.core.state.classic_written import find_subscribed, record_of
from coordinator.core.state.records import Record
from coordinator.errors import ErrorCode

NEW_MEMBER_JOIN_MS = 300_000
"""How long a new member's join may wait, so that disconnected clients stop counting."""
AGAIN_LEAST_MS = 1_000
"""The shortest join phase: it restarts while no member joins, and 0 would be a busy loop."""
PREPARABLE = {ClassicState.STABLE, ClassicState.COMPLETING, ClassicState.EMPTY}
"""The states in which a rebalance can begin."""

changed = msgspec.structs.replace
"""A member or a response with some fields changed."""


@dataclass(slots=True)
class ClassicUpdate:
    """The draft of a group that a step changes, and the step's other decisions."""

    group: ClassicGroup
    config: Config
    now_ms: int
    records: list[Record] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    completed: list[tuple[int, Parked]] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)

    def result(self, response: object = None) -> Result:
        """Return the step's result."""
        return Result(
            records=self.records,
            response=response,
            timers=self.timers,
            classic=[self.group],
            completed=self.completed,
            superseded=self.superseded,
        )

    # Requests that wait --------------------------------------------------------------------------

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> ClassicMember:
        """Answer a member's join if one is waiting, and return the changed member."""
        if member.parked_join is None:
            return member
        self.completed.append((member.parked_join, response))
        return changed(member, parked_join=None)

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> ClassicMember:
        """Answer a member's sync if one is waiting, and return the changed member."""
        if member.parked_sync is None:
            return member
        self.completed.append((member.parked_sync, response))
        return changed(member, parked_sync=None)

    def park_join(self, member: ClassicMember, request_id: int) -> ClassicMember:
        """Let a join wait. An earlier waiting join of the same member is not answered."""
        if member.parked_join is not None:
            self.superseded.append(member.parked_join)
        return changed(member, parked_join=request_id)

    def park_sync(self, member: ClassicMember, request_id: int) -> ClassicMember:
        """Let a sync wait. An earlier waiting sync of the same member is not answered."""
        if member.parked_sync is not None:
            self.superseded.append(member.parked_sync)
        return changed(member, parked_sync=request_id)

    def take_answer(self, request_id: int) -> Parked | Waiting:
        """Take the answer to the step's own request, or return WAITING without one."""
        for at, (completed, answer) in enumerate(self.completed):
            if completed == request_id:
                del self.completed[at]
                return answer
        return WAITING

    # Timers --------------------------------------------------------------------------------------

    def start_session(self, member: ClassicMember, after_ms: int | None = None) -> None:
        """Restart a member's session timer."""
        after = member.session_timeout_ms if after_ms is None else after_ms
        self.set_timer(HEARTBEAT, member.member_id, after)

    def set_timer(self, kind: str, member_id: str, after_ms: int | None) -> None:
        """Start a timer, or cancel it if `after_ms` is None."""
        group = self.group
        self.timers.append(SetTimer(kind, group.group_id, member_id, after_ms, group.generation))

    # Members -------------------------------------------------------------------------------------

    def add_member(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a new member, whose join waits. Its session does not run yet."""
        group = self.group
        if group.state is ClassicState.PREPARING and group.previous is ClassicState.EMPTY:
            group.newcomer = True
        if not group.members:
            group.protocol_type = protocol_type
        group.put(member)
        self.start_session(member, NEW_MEMBER_JOIN_MS)

    def drop_member(self, member_id: str) -> None:
        """Remove a member or a pending id, and its session. Its waiting request is not answered."""
        member = self.group.members.get(member_id)
        if member is not None:
            waits = (member.parked_join, member.parked_sync)
            self.superseded += [request for request in waits if request is not None]
        self.group.remove(member_id)
        self.set_timer(HEARTBEAT, member_id, None)

    def rename_member(self, old_id: str, member_id: str) -> ClassicMember:
        """Replace a static member by its next incarnation; fence the old one's waiting requests."""
        group = self.group
        fenced = JoinGroupResponse(old_id, ErrorCode.FENCED_INSTANCE_ID)
        old = self.answer_join(group.members[old_id], fenced)
        old = self.answer_sync(old, SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID))
        group.put(old)
        member = changed(old, member_id=member_id, is_new=False)
        group.replace(old_id, member)
        self.set_timer(HEARTBEAT, old_id, None)
        return member

    def turn_away(self, member_id: str) -> None:
        """Remove a member that leaves or expires, after answering its waiting join."""
        member = self.group.members[member_id]
        gone = JoinGroupResponse("", ErrorCode.UNKNOWN_MEMBER_ID)
        self.group.put(self.answer_join(member, gone))
        self.drop_member(member_id)


def rebalance_or_complete(update: ClassicUpdate, reason: Reason | None, cause: str) -> None:
    """Begin a rebalance; if one is running, complete it if possible.

    Parameters
    ----------
    reason
        Why; None if a member joins because a rebalance is under way, which is no new reason.
    """
    if update.group.state in PREPARABLE:
        prepare_rebalance(update, reason or Reason.MEMBER_JOINED_AGAIN, cause)
    else:
        if reason is not None:
            update.group.note_reason(reason, cause)
        complete_if_all_joined(update)


def prepare_rebalance(update: ClassicUpdate, reason: Reason, cause: str | None = None) -> None:
    """Begin a rebalance: every member must join again.

    Parameters
    ----------
    reason, cause
        Why, and the member that caused it, if it was one.
    """
    group = update.group
    group.note_reason(reason, cause)
    if group.state is ClassicState.COMPLETING:
        cancel_assignment(update, ErrorCode.REBALANCE_IN_PROGRESS)
    update.set_timer(SYNC_PHASE, "", None)
    initial = group.state is ClassicState.EMPTY
    group.move(ClassicState.PREPARING, update.now_ms)
    if initial:
        delay_ms = update.config.kafka.initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.delay = InitialDelay(delay_ms, left_ms)
        update.set_timer(JOIN_PHASE, "", delay_ms)
    elif group.have_all_joined():
        complete_join_phase(update)
    else:
        update.set_timer(JOIN_PHASE, "", group.rebalance_timeout_ms)


def complete_if_all_joined(update: ClassicUpdate) -> None:
    """End the join phase if all have joined; the first generation still waits for its delay."""
    group = update.group
    if (
        group.state is ClassicState.PREPARING
        and group.previous is not ClassicState.EMPTY
        and group.have_all_joined()
    ):
        complete_join_phase(update)


def end_join_phase(update: ClassicUpdate) -> None:
    """Handle the end of the join phase's time."""
    group = update.group
    if group.state is not ClassicState.PREPARING:
        return
    delay = group.delay
    if delay is None or not group.newcomer or delay.left_ms == 0:
        complete_join_phase(update)
        return
    again_ms = min(update.config.kafka.initial_rebalance_delay_ms, delay.left_ms)
    group.newcomer = False
    group.delay = InitialDelay(again_ms, max(delay.left_ms - delay.delay_ms, 0))
    update.set_timer(JOIN_PHASE, "", again_ms)


def complete_join_phase(update: ClassicUpdate) -> None:
    """Begin a generation of the members that joined, and of static members that did not."""
    group = update.group
    update.set_timer(JOIN_PHASE, "", None)
    group.delay = None
    late = [
        member.member_id
        for member in group.members.values()
        if member.parked_join is None and member.instance_id is None
    ]
    for member_id in late:
        update.drop_member(member_id)
    if not _elect_joined_leader(group) and group.members:
        update.set_timer(JOIN_PHASE, "", max(group.rebalance_timeout_ms, AGAIN_LEAST_MS))
        return
    group.generation = next_generation(group.generation)
    group.pending_syncs.clear()
    group.protocol = choose_protocol(group) if group.members else None
    group.subscribed = find_subscribed(group)
    if not group.members:
        group.move(ClassicState.EMPTY, update.now_ms)
        update.records.append(record_of(group))
        return
    group.move(ClassicState.COMPLETING, update.now_ms)
    members = list(group.members.values())
    update.completed += _answers_to_joins(group, members)
    group.put_all([changed(member, parked_join=None, is_new=False) for member in members])
    group.pending_syncs.update(dict.fromkeys(group.members))
    for member in members:
        update.start_session(member)
    update.set_timer(SYNC_PHASE, "", group.rebalance_timeout_ms)


def _answers_to_joins(
    group: ClassicGroup, members: Iterable[ClassicMember]
) -> list[tuple[int, Parked]]:
    """Return the answers to the joins that wait: of very many, all but the leader's are alike."""
    shared = current_generation(group, "", with_members=False)
    return [
        (
            member.parked_join,
            changed(shared, member_id=member.member_id)
            if member.member_id != group.leader
            else current_generation(group, member.member_id),
        )
        for member in members
        if member.parked_join is not None
    ]


def end_sync_phase(update: ClassicUpdate) -> None:
    """Remove members that have not sent a SyncGroup in time, and rebalance again."""
    for member_id in list(update.group.pending_syncs):
        update.drop_member(member_id)
    prepare_rebalance(update, Reason.SYNC_TIMEOUT)


def cancel_assignment(update: ClassicUpdate, error: ErrorCode) -> None:
    """Clear the members' assignments, and answer the waiting syncs with an error."""
    group = update.group
    members = list(group.members.values())
    answer = SyncGroupResponse(error)
    group.put_all([changed(update.answer_sync(one, answer), assignment=b"") for one in members])
    for member in members:
        if member.parked_sync is not None:
            update.start_session(member)


def current_generation(
    group: ClassicGroup, member_id: str, *, with_members: bool = True
) -> JoinGroupResponse:
    """Return a member's answer about the running generation; the leader's lists all members."""
    leads = with_members and group.leader == member_id
    return JoinGroupResponse(
        member_id,
        ErrorCode.NONE,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        members=list_members(group) if leads else (),
    )


def list_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """Return the members as listed for their leader."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    )


def next_generation(generation: int) -> int:
    """Return the next generation; after the largest 32-bit number comes the smallest."""
    return (generation + 1 + 2**31) % 2**32 - 2**31


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """Choose a leader that has joined; return False if none has, or there was no leader."""
    if group.leader is None:
        return False
    if group.members[group.leader].parked_join is not None:
        return True
    joined: Iterable[str] = (
        member.member_id for member in group.members.values() if member.parked_join is not None
    )
    found = next(iter(joined), None)
    if found is None:
        return False
    group.leader = found
    return True
