"""external: a target assignment computed outside a step (K-38…K-50, S-30…S-32).

By an external computer, which asks with Prepare and answers with Install, or by the coordinator's
own engine, whose outcome is TargetComputed. A computation id given by Prepare stands in place of
Kafka's chosen member: an unknown or superseded one is UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

import msgspec

from coordinator import target
from coordinator.config import Config
from coordinator.errors import ErrorCode, GroupError
from coordinator.events import Install, Prepare, Result, TargetComputed, TargetFailed
from coordinator.records import ComputationPrepared, TargetMetadata, Tombstone
from coordinator.state import Group, State


def prepare(state: State, config: Config, event: Prepare, now_ms: int) -> Result:
    """Begin a computation for the present group epoch; the response is the group's state (K-42).

    Until it is installed, superseded, or past its deadline, the coordinator computes none itself.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND.
    """
    group = _group(state, event.group_id)
    deadline = now_ms + config.engine.timeout_ms
    record = ComputationPrepared(event.group_id, event.computation_id, group.epoch, deadline)
    members, topics, owned = target.roster(state, group, target.Change()).spec().to_arrow()
    response = {
        "computation_id": event.computation_id,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": members,
        "topics": topics,
        "owned": owned,
    }
    return Result([record], response)


def install(state: State, event: Install, now_ms: int) -> Result:
    """Make a computed assignment the target (K-43…K-50).

    Computed for an older group epoch it is installed all the same; the next one is computed after.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, INVALID_ASSIGNMENT.
    """
    group = _group(state, event.group_id)
    found = group.computation
    if found is not None and found.record.computation_id != event.computation_id:
        found = None
    if event.group_epoch <= group.assignment_epoch:
        raise GroupError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The assignment was computed for group epoch {event.group_epoch}; the group already "
            f"has one for {group.assignment_epoch}: prepare again.",
        )
    if found is None:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Computation {event.computation_id} is not the one that group {event.group_id} "
            "waits for: prepare again.",
        )
    if event.group_epoch != found.record.group_epoch:
        raise GroupError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The computation was prepared for group epoch {found.record.group_epoch}, the "
            f"assignment names {event.group_epoch}: install it with the epoch it was prepared for.",
        )
    ranges = target.validated(found, event.ranges)
    records, moved = target.installed(group, found, ranges)
    done = TargetMetadata(
        group.group_id, event.group_epoch, now_ms, event.assignor, moved, event.partial
    )
    if group.epoch > event.group_epoch:
        done = msgspec.structs.replace(done, assignment_timestamp=0)  # the next one at once (K-49)
    response = {
        "group_epoch": group.epoch,
        "assignment_epoch": event.group_epoch,
        "moved": moved,
        "members_changed": len(records),
    }
    return Result([*records, done], response)


def computed(state: State, event: TargetComputed, now_ms: int) -> Result:
    """Install what the coordinator's own engine computed."""
    return install(
        state,
        Install(
            event.group_id,
            event.computation_id,
            event.group_epoch,
            event.ranges,
            event.assignor,
            event.partial,
        ),
        now_ms,
    )


def failed(state: State, event: TargetFailed) -> Result:
    """Let the next heartbeat begin again; the last target stays."""
    group = state.groups.get(event.group_id)
    found = group.computation if group else None
    if found is None or found.record.computation_id != event.computation_id:
        return Result()
    return Result([Tombstone(ComputationPrepared.kind, event.group_id, name=event.computation_id)])


def _group(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return group
