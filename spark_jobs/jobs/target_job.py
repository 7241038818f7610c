"""Compute a target on Spark: read a group from the store, and write to the table `targets`.

Spark reads members and the last target from the log's files, at a pinned position; only topics,
distinct subscriptions and epochs are on the driver. It writes plain Parquet files. One commit of
ours, with the run's id, names all of them, so a repeated run adds nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from coordinator.assign.options import AssignorOptions
from coordinator.compute.engine import TargetRequest
from coordinator.config import Config
from coordinator.core.events import ComputedTarget
from coordinator.core.records import MemberMetadata, TargetMember
from coordinator.core.target_assignment import StoredTarget
from coordinator.error_text import one_line
from coordinator.history.group_snapshot import NAMES, REGEX, GroupSnapshot
from coordinator.storage.log_scan import BEFORE_THE_LOG
from coordinator.storage.record_log import LostTarget
from coordinator.storage.tables.store_files import files_at, is_remote
from coordinator.storage.target_digest import join_halves
from coordinator.storage.target_table import (
    COLUMNS,
    PARTITION,
    commit_target,
    list_files,
    lock_targets,
    make_targets,
    targets_path,
)
from spark_jobs.assignors import TWINS
from spark_jobs.assignors.dispatch import assign_frames
from spark_jobs.assignors.group import LabelledMembers
from spark_jobs.session.cluster import check_seen
from spark_jobs.session.object_store import spark_path, write_plain
from spark_jobs.session.schemas import frame_of, small
from spark_jobs.session.work_session import WorkSession

RANGES = "array<struct<topic:string,topic_id:string,first_partition:int,partition_count:int>>"
LOG_COLUMNS = (
    "position long, kind string, tombstone boolean, group_id string, member_id string, "
    f"instance_id string, {NAMES} string, {REGEX} string, target {RANGES}"
)
"""The columns of the log that a job reads; a column missing in a file is null."""
PATTERN = re.compile(r"[\[\]{}*?\\]")
ROWS_A_FILE = 1_000_000
Say = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class TargetWork:
    """What to compute, and the input.

    Attributes
    ----------
    request
        The request, which must name a store. A repeated request with the same computation id
        writes nothing.
    snapshot
        The group to compute a target for.
    options
        The assignor and its options.
    """

    request: TargetRequest
    snapshot: GroupSnapshot
    options: AssignorOptions
    config: Config

    @property
    def store(self) -> str:
        """Root path of the tables."""
        assert self.request.store is not None
        return self.request.store

    @property
    def run_id(self) -> str:
        """The id that marks the rows."""
        return self.request.computation_id


def compute_on_spark(
    spark: SparkSession, work: TargetWork, say: Say = lambda _stage, _rows: None
) -> ComputedTarget:
    """Compute a target, write it, and return it without reading its rows back.

    Parameters
    ----------
    say
        Called with each stage that begins, and its number of rows.

    Raises
    ------
    LostTarget
        The group's last target is no longer in the table, or has other rows than its record says.
    SpecError
        The assignor does not run on Spark, or refuses the group.
    BusyError
        Other writers of the table were faster at every attempt.
    ConfigError
        The store is on this machine's disk, and executors do not see it.
    """
    if work.options.assignor not in TWINS:
        raise SpecError(
            f"assignor {work.options.assignor!r} does not run on Spark: set the group's "
            "consumer.assignor.engine to local"
        )
    source = work.snapshot.source
    check_seen(spark, [*source.log, *source.snapshot][:1])
    work_session = WorkSession(spark)
    try:
        work_session.reach(work.store)
        return _compute_and_write(work_session, work, say)
    finally:
        work_session.release()


def _compute_and_write(work_session: WorkSession, work: TargetWork, say: Say) -> ComputedTarget:
    snapshot, session = work.snapshot, work_session.spark
    say("reading", 0)
    log = _read_log(session, snapshot)
    topics = frame_of(
        session,
        pa.table(
            {
                "topic": pa.array([t.key.name for t in snapshot.topics], pa.string()),
                "topic_id": pa.array([t.key.topic_id for t in snapshot.topics], pa.string()),
                "partitions": pa.array([t.partitions for t in snapshot.topics], pa.int64()),
            }
        ),
    )
    members, previous = _read_members(session, log, snapshot), _read_previous(session, log, work)
    alive = work_session.keep(_drop_dead_topics(previous, topics))
    members = replace(members, rows=work_session.keep(members.rows))
    arguments = work.options.arguments(work.config)
    say("assigning", 0)
    assigned = assign_frames(
        session, work.options.assignor, members, topics, alive,
        driver_rows=work.config.engine.driver_rows, **arguments,
    )  # fmt: skip
    say("sorting", assigned.members)
    rows = assigned.rows.join(F.broadcast(topics.drop("partitions")), "topic")
    rows = rows.repartitionByRange(-(-assigned.members // ROWS_A_FILE) or 1, "member_id")
    rows = work_session.keep(rows.sortWithinPartitions("member_id", "topic", "first_partition"))
    count, digest = count_and_digest(rows)
    say("writing", count)
    version = _write(work, rows, count, digest)
    stored = StoredTarget(
        snapshot.group_id,
        snapshot.group_epoch,
        work.run_id,
        version,
        digest,
        assigned.members,
        count,
    )
    return ComputedTarget(
        snapshot.group_id,
        work.run_id,
        snapshot.group_epoch,
        snapshot.source.position,
        work.options.assignor,
        assigned.moved,
        assigned.verdict.partial,
        stored=stored,
    )


# Reading -----------------------------------------------------------------------------------------


def _read_log(spark: SparkSession, snapshot: GroupSnapshot) -> DataFrame:
    """Return the group's rows up to the position. Rows of a snapshot come before the log's."""
    source = snapshot.source
    rows = _read_files(spark, source.log, LOG_COLUMNS)
    rows = rows.where(F.col("position").between(source.after + 1, source.position))
    if source.snapshot:
        before = _read_files(spark, source.snapshot, LOG_COLUMNS)
        before = before.withColumn("position", F.col("position") + F.lit(BEFORE_THE_LOG))
        rows = before.unionByName(rows)
    return rows.where(F.col("group_id") == snapshot.group_id)


def _read_files(spark: SparkSession, files: list[str], schema: str) -> DataFrame:
    """Return the rows of data files. Their names are literal, not patterns."""
    if not files:
        return spark.createDataFrame([], schema)
    paths = (PATTERN.sub(r"\\\g<0>", spark_path(file)) for file in files)
    return spark.read.schema(schema).parquet(*paths)


def _read_members(spark: SparkSession, log: DataFrame, snapshot: GroupSnapshot) -> LabelledMembers:
    """Return each member from its last row, with its subscription to topics that exist."""
    rows = log.where(F.col("kind") == MemberMetadata.kind)
    label = F.xxhash64(NAMES, REGEX).alias("label")
    last = _take_last(rows, "tombstone", "instance_id", label).where("not row.tombstone")
    names = {topic.key.name for topic in snapshot.topics}
    lists = [tuple(sorted(names.intersection(found))) for found in snapshot.lists.values()]
    distinct = {found: at for at, found in enumerate(dict.fromkeys(lists))}
    numbers = small(
        spark,
        {
            "label": pa.array(snapshot.lists.keys(), pa.int64()),
            "class": pa.array([distinct[found] for found in lists], pa.int32()),
        },
    )
    found = last.select("member_id", "row.instance_id", "row.label").join(numbers, "label")
    rows = found.select("member_id", "instance_id", "class")
    return LabelledMembers(rows, [list(names) for names in distinct])


def _read_previous(spark: SparkSession, log: DataFrame, work: TargetWork) -> DataFrame:
    """Return the last target: the one in the table, overridden by members' later records."""
    snapshot = work.snapshot
    own = log.where(F.col("kind") == TargetMember.kind)
    if snapshot.installed is not None:
        own = own.where(F.col("position") > snapshot.installed_at)
    last = _take_last(own, "tombstone", "target")
    ranges = last.where("not row.tombstone").select("member_id", F.inline("row.target"))
    columns = ("member_id", "topic_id", "topic", "first_partition", "partition_count")
    ranges = ranges.select(*columns)
    if snapshot.installed is None:
        return ranges
    whole = _read_whole(spark, work).join(last.select("member_id"), "member_id", "left_anti")
    return whole.select(*columns).unionByName(ranges)


def _read_whole(spark: SparkSession, work: TargetWork) -> DataFrame:
    """Return the last target in the table, after checking it against its record."""
    assert work.snapshot.installed is not None
    stored, path = work.snapshot.installed.stored, targets_path(work.store)
    assert stored is not None
    where = f"the target of group {stored.group_id!r} for epoch {stored.assignment_epoch}"
    try:
        files = list_files(path, stored.group_id, stored.assignment_epoch, stored.version)
        for file in files:
            if is_remote(file):
                files_at(file).size(file)  # one request; the digest tells the rest
            else:
                pq.read_metadata(file)
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise LostTarget(f"{where} is not in {path}: {one_line(error)}") from error
    rows = _read_files(spark, files, ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()))
    rows = rows.where(F.col("run_id") == stored.run_id)
    found = count_and_digest(rows)
    if found != (stored.ranges, stored.digest):
        raise LostTarget(
            f"{where} has {found[0]} rows with digest {found[1]} in {path}, but its record says "
            f"{stored.ranges} rows with digest {stored.digest}"
        )
    return rows


def _take_last(rows: DataFrame, *columns: Any) -> DataFrame:  # noqa: ANN401 - names and expressions
    """Return the columns of each member's last row, with member_id."""
    row = F.struct("position", *columns)
    return (
        rows.select("member_id", row.alias("row"))
        .groupBy("member_id")
        .agg(F.max("row").alias("row"))
    )


def _drop_dead_topics(previous: DataFrame, topics: DataFrame) -> DataFrame:
    """Drop topics and partitions that no longer exist."""
    rows = previous.join(F.broadcast(topics), ["topic", "topic_id"])
    count = F.least("partition_count", F.col("partitions") - F.col("first_partition"))
    rows = rows.withColumn("partition_count", count.cast("int")).where("partition_count > 0")
    return rows.select("member_id", "topic", "first_partition", "partition_count")


# Writing -----------------------------------------------------------------------------------------


def count_and_digest(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and their digest (coordinator/storage/target_digest.py)."""
    hashes = rows.select(
        F.xxhash64("member_id", "topic_id", "first_partition", "partition_count").alias("hash")
    )
    high, low = F.sum(F.shiftright("hash", 32)), F.sum(F.col("hash").bitwiseAND(0xFFFFFFFF))
    (row,) = hashes.agg(F.count(F.lit(1)), high, low).collect()
    return int(row[0]), join_halves(int(row[1] or 0), int(row[2] or 0))


def _write(work: TargetWork, rows: DataFrame, count: int, digest: int) -> int:
    """Write the rows, commit their files by one put, and return a version that has them.

    Spark's own writer of Delta is not safe on an object store with several drivers, and runs a
    second job.
    """
    snapshot, config, folder = work.snapshot, work.config, f"run-{uuid.uuid4().hex}"
    patience_s = config.engine.timeout_ms / 1000
    with nullcontext() if is_remote(work.store) else lock_targets(work.store, patience_s):
        make_targets(work.store, config.log.retention_days, sync=config.log.fsync)
        named = rows.select(
            F.lit(work.run_id).alias("run_id"),
            *[name for name in COLUMNS if name in rows.columns and name not in PARTITION],
        )
        write_plain(named, f"{targets_path(work.store)}/{folder}")
        return commit_target(
            work.store, folder, snapshot.group_id, snapshot.group_epoch, work.run_id, count,
            digest, sync=config.log.fsync,
        )  # fmt: skip
