"""A target that may become a group's, from any engine, and the records that install it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from assignors import PartitionRanges
from coordinator.core.state.records import Record, TargetMetadata
from coordinator.core.state.target_assignment import StoredTarget, WholeTarget


@dataclass(frozen=True, slots=True)
class TargetCandidate:
    """A target that may become a group's: what it was made from, and who gets what.

    Who gets what is ranges, where it is not compared with the last target; changes of that; or
    rows that a job wrote to the table of targets, which are read from there once, and checked.

    Attributes
    ----------
    group_epoch
        Of the group that it was made from.
    assignor, moved, partial
        Owned partitions that change hands; whether `max_moves` cut it short.
    changes
        The records of members that get another target; beside rows, of those that came or went.
    ranges
        All of it, as the assignor returned it.
    stored, whole
        Which rows of the table are the target, and these rows; None until they are read.
    computation_id, position
        Of the computation that was prepared, and where the log has it; of none, "" and 0.
    plan_id
        Of the plan that it is.
    """

    group_id: str
    group_epoch: int
    assignor: str = ""
    moved: int = 0
    partial: bool = False
    changes: Sequence[Record] = ()
    ranges: PartitionRanges | None = None
    stored: StoredTarget | None = None
    whole: WholeTarget | None = None
    computation_id: str = ""
    position: int = 0
    plan_id: str | None = None


def list_records(found: TargetCandidate, at_ms: int) -> list[Record]:
    """Return the records that make a candidate the target of its group.

    They install every target, wherever it was computed, and also that of a group for which
    nothing was computed yet: it has only an epoch. No other `TargetMetadata` is a new target:
    a snapshot repeats the last one (`state_records`), and those of a watched cluster say what
    Kafka's records, or its answers, do (`watcher/kafka_records.py`, `described_groups.py`).

    Parameters
    ----------
    at_ms
        When it was computed, in ms since 1970; 0: the next one is computed at once (G-44).
    """
    done = TargetMetadata(
        found.group_id,
        found.group_epoch,
        at_ms,
        found.assignor,
        found.moved,
        found.partial,
        plan_id=found.plan_id,
    )
    rows = found.stored
    if rows is None:
        return [*found.changes, done]
    assert found.whole is not None
    named = msgspec.structs.replace(
        done,
        computation_id=rows.run_id,
        targets_version=rows.version,
        digest=rows.digest,
        members=rows.members,
        ranges=rows.ranges,
        whole=found.whole,
    )
    return [named, *found.changes]
