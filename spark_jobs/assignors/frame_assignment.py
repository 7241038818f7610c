"""An assignment on Spark: its rows, and what is known of it without reading them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from assignors.blocks.assign_blocks import Assigned
from assignors.group_spec import GroupSpec
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.water_level import Histogram
from spark_jobs.session.work_session import BUCKET_ROWS, DRIVER_ROWS, WorkSession, release_with


@dataclass(frozen=True, slots=True)
class FrameAssignment:
    """An assignment as rows, and the facts about it that need no reading of the rows.

    Attributes
    ----------
    rows
        A frame of `ASSIGNMENT`: one row per range, in no order.
    verdict
        What the plan proved about the number of moves.
    loads
        The number of members by class and load after the assignment.
    moved, orphans
        The number of owned partitions that change their owner, and of partitions without an owner
        before.
    held
        The group and its ranges, where the driver has assigned it.
    """

    rows: DataFrame
    verdict: Verdict
    loads: Histogram
    moved: int
    orphans: int
    held: tuple[GroupSpec, PartitionRanges] | None = None

    @classmethod
    def of(cls, done: Assigned[DataFrame]) -> Self:
        """Return what was assigned in blocks."""
        return cls(done.rows, done.verdict, done.loads, done.moved, done.orphans)

    @property
    def members(self) -> int:
        """The number of members."""
        return int(self.loads.members.sum())

    @property
    def partitions(self) -> int:
        """Partitions assigned."""
        return int((self.loads.load * self.loads.members).sum())

    def totals(self) -> dict[str, Any]:
        """Return those of `quality.Report.totals` that need no reading of the rows."""
        present = self.loads.load[self.loads.members > 0]
        low, high = (int(present.min()), int(present.max())) if len(present) else (0, 0)
        return {
            "members": self.members,
            "partitions": self.partitions,
            "loads": {
                "min": low,
                "max": high,
                "mean": self.partitions / max(self.members, 1),
                "spread": high - low,
            },
            "moved": self.moved,
            "moved_minimum": self.verdict.moved_minimum,
            "exact": self.verdict.exact,
            "partial": self.verdict.partial,
            "orphans": self.orphans,
        }


def assign_in_work_session(
    spark: SparkSession,
    assign: Callable[[WorkSession], FrameAssignment],
    bucket_rows: int = BUCKET_ROWS,
    driver_rows: int = DRIVER_ROWS,
) -> FrameAssignment:
    """Assign in a separate session, and return the rows as a frame of the user's session.

    Spark keeps the frames that the rows need until the result is no longer referenced.
    """
    work_session = WorkSession(spark, bucket_rows, driver_rows)
    try:
        assigned = assign(work_session)
    except BaseException:
        work_session.release()
        raise
    rows = work_session.give_back(assigned.rows)
    release_with(rows, work_session)
    return replace(assigned, rows=rows)
