"""Targets that a job wrote to the table of targets: read and checked, and as a file.

A job commits its rows and then says which they are. The coordinator's own engine reads and checks
them itself; a job of its own puts a proposal into `<store>/proposals`, one small file a run, and
waits for the answer in the log: the coordinator reads and checks.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import msgspec

from coordinator.core.events import ComputedTarget, Text
from coordinator.core.target_assignment import StoredTarget
from coordinator.core.target_builder import validate_whole_target
from coordinator.errors import ErrorCode, GroupError
from coordinator.history.group_snapshot import GroupSnapshot
from coordinator.storage.record_log import LogError
from coordinator.storage.target_table import load_target

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Digest = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target in the table of targets.

    Attributes
    ----------
    group_epoch, position
        What it was computed for: the group as the log has it up to this position.
    run_id
        Marks its rows; the computation's id where the coordinator asked for it.
    targets_version, digest, members, ranges
        Where the rows are, their digest (target_digest.py), for how many members, how many rows.
    moved, partial
        Owned partitions that change hands; whether `max_moves` cut it short.
    """

    group_id: Text
    group_epoch: Epoch
    position: Count
    run_id: Text
    assignor: Text
    targets_version: Count
    digest: Digest
    members: Count
    ranges: Count
    moved: Count = 0
    partial: bool = False

    @classmethod
    def of(cls, target: ComputedTarget) -> Proposal:
        """Return what is to be said of a target that is in the table."""
        stored = target.stored
        assert stored is not None
        return cls(
            target.group_id,
            target.group_epoch,
            target.position,
            target.computation_id,
            target.assignor,
            stored.version,
            stored.digest,
            stored.members,
            stored.ranges,
            target.moved,
            target.partial,
        )

    def target(self) -> ComputedTarget:
        """Return the target, which nobody has read yet."""
        stored = StoredTarget(
            self.group_id,
            self.group_epoch,
            self.run_id,
            self.targets_version,
            self.digest,
            self.members,
            self.ranges,
        )
        return ComputedTarget(
            self.group_id,
            self.run_id,
            self.group_epoch,
            self.position,
            self.assignor,
            self.moved,
            self.partial,
            stored=stored,
        )


def read_stored_target(
    store: str | os.PathLike[str], target: ComputedTarget, snapshot: GroupSnapshot
) -> ComputedTarget:
    """Return a target with its rows, which are read and checked here and nowhere else.

    Parameters
    ----------
    snapshot
        The group that the target was computed for.

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: the rows are missing, differ from those that it names, or are no
        assignment of the group (K-47).
    OSError
        The disk cannot be read now.
    """
    assert target.stored is not None
    spec = snapshot.spec()
    try:
        whole = load_target(store, target.stored)
    except LogError as error:
        raise refuse_target(target, str(error)) from None
    validate_whole_target(spec, snapshot.topics, whole)
    if spec.member_count != target.stored.members:
        raise refuse_target(target, f"the group had {spec.member_count} members at its position")
    return replace(target, whole=whole)


def refuse_target(target: ComputedTarget, why: str) -> GroupError:
    """Return the error for a target that cannot be installed."""
    return GroupError(
        ErrorCode.INVALID_ASSIGNMENT,
        f"The target of run {target.computation_id} for group epoch {target.group_epoch}, "
        f"computed at position {target.position} of the log, is refused: {why}.",
    )
