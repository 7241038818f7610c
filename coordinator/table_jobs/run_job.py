"""Run a job on tables, on either engine: check, pin, lock, assign, replace the output.

Nightly runs are safe to repeat. Inputs are pinned to a version, and the output is locked; on object
storage the commit fails instead if another run was faster. One atomic Delta commit with the run id
replaces the output, so a run that fails or is killed leaves the old content.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Protocol

from deltalake import DeltaTable

from assignors import Assignor, SpecError
from assignors.groups.group_tables import GROUP_ID
from assignors.registry import knows_loads, require_spark_twin, spark_twin_of
from coordinator.config import Config
from coordinator.engines.cost_model import GroupSize, choose_engine
from coordinator.storage.tables.shared_table import NONE, find_version
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_io import table_lock
from coordinator.table_jobs.assignment_job import AssignmentJob, AssignmentResult
from coordinator.table_jobs.inputs import SparkName, local_table, name_of_table
from coordinator.table_jobs.local_engine import assign_locally
from coordinator.table_jobs.outputs import find_output, is_delta_output, see_output
from coordinator.table_jobs.runs import Run


class TableEngine(Protocol):
    """An engine outside this process that runs jobs on tables, such as Spark."""

    def find_tables(self, job: AssignmentJob) -> AbstractContextManager[AssignmentJob]:
        """Resolve the tables that only Spark can find. They stay readable inside the block."""

    def assign(self, job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:
        """Run a job. Its inputs are pinned, and its output is locked."""


def run_job(
    job: AssignmentJob, config: Config, spark: TableEngine | None = None
) -> AssignmentResult:
    """Run a job.

    Parameters
    ----------
    spark
        Runs the job if it asks for Spark, or if Spark is faster. None runs every job here.

    Raises
    ------
    SpecError
        Bad input. Nothing was written.
    BusyError
        Another run has locked the output.
    """
    if job.engine == "spark" and spark is None:
        raise SpecError("Spark is not available here: use --engine local")
    if job.engine == "spark" and job.changes is not None:
        raise SpecError("--changes are planned in process: use --engine local, or give new tables")
    assignor = job.options.make_assignor()
    if job.output is not None and name_of_table(job.output) is None:
        job = replace(job, output=find_output(job.output))
    job.check_output()
    with _find_tables(job, spark) as found:
        return _run_locked(found, config, assignor, spark)


@contextmanager
def _find_tables(job: AssignmentJob, spark: TableEngine | None) -> Iterator[AssignmentJob]:
    """Resolve the tables that only Spark can find, before anything is locked or written."""
    if spark is None or not job.needs_catalog():
        yield job
        return
    with spark.find_tables(job) as found:
        found.check_output()  # again, now that the paths of all inputs are known
        yield found


def _run_locked(
    job: AssignmentJob, config: Config, assignor: Assignor, spark: TableEngine | None
) -> AssignmentResult:
    run_id = job.run_id or str(uuid.uuid4())
    with _hold_output(job) as held:
        job = held.pin_inputs()
        run = Run(run_id, job.describe(), {})
        before = job.find_run(run_id)
        if before is not None and job.output is not None:
            before.check_asked(run.asked, job.output)
            return AssignmentResult.of(before)
        job = job.find_previous()
        if spark is None or _choose_engine(job, config) == "local":
            return assign_locally(job, assignor, run)
        return spark.assign(job, config, run)


@contextmanager
def _hold_output(job: AssignmentJob) -> Iterator[AssignmentJob]:
    """Keep other runs from replacing the output: by a lock, or by the version that is seen here."""
    if job.output is None:
        yield job
    elif job.table is not None:
        with job.table.hold() as version:
            yield replace(job, output_version=version)
    elif is_remote(job.output):
        yield replace(job, output_version=see_output(job.output))
    else:
        with table_lock(job.output):
            there = is_delta_output(job.output) and DeltaTable.is_deltatable(job.output)
            yield replace(job, output_version=find_version(job.output) if there else NONE)


def _choose_engine(job: AssignmentJob, config: Config) -> str:
    """Choose where to compute.

    Raises
    ------
    SpecError
        The job asks for Spark, which does not have the assignor.
    """
    many = not isinstance(job.members, SparkName) and GROUP_ID in job.members.columns()
    if many and job.engine != "auto":
        return job.engine
    assignor = job.options.assignor
    weighted = knows_loads(assignor) or bool(job.options.weighted)
    whole = weighted or bool(job.partitions or job.constraints)
    if job.engine == "spark":
        require_spark_twin(assignor)
    if job.engine != "auto":
        return job.engine
    if job.changes is not None:
        return "local"
    if not many and spark_twin_of(assignor) is None:
        return "local"
    previous = job.owned or job.previous
    rows = local_table(previous, "--previous").rows() if previous else 0
    size = GroupSize(local_table(job.members, "--members").rows(), 1, rows)
    return choose_engine(config, "auto", size, whole=whole, tables=True)
