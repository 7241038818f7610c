"""Commits that we write ourselves: as Delta's readers read them, and never on top of others'."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.transaction import AddAction

from coordinator.config import LogConfig
from coordinator.history.log_reader import LogReader
from coordinator.storage.record_log import NewerLog, WriterFenced
from coordinator.storage.tables.commit_writer import Commit, write_commit
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.recovery import commit_file
from tests.support.lives import claimed, life, replayed


@pytest.fixture
def log(tmp_path):
    """A log with 20 commits, the files of some packed, and a checkpoint of delta-rs in between."""
    log = claimed(tmp_path, config=LogConfig(reopen_commits=7, pack_commits=12))
    for epoch in range(1, 20):
        log.append(life(epoch), epoch)
        if log.is_maintenance_due():
            log.maintain()
    return log


def everything():
    return [record for epoch in range(1, 20) for record in life(epoch)]


def test_delta_rs_reads_our_commits(log):
    table = DeltaTable(f"{log.store}/log")
    assert table.version() == log._table.version
    assert table.transaction_version("coordinator") == log.epoch
    rows = table.to_pyarrow_table(filters=[("position", ">", 100)])
    assert sorted(rows["position"].to_pylist()) == list(range(101, log.position + 1))
    assert {entry["operation"] for entry in table.history(5)} == {"WRITE"}
    earlier = DeltaTable(f"{log.store}/log", version=table.version() - 1)
    assert earlier.count() == log.position - len(life(19))
    assert replayed(log) == everything()


@pytest.mark.spark
def test_spark_reads_our_commits(log, spark):
    rows = spark.read.format("delta").load(f"{log.store}/log")
    assert rows.count() == log.position
    assert rows.where("position > 100").count() == log.position - 100
    writes = spark.sql(f"DESCRIBE HISTORY delta.`{log.store}/log`").where("operation = 'WRITE'")
    assert writes.count() > 5


def test_a_commit_is_there_whole_or_not_at_all(log, monkeypatch):
    """Readers list the folder at any moment."""
    folder = f"{log.store}/log/_delta_log"
    seen = []
    link = os.link

    def look_and_link(beside, path):
        seen.append(not os.path.exists(path))
        link(beside, path)
        seen.append(os.path.getsize(path) > 0)

    monkeypatch.setattr(os, "link", look_and_link)
    log.append(life(20), 20)
    assert seen == [True, True]
    assert [name for name in os.listdir(folder) if name.endswith(".tmp")] == []


def test_what_a_killed_writer_left_is_removed(log):
    left = f"{log.store}/log/_delta_log/.{3:020}.json.{'a' * 32}.tmp"
    with open(left, "wb") as file:
        file.write(b"{}")
    assert DeltaTable(f"{log.store}/log").version() == log._table.version
    log.config = log._care._config = LogConfig(reopen_commits=1, commits_kept_ms=0)
    for epoch in (20, 21):
        log.append(life(epoch), epoch)
        log.maintain()
    assert not os.path.exists(left)


def test_a_zombie_that_wakes_up_in_a_commit_takes_it_back(tmp_path):
    """Between its check and its commit, its successor wrote that version and cleaned it up."""
    successor = None

    def asleep(*commit):
        nonlocal successor
        if successor is None and commit[2].version > 1:
            config = LogConfig(reopen_commits=5, pack_commits=10_000, commits_kept_ms=0)
            successor = claimed(tmp_path, config=config)
            for epoch in range(2, 20):
                successor.append(life(epoch), epoch)
                if successor.is_maintenance_due():
                    successor.maintain()
        write_commit(*commit)

    zombie = claimed(tmp_path, write_commit=asleep)
    with pytest.raises(WriterFenced, match="with epoch 2"):
        zombie.append(life(1), 1)
    assert replayed(successor) == [record for epoch in range(2, 20) for record in life(epoch)]
    assert DeltaTable(f"{tmp_path}/log").version() == successor._table.version


def test_paths_are_encoded_as_delta_asks(tmp_path):
    table = f"{tmp_path}/table"
    DeltaTable.create(table, pa.schema([("a", pa.int64())]))
    name = "part 1%é.parquet"
    size = Filesystem().write_rows(f"{table}/{name}", pa.table({"a": [1, 2]}))
    added = AddAction(name, size, {}, 0, data_change=True, stats=json.dumps({"numRecords": 2}))
    write_commit(Filesystem(), table, Commit(1, [added], 1, ""))
    assert DeltaTable(table).to_pyarrow_table()["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("feature", "asked"),
    [
        (TableFeatures.ChangeDataFeed, "its writers for the feature changeDataFeed"),
        (TableFeatures.RowTracking, "its writers for the feature rowTracking"),
        (TableFeatures.DeletionVectors, "its readers for the feature deletionVectors"),
    ],
)
def test_a_table_that_asks_for_what_we_do_not_know_is_refused(log, feature, asked):
    table = DeltaTable(f"{log.store}/log")
    table.alter.add_feature(feature, allow_protocol_versions_increase=True)
    table.update_incremental()
    for use in (lambda: log.append(life(20), 20), lambda: claimed(log.store)):
        with pytest.raises(NewerLog, match=f"log asks {asked}.*drop it from the table"):
            use()
    assert DeltaTable(f"{log.store}/log").version() == table.version()


def test_an_unknown_reader_version_is_named(log):
    entry = Path(commit_file(f"{log.store}/log", log._table.version))
    asked = {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}
    entry.write_text(entry.read_text() + json.dumps(asked) + "\n")
    with pytest.raises(NewerLog, match="asks its readers for reader version 9 of Delta, which"):
        LogReader(log.store)


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_an_unknown_feature_is_named_by_all(log, muster_here, kind):
    """Also one that delta-rs itself refuses; verify tells that no coordinator opens it."""
    asked = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["future"]}
    if kind == "reader":
        asked |= {"minReaderVersion": 3, "readerFeatures": ["future"]}
    entry = Path(commit_file(f"{log.store}/log", log._table.version))
    entry.write_text(entry.read_text() + json.dumps({"protocol": asked}) + "\n")
    for words in (["verify"], ["compact"], *([["groups"]] if kind == "reader" else [])):
        done = muster_here(*words, "--store", log.store)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert b"the feature future of Delta, which Muster does not know" in done.stderr


def test_a_table_whose_features_ask_nothing_of_us_is_written(log):
    table = DeltaTable(f"{log.store}/log")
    table.alter.add_feature(TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    assert log.append(life(20), 20) == log.position
    assert replayed(claimed(log.store)) == everything() + life(20)
