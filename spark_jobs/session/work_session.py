"""A separate session for a job, and the frames that it caches."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.session.object_store import reach_store
from spark_jobs.session.session import check_in_driver

BUCKET_ROWS = 250_000
"""The approximate number of rows in a bucket, which one task sorts at once."""
_CONF = {
    "spark.sql.adaptive.enabled": "false",  # adaptive plans lose the partitioning of kept frames
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # each join says whether it broadcasts
}


class WorkSession:
    """A new session on the user's SparkContext, and frames that several steps read.

    The user's session and its settings are not changed. A kept frame is a local checkpoint and not
    a cache, because a checkpoint cuts the lineage. Plans with nested caches grow with every step,
    until their text alone fills the driver's heap.

    Attributes
    ----------
    spark
        The session to work in.
    bucket_rows
        The approximate number of rows that one task sorts at once.
    """

    def __init__(self, user: SparkSession, bucket_rows: int = BUCKET_ROWS) -> None:
        check_in_driver(user)
        self.bucket_rows = bucket_rows
        self._user = user
        self.spark = user.newSession()
        for key, value in _CONF.items():
            self.spark.conf.set(key, value)
        self.tasks = user.sparkContext.defaultParallelism
        self.set_shuffle_parts(self.tasks)
        self._kept: list[Any] = []

    def set_shuffle_parts(self, tasks: int) -> None:
        """Set the number of partitions of later shuffles."""
        self.tasks = tasks
        self.spark.conf.set("spark.sql.shuffle.partitions", str(tasks))

    def reach(self, store: str) -> None:
        """Have the session reach a store in an object store, as the environment says."""
        reach_store(self.spark, store)

    def adopt(self, frame: DataFrame) -> DataFrame:
        """Move the user's frame to this session."""
        return _move_frame(frame, self.spark)

    def give_back(self, frame: DataFrame) -> DataFrame:
        """Move a frame of this session to the user's."""
        return _move_frame(frame, self._user)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now, and keep it in memory or on disk until `release`."""
        kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)
        self._kept.append(kept._jdf.queryExecution().analyzed().rdd())  # noqa: SLF001 - no other way
        return kept

    def release(self) -> None:
        """Release all kept frames."""
        while self._kept:
            self._kept.pop().unpersist(False)  # do not wait


def _move_frame(frame: DataFrame, session: SparkSession) -> DataFrame:
    """Return the same rows in another session of the same SparkContext."""
    check_in_driver(frame.sparkSession)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark has no public way
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr] # noqa: SLF001
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)  # noqa: SLF001


def release_with(rows: DataFrame, work_session: WorkSession) -> None:
    """Release kept frames when the caller no longer references the rows."""
    weakref.finalize(rows, _release, work_session.release)


def _release(release: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the session may have ended, and its frames with it
        release()
