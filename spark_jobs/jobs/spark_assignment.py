"""Assign tables on Spark: find, read, assign with DataFrames, write in one commit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from assignors import GroupSpec, PartitionRanges, SpecError, Verdict, quality
from assignors.groups.assign_groups import GROUPS_SCHEMA, GroupsAssignment
from assignors.groups.group_tables import GROUP_ID
from assignors.parse_tables import LOAD_COLUMNS
from assignors.registry import require_spark_twin
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.display import progress
from coordinator.extras import require
from coordinator.storage.tables.shared_table import (
    check_replaceable_by_url,
)
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_io import TableRef
from coordinator.table_jobs.assignment_job import AssignmentJob, AssignmentResult
from coordinator.table_jobs.inputs import name_of_table
from coordinator.table_jobs.outputs import is_delta_output, refuse_folder
from coordinator.table_jobs.runs import Run
from spark_jobs.jobs.read_tables import read_frame, unreadable_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.assignors.frame_assignment import FrameAssignment
    from spark_jobs.assignors.groups import FrameGroups


_READABLE = 0o644
COLUMNS = ("member_id", "topic", "first_partition", "partition_count")


class SparkAssignment:
    """Runs jobs on tables with Spark. The first job imports pyspark."""

    @contextmanager
    def find_tables(self, job: AssignmentJob) -> Iterator[AssignmentJob]:
        """Resolve the tables that only Spark can find. They stay readable inside the block.

        Raises
        ------
        SpecError
            A table does not exist, or a run may not replace the output.
        """
        require("a table of Spark's catalog", "spark")
        from spark_jobs.jobs.catalog_output import find_output, is_content  # noqa: PLC0415 - others never import pyspark
        from spark_jobs.jobs.spark_tables import find_tables  # noqa: PLC0415 - the same

        name = name_of_table(job.output) if job.output is not None else None
        ends = _is_begun_here()
        with _open_session() as spark:
            table = find_output(spark, name, session_ends=ends) if name is not None else None
            with find_tables(spark, job.inputs()) as tables:
                if table is not None and is_content(job.previous, tables.get("previous"), table):
                    tables["previous"] = None
                yield replace(job, table=table, **tables)

    def assign(self, job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:
        """Run a job. Its inputs must be pinned, and its output locked.

        Raises
        ------
        SpecError
            Bad input, or an output that Spark cannot replace. Nothing was written.
        """
        require("assigning on Spark", "spark")
        from spark_jobs.session.cluster import await_executors, try_again_if_lost  # noqa: PLC0415 - as above
        from spark_jobs.session.object_store import reach_store  # noqa: PLC0415 - the same
        from spark_jobs.session.session import active_tasks  # noqa: PLC0415 - the same

        if job.output is not None and not is_delta_output(job.output):
            refuse_folder(job.output)
        with _open_session() as spark, progress.task("tasks of Spark's stages", poll=active_tasks):
            if job.output is not None and is_remote(job.output):
                reach_store(spark, job.output)
                check_replaceable_by_url(job.output)
            await_executors(spark, config.engine.timeout_ms / 1000)
            _check_seen(spark, job)
            with unreadable_named(job.by_option()):
                return try_again_if_lost(lambda: _assign_on_spark(spark, job, config, run))


def _is_begun_here() -> bool:
    """Whether the command begins a session, which ends with it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    from spark_jobs.session.session import CONNECT_MODE  # noqa: PLC0415 - the same

    # a session of Spark Connect is active in the thread that made it only
    return SparkSession.getActiveSession() is None and CONNECT_MODE not in os.environ


@contextmanager
def _open_session() -> Iterator[SparkSession]:
    """Yield the running session, or start one for the block."""
    from spark_jobs.session.session import scratch_warehouse, spark_session  # noqa: PLC0415

    started = _is_begun_here()
    with progress.task("starting Spark"):
        spark = spark_session(conf=scratch_warehouse())
    try:
        yield spark
    finally:
        if started:
            spark.stop()


def _check_seen(spark: SparkSession, job: AssignmentJob) -> None:
    """Refuse files of this machine that executors do not see, by name."""
    from spark_jobs.session.cluster import check_seen  # noqa: PLC0415 - as above
    from spark_jobs.session.kinds import kind_of  # noqa: PLC0415 - the same

    if kind_of(spark).is_local():
        return
    tables = (job.members, job.topics, job.owned, job.previous, job.partitions, job.constraints)
    files = [table.some_file() for table in tables if isinstance(table, TableRef)]
    if job.output is None or job.table is not None or is_remote(job.output):
        check_seen(spark, files)
        return
    folder = os.path.dirname(os.path.abspath(job.output))
    # Spark passes over files that are empty, or whose names begin with an underscore
    with tempfile.NamedTemporaryFile(dir=folder, prefix="muster-", suffix=".probe") as probe:
        probe.write(b"seen")
        probe.flush()
        os.chmod(probe.name, _READABLE)  # executors may be another user's
        check_seen(spark, [*files, probe.name])


@dataclass(frozen=True, slots=True)
class _Assigned:
    """What Spark has assigned: one group, as frames or in one task, or many.

    Attributes
    ----------
    complete
        Adds what the driver can hold: the report of one group, or the rows of many.
    """

    found: FrameAssignment | FrameGroups
    members: int
    totals: dict[str, Any]
    complete: Callable[[AssignmentResult], AssignmentResult]


def _assign_on_spark(
    spark: SparkSession, job: AssignmentJob, config: Config, run: Run
) -> AssignmentResult:
    """Read, drop what no longer exists, assign, report and write: one way for all tables."""
    tables, forgotten = _read_tables(spark, job), 0
    if job.owned is None and job.previous is not None:
        tables["owned"], forgotten = _read_previous(spark, job, tables)
    assigned = _find_way(job, tables)(spark, job, config, tables)
    job.safeguards.check_members(assigned.members)
    done = AssignmentResult("spark", run.run_id, forgotten=forgotten, totals=assigned.totals)
    return _write_result(spark, job, run, assigned.complete(done), assigned.found)


def _find_way(
    job: AssignmentJob, tables: Mapping[str, DataFrame]
) -> Callable[[SparkSession, AssignmentJob, Config, dict[str, DataFrame]], _Assigned]:
    """Choose how to assign, by what the tables and the options hold."""
    from spark_jobs.assignors.dispatch import load_twin  # noqa: PLC0415 - as above
    from spark_jobs.assignors.twin import Twin  # noqa: PLC0415 - the same

    columns = tables["members"].columns
    if GROUP_ID in columns:
        return _assign_groups
    loads = not {*LOAD_COLUMNS}.isdisjoint(columns) or "partitions" in tables
    frames = isinstance(load_twin(job.options.assignor), Twin) and not job.options.weighted
    return _assign_frames if frames and not loads and "constraints" not in tables else _assign_whole


def _assign_frames(
    spark: SparkSession, job: AssignmentJob, config: Config, tables: dict[str, DataFrame]
) -> _Assigned:
    """Assign a group of any size with DataFrames."""
    from spark_jobs.assignors.dispatch import assign_frames  # noqa: PLC0415

    found = assign_frames(
        spark, job.options.assignor, tables["members"], tables["topics"], tables.get("owned"),
        driver_rows=config.engine.driver_rows, **job.options.arguments(),
    )  # fmt: skip
    most = config.report.rows_max

    def complete(done: AssignmentResult) -> AssignmentResult:
        if found.held is not None:  # nothing has to be read again
            group, ranges = found.held
            fits = found.members + len(ranges) <= most
            return _report_on(done, group, ranges) if fits else done
        if found.members > most or found.members + found.rows.count() > most:
            return done
        return _add_report(done, found.rows, found.verdict, tables)

    return _Assigned(found, found.members, found.totals(), complete)


def _assign_groups(
    spark: SparkSession, job: AssignmentJob, config: Config, tables: dict[str, DataFrame]
) -> _Assigned:
    """Assign the groups of the tables, each by itself, in one job."""
    from spark_jobs.assignors.groups import assign_groups  # noqa: PLC0415

    found = assign_groups(
        spark, job.options.assignor, tables, job.options.arguments(), as_of_ms=wall_ms(),
        check_empty=job.safeguards.check_groups,
    )  # fmt: skip
    summary = found.summary

    def complete(done: AssignmentResult) -> AssignmentResult:
        rows = None
        if int(pc.sum(summary["ranges"]).as_py() or 0) <= config.report.rows_max:
            order = [(name, "ascending") for name in (GROUP_ID, *COLUMNS)]
            rows = found.rows.toArrow().cast(GROUPS_SCHEMA).sort_by(order)
        return replace(done, groups=GroupsAssignment(rows, summary))

    return _Assigned(found, int(pc.sum(summary["members"]).as_py() or 0), found.totals(), complete)


def _assign_whole(
    spark: SparkSession, job: AssignmentJob, config: Config, tables: dict[str, DataFrame]
) -> _Assigned:
    """Assign a group with weights or constraints: one task does it."""
    from spark_jobs.assignors.dispatch import load_group_twin  # noqa: PLC0415

    options, now = job.options, wall_ms()
    assign_group = load_group_twin(options.assignor)
    found = assign_group(spark, options.assignor, tables, options.arguments(), as_of_ms=now)
    summary = found.summary.to_pylist()
    row: dict[str, Any] = summary[0] if summary else {"members": 0, "partitions": 0}

    def complete(done: AssignmentResult) -> AssignmentResult:
        if row["members"] + row["partitions"] > config.report.rows_max:
            return done
        verdict = Verdict(
            row.get("partial", False), row.get("moved_minimum"), row.get("exact", True)
        )
        return _add_report(done, found.rows, verdict, tables, as_of_ms=now)

    totals = {name: it for name, it in found.totals().items() if name != "groups"}
    return _Assigned(found, row["members"], totals, complete)


def _read_tables(spark: SparkSession, job: AssignmentJob) -> dict[str, DataFrame]:
    """Return the tables of a job by their names, `previous` not among them."""
    names = ("members", "topics", "owned", "partitions", "constraints")
    return {name: _read(spark, job, name) for name in names if getattr(job, name) is not None}


def _read_previous(
    spark: SparkSession, job: AssignmentJob, tables: Mapping[str, DataFrame]
) -> tuple[DataFrame, int]:
    """Return what is left of the previous assignment, and how many partitions no longer exist."""
    from spark_jobs.assignors.groups import refuse_one_group  # noqa: PLC0415
    from spark_jobs.session.schemas import check_previous  # noqa: PLC0415

    previous, topics = _read(spark, job, "previous"), tables["topics"]
    if GROUP_ID not in tables["members"].columns:
        previous = check_previous(previous, job.previous_name)
        return _forget_frames(job, previous, topics)
    refuse_one_group(previous, job.previous_name)
    keys = [name for name in (GROUP_ID, "topic") if name in topics.columns]
    return _forget_frames(job, previous, topics, keys)


def _read(spark: SparkSession, job: AssignmentJob, name: str) -> DataFrame:
    """Return the rows of one of the job's tables, which must be there."""
    return read_frame(spark, getattr(job, name), job.option_of(name))


def _add_report(
    done: AssignmentResult,
    rows: DataFrame,
    verdict: Verdict,
    tables: Mapping[str, DataFrame | None],
    *,
    as_of_ms: int | None = None,
) -> AssignmentResult:
    """Add the report of the local engine to a result that fits the driver."""
    given = {name: frame.toArrow() for name, frame in tables.items() if frame is not None}
    group = GroupSpec.from_arrow(
        given["members"], given["topics"], given.get("owned"),
        partitions=given.get("partitions"), constraints=given.get("constraints"),
        as_of_ms=as_of_ms,
    )  # fmt: skip
    found = PartitionRanges.from_arrow(group.member_ids, group.topics, rows.toArrow())
    return _report_on(done, group, replace(found, verdict=verdict))


def _report_on(
    done: AssignmentResult, group: GroupSpec, ranges: PartitionRanges
) -> AssignmentResult:
    report = quality.report(group, ranges)
    return replace(done, group=group, ranges=ranges, report=report, totals=report.totals())


def assign_group(group: GroupSpec, options: AssignorOptions) -> PartitionRanges:
    """Assign a group in the driver's memory with DataFrames, to compare with the local engine.

    Raises
    ------
    SpecError
        The assignor has no twin on DataFrames.
    """
    require_spark_twin(options.assignor)
    from spark_jobs.assignors.dispatch import load_twin  # noqa: PLC0415
    from spark_jobs.assignors.twin import Twin  # noqa: PLC0415
    from spark_jobs.session.schemas import frame_of  # noqa: PLC0415
    from spark_jobs.session.session import scratch_warehouse, spark_session  # noqa: PLC0415

    twin = load_twin(options.assignor)
    if not isinstance(twin, Twin):
        raise SpecError(
            f"assignor {options.assignor!r} assigns tables on Spark, and this is a spec: give "
            "--members and --topics, or use --engine local"
        )
    spark = spark_session(conf=scratch_warehouse())
    members, topics, owned = (frame_of(spark, table) for table in group.to_arrow())
    assigned = twin.assign(spark, members, topics, owned, driver_rows=0, **options.arguments())
    rows = assigned.rows.toArrow()
    ranges = PartitionRanges.from_arrow(group.member_ids, group.topics, rows)
    return replace(ranges, verdict=assigned.verdict)


def _forget_frames(
    job: AssignmentJob, previous: DataFrame, topics: DataFrame, keys: Sequence[str] = ("topic",)
) -> tuple[DataFrame, int]:
    """Do the same as `forget` with DataFrames; refuse it if that is more than the job allows."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    from spark_jobs.session.schemas import select_topics  # noqa: PLC0415

    if len(keys) == 1:
        counts = F.broadcast(select_topics(topics))
    else:
        counts = topics.select(*keys, F.col("partitions").cast("long"))
    left = F.greatest(
        F.least(
            F.coalesce("partitions", F.lit(0)) - F.col("first_partition"), F.col("partition_count")
        ),
        F.lit(0),
    )
    rows = previous.join(counts, list(keys), "left").withColumn("left", left)
    total, found = rows.agg(F.sum("partition_count"), F.sum("left")).collect()[0]
    kept = rows.where("left > 0").select(
        *[name for name in previous.columns if name != "partition_count"],
        F.col("left").alias("partition_count"),
    )
    forgotten = int((total or 0) - (found or 0))
    job.safeguards.check_forgotten(forgotten, int(total or 0))
    return kept, forgotten


def _write_result(
    spark: Any,  # noqa: ANN401
    job: AssignmentJob,
    run: Run,
    done: AssignmentResult,
    found: FrameAssignment | FrameGroups,
) -> AssignmentResult:
    """Write the rows, where the job has an output, and count what is there then."""
    from spark_jobs.jobs.catalog_output import CatalogOutput  # noqa: PLC0415 - as above
    from spark_jobs.jobs.write_tables import write_rows  # noqa: PLC0415 - the same

    if job.output is None:
        return done
    order = (GROUP_ID, *COLUMNS) if done.groups else COLUMNS
    kept = done.record_in(run)
    if job.table is not None:
        assert isinstance(job.table, CatalogOutput)
        version = job.table.replace_rows(found.rows, order, job.output_version, kept)
        written = job.table.content(version).frame
    else:
        made = write_rows(found.rows, order, job, kept)
        if made is None:  # a file that no other run could write
            return done
        version = made
        written = read_frame(spark, TableRef(job.output, version, delta=True), "--output")
    _check_written(written, found.partitions, job.output)
    return replace(done, version=version)


def _check_written(rows: DataFrame, partitions: int, output: str) -> None:
    """Count what was written, to detect another writer of the same table."""
    found = rows.selectExpr("sum(partition_count)").collect()[0][0] or 0
    if found != partitions:
        raise RuntimeError(
            f"{output} has {found} partitions, but {partitions} were written: "
            "check whether another program writes this table, and run again"
        )
