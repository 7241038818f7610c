"""Compute a target on Spark, and write it to the table `targets`.

It writes plain Parquet files. One commit of ours, with the run's id, names all of them, so a
repeated run adds nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordinator.config import Config
from coordinator.core.state.target_assignment import StoredTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.storage.log_scan import list_data_files
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.target_digest import join_halves
from coordinator.storage.target_table import (
    COLUMNS,
    PARTITION,
    commit_target,
    lock_targets,
    make_targets,
    targets_path,
)
from spark_jobs.jobs.group_frames import assign_on_spark
from spark_jobs.session.cluster import check_seen
from spark_jobs.session.object_store import write_plain
from spark_jobs.session.schemas import small
from spark_jobs.session.work_session import WorkSession

ROWS_A_FILE = 1_000_000
Say = Callable[[str, int], None]


def compute_on_spark(
    spark: SparkSession,
    basis: Basis,
    config: Config,
    say: Say = lambda _stage, _rows: None,
) -> TargetCandidate:
    """Compute a target, write it, and return it without reading its rows back.

    Parameters
    ----------
    basis
        Must name a store. A repeated computation with the same id writes nothing.
    say
        Called with each stage that begins, and its number of rows.

    Raises
    ------
    SpecError
        The assignor does not run on Spark, or refuses the group.
    BusyError
        Other writers of the table were faster at every attempt.
    ConfigError
        The store is on this machine's disk, and executors do not see it.
    """
    assert basis.store is not None
    check_seen(spark, list_data_files(basis.store)[:1])
    work_session = WorkSession(spark)
    try:
        work_session.reach(basis.store)
        return _compute_and_write(work_session, basis, config, say)
    finally:
        work_session.release()


def _compute_and_write(
    work_session: WorkSession, basis: Basis, config: Config, say: Say
) -> TargetCandidate:
    session = work_session.spark
    say("assigning", 0)
    assigned, members, target = assign_on_spark(session, basis, config)
    say("sorting", members)
    keys = [topic.key for topic in basis.input.topics]
    ids = small(
        session,
        {
            "topic": pa.array([key.name for key in keys], pa.string()),
            "topic_id": pa.array([key.topic_id for key in keys], pa.string()),
        },
    )
    rows = assigned.join(ids, "topic")
    rows = rows.repartitionByRange(-(-members // ROWS_A_FILE) or 1, "member_id")
    rows = work_session.keep(rows.sortWithinPartitions("member_id", "topic", "first_partition"))
    count, digest = count_and_digest(rows)
    say("writing", count)
    version = _write(basis, config, rows, count, digest)
    group_id, epoch, run_id = basis.group_id, basis.group_epoch, basis.computation_id
    stored = StoredTarget(group_id, epoch, run_id, version, digest, members, count)
    return replace(target, stored=stored)


def count_and_digest(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and their digest (coordinator/storage/target_digest.py)."""
    hashes = rows.select(
        F.xxhash64("member_id", "topic_id", "first_partition", "partition_count").alias("hash")
    )
    high, low = F.sum(F.shiftright("hash", 32)), F.sum(F.col("hash").bitwiseAND(0xFFFFFFFF))
    (row,) = hashes.agg(F.count(F.lit(1)), high, low).collect()
    return int(row[0]), join_halves(int(row[1] or 0), int(row[2] or 0))


def _write(basis: Basis, config: Config, rows: DataFrame, count: int, digest: int) -> int:
    """Write the rows, commit their files by one put, and return a version that has them.

    Spark's own writer of Delta is not safe on an object store with several drivers, and runs a
    second job.
    """
    store, run_id, folder = basis.store, basis.computation_id, f"run-{uuid.uuid4().hex}"
    assert store is not None
    patience_s = config.engine.timeout_ms / 1000
    with nullcontext() if is_remote(store) else lock_targets(store, patience_s):
        make_targets(store, config.log.retention_days, sync=config.log.fsync)
        named = rows.select(
            F.lit(run_id).alias("run_id"),
            *[name for name in COLUMNS if name in rows.columns and name not in PARTITION],
        )
        write_plain(named, f"{targets_path(store)}/{folder}")
        return commit_target(
            store, folder, basis.group_id, basis.group_epoch, run_id, count, digest,
            sync=config.log.fsync,
        )  # fmt: skip
