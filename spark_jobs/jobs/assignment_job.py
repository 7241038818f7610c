"""The assignment job on tables: read, assign on either engine, replace the output whole.

What makes it fit for every night: inputs are pinned to a version, the output's lock is held, all of
the output is one atomic Delta commit that carries the run id, and a run that fails or is killed
leaves the old content.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec, PartitionRanges, SpecError, get_assignor, quality
from assignors.parse_tables import parse_owned_table, parse_topics_table
from assignors.quality import Report
from coordinator import progress
from coordinator.assign.inputs import Input, SparkName, SparkTable, local_table, schema_of_name
from coordinator.assign.outputs import BESIDE, check_table_output, is_delta_output
from coordinator.assign.runs import KEY, Run, find_run, run_inputs
from coordinator.assign.safeguards import Safeguards
from coordinator.compute.cost_model import GroupSize, choose_engine
from coordinator.config import Config
from coordinator.storage.tables.object_store import is_url
from coordinator.storage.tables.table_io import (
    RUN_VERSION,
    TableRef,
    check_replaceable,
    replace_delta,
    replace_file,
    replace_text,
    table_lock,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.assignors.materialize import FrameAssignment

TWINS = ("range", "uniform", "sticky")
"""Assignors that also exist as DataFrame operations."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to assign: the assignor's name and what it takes."""

    assignor: str
    imbalance: str | None = None
    max_moves: int | None = None

    @classmethod
    def of_group(cls, assignor: str, settings: Mapping[str, str]) -> Self:
        """Return the options by a group's settings, which mean nothing to other assignors."""
        if assignor != "sticky":
            return cls(assignor)
        most = settings.get("consumer.assignor.max.moves")
        imbalance = settings.get("consumer.assignor.imbalance")
        return cls(assignor, imbalance, None if most is None else int(most))

    def given(self, config: Config) -> dict[str, Any]:
        """Return the assignor's options; only those that were given."""
        out: dict[str, Any] = {}
        if self.imbalance is not None:
            out["imbalance"] = self.imbalance
        if self.max_moves is not None:
            out["max_moves"] = self.max_moves
        if self.assignor in ("uniform", "sticky"):
            out["exact_edges"] = config.plan.exact_edges
        return out


@dataclass(frozen=True, slots=True)
class AssignmentJob:
    """What to read, how to assign, where to write.

    Attributes
    ----------
    members, topics
        Tables.
    owned
        What members say they own; it must fit the topics. Excludes `previous`.
    previous
        An earlier assignment; None for the output's current content, if there is any. What it says
        of topics or partitions that no longer exist is forgotten.
    output
        A Delta table's folder, or a Parquet file; None to write nothing.
    run_id
        The Delta application id of the commit; None for a new one.
    safeguards
        What must be allowed to be done.
    """

    members: Input
    topics: Input
    owned: Input | None
    previous: Input | None
    output: str | None
    options: Options
    engine: str
    run_id: str | None = None
    safeguards: Safeguards = field(default_factory=Safeguards)

    def inputs(self) -> dict[str, Any]:
        """Return the tables by the fields that name them."""
        fields = ("members", "topics", "owned", "previous")
        return {field: getattr(self, field) for field in fields}


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """What a job did.

    Attributes
    ----------
    engine, run_id
        Where it ran; under which id.
    version
        Version of the output's Delta table; None when that is none.
    already
        The run id had written before: nothing was done now.
    forgotten
        Previous partitions of topics or partitions that no longer exist.
    ranges, report
        The assignment with its judgement; None when it is too large for the driver.
    totals
        The judgement's totals, always.
    """

    engine: str
    run_id: str
    version: int | None = None
    already: bool = False
    forgotten: int = 0
    group: GroupSpec | None = None
    ranges: PartitionRanges | None = None
    report: Report | None = None
    totals: dict[str, Any] | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return what an earlier run of the same name did, as it said itself."""
        kept = run.summary
        return cls(
            kept.get("engine", ""), run.run_id, run.version, True, kept.get("forgotten", 0),
            totals=kept.get("totals"),
        )  # fmt: skip

    def recorded(self, run: Run) -> Run:
        """Return the run with what it did."""
        kept = {"engine": self.engine, "forgotten": self.forgotten, "totals": self.totals}
        return replace(run, summary=kept)


def run_job(job: AssignmentJob, config: Config) -> AssignmentResult:
    """Do a job.

    Raises
    ------
    SpecError
        Bad input; nothing was written.
    BusyError
        Another run holds the output.
    """
    get_assignor(job.options.assignor, **job.options.given(config))
    _check_output(job)
    with _find_tables(job) as job:  # noqa: PLR1704 - the same job, with what Spark found
        return _run_pinned(job, config)


@contextmanager
def _find_tables(job: AssignmentJob) -> Iterator[AssignmentJob]:
    """Find the tables that only Spark finds, before anything is locked or written."""
    names = any(isinstance(table, SparkName) for table in job.inputs().values())
    schema = None
    if job.engine == "spark" and job.output is not None:
        schema = schema_of_name(job.output)
    if not names and schema is None:
        yield job
        return
    from spark_jobs.jobs.spark_tables import check_no_table, find_tables  # noqa: PLC0415 - only Spark needs it

    with _open_session() as spark:
        if schema is not None and job.output is not None:
            check_no_table(spark, job.output, schema)
        with find_tables(spark, job.inputs()) as tables:
            job = replace(job, **tables)
            _check_output(job)
            yield job


def _run_pinned(job: AssignmentJob, config: Config) -> AssignmentResult:
    run_id = job.run_id or str(uuid.uuid4())
    with table_lock(job.output) if job.output is not None else nullcontext():
        job = _pin_inputs(job)
        run = Run(run_id, run_inputs(job), {})
        before = find_run(job.output, run_id) if job.output is not None else None
        if before is not None and job.output is not None:
            before.check_asked(run.asked, job.output)
            return AssignmentResult.of(before)
        job = replace(job, previous=_find_previous(job))
        engine = _choose_engine(job, config)
        return (_run_local if engine == "local" else _run_spark)(job, config, run)


def _check_output(job: AssignmentJob) -> None:
    if job.output is None:
        return
    paths = {f"--{field}": _path_of(table) for field, table in job.inputs().items()}
    previous = paths.pop("--previous")
    read = {option: path for option, path in paths.items() if path is not None}
    check_table_output(job.output, read, previous)


def _path_of(table: Input | None) -> str | None:
    """Return where a table is, as far as is known by now."""
    return None if table is None or isinstance(table, SparkName) else table.path


def _pin_inputs(job: AssignmentJob) -> AssignmentJob:
    """Fix what is read. The output's own content is no input: it is what is replaced."""
    tables: dict[str, Any] = job.inputs()
    previous = job.previous
    if isinstance(previous, TableRef) and previous.version is None and job.output is not None:
        own = os.path.realpath(previous.path) == os.path.realpath(job.output)
        tables["previous"] = None if own else previous
    for name, table in tables.items():
        tables[name] = table.pinned() if isinstance(table, TableRef) else table
    return replace(job, **tables)


def _find_previous(job: AssignmentJob) -> Input | None:
    """Return the previous assignment: the output's content, if no other is given."""
    if job.output is None or job.previous is not None or job.owned is not None:
        return job.previous
    if not Path(job.output).exists() or not _has_content(job.output):
        return None
    return TableRef.of(job.output, "--output").pinned()


def _has_content(output: str) -> bool:
    path = Path(output)
    return path.is_file() or any(path.iterdir())


def _choose_engine(job: AssignmentJob, config: Config) -> str:
    """Choose where to compute.

    Raises
    ------
    SpecError
        Spark is asked for an assignor that it does not have.
    """
    if job.engine == "spark" and job.options.assignor not in TWINS:
        raise SpecError(f"assignor {job.options.assignor!r} has no Spark form: use --engine local")
    if job.engine != "auto":
        return job.engine
    if job.options.assignor not in TWINS:
        return "local"
    previous = job.owned or job.previous
    rows = local_table(previous, "--previous").rows() if previous else 0
    size = GroupSize(local_table(job.members, "--members").rows(), 1, rows)
    return choose_engine(config, "auto", size)


def _refuse_to_replace_parquet(output: str | None) -> None:
    if output is not None and not is_delta_output(output) and Path(output).exists():
        raise SpecError(
            f"output {output!r} is there: Spark cannot replace Parquet in one step; write a "
            "Delta table, or remove it first"
        )


def _check_replaceable_here(output: str) -> None:
    if is_delta_output(output):
        check_replaceable(output)
    elif Path(output).is_dir():
        raise SpecError(f"--output {output!r} is a folder, as Spark writes Parquet: name another")


def _run_local(job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:
    if job.output is not None:
        _check_replaceable_here(job.output)
    members, topics = _read(job.members, "members"), _read(job.topics, "topics")
    owned, forgotten = _read(job.owned, "owned") if job.owned else None, 0
    if owned is None and job.previous is not None:
        previous = _read(job.previous, "previous")
        owned, forgotten = forget(previous, topics)
        job.safeguards.check_forgotten(forgotten, pc.sum(previous["partition_count"]).as_py() or 0)
    job.safeguards.check_members(len(members))
    group = GroupSpec.from_arrow(members, topics, owned)
    assignor = get_assignor(job.options.assignor, **job.options.given(config))
    ranges = assignor.assign(group)
    report = quality.report(group, ranges)
    totals = report.totals()
    done = AssignmentResult(
        "local", run.run_id, None, False, forgotten, group, ranges, report, totals
    )
    if job.output is None:
        return done
    kept = done.recorded(run).to_json()
    if is_delta_output(job.output):
        version = replace_delta(job.output, ranges.to_arrow(), run.run_id, kept)
        return replace(done, version=version)
    replace_file(job.output, ranges.to_arrow().replace_schema_metadata({KEY: kept}))
    return done


def _read(table: Input, what: str) -> pa.Table:
    return local_table(table, f"--{what}").read(what)


def forget(previous: pa.Table, topics: pa.Table) -> tuple[pa.Table, int]:
    """Leave out what a previous assignment says of topics or partitions that no longer exist.

    Returns
    -------
    claims, forgotten
        The rows that are left, cut where their topic ends now, and how many partitions went.
    """
    owner, names, first, count = parse_owned_table(previous, "previous")
    known, partitions = parse_topics_table(topics)
    place = pc.index_in(names, value_set=known)
    size = np.append(partitions, 0)[np.asarray(pc.fill_null(place, len(partitions)))]
    left = np.clip(size - first, 0, count)
    columns = {"member_id": owner, "topic": names, "first_partition": first}
    kept = pa.table(columns | {"partition_count": left}).filter(pa.array(left > 0))
    return kept, int((count - left).sum())


def _run_spark(job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:
    from spark_jobs.session.session import active_tasks  # noqa: PLC0415 - only this engine needs it

    _refuse_to_replace_parquet(job.output)
    with _open_session() as spark, progress.task("tasks of Spark's stages", poll=active_tasks):
        return _assign_on_spark(spark, job, config, run)


@contextmanager
def _open_session() -> Iterator[SparkSession]:
    """Yield the running session, or one for the block."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    from spark_jobs.session.session import scratch_warehouse, spark_session  # noqa: PLC0415

    started = SparkSession.getActiveSession() is None
    with progress.task("starting Spark"):
        spark = spark_session(conf=scratch_warehouse())
    try:
        yield spark
    finally:
        if started:
            spark.stop()


def _assign_on_spark(spark: Any, job: AssignmentJob, config: Config, run: Run) -> AssignmentResult:  # noqa: ANN401
    from spark_jobs.assignors.dispatch import assign_frames  # noqa: PLC0415
    from spark_jobs.assignors.prior_ownership import check_previous  # noqa: PLC0415

    members, topics = _read_frame(spark, job.members), _read_frame(spark, job.topics)
    claims, forgotten = _read_frame(spark, job.owned) if job.owned else None, 0
    if claims is None and job.previous is not None:
        previous, _ = check_previous(_read_frame(spark, job.previous), "previous")
        claims, forgotten, total = _forget_frames(previous, topics)
        job.safeguards.check_forgotten(forgotten, total)
    options = job.options.given(config)
    assigned = assign_frames(spark, job.options.assignor, members, topics, claims, **options)
    job.safeguards.check_members(assigned.members)
    done = AssignmentResult("spark", run.run_id, forgotten=forgotten, totals=assigned.totals())
    if assigned.members + assigned.rows.count() <= config.report.rows_max:
        done = _add_report(done, assigned, members, topics, claims)
    if job.output is None:
        return done
    version = _write(assigned, job.output, done.recorded(run))
    rows = _read_frame(spark, TableRef(job.output, version, delta=version is not None))
    _check_written(rows, assigned, job.output)
    return replace(done, version=version)


def _add_report(
    done: AssignmentResult,
    assigned: FrameAssignment,
    members: DataFrame,
    topics: DataFrame,
    claims: DataFrame | None,
) -> AssignmentResult:
    """Judge a result that fits the driver as the local engine judges its own."""
    group = GroupSpec.from_arrow(
        members.toArrow(), topics.toArrow(), claims.toArrow() if claims is not None else None
    )
    found = PartitionRanges.from_arrow(group.member_ids, group.topics, assigned.rows.toArrow())
    ranges = replace(found, verdict=assigned.verdict)
    report = quality.report(group, ranges)
    return replace(done, group=group, ranges=ranges, report=report, totals=report.totals())


def group_on_spark(group: GroupSpec, assignor: str, options: dict[str, Any]) -> PartitionRanges:
    """Assign a group of the driver with DataFrames, for comparison with the local engine.

    Raises
    ------
    SpecError
        The assignor has no Spark form.
    """
    if assignor not in TWINS:
        raise SpecError(f"assignor {assignor!r} has no Spark form: use --engine local")
    from spark_jobs.assignors.dispatch import assign_frames  # noqa: PLC0415
    from spark_jobs.session.session import scratch_warehouse, spark_session  # noqa: PLC0415

    spark = spark_session(conf=scratch_warehouse())
    members, topics, owned = (spark.createDataFrame(table) for table in group.to_arrow())
    assigned = assign_frames(spark, assignor, members, topics, owned, **options)
    rows = assigned.rows.toArrow()
    ranges = PartitionRanges.from_arrow(group.member_ids, group.topics, rows)
    return replace(ranges, verdict=assigned.verdict)


def _read_frame(spark: Any, table: Input) -> DataFrame:  # noqa: ANN401
    if isinstance(table, SparkTable):
        return table.frame
    ref = local_table(table, "the table")
    from pyspark.sql import functions as F  # noqa: PLC0415

    # the JVM may be at work in another folder
    path = ref.path if is_url(ref.path) else os.path.abspath(ref.path)
    frame: DataFrame
    if not ref.delta:
        frame = spark.read.parquet(path)
        # Spark before 4.1.1 takes Parquet's columns of type null for integers
        untyped = dict.fromkeys(ref.untyped_columns(), F.lit(None))
        frame = frame.withColumns(untyped) if untyped else frame
    else:
        frame = spark.read.format("delta").option("versionAsOf", ref.version).load(path)
    return frame


def _forget_frames(previous: DataFrame, topics: DataFrame) -> tuple[DataFrame, int, int]:
    """Do what `forget` does, with DataFrames; also count all partitions of the previous."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    from spark_jobs.session.schemas import select_topics  # noqa: PLC0415

    counts = F.broadcast(select_topics(topics))
    left = F.greatest(
        F.least(
            F.coalesce("partitions", F.lit(0)) - F.col("first_partition"), F.col("partition_count")
        ),
        F.lit(0),
    )
    rows = previous.join(counts, "topic", "left").withColumn("left", left)
    total, found = rows.agg(F.sum("partition_count"), F.sum("left")).collect()[0]
    kept = rows.where("left > 0").select(
        "member_id", "topic", "first_partition", F.col("left").alias("partition_count")
    )
    return kept, int((total or 0) - (found or 0)), int(total or 0)


def _write(assigned: FrameAssignment, output: str, run: Run) -> int | None:
    """Write the rows, sorted by member within each file, in one step."""
    rows = assigned.rows.sortWithinPartitions("member_id", "topic", "first_partition")
    path = os.path.abspath(output)
    if not is_delta_output(output):
        unfinished = f"{path}.{uuid.uuid4()}"
        try:
            rows.write.parquet(unfinished)
            replace_text(os.path.join(unfinished, BESIDE), run.to_json())
            os.rename(unfinished, path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return None
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer = writer.option("txnAppId", run.run_id).option("txnVersion", str(RUN_VERSION))
    writer.option("userMetadata", run.to_json()).save(path)
    return TableRef(output, None, delta=True).pinned().version


def _check_written(rows: DataFrame, assigned: FrameAssignment, output: str) -> None:
    """Read what was written: another writer of the same table could have got in between."""
    found = rows.selectExpr("sum(partition_count)").collect()[0][0] or 0
    if found != assigned.partitions:
        raise RuntimeError(
            f"{output} holds {found} partitions, {assigned.partitions} were written: "
            "does another program write this table?"
        )
