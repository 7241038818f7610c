"""The target that a job wrote, as a file and as a checked value.

A job commits its rows to the table of targets and then says where they are. The coordinator's own
engine returns that; a job in a process of its own puts it into `<store>/proposals`, one small file
a run, and waits for the answer in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import msgspec

from assignors import GroupSpec
from coordinator.core.events import Text, WrittenTarget
from coordinator.core.records import TargetMetadata
from coordinator.core.state import Topic
from coordinator.core.target_builder import validate_whole_target
from coordinator.storage import target_table

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


def read_written_target(
    store: str | os.PathLike[str], proposal: Proposal, spec: GroupSpec, topics: Iterable[Topic]
) -> WrittenTarget:
    """Return the target that a proposal names, read and checked against its input.

    Raises
    ------
    LostTarget
        The rows are missing, or differ from those that it names.
    GroupError
        INVALID_ASSIGNMENT (K-47).
    """
    named = TargetMetadata(
        proposal.group_id,
        proposal.group_epoch,
        computation_id=proposal.run_id,
        targets_version=proposal.targets_version,
        digest=proposal.digest,
        ranges=proposal.ranges,
    )
    whole = target_table.load_target(store, named)
    validate_whole_target(spec, topics, whole)
    return WrittenTarget(
        proposal.run_id, proposal.targets_version, proposal.digest, spec.member_count, whole
    )
