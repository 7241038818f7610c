"""Install a target assignment computed outside a step (K-38…K-50, S-30…S-32).

By an external computer, which asks with PrepareAssignment and answers with InstallAssignment, or by
the coordinator's own engine. Each brings a TargetCandidate, and `_install_target` makes it the
group's. A computation id stands in place of Kafka's chosen member: an unknown or superseded one is
UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.config import Config
from coordinator.core.events import (
    InstallAssignment,
    PrepareAssignment,
    Result,
    TargetFailed,
    TargetLost,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Computation, Group, State
from coordinator.core.state.partition_spans import drop_epochs
from coordinator.core.state.records import (
    ComputationPrepared,
    GroupMetadata,
    Record,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.target_assignment import NOT_READ, Targets
from coordinator.core.state.target_candidate import TargetCandidate, list_records
from coordinator.core.targets.basis import AssignorInput, MemberChange, build_input
from coordinator.core.targets.rebase import diff_computed, rebase
from coordinator.core.targets.validate import check_ranges
from coordinator.errors import ErrorCode, GroupError


def prepare_computation(
    state: State, config: Config, event: PrepareAssignment, now_ms: int
) -> Result:
    """Begin a computation for the present group epoch; the response is the group's state (K-42).

    Until it is installed, superseded, or past its deadline, the coordinator computes none itself.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND.
    """
    group = _get_group(state, event.group_id)
    deadline = now_ms + config.engine.timeout_ms
    record = ComputationPrepared(event.group_id, event.computation_id, group.epoch, deadline)
    members, topics, owned = build_input(state, group, MemberChange()).spec().to_arrow()
    response = {
        "computation_id": event.computation_id,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": members,
        "topics": topics,
        "owned": owned,
    }
    return Result([record], response)


def install_assignment(state: State, event: InstallAssignment, now_ms: int) -> Result:
    """Make a computed assignment the target (K-43…K-50).

    Computed for an older group epoch it is installed all the same; the next one is computed after.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, INVALID_ASSIGNMENT.
    """
    group = _get_group(state, event.group_id)
    found = _find_computation(group, event.computation_id, event.group_epoch)
    given = AssignorInput(found.metas, Targets(), found.topics, found.regexes)
    ranges = check_ranges(given.spec(), event.ranges)
    changes, moved = diff_computed(group, found, ranges)
    target = TargetCandidate(
        event.group_id, event.group_epoch, event.assignor, moved, event.partial, changes
    )
    return _install_target(group, found, target, now_ms)


def install_computed(state: State, event: TargetCandidate, now_ms: int) -> Result:
    """Install what the coordinator's own engine computed and checked.

    Raises
    ------
    GroupError
        As `install_assignment`: the computation is not the one that the group waits for.
    """
    group = _get_group(state, event.group_id)
    found = _find_computation(group, event.computation_id, event.group_epoch)
    return _install_target(group, found, event, now_ms)


def _stale(group: Group, group_epoch: int) -> GroupError:
    return GroupError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The assignment was computed for group epoch {group_epoch}; the group already has "
        f"one for {group.assignment_epoch}: prepare again.",
    )


def _find_computation(group: Group, computation_id: str, group_epoch: int) -> Computation:
    """Return the computation that the group waits for, if it is this one (K-45, K-46)."""
    found = group.computation
    if group_epoch <= group.assignment_epoch:
        raise _stale(group, group_epoch)
    if found is None or found.record.computation_id != computation_id:
        raise GroupError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Computation {computation_id} is not the one that group {group.group_id} waits for: "
            "prepare again.",
        )
    if group_epoch != found.record.group_epoch:
        raise GroupError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The computation was prepared for group epoch {found.record.group_epoch}, the "
            f"assignment names {group_epoch}: install it with the epoch it was prepared for.",
        )
    return found


def _install_target(
    group: Group, found: Computation, target: TargetCandidate, now_ms: int
) -> Result:
    """Install a target, and account for members that joined or left since then (K-48, K-49).

    When the group has moved on meanwhile, the next target is computed at once (K-49).
    """
    at_once = 0 if group.epoch > target.group_epoch else now_ms
    changes = rebase(group, found, target)
    records = list_records(replace(target, changes=changes), at_once)
    if target.whole is not None:
        return Result(records)
    response = {
        "group_epoch": group.epoch,
        "assignment_epoch": target.group_epoch,
        "moved": target.moved,
        "members_changed": len(changes),
    }
    return Result(records, response)


def give_up_computation(state: State, event: TargetFailed) -> Result:
    """Let the next heartbeat begin again; the last target stays."""
    group = state.groups.get(event.group_id)
    found = group.computation if group else None
    if found is None or found.record.computation_id != event.computation_id:
        return Result()
    return Result([Tombstone(ComputationPrepared.kind, event.group_id, name=event.computation_id)])


def drop_lost_target(state: State, event: TargetLost) -> Result:
    """Let a group keep what it has when its whole target is gone from the table, and start over.

    What it has is the target as far as it is known here: from before the table was damaged, or,
    after a restart, what each member is assigned.
    """
    group = state.groups.get(event.group_id)
    if group is None or group.installed is None:
        return Result()
    known = group.targets.whole is not NOT_READ
    records: list[Record] = [
        Tombstone(TargetMetadata.kind, group.group_id),
        *list_records(TargetCandidate(group.group_id, group.assignment_epoch, group.assignor), 0),
    ]
    for member_id, member in group.members.items():
        spans = group.targets.get(member_id, ()) if known else drop_epochs(member.current.assigned)
        records.append(TargetMember(group.group_id, member_id, spans))
    epoch = group.epoch + 1
    records.append(
        GroupMetadata(group.group_id, epoch, group.metadata_hash, Reason.TARGET_WAS_LOST)
    )
    return Result(records)


def _get_group(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return group
