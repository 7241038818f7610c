"""The views at a position, a time, from now on; in a catalog; after packing; and `muster sql`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator.config import Config, LogConfig
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    ComputationPrepared,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    RequestAnswered,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.display.times import format_time
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import describe_with_offsets, list_rows
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import Batch
from coordinator.storage.target_digest import digest_rows
from tests.support.longer import EVERY, longer
from tests.support.stories import MINUTE, NOON, Story, alerts, billing, shipping, stored

LONG = longer("all views in Spark once more: make test-spark")
COMPACTIONS = 10 if EVERY else 4

pytestmark = pytest.mark.spark


def at(minutes):
    return datetime.fromtimestamp((NOON + minutes * MINUTE) / 1000, UTC)


def owners(spark, topic):
    frame = spark.table("partition_owners").where(f"topic = '{topic}'").orderBy("first_partition")
    return [
        (row.first_partition, row.last_partition, row.member_id, row.pending_revocation)
        for row in frame.collect()
    ]


def test_as_of_a_time_a_position_and_now(spark, tmp_path):
    from spark_jobs.sql.views import register

    stored(shipping().batches, tmp_path)
    waiting = [(0, 1, "s1", False), (2, 3, "s1", True)]  # s2 waits for what s1 is to give up
    register(spark, tmp_path, at(0.5), only=["partition_owners"], engine="spark")
    assert owners(spark, "parcels") == waiting
    register(spark, tmp_path, LogReader(tmp_path, at(0.5)).position, only=["partition_owners"])
    assert owners(spark, "parcels") == waiting
    register(spark, tmp_path, only=["partition_owners"])
    assert owners(spark, "parcels") == [(0, 3, "s2", False)]


def test_views_without_as_of_see_new_rows(spark, tmp_path):
    from spark_jobs.sql.views import register

    log = DeltaLog(tmp_path, LogConfig(fsync=False))
    log.claim("test", "", NOON)
    log.append([TopicChanged("orders", "o", 6)], NOON)
    register(spark, tmp_path, only=["topics"], engine="spark")
    assert [row.partitions for row in spark.table("topics").collect()] == [6]
    log.append([TopicChanged("orders", "o", 8)], NOON)
    assert [row.partitions for row in spark.table("topics").collect()] == [8]


def test_permanent_views_in_a_schema(spark, tmp_path):
    """Also while temporary views of another store have the same names."""
    from spark_jobs.sql.views import register

    stored(shipping().batches, tmp_path / "one")
    stored(alerts().batches, tmp_path / "two")
    register(spark, tmp_path / "one", only=["members"], engine="spark")
    try:
        register(spark, tmp_path / "two", catalog="muster_test", only=["members"], engine="spark")
        found = spark.sql("SELECT member_id FROM muster_test.members ORDER BY 1").collect()
        assert [row.member_id for row in found] == ["a1", "a2"]
        assert [row.member_id for row in spark.table("members").collect()] == ["s2"]
    finally:
        spark.sql("DROP SCHEMA IF EXISTS muster_test CASCADE")


def test_one_row_per_partition(spark, tmp_path):
    """A range of no partitions has none: counted down, it would have two."""
    from spark_jobs.sql.views import explode_partitions, register

    stored(shipping().batches, tmp_path / "store")
    register(spark, tmp_path / "store", only=["topics"], engine="spark")
    ranges = spark.createDataFrame(
        [("m1", 3, 2), ("m2", 0, 1), ("m3", 0, 0), ("m4", 7, 0), ("m5", 7, -1)],
        "m string, first_partition int, partition_count int",
    )
    ranges.createOrReplaceTempView("some_ranges")
    in_sql = (
        "SELECT * FROM some_ranges, LATERAL explode_partitions(first_partition, partition_count)"
    )
    for found in (explode_partitions(ranges), spark.sql(in_sql)):
        rows = sorted((row.m, row.partition) for row in found.collect())
        assert rows == [("m1", 3), ("m1", 4), ("m2", 0)]


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=LONG, id="spark"), "local"])
def test_a_session_with_ansi_s_reserved_words_has_all_views(spark, tmp_path, engine):
    """OFFSET is one of them, and the name of a column."""
    from coordinator.history.view_schemas import VIEW_SCHEMAS
    from spark_jobs.sql.views import register

    stored(shipping().batches, tmp_path / "store")
    words = "spark.sql.ansi.enforceReservedKeywords"
    spark.conf.set(words, "true")
    try:
        register(spark, tmp_path / "store", engine=engine)
        for view in VIEW_SCHEMAS:
            spark.table(view).collect()
    finally:
        spark.conf.unset(words)


# Whole targets -----------------------------------------------------------------------------------

ORDERS = TopicKey("orders", "id-of-orders")


def targets_of(members):
    """Rows of a whole target: each of these members gets the next two partitions."""
    return pa.table(
        {
            "member_id": pa.array(members),
            "topic_id": pa.array([ORDERS.topic_id] * len(members)),
            "topic": pa.array([ORDERS.name] * len(members)),
            "first_partition": pa.array(range(0, 2 * len(members), 2), pa.int32()),
            "partition_count": pa.array([2] * len(members), pa.int32()),
        }
    )


def write_targets(store, run_id, rows):
    table = rows.append_column("group_id", pa.array(["big"] * len(rows)))
    table = table.append_column("assignment_epoch", pa.array([2] * len(rows), pa.int32()))
    table = table.append_column("run_id", pa.array([run_id] * len(rows)))
    path, by = str(store / "targets"), ["group_id", "assignment_epoch"]
    write_deltalake(path, table, mode="append", partition_by=by)
    return DeltaTable(path).version()


def test_targets_in_the_table_and_in_the_log(spark, tmp_path):
    """Records before the install mean nothing, those after it win; who left is not in it."""
    from spark_jobs.sql.views import register

    rows = targets_of(["m1", "m2", "m3"])
    write_targets(tmp_path, "run-lost", targets_of(["m3", "m2", "m1"]))  # of a job that died
    version = write_targets(tmp_path, "run-1", rows)
    before = [
        TopicChanged(ORDERS.name, ORDERS.topic_id, 6),
        *(MemberMetadata("big", m, subscribed_topic_names=("orders",)) for m in ("m1", "m2", "m3")),
        GroupMetadata("big", 2, 0, "member joined", "m3"),
        TargetMember("big", "m1", ((ORDERS, 0, 6),)),
    ]
    gone = [
        Tombstone(kind.kind, "big", "m3") for kind in (CurrentMember, TargetMember, MemberMetadata)
    ]
    install = TargetMetadata(
        "big", 2, NOON, "uniform", 0, False,
        computation_id="run-1", targets_version=version, digest=digest_rows(rows), members=3, ranges=3,
    )  # fmt: skip
    after = [TargetMember("big", "m2", ((ORDERS, 3, 4),))]
    batches = [[*before, install, *after], [*gone, GroupMetadata("big", 3, 0, "member left", "m3")]]
    claim = Batch(1, NOON, 1, [])
    stored([claim, *(Batch(0, NOON, 1, records) for records in batches)], tmp_path)

    register(spark, tmp_path, only=["target_assignments"], engine="spark")
    found = spark.table("target_assignments").orderBy("member_id").collect()
    ranges = [
        (r.member_id, r.first_partition, r.partition_count, r.assignment_epoch) for r in found
    ]
    assert ranges == [("m1", 0, 2, 2), ("m2", 3, 1, 2)]

    reading = LogReader(tmp_path)
    state = reading.state()
    reading.read_target(state.groups["big"])
    targets = {
        member["member_id"]: member["target_assignment"]["topic_partitions"][0]["partitions"]
        for member in describe_with_offsets(state, Config(), "big")["members"]
    }
    assert targets == {"m1": [0, 1], "m2": [3]}


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_targets_are_as_of_the_position_too(spark, tmp_path, engine):
    """The table has what was asked for, installed and refused later, and what no record names."""
    from spark_jobs.sql.views import register

    for run_id in ("run-1", "run-2", "run-3", "run-unknown"):
        version = write_targets(tmp_path, run_id, targets_of(["m1"]))
    records = [
        GroupMetadata("big", 2, 0, "member joined", "m1"),
        ComputationPrepared("big", "run-1", 2, 0),
        TargetMetadata("big", 2, computation_id="run-2", targets_version=version),
        RequestAnswered("big", "run-3", 2, "refused"),
        ComputationPrepared("another", "run-unknown", 2, 0),
    ]
    stored([Batch(1, NOON, 1, []), Batch(0, NOON, 1, records)], tmp_path)
    found = {}
    for position in (2, 3, 4, 5, None):
        register(spark, tmp_path, position, only=["targets"], engine=engine)
        found[position] = sorted(row.run_id for row in spark.table("targets").collect())
    three = ["run-1", "run-2", "run-3"]
    assert found == {2: [], 3: three[:1], 4: three[:2], 5: three, None: three}


# Packing -----------------------------------------------------------------------------------------


def test_history_survives_compactions(spark, tmp_path):
    from spark_jobs.sql.views import register

    log = DeltaLog(
        tmp_path, LogConfig(fsync=False, reopen_commits=2, pack_commits=2, files_kept_ms=0)
    )
    story = Story("billing", log=log, props={"group.consumer.session.timeout.ms": 60_000})
    story.topics(orders=4).at(-5).join("m1", "orders")
    before = LogReader(tmp_path)
    packed = 0
    for turn in range(COMPACTIONS):
        story.at(turn).join(f"w{turn}", "orders").leave(f"w{turn}")
        files = set(DeltaTable(log._table.path).file_uris())
        log.maintain()
        packed += len(files - set(DeltaTable(log._table.path).file_uris())) > 0
    assert packed == COMPACTIONS
    story.trace.close()
    DeltaTable(log._table.path).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )

    register(spark, tmp_path, before.position, only=["partition_owners"], engine="spark")
    assert owners(spark, "orders") == [(0, 3, "m1", False)]
    register(spark, tmp_path, only=["assignment_history"], engine="spark")
    found = spark.table("assignment_history").where("3 BETWEEN first_partition AND last_partition")
    turns = [(row.since_position, row.member_id, row.until_reason) for row in found.collect()]
    wanted = [
        row
        for row in list_rows(LogReader(tmp_path), "assignment_history", "billing")
        if row["last_partition"] >= 3
    ]
    assert sorted(turns) == sorted(
        (r["since_position"], r["member_id"], r["until_reason"]) for r in wanted
    )
    first = min(turns)
    assert first[1:] == ("m1", "member joined")
    assert format_time(before.at_ms) == "2026-03-01T11:55:00.000Z"


# The command -------------------------------------------------------------------------------------


def test_muster_sql_prints_rows_as_json(spark, muster_here, tmp_path):
    stored(alerts().batches, tmp_path)
    query = "SELECT topic, partition, committed_at, metadata FROM offsets"
    done = muster_here("sql", query, "--store", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "topic": "pings", "partition": 0, "committed_at": "2026-03-01T12:00:00.000Z", "metadata": "",
    }  # fmt: skip
    done = muster_here("sql", "SELECT topic FROM log LIMIT 0", "--store", tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    earlier = muster_here(
        "sql", "SELECT offset FROM offsets", "--store", tmp_path, "--as-of", "2026-03-01T11:59:30"
    )
    assert json.loads(earlier.stdout) == {"offset": 41}


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT Partitions FROM TOPICS", [{"Partitions": 6}]),
        (
            "SELECT * FROM (SELECT topic, 1 Topic_2 FROM topics) a JOIN (SELECT topic FROM topics) b USING (topic), (SELECT topic FROM topics) c -- all",
            [{"topic": "pings", "Topic_2": 1, "topic_3": "pings"}],
        ),
        ("SELECT 1 AS a, 2 AS A;", [{"a": 1, "A_2": 2}]),
        ("/* what is it? */ describe Topics", None),
        ("SHOW COLUMNS IN offsets", None),
        ("show views", None),
    ],
)  # fmt: skip
def test_muster_sql_takes_what_only_looks(spark, muster_here, tmp_path, query, rows):
    stored(alerts().batches, tmp_path)
    done = muster_here("sql", query, "--store", tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if rows is not None:
        assert found == rows
    elif "views" in query:
        named = {row["viewName"] for row in found}
        assert VIEW_SCHEMAS.keys() | {"log", "targets"} <= named
        assert "answer" not in named
    elif "COLUMNS" in query:
        assert [row["col_name"] for row in found] == VIEW_SCHEMAS["offsets"].names
    else:
        assert [row["col_name"] for row in found] == VIEW_SCHEMAS["topics"].names


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT nobody FROM topics", "`nobody` cannot be resolved"),
        ("SELECT 1 FROM nowhere", "`nowhere` cannot be found"),
        ("SELEC 1", "Syntax error at or near 'SELEC'"),
        ("DROP VIEW topics", "Syntax error at or near 'DROP'"),
        ("describe topics; DROP VIEW topics", "Syntax error at or near 'DROP'"),
        ("FROM topics INSERT INTO topics SELECT *", "Syntax error at or near 'INSERT'"),
        ("SELECT 1 a, 1 a INTO t", "Syntax error"),
        ("SELECT 1 / (partitions - partitions) FROM topics", "Division by zero"),
        ("", "Syntax error at or near end of input"),
    ],
)
def test_muster_sql_errors_are_one_line(spark, muster_here, tmp_path, query, said):
    stored(alerts().batches, tmp_path)
    done = muster_here("sql", query, "--store", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("muster: ")]
    assert len(lines) == 1
    assert said in lines[0]


def test_register_refuses_bad_stores_and_positions(spark, tmp_path):
    from spark_jobs.sql.views import register

    with pytest.raises(SpecError, match="is not the store of a coordinator"):
        register(spark, tmp_path)
    stored(billing().batches, tmp_path)
    with pytest.raises(SpecError, match="position 0 is not in the log"):
        register(spark, tmp_path, 0)


def test_group_predicate_is_pushed_to_every_scan(spark, tmp_path):
    """But for topics, and for what a Kafka cluster is watched by, which are of no group."""
    from spark_jobs.sql.views import register

    stored(billing().batches, tmp_path)
    register(
        spark,
        tmp_path,
        only=["assignment_history", "epochs", "groups", "partition_owners"],
        engine="spark",
    )
    for view in ("assignment_history", "epochs", "groups", "partition_owners"):
        frame = spark.table(view).where("group_id = 'billing'")
        plan = frame._jdf.queryExecution().optimizedPlan().toString().splitlines()
        scans = [above for above, line in pairwise(plan) if "Relation [" in line]
        assert len(scans) > 1
        for scan in scans:
            of_none = "= topic)" in scan or "= kafka_watched)" in scan
            assert "= billing)" in scan or of_none, (view, scan)
