"""A store written by version 0.1 opens, and answers as it did then.

`tests/golden/store-0.1` was written before modules and classes got the names that they have now. It
has every kind of record: static and dynamic members, a pattern, topics that grew and went, offsets, a
deleted group, a group's settings, an audit record, a target that a job wrote; and two snapshots.
`answers.json` is what version 0.1 said of it. It knew no classic groups: its tables do not name their
columns.
"""

from __future__ import annotations

import json
import shutil

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field

from coordinator import Coordinator
from coordinator.backup.backup import backup
from coordinator.backup.restore import restore
from coordinator.config import parse
from coordinator.core.state.records import ClassicGroupWritten, ClassicMemberWritten
from coordinator.core.state.state_records import records_of
from coordinator.history import VIEWS, frame
from coordinator.history.log_reader import LogReader
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import WriterFenced
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.snapshot_table import SNAPSHOT_SCHEMA
from coordinator.storage.tables.commit_writer import write_commit
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.verify import verify
from tests.conftest import ROOT

DERIVED = {"incarnation", "reason_codes", "until_reason_codes", "reached_at"}
"""Columns that came later, and follow from what there was."""
LATER = {"events", "memberships", "offset_commits", "rebalances", "unowned", "waits"}
"""Views that came later, of what there was."""
SOMETIMES = {"unowned", "waits"}
"""Those of them of what need not have happened."""
FOLDER = ROOT / "tests" / "golden" / "store-0.1"
TOPICS = {
    "orders": 8, "parcels": 4, "entries": 4, "pages": 8, "clicks": 12,
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return shutil.copytree(FOLDER / "store", tmp_path / "store")


@pytest.fixture(scope="module")
def answers():
    return json.loads((FOLDER / "answers.json").read_text())


def as_json(value):
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_its_views_have_the_same_rows(view, answers):
    found = frame(FOLDER / "store", view)
    derived = [name for name in found.column_names if name in DERIVED]
    assert all(found[name].null_count <= max(len(found) - 1, 0) for name in derived)
    found = found.drop_columns(derived)
    if view == "partition_owners":  # rows without an owner came later
        found = found.filter(pc.is_valid(found["member_id"]))
    rows = json.loads(json.dumps(found.to_pylist(), default=str))
    since = dict.fromkeys(found.column_names)  # columns that came later are null
    before = answers["views"].get(view, [])  # a view that came later has nothing to show
    if view in LATER:
        assert view not in answers["views"]
        assert view in SOMETIMES or len(rows) >= len(answers["views"]["offsets"]) > 0
    else:
        assert rows == [since | row for row in before]


def test_a_coordinator_answers_the_same(store, answers):
    config = parse("[log]\nsnapshot_rows = 40\n", "the test")
    with Coordinator.open(store, config=config, topics=TOPICS, takeover="force") as coordinator:
        groups = coordinator.list_groups()["groups"]
        assert as_json(groups) == answers["groups"]
        ids = [group["group_id"] for group in groups]
        assert as_json(coordinator.consumer_group_describe(ids)) == answers["described"]
        configs = {group: coordinator.describe_group_config(group) for group in ids}
        assert configs == answers["configs"]
        served = {"error_code": 0, "error": "NONE", "error_message": None}  # said so by 0.1
        fetched = {group: served | coordinator.offset_fetch(group_id=group) for group in ids}
        assert as_json(fetched) == answers["offsets"]


def test_it_is_sound(store):
    verify(store)


# Its table names the columns of today -----------------------------------------------------------

CLASSIC = ClassicGroupWritten(
    "old-clients",
    generation=3,
    protocol_type="consumer",
    protocol="range",
    leader="m1",
    members=(ClassicMemberWritten("m1", subscription=b"\0\3", assignment=b"\0\1\xff"),),
)


def columns_of(store, table="log"):
    """Return the columns that a table names for every reader."""
    return {field.name for field in DeltaTable(store / table).schema().fields}


def claimed(store, **more):
    log = DeltaLog(store, **more)
    log.claim("newer", "", 1)
    return log


def read_members(rows):
    """Ask DuckDB, which knows only what is in the rows it is given, for the classic members."""
    return duckdb.sql(
        "SELECT m.member_id, m.assignment FROM (SELECT unnest(classic_members) AS m FROM rows)"
    ).fetchall()


def test_its_table_names_the_columns_of_today_before_a_row_has_them(store):
    assert "classic_members" not in columns_of(store)
    log = claimed(store)
    assert columns_of(store) == set(SCHEMA.names)
    log.append([CLASSIC], 2)
    rows = DeltaTable(store / "log").to_pyarrow_table()
    assert read_members(rows) == [("m1", b"\0\1\xff")]
    state = LogReader(store).state()
    log.snapshot(records_of(state), log.position, 3)
    assert columns_of(store, "snapshots") == set(SNAPSHOT_SCHEMA.names)
    assert read_members(DeltaTable(store / "snapshots").to_pyarrow_table()) == [("m1", b"\0\1\xff")]
    verify(store)


def test_columns_are_added_once(store):
    claimed(store)
    version = DeltaTable(store / "log").version()
    claimed(store)
    assert DeltaTable(store / "log").version() == version + 1  # the claim


def test_who_only_reads_writes_nothing(store):
    before = sorted(store.rglob("*"))
    verify(store)
    frame(store, "groups")
    backup(store, store.parent / "backup")
    assert sorted(store.rglob("*")) == before


def test_a_coordinator_from_before_is_fenced(store):
    zombie = FencedTable(str(store / "log"), Filesystem(), sync=False)
    zombie.refresh()
    epoch = zombie.epoch
    claimed(store)
    with pytest.raises(WriterFenced, match=f"coordinator epoch {epoch} ended"):
        zombie.add_columns(SCHEMA.append(pa.field("late", pa.int64())), epoch)
    assert columns_of(store) == set(SCHEMA.names)


@pytest.mark.parametrize("landed", [False, True])
def test_who_dies_while_it_adds_columns_leaves_a_store_that_the_next_one_takes(store, landed):
    def dying(disk, path, commit):
        adds_columns = isinstance(commit.actions[0], Field)
        if landed or not adds_columns:
            write_commit(disk, path, commit)
        if adds_columns:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        claimed(store, write_commit=dying)
    verify(store)
    log = claimed(store)
    log.append([CLASSIC], 2)
    assert columns_of(store) == set(SCHEMA.names)
    assert CLASSIC in [record for batch in log.replay() for record in batch.records]
    verify(store)


def test_it_is_packed_and_copied_with_its_new_columns(store, tmp_path):
    log = claimed(store)
    log.append([CLASSIC], 2)
    log.maintain(pack=True)
    verify(store)
    backup(store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert "old-clients" in LogReader(tmp_path / "restored").state().classic


@pytest.mark.spark
def test_spark_reads_its_new_columns(store, spark):
    claimed(store).append([CLASSIC], 2)
    rows = spark.read.format("delta").load(str(store / "log")).where("kind = 'classic_group'")
    assert rows.selectExpr("protocol", "classic_members[0].member_id").collect() == [
        ("range", "m1")
    ]
