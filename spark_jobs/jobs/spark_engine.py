"""The coordinator's engine for very large groups: computes their targets on Spark.

It works on the SparkContext of the driver that embeds the coordinator, beside the driver's other
jobs. Each computation has its own session and job group, so that it can be cancelled, and its own
pool if the scheduler is fair. With Spark Connect it has a tag, in the session that was given. The
coordinator finds the engine by the entry point `muster.engines`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assignors import PartitionRanges, assignor_names
from assignors.registry import spark_twin_of
from coordinator.config import Config
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.core.targets.compute_here import compute_ranges
from coordinator.display import progress
from coordinator.engines.cost_model import GroupSize, fits_memory
from coordinator.engines.engine import Engine
from coordinator.engines.stored_target import read_stored_target
from coordinator.engines.write_target import compute_and_write
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.texts import gist
from coordinator.extras import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.session.kinds import SessionKind

logger = logging.getLogger("muster.spark")


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """The progress of a computation.

    Attributes
    ----------
    stage
        assigning, sorting, writing, loading.
    rows
        The number of rows in the stage; 0 if it is not known yet.
    tasks_done, tasks
        Of Spark's running stages.
    """

    group_id: str
    stage: str
    rows: int
    tasks_done: int
    tasks: int
    seconds: float

    def __str__(self) -> str:
        rows = f" {self.rows:,} rows" if self.rows else ""
        tasks = f", {self.tasks_done} of {self.tasks} tasks" if self.tasks else ""
        return f"{self.group_id}: {self.stage}{rows}{tasks}, {self.seconds:.0f} s"


@dataclass(slots=True, eq=False)
class _Computation:
    """A running computation; `planned` is one that is not installed: of a plan."""

    group_id: str
    tag: str
    planned: bool
    began: float
    stage: str = "waiting"
    rows: int = 0
    given_up: bool = False


class SparkEngine(Engine):
    """Computes targets on Spark, several groups at once.

    Parameters
    ----------
    spark
        The driver's session; None uses the active one, or starts one.
    config
        The coordinator's settings.

    Raises
    ------
    MissingExtraError
        `muster[spark]` is not installed.
    """

    at_once = 4

    def __init__(self, spark: SparkSession | None = None, config: Config | None = None) -> None:
        require("the engine spark", "spark")
        self._spark = spark
        self._config = config or Config()
        self._lock = threading.Condition()
        self._here = threading.Lock()
        """Held while a group is assigned in this process: each may take `engine.local_mib_max`."""
        self._runs: list[_Computation] = []
        self._kind: SessionKind | None = None

    @property
    def assignors(self) -> Container[str]:
        """The assignors that declare a twin on Spark."""
        return [name for name in assignor_names() if spark_twin_of(name) is not None]

    def compute(self, basis: Basis) -> TargetCandidate:
        """Compute a target: the rows of a computation are written, read back and checked."""
        from spark_jobs.session.cluster import await_executors, try_again_if_lost  # noqa: PLC0415 - imports pyspark

        store = _store_of(basis) if basis.computation_id else None
        here = self._fits_here(basis)
        tag = basis.computation_id or f"plan-{uuid.uuid4()}"
        run = _Computation(basis.group_id, tag, store is None, time.monotonic())
        with self._lock:
            self._runs.append(run)
        try:
            if here:
                return self._compute_here(basis, run)
            kind, description = self._session(), f"Muster: the target of {run.group_id}"
            with kind.tagged(run.tag, description), _failures_in_one_line():
                await_executors(kind.spark, self._config.engine.timeout_ms / 1000, run.tag)
                if store is None:
                    return try_again_if_lost(lambda: self._return_ranges(kind.spark, basis))
                return try_again_if_lost(lambda: self._store_rows(kind.spark, basis, store, run))
        finally:
            with self._lock:
                self._runs.remove(run)
                self._lock.notify_all()

    def _fits_here(self, basis: Basis) -> bool:
        """Tell whether a group, which is in this process, is assigned here too.

        To send it to Spark and to read it back takes several times as long as to assign it.
        """
        from spark_jobs.assignors.dispatch import load_twin  # noqa: PLC0415 - imports pyspark
        from spark_jobs.assignors.twin import Twin  # noqa: PLC0415 - the same

        found, most = basis.input, self._config.engine.driver_rows
        twin = load_twin(basis.options.assignor)
        if not most or not isinstance(twin, Twin):
            return False
        if twin.owners_of_each_topic and len(found.metas) * len(found.topics) > most:
            return False
        size = GroupSize(len(found.metas), basis.classes, found.targets.rows())
        return fits_memory(self._config, size, whole=True)

    def _compute_here(self, basis: Basis, run: _Computation) -> TargetCandidate:
        """Assign a group in this process; the rows of a computation are written."""
        with self._here:
            if not basis.computation_id:
                return compute_ranges(basis)
            target = compute_and_write(basis, self._config, self._say(run))
        self._log_done(run, target)
        return target

    def _return_ranges(self, spark: SparkSession, basis: Basis) -> TargetCandidate:
        """Assign a group, and return what the rows on Spark say."""
        from spark_jobs.jobs.group_frames import assign_on_spark  # noqa: PLC0415 - imports pyspark
        from spark_jobs.session.session import active_tasks  # noqa: PLC0415 - the same

        names = basis.input.spec()
        with progress.task("tasks of Spark's stages", poll=active_tasks):
            frame, _, target = assign_on_spark(spark, basis, self._config)
            rows = frame.toArrow()
        ranges = PartitionRanges.from_arrow(names.member_ids, names.topics, rows)
        return replace(target, ranges=ranges)

    def _store_rows(
        self, spark: SparkSession, basis: Basis, store: str, run: _Computation
    ) -> TargetCandidate:
        """Write the rows of a target to the store, read them back, and check them."""
        from spark_jobs.jobs.target_job import compute_on_spark  # noqa: PLC0415 - imports pyspark

        target = compute_on_spark(spark, basis, self._config, self._say(run))
        stored = target.stored
        assert stored is not None
        self._say(run)("loading", stored.ranges)
        target = read_stored_target(store, target, basis.input)
        self._log_done(run, target)
        return target

    @staticmethod
    def _log_done(run: _Computation, target: TargetCandidate) -> None:
        assert target.stored is not None
        logger.info(
            "%s: %d ranges of %d members in %.1f s", run.group_id, target.stored.ranges,
            target.stored.members, time.monotonic() - run.began,
        )  # fmt: skip

    def cancel(self, group_id: str) -> None:
        """Cancel the computation for a group: its Spark jobs end, and no more are started."""
        with self._lock:
            runs = [run for run in self._runs if run.group_id == group_id and not run.planned]
        for run in runs:
            self._give_up(run)

    def _give_up(self, run: _Computation) -> None:
        run.given_up = True
        try:
            if self._kind is not None:
                self._kind.cancel(run.tag)
        except Exception as error:  # noqa: BLE001 - a session that is gone has no jobs left
            logger.warning("the Spark jobs of %s cannot be cancelled: %s", run.group_id, error)

    def progress(self) -> list[SparkProgress]:
        """Return the progress of each running computation."""
        with self._lock:
            runs = [run for run in self._runs if not run.planned]
        return [self._progress(run) for run in runs]

    def close(self) -> None:
        """Cancel all computations. The session that was given stays open."""
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            self._give_up(run)
        with self._lock:
            self._lock.wait_for(lambda: not self._runs)
        if self._kind is not None:
            self._kind.end()

    def _session(self) -> SessionKind:
        """Return the session; another one when a Connect server was started again."""
        from spark_jobs.session.kinds import kind_of  # noqa: PLC0415 - imports pyspark
        from spark_jobs.session.session import spark_session  # noqa: PLC0415 - starts a JVM

        with self._lock:
            if self._kind is None:
                self._kind = kind_of(self._spark or spark_session())
            elif not self._kind.alive():
                self._kind = self._kind.again()
            return self._kind

    def _say(self, run: _Computation) -> Callable[[str, int], None]:
        def say(stage: str, rows: int) -> None:
            if run.given_up:
                raise RuntimeError("given up")
            run.stage, run.rows = stage, rows
            logger.info("%s", self._progress(run))

        return say

    def _progress(self, run: _Computation) -> SparkProgress:
        done, tasks = (0, 0) if self._kind is None else self._kind.tasks(run.tag)
        seconds = time.monotonic() - run.began
        return SparkProgress(run.group_id, run.stage, run.rows, done, tasks, seconds)


def _store_of(basis: Basis) -> str:
    if basis.store is None:
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Spark writes targets to a store, but this coordinator has none: open it with one.",
        )
    return basis.store


@contextmanager
def _failures_in_one_line() -> Iterator[None]:
    """Shorten Spark's errors to the failure and its cause."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the same

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise RuntimeError(gist(error)) from error
