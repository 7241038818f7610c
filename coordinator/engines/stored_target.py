"""Targets that an engine wrote to the table `targets`: their rows are read and checked here."""

from __future__ import annotations

import os
from dataclasses import replace

from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.validate import check_ranges, refusal, to_rows
from coordinator.storage.record_log import LogError
from coordinator.storage.target_table import load_target


def read_stored_target(
    store: str | os.PathLike[str], target: TargetCandidate, found: AssignorInput
) -> TargetCandidate:
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
    named = (
        f"The target of run {target.computation_id} for group epoch {target.group_epoch}, computed "
        f"at position {target.position} of the log, is refused"
    )
    try:
        whole = load_target(store, target.stored)
    except LogError as error:
        raise refusal(str(error), (named, ".")) from None
    ranges = whole.ranges()
    unknown = set(ranges.keys) - {topic.key for topic in found.topics}
    if unknown:
        raise refusal(f"there is no topic {min(unknown)}")
    check_ranges(spec, to_rows(ranges))
    if spec.member_count != target.stored.members:
        raise refusal(f"the group had {spec.member_count} members at its position", (named, "."))
    return replace(target, whole=whole)
