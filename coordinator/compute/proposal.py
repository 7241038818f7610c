"""Targets that a job wrote to the table `targets`: read and check them, and propose them in a file.

A job first commits the target's rows, and then names them. The coordinator's own engine reads and
checks them at once. A separate job instead puts a proposal, one small file per run, into
`<store>/proposals`; the coordinator reads and checks the rows, and writes its verdict to the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import msgspec

from assignors import GroupSpec
from coordinator.core.bounded import Epoch, Int64, Text
from coordinator.core.events import ComputedTarget
from coordinator.core.state import Topic
from coordinator.core.target_assignment import StoredTarget
from coordinator.core.target_builder import validate_whole_target
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.record_log import LogError
from coordinator.storage.target_table import load_target

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target in the table `targets`.

    Attributes
    ----------
    group_epoch, position
        The group epoch it was computed for, and the log position that the group was read up to.
    run_id
        Marks its rows. It is the computation's id if the coordinator requested the target.
    targets_version, digest, members, ranges
        The table's version that has the rows, the rows' digest (target_digest.py), the number of
        members, and the number of rows.
    moved, partial
        How many owned partitions change their owner, and whether `max_moves` limited that.
    """

    group_id: Text
    group_epoch: Epoch
    position: Count
    run_id: Text
    assignor: Text
    targets_version: Count
    digest: Int64
    members: Count
    ranges: Count
    moved: Count = 0
    partial: bool = False

    @classmethod
    def of(cls, target: ComputedTarget) -> Proposal:
        """Return the proposal for a target that is in the table."""
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
        """Return the target, without its rows."""
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
    store: str | os.PathLike[str],
    target: ComputedTarget,
    spec: GroupSpec,
    topics: Iterable[Topic],
) -> ComputedTarget:
    """Return a target with its rows. Only this function reads and checks them.

    Parameters
    ----------
    spec, topics
        The group that the target was computed for, and its topics.

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: the rows are missing, do not match their digest, or are not a valid
        assignment of the group (K-47).
    OSError
        The disk cannot be read now.
    """
    assert target.stored is not None
    try:
        whole = load_target(store, target.stored)
    except LogError as error:
        raise refuse_target(target, str(error)) from None
    validate_whole_target(spec, topics, whole)
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
