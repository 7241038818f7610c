"""A separate session for a job, and the frames that it caches."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from coordinator.config import EngineConfig
from spark_jobs.session.cluster import failures_explained, give_code
from spark_jobs.session.kinds import kind_of
from spark_jobs.session.object_store import reach_store

BUCKET_ROWS = 250_000
"""The approximate number of rows in a bucket, which one task sorts at once."""
DRIVER_ROWS = EngineConfig().driver_rows
"""Up to so many rows a group is assigned on the driver."""
_CONF = {
    "spark.sql.adaptive.enabled": "false",  # adaptive plans lose the partitioning of kept frames
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # each join says whether it broadcasts
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # kept frames are read at once
    "spark.sql.execution.arrow.localRelationThreshold": "4m",  # larger tables are sent as columns
}


class WorkSession:
    """A new session on the user's SparkContext, and frames that several steps read.

    The user's session and its settings are not changed; with Spark Connect, jobs work in it. A kept
    frame is a local checkpoint and not a cache, because a checkpoint cuts the lineage. Plans with
    nested caches grow with every step, until their text alone fills the driver's heap.

    Attributes
    ----------
    spark
        The session to work in.
    bucket_rows
        The approximate number of rows that one task sorts at once.
    driver_rows
        Up to how many rows a group is assigned on the driver; 0 for never.
    """

    def __init__(
        self,
        user: SparkSession,
        bucket_rows: int = BUCKET_ROWS,
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        self.bucket_rows = bucket_rows
        self.driver_rows = driver_rows
        self._user, self._kind = user, kind_of(user)
        self.spark = self._kind.new_session()
        give_code(user)
        if self.spark is not user:
            for key, value in _CONF.items():
                self.spark.conf.set(key, value)
        self.set_shuffle_parts(self._kind.parallelism())
        self._kept: list[Callable[[bool], object]] = []

    def set_shuffle_parts(self, tasks: int) -> None:
        """Set the number of partitions of later shuffles."""
        self.tasks = tasks
        if self.spark is not self._user:
            self.spark.conf.set("spark.sql.shuffle.partitions", str(tasks))

    def reach(self, store: str) -> None:
        """Have the session reach a store in an object store, as the environment says."""
        reach_store(self.spark, store)

    def adopt(self, frame: DataFrame) -> DataFrame:
        """Move the user's frame to this session."""
        return self._kind.move(frame, self.spark)

    def give_back(self, frame: DataFrame) -> DataFrame:
        """Move a frame of this session to the user's."""
        return self._kind.move(frame, self._user)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now, and keep it in memory or on disk until `release`."""
        with failures_explained():
            kept, release = self._kind.keep(frame)
        self._kept.append(release)
        return kept

    def keep_and_measure(
        self, frame: DataFrame, **measures: Column
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Do as `keep`, and return aggregates of the rows, by name: integers or null."""
        with failures_explained():
            kept, release, found = self._kind.keep_and_measure(frame, measures)
        self._kept.append(release)
        return kept, found

    def keep_and_collect(
        self, frame: DataFrame, collect: Callable[[DataFrame], pa.Table]
    ) -> tuple[DataFrame, pa.Table]:
        """Do as `keep`, and return what `collect` reads of the kept frame, in one job.

        Parameters
        ----------
        collect
            Must look at all of it: what it passes over is not kept.
        """
        with failures_explained():
            kept, release, table = self._kind.keep_and_collect(frame, collect)
        self._kept.append(release)
        return kept, table

    def share(self, value: Any) -> Any:  # noqa: ANN401 - tasks read anything
        """Return a value for tasks, as an attribute `value`."""
        return self._kind.share(value)

    def release(self, *, wait: bool = False) -> None:
        """Release all kept frames.

        Parameters
        ----------
        wait
            Whether to wait until that is done, as after a job: what still runs when the session
            stops, Spark refuses with stack traces. After a failure, tasks may still read them.
        """
        while self._kept:
            self._kept.pop()(wait)


def release_with(rows: DataFrame, work_session: WorkSession) -> None:
    """Release kept frames when the caller no longer references the rows."""
    weakref.finalize(rows, _release, work_session)


def _release(work_session: WorkSession) -> None:
    with contextlib.suppress(Exception):  # the session may have ended, and its frames with it
        work_session.release(wait=True)
