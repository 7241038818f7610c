"""An assignor's twin: on the driver where a group fits there, else as DataFrame operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from assignors import get_assignor
from spark_jobs.assignors.frame_assignment import FrameAssignment, assign_in_work_session
from spark_jobs.assignors.labelled_members import LabelledMembers
from spark_jobs.assignors.small_group import GivenTables, assign_small_group
from spark_jobs.session.work_session import BUCKET_ROWS, DRIVER_ROWS, WorkSession


@dataclass(frozen=True, slots=True)
class Twin:
    """An assignor on DataFrames.

    Attributes
    ----------
    name
        The assignor's.
    assign_large
        Assigns on executors: of a work session, the tables, and options.
    owners_of_each_topic
        Every member may get a range of every topic: the driver expects so many rows.
    """

    name: str
    assign_large: Callable[..., FrameAssignment]
    owners_of_each_topic: bool = False

    def assign(
        self,
        spark: SparkSession,
        members: DataFrame | LabelledMembers,
        topics: DataFrame,
        previous: DataFrame | None = None,
        *,
        bucket_rows: int = BUCKET_ROWS,
        driver_rows: int = DRIVER_ROWS,
        **options: object,
    ) -> FrameAssignment:
        """Assign, and return the rows with their totals and the plan's verdict.

        Parameters
        ----------
        bucket_rows
            About how many rows one task sorts at once. The result does not depend on it.
        driver_rows
            Up to how many rows a group is assigned on the driver. The result does not depend on it,
            either.
        options
            The assignor's own.
        """

        def run(work_session: WorkSession) -> FrameAssignment:
            get_assignor(self.name, **options)  # refuses bad options
            given = GivenTables.of(work_session, members, topics, previous)
            small = assign_small_group(
                work_session, self.name, given, options,
                owners_of_each_topic=self.owners_of_each_topic,
            )  # fmt: skip
            return self.assign_large(work_session, given, **options) if small is None else small

        return assign_in_work_session(spark, run, bucket_rows, driver_rows)
