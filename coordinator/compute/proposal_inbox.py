"""Read `<store>/proposals`, where external jobs announce the targets that they wrote.

A job writes one small file per run, `<run id>.json`. The store's coordinator reads and checks the
target that the file names, writes the verdict to the log, and removes the file. If it fails after
the verdict is durable and before the file is removed, the file is checked again, with the same
verdict. A file that is not a proposal is set aside (storage/file_queue.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pyarrow.compute as pc

from coordinator.compute.proposal import Proposal, read_stored_target, refuse_target
from coordinator.core.events import ProposeTarget
from coordinator.core.records import MemberMetadata, ProposalJudged
from coordinator.errors import ErrorCode, GroupError
from coordinator.history.group_snapshot import GroupSnapshot
from coordinator.storage.delta_log import read_log
from coordinator.storage.file_queue import FileQueue, MessageError
from coordinator.storage.log_scan import LogScan

FOLDER = "proposals"


def put_proposal(store: str | os.PathLike[str], proposal: Proposal) -> None:
    """Propose a target to the store's coordinator."""
    words = msgspec.json.format(msgspec.json.encode(proposal)) + b"\n"
    _open_queue(store).put(proposal.run_id, words)


def list_proposals(store: str | os.PathLike[str]) -> list[str]:
    """Return the run ids of waiting proposals, sorted."""
    return _open_queue(store).waiting()


def remove_proposal(store: str | os.PathLike[str], run_id: str) -> None:
    """Remove a proposal: its verdict is in the log, or its job no longer waits for one."""
    _open_queue(store).take_away(run_id)


def set_proposal_aside(store: str | os.PathLike[str], run_id: str, reason: str) -> None:
    """Move a proposal that cannot be processed to a separate folder, so that it blocks nothing."""
    _open_queue(store).set_aside(run_id, reason)


def set_unknown_aside(store: str | os.PathLike[str]) -> None:
    """Set aside whatever is not a file."""
    _open_queue(store).set_strangers_aside()


def validate_proposal(store: str | os.PathLike[str], run_id: str) -> ProposeTarget:
    """Read the target that a proposal names, and check it against its group.

    Raises
    ------
    OSError, LogError
        The store cannot be read now; try again later.
    """
    proposal = None
    try:
        proposal = _read_proposal(store, run_id)
        return _check_proposal(store, proposal)
    except GroupError as error:
        group_id, epoch = (proposal.group_id, proposal.group_epoch) if proposal else ("", 0)
        return ProposeTarget(group_id, epoch, run_id, refusal=error)


def find_verdict(
    store: str | os.PathLike[str], run_id: str, after: int
) -> tuple[ProposalJudged | None, int]:
    """Return the verdict on a job's proposal, if there is one, and the last position searched."""
    for batch in read_log(store, after):
        after = batch.position
        for record in batch.records:
            if isinstance(record, ProposalJudged) and record.computation_id == run_id:
                return record, after
    return None, after


def _read_proposal(store: str | os.PathLike[str], run_id: str) -> Proposal:
    try:
        found = msgspec.json.decode(_open_queue(store).read(run_id), type=Proposal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MessageError) as error:
        raise GroupError(
            ErrorCode.INVALID_REQUEST, f"Proposal {run_id} cannot be read: {error}."
        ) from None
    if found.run_id != run_id:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"Proposal {run_id} names run {found.run_id!r}: name the file after its run.",
        )
    return found


def _check_proposal(store: str | os.PathLike[str], proposal: Proposal) -> ProposeTarget:
    target = proposal.target()
    newest = LogScan.of(store)
    if target.position > newest.position:
        raise refuse_target(target, f"the log ends at {newest.position}, before its position")
    snapshot = GroupSnapshot(LogScan.of(store, target.position), target.group_id)
    if target.group_epoch != snapshot.group_epoch:
        raise refuse_target(target, f"the group epoch was {snapshot.group_epoch} at its position")
    found = read_stored_target(store, target, snapshot.spec(), snapshot.topics)
    members = dict(_list_members(snapshot))
    return ProposeTarget(target.group_id, target.group_epoch, target.computation_id, found, members)


def _list_members(snapshot: GroupSnapshot) -> Iterator[tuple[str, MemberMetadata]]:
    rows = snapshot.members
    instances = pc.fill_null(rows["instance_id"], "").to_pylist()
    for member_id, instance_id in zip(rows["member_id"].to_pylist(), instances, strict=True):
        yield (
            member_id,
            MemberMetadata(snapshot.group_id, member_id, instance_id=instance_id or None),
        )


def _open_queue(store: str | os.PathLike[str]) -> FileQueue:
    return FileQueue(store, FOLDER, ".json")
