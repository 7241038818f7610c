"""A session in the driver, beside its JVM: what Spark has no public words for is done here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession

POOL = "muster"
_OF_A_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_POOL = "spark.scheduler.pool"
_MEASURES = "measures"
_LEVEL = StorageLevel.MEMORY_AND_DISK_DESER


@dataclass(frozen=True, slots=True, eq=False)
class ClassicSession:
    """What `spark_jobs` needs of a session in the driver.

    Attributes
    ----------
    spark
        The session.
    """

    spark: SparkSession

    def place(self) -> str:
        """Return where it runs, for messages: its master."""
        return self.spark.sparkContext.master or ""

    def why_idle(self) -> str:
        """Return why no task may run, for messages."""
        return (
            "another application may have all its cores (spark.cores.max limits it), no worker may "
            "have the memory (spark.executor.memory), or executors may not reach the driver "
            "(spark.driver.host)"
        )

    def is_local(self) -> bool:
        """Whether tasks run in the driver, so that they see its files."""
        return self.place().startswith("local[") or self.place() == "local"

    def has_own_python(self) -> bool:
        """Whether tasks run with this process's Python, so that they have what it has."""
        worker = shutil.which(self.spark.sparkContext.pythonExec) or ""
        return self.is_local() and os.path.dirname(worker) == os.path.dirname(sys.executable)

    def new_session(self) -> SparkSession:
        """Return a session of the same driver with settings and views of its own."""
        return self.spark.newSession()

    def move(self, frame: DataFrame, session: SparkSession) -> DataFrame:
        """Return the same rows in another session of the same driver."""
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark has no public way
        dataset = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr] # noqa: SLF001
        return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)  # noqa: SLF001

    def keep(self, frame: DataFrame) -> tuple[DataFrame, Callable[[bool], object]]:
        """Compute a frame now, and return it with what releases its rows, and waits if asked to.

        A local checkpoint of columnar batches, as Spark's cache builds them.
        `DataFrame.localCheckpoint` keeps each row as an object, which fills a driver's heap. When
        the computation fails or is cancelled, nothing is kept. They stay in the frame's session,
        which knows how a store is reached.
        """
        kept, scan, release = self._prepare(frame)
        with _released_on_failure(release):
            scan.count()  # an execution of SQL: its tasks have the session's settings
        return kept, release

    def keep_and_collect(
        self, frame: DataFrame, collect: Callable[[DataFrame], Any]
    ) -> tuple[DataFrame, Callable[[bool], object], Any]:
        """Do as `keep`, by what `collect` reads of the kept frame, and return that."""
        kept, _, release = self._prepare(frame)
        with _released_on_failure(release):
            return kept, release, collect(kept)

    def _prepare(self, frame: DataFrame) -> tuple[DataFrame, Any, Callable[[bool], object]]:
        """Return a frame that is kept once it is read, the scan of it, and what releases it."""
        spark, execution = frame.sparkSession, frame._jdf.queryExecution()  # noqa: SLF001 - see above
        level = spark.sparkContext._getJavaStorageLevel(_LEVEL)  # noqa: SLF001
        sql: Any = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr] # noqa: SLF001
        nameless = spark._jvm.scala.Option.empty()  # type: ignore[union-attr] # noqa: SLF001
        relation = _companion(sql.execution.columnar, "InMemoryRelation")
        cached = relation.apply(level, execution, nameless)
        batches = cached.cacheBuilder().cachedColumnBuffers()
        of = sql.classic.Dataset.ofRows
        with _released_on_failure(batches.unpersist):
            batches.localCheckpoint()
            scan = of(spark._jsparkSession, cached)  # noqa: SLF001
            rows = _companion(sql.execution, "LogicalRDD").fromDataset(
                scan.queryExecution().toRdd(), scan, False
            )
            kept = DataFrame(of(spark._jsparkSession, rows), spark)  # noqa: SLF001
        return kept, scan, batches.unpersist

    def keep_and_measure(
        self, frame: DataFrame, measures: Mapping[str, Column]
    ) -> tuple[DataFrame, Callable[[bool], object], dict[str, Any]]:
        """Do as `keep`, and return aggregates of the rows, by name, which its job computes too."""
        named = [column.alias(name) for name, column in measures.items()]
        watched = frame.observe(_MEASURES, *named)
        kept, release = self.keep(watched)
        with _released_on_failure(release):
            # Observation.get never returns if Spark's listeners lose its event
            execution: Any = watched._jdf.queryExecution()  # noqa: SLF001 - so its source is asked
            row = execution.observedMetrics().apply(_MEASURES)
            return kept, release, {name: row.get(at) for at, name in enumerate(measures)}

    def parallelism(self) -> int:
        """Return how many tasks run at once, about."""
        return self.spark.sparkContext.defaultParallelism

    def executors(self) -> int:
        """Return the number of executors; a local driver is one."""
        context: Any = self.spark.sparkContext._jsc  # noqa: SLF001 - pyspark does not tell
        others = int(context.sc().getExecutorMemoryStatus().size()) - 1
        return 1 if self.is_local() else others

    def alive(self) -> bool:
        """Whether neither Python nor the JVM has stopped the session."""
        context: Any = self.spark.sparkContext._jsc  # noqa: SLF001 - pyspark has no public word
        if context is None:
            return False
        try:
            return not context.sc().isStopped()
        except Exception:  # noqa: BLE001 - the JVM is gone
            return False

    def again(self) -> ClassicSession:
        """Return the session itself: a driver that has ended has no other one."""
        return self

    def end(self) -> None:
        """Leave the session open: its driver has begun it."""

    @contextmanager
    def tagged(self, tag: str, description: str) -> Iterator[None]:
        """Run this thread's Spark jobs in their own job group and pool."""
        context = self.spark.sparkContext
        before = {name: context.getLocalProperty(name) for name in (*_OF_A_GROUP, _POOL)}
        context.setJobGroup(tag, description, interruptOnCancel=True)
        context.setLocalProperty(_POOL, POOL)
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type] # None takes it away

    def cancel(self, tag: str) -> None:
        """End the Spark jobs with a tag, from any thread."""
        self.spark.sparkContext.cancelJobGroup(tag)

    def tasks(self, tag: str) -> tuple[int, int]:
        """Return how many tasks of the running stages with a tag are done, and their number."""
        tracker, done, tasks = self.spark.sparkContext.statusTracker(), 0, 0
        for job_id in tracker.getJobIdsForGroup(tag):
            info = tracker.getJobInfo(job_id)
            for stage_id in info.stageIds if info and info.status == "RUNNING" else ():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done, tasks = done + stage.numCompletedTasks, tasks + stage.numTasks
        return done, tasks

    def add_python(self, path: str) -> None:
        """Give tasks a zip of Python modules; those that executors have count less."""
        from pyspark import SparkFiles  # noqa: PLC0415 - needs a context

        self.spark.sparkContext.addPyFile(path)
        copy = os.path.join(SparkFiles.getRootDirectory(), os.path.basename(path))
        while copy in sys.path:  # this process has them already
            sys.path.remove(copy)

    def share(self, value: Any) -> Any:  # noqa: ANN401 - tasks read anything
        """Return a value for tasks, as an attribute `value`: each executor fetches it once."""
        return self.spark.sparkContext.broadcast(value)


@contextmanager
def _released_on_failure(release: Callable[[bool], object]) -> Iterator[None]:
    """Release rows when the block fails or is interrupted: no one else could then."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the JVM may be gone, and its rows with it
            release(False)  # its tasks may still read them
        raise


def _companion(package: Any, name: str) -> Any:  # noqa: ANN401 - of the JVM
    """Return the companion object of a Scala class."""
    return getattr(getattr(package, name + "$"), "MODULE$")
