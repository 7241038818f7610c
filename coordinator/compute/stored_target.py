"""Targets that an engine wrote to the table `targets`: their rows are read and checked here."""

from __future__ import annotations

import os
from dataclasses import replace

from coordinator.core.events import ComputedTarget
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.validate import validate_whole_target
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.record_log import LogError
from coordinator.storage.target_table import load_target


def read_stored_target(
    store: str | os.PathLike[str], target: ComputedTarget, found: AssignorInput
) -> ComputedTarget:
    """Return a target with its rows. Only this function reads and checks them.

    Parameters
    ----------
    found
        The group that the target was computed for.

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: the rows are missing, do not match their digest, or are not a valid
        assignment of the group (K-47).
    OSError
        The disk cannot be read now.
    """
    assert target.stored is not None
    spec = found.spec()
    try:
        whole = load_target(store, target.stored)
    except LogError as error:
        raise _refuse(target, str(error)) from None
    validate_whole_target(spec, found.topics, whole)
    if spec.member_count != target.stored.members:
        raise _refuse(target, f"the group had {spec.member_count} members at its position")
    return replace(target, whole=whole)


def _refuse(target: ComputedTarget, why: str) -> GroupError:
    return GroupError(
        ErrorCode.INVALID_ASSIGNMENT,
        f"The target of run {target.computation_id} for group epoch {target.group_epoch}, "
        f"computed at position {target.position} of the log, is refused: {why}.",
    )
