"""A session for a job beside the user's, and the frames that it caches."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.session.session import check_in_driver

BUCKET_ROWS = 250_000
"""Rows of a bucket, about: what one task sorts at once."""
_CONF = {
    "spark.sql.adaptive.enabled": "false",  # adaptive plans forget how kept frames are partitioned
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # what is broadcast is said where it is joined
}


class WorkSession:
    """A session of our own on the user's SparkContext, and frames that several steps read.

    The user's session and its settings are left alone. A kept frame is a local checkpoint, not a
    cache: it cuts the lineage. Plans that nest caches grow with every step until only writing them
    down fills the driver's heap.

    Attributes
    ----------
    spark
        The session to work in.
    bucket_rows
        Rows that one task sorts at once, about.
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
        """Cut what is shuffled from now on into `tasks` parts."""
        self.tasks = tasks
        self.spark.conf.set("spark.sql.shuffle.partitions", str(tasks))

    def adopt(self, frame: DataFrame) -> DataFrame:
        """Return the user's frame as one of ours."""
        return _move_frame(frame, self.spark)

    def give_back(self, frame: DataFrame) -> DataFrame:
        """Return a frame of ours as one of the user's."""
        return _move_frame(frame, self._user)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now, and keep it in memory or on disk until released."""
        kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)
        self._kept.append(kept._jdf.queryExecution().analyzed().rdd())  # noqa: SLF001 - no other way
        return kept

    def release(self) -> None:
        """Forget everything kept."""
        while self._kept:
            self._kept.pop().unpersist(False)  # do not wait


def _move_frame(frame: DataFrame, session: SparkSession) -> DataFrame:
    """Return the same rows in another session of the same SparkContext."""
    check_in_driver(frame.sparkSession)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark has no public way
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr] # noqa: SLF001
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)  # noqa: SLF001


def release_with(rows: DataFrame, work_session: WorkSession) -> None:
    """Release cached frames when no caller holds the rows any more."""
    weakref.finalize(rows, _release, work_session.release)


def _release(release: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the session may be gone: then so is what it kept
        release()
