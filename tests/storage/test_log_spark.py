"""Spark reads what delta-rs wrote: missing columns, packed files, checkpoints, cleaned commits."""

from __future__ import annotations

import pytest

from coordinator.config import LogConfig
from coordinator.storage.delta_log import DeltaLog
from tests.support.lives import life

pytestmark = pytest.mark.spark


def test_spark_reads_the_log_and_the_snapshots(tmp_path, spark):
    config = LogConfig(reopen_commits=3, pack_commits=4, files_kept_ms=0, commits_kept_ms=0)
    log = DeltaLog(tmp_path, config)
    log.claim("me", "here:1", 1)
    for epoch in range(1, 11):
        log.append(life(epoch, members=2), epoch + 1)
        if log.is_maintenance_due():
            log.maintain()
    log.snapshot(life(10), log.position, 99)
    rows = spark.read.format("delta").load(str(tmp_path / "log")).orderBy("position")
    rows.createOrReplaceTempView("log_in_test")
    found = spark.sql(
        """
        SELECT kind, count(*) AS rows, max(position) AS position, max(epoch) AS epoch,
               max(from_json(subscribed_topic_names, 'array<string>')[1]) AS name,
               max(assigned[0].partition_count) AS assigned, max(at) AS at
        FROM log_in_test GROUP BY kind ORDER BY kind
        """
    ).collect()
    assert [(r.kind, r.rows, r.position, r.epoch, r.name, r.assigned) for r in found] == [
        ("claim", 1, 1, None, None, None),
        ("current_member_assignment", 20, 80, None, None, 10),
        ("group_metadata", 10, 74, 10, None, None),
        ("member_metadata", 20, 78, None, "foo", None),
        ("target_assignment_member", 20, 79, None, None, None),
        ("target_assignment_metadata", 10, 81, None, None, None),
    ]
    assert rows.where("position > 74").count() == 7
    snapshots = spark.read.format("delta").load(str(tmp_path / "snapshots"))
    assert snapshots.where(f"snapshot_position = {log.position}").count() == len(life(10))
