"""What a follower does with an answer of its leader: `decide` says it, others do it. No I/O.

As Kafka's `AbstractFetcherThread`: epochs are compared with each Fetch, and what another leader did
not take over is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from coordinator.kraft.partition_log import (
    NO_EPOCH,
    NO_OFFSET,
    Accepted,
    EpochEnd,
    PartitionLog,
    ReplicaLogError,
)
from coordinator.watcher.record_batches import BatchError

OFFSET_OUT_OF_RANGE, NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 6, 74, 75
UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 100, 103
PASSING = {
    NOT_LEADER: "it does not lead the partition now",
    FENCED_LEADER_EPOCH: "it leads in a later epoch",
    UNKNOWN_LEADER_EPOCH: "it does not know yet that it leads",
    UNKNOWN_TOPIC_ID: "it does not know the topic yet",
    INCONSISTENT_TOPIC_ID: "it knows another topic of that name",
}
"""Errors that end when leader and follower have read the same metadata."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write batches to the end, then take over the leader's marks."""

    accepted: Accepted
    high_watermark: int
    start: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut off the batches that reach an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Ask the leader where its log begins and ends: what was asked for is not there."""


@dataclass(frozen=True, slots=True)
class Restart:
    """start the log again at an offset: the leader's begins after the end of this one."""

    offset: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again a little later."""

    why: str


Decision: TypeAlias = Append | Truncate | AskOffsets | Restart | Wait


def decide(log: PartitionLog, leader_epoch: int, found: Any) -> Decision:  # noqa: ANN401 - of an answer
    """Return what to do with the answer for a partition to a Fetch from the end of the log."""
    error = int(found.error_code)
    if error == OFFSET_OUT_OF_RANGE:
        return AskOffsets()
    if error:
        return Wait(PASSING.get(error, f"Kafka's error {error}"))
    diverging = found.diverging_epoch
    if diverging.epoch >= 0 or diverging.end_offset >= 0:
        return Truncate(find_common(log, EpochEnd(diverging.epoch, diverging.end_offset)))
    try:
        accepted = log.check(bytes(found.records or b""), leader_epoch)
    except (ReplicaLogError, BatchError) as error_found:
        return Wait(str(error_found))
    return Append(accepted, found.high_watermark, found.log_start_offset)


def find_common(log: PartitionLog, leader: EpochEnd) -> int:
    """Return the offset up to which the leader may have the same, by where its epoch ends.

    Where this log does not know that epoch, it is cut back to the end of an earlier one; the next
    answer compares again.
    """
    if leader.end_offset == NO_OFFSET:
        return log.high_watermark
    if leader.epoch == NO_EPOCH:
        return min(leader.end_offset, log.end)
    ours = log.end_of(leader.epoch)
    if ours.end_offset == NO_OFFSET:
        return min(leader.end_offset, log.end)
    if ours.epoch != leader.epoch:
        return min(ours.end_offset, log.end)
    return min(ours.end_offset, leader.end_offset, log.end)


def decide_offsets(log: PartitionLog, start: int, end: int) -> Decision:
    """Return what to do where a log does not reach the leader's, or reaches beyond it.

    Parameters
    ----------
    start, end
        Of the leader's log.
    """
    if end < log.end:
        return Truncate(end)  # what it lost, it lost by an unclean election
    if start > log.end:
        return Restart(start)
    return Wait("it has the offset now that it did not have")
