"""Decide SyncGroup of a classic group: the leader sends the assignment, each member gets its part.

With a setting of the group, the coordinator assigns instead (assign.py).

The leader's sync makes the group Stable in the step that writes the assignment. Waiting members are
answered when the record is durable. Requests that come meanwhile are decided after that step: a
join then finds the group Stable and begins a rebalance, which members learn by their heartbeats.
"""

from __future__ import annotations

from coordinator.config import Config
from coordinator.core.classic.assign import (
    ClassicAssignment,
    assign_classic_group,
    read_assigned,
)
from coordinator.core.classic.rebalance import ClassicUpdate, changed
from coordinator.core.classic_events import CONSUMER, WAITING, SyncGroup, SyncGroupResponse
from coordinator.core.consumer.member_removal import unknown_member
from coordinator.core.events import SYNC_PHASE, Result
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import Spans
from coordinator.errors import ErrorCode, GroupError


def sync_group(state: State, config: Config, event: SyncGroup, now_ms: int) -> Result:
    """Answer a SyncGroup, or let it wait for the leader's."""
    found = state.classic.get(event.group_id)
    try:
        if found is None or found.state is ClassicState.EMPTY:
            raise unknown_member(event.group_id, event.member_id)
        found.find_member(event.member_id, event.instance_id)
        found.check_generation(event.generation)
        event.check_protocol(found.protocol_type, found.protocol)
    except GroupError as error:
        return Result(response=SyncGroupResponse(error.code))
    if found.state is ClassicState.PREPARING:
        return Result(response=SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
    update = ClassicUpdate(found.draft(), config, now_ms)
    update.group.pending_syncs.pop(event.member_id, None)
    if not update.group.pending_syncs:
        update.set_timer(SYNC_PHASE, "", None)
    member = update.group.members[event.member_id]
    if found.state is ClassicState.STABLE:
        return update.result(_assigned(update.group, member.assignment))
    update.group.put(update.park_sync(member, event.request_id))
    if update.group.leader != event.member_id:
        return update.result(WAITING)
    computed = assign_classic_group(state, config, update.group, now_ms)
    _assign(state, update, computed or ClassicAssignment(event.assignments))
    return update.result(update.take_answer(event.request_id))


def _assign(state: State, update: ClassicUpdate, given: ClassicAssignment) -> None:
    """Store the members' assignments, and answer all waiting syncs."""
    group = update.group
    group.assignor, group.moved = given.assignor, given.moved
    assignments = [given.assignments.get(member_id, b"") for member_id in group.members]
    spans: list[Spans] = [()] * len(assignments)
    if given.assigned is not None:
        spans = [given.assigned[member_id] for member_id in group.members]
    elif group.protocol_type == CONSUMER:
        spans = read_assigned(state, assignments)
    members = []
    for member, assignment, assigned in zip(
        group.members.values(), assignments, spans, strict=True
    ):
        answered = update.answer_sync(member, _assigned(group, assignment))
        members.append(
            changed(answered, assignment=assignment, last_assignment=assignment, assigned=assigned)
        )
        if member.parked_sync is not None:
            update.start_session(member)
    group.put_all(members)
    update.records.append(record_of(group))
    group.move(ClassicState.STABLE, update.now_ms)


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol, assignment)
