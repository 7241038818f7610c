"""Do a job on tables, on either engine: check, pin, lock, assign, replace the output whole.

What makes it fit for every night: inputs are pinned to a version, the output's lock is held, all of
the output is one atomic Delta commit that carries the run id, and a run that fails or is killed
leaves the old content.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from assignors import Assignor, SpecError
from coordinator.assign.assignment_job import AssignmentJob, AssignmentResult
from coordinator.assign.inputs import local_table
from coordinator.assign.local_engine import assign_locally
from coordinator.assign.runs import Run, find_run
from coordinator.compute.cost_model import GroupSize, choose_engine
from coordinator.config import Config
from coordinator.storage.tables.table_io import table_lock


class TableEngine(Protocol):
    """An engine outside of this process, which does jobs on tables: Spark."""

    @property
    def assignors(self) -> Container[str]:
        """The assignors that it has."""

    def find_tables(self, job: AssignmentJob) -> AbstractContextManager[AssignmentJob]:
        """Find the tables that only Spark finds; they stay readable for the block."""

    def assign(self, job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:
        """Do a job; its inputs are pinned, its output is locked."""


def run_job(
    job: AssignmentJob, config: Config, spark: TableEngine | None = None
) -> AssignmentResult:
    """Do a job.

    Parameters
    ----------
    spark
        Does it where the job asks for Spark, or Spark is faster; None: this process does all.

    Raises
    ------
    SpecError
        Bad input; nothing was written.
    BusyError
        Another run holds the output.
    """
    if job.engine == "spark" and spark is None:
        raise SpecError("there is no Spark here: use --engine local")
    assignor = job.options.make_assignor(config)
    job.check_output()
    with _find_tables(job, spark) as found:
        return _run_locked(found, config, assignor, spark)


@contextmanager
def _find_tables(job: AssignmentJob, spark: TableEngine | None) -> Iterator[AssignmentJob]:
    """Find the tables that only Spark finds, before anything is locked or written."""
    if spark is None or not job.needs_catalog():
        yield job
        return
    with spark.find_tables(job) as found:
        found.check_output()  # now it is known where they are
        yield found


def _run_locked(
    job: AssignmentJob, config: Config, assignor: Assignor, spark: TableEngine | None
) -> AssignmentResult:
    run_id = job.run_id or str(uuid.uuid4())
    with table_lock(job.output) if job.output is not None else nullcontext():
        job = job.pin_inputs()
        run = Run(run_id, job.describe(), {})
        before = find_run(job.output, run_id) if job.output is not None else None
        if before is not None and job.output is not None:
            before.check_asked(run.asked, job.output)
            return AssignmentResult.of(before)
        job = job.find_previous()
        if spark is None or _choose_engine(job, config, spark) == "local":
            return assign_locally(job, assignor, run)
        return spark.assign(job, config, run)


def _choose_engine(job: AssignmentJob, config: Config, spark: TableEngine) -> str:
    """Choose where to compute.

    Raises
    ------
    SpecError
        Spark is asked for an assignor that it does not have.
    """
    if job.partitions is not None or job.constraints is not None:
        if job.engine == "spark":
            raise SpecError(
                "--partitions and --constraints are read in process: use --engine local"
            )
        return "local"
    has_twin = job.options.assignor in spark.assignors
    if job.engine == "spark" and not has_twin:
        raise SpecError(f"assignor {job.options.assignor!r} has no Spark form: use --engine local")
    if job.engine != "auto":
        return job.engine
    if not has_twin:
        return "local"
    previous = job.owned or job.previous
    rows = local_table(previous, "--previous").rows() if previous else 0
    size = GroupSize(local_table(job.members, "--members").rows(), 1, rows)
    return choose_engine(config, "auto", size)
