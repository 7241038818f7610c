"""Compute a target on Spark, and write it to the table `targets`.

It writes plain Parquet files. One commit of ours, with the run's id, names all of them, so a
repeated run adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from coordinator.config import Config
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.engines.write_target import add_rows
from coordinator.storage.log_scan import list_data_files
from coordinator.storage.target_digest import join_halves
from coordinator.storage.target_table import COLUMNS, PARTITION, ROWS_A_FILE
from spark_jobs.jobs.group_frames import assign_on_spark
from spark_jobs.session.cluster import check_seen
from spark_jobs.session.object_store import write_plain
from spark_jobs.session.schemas import small
from spark_jobs.session.work_session import WorkSession

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
    named = rows.select(
        F.lit(basis.computation_id).alias("run_id"),
        *[name for name in COLUMNS if name in rows.columns and name not in PARTITION],
    )
    write = partial(write_plain, named)
    return replace(target, stored=add_rows(basis, config, (digest, members, count), write))


def count_and_digest(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and their digest (coordinator/storage/target_digest.py)."""
    hashes = rows.select(
        F.xxhash64("member_id", "topic_id", "first_partition", "partition_count").alias("hash")
    )
    high, low = F.sum(F.shiftright("hash", 32)), F.sum(F.col("hash").bitwiseAND(0xFFFFFFFF))
    (row,) = hashes.agg(F.count(F.lit(1)), high, low).collect()
    return int(row[0]), join_halves(int(row[1] or 0), int(row[2] or 0))
