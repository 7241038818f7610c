"""Targets, mostly in an object store: committed by one put, once a run, dropped when not needed."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, LogConfig
from coordinator.core.state.target_assignment import StoredTarget
from coordinator.history import frame
from coordinator.storage import compaction
from coordinator.storage.record_log import CommitFailed, LogError, LostTarget
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.recovery import commit_file
from coordinator.storage.tables.store_files import files_at, open_delta
from coordinator.storage.tables.table_io import BusyError
from coordinator.storage.target_digest import digest_rows
from coordinator.storage.target_table import (
    RANGE_SCHEMA,
    add_target,
    commit_target,
    list_runs,
    lock_targets,
    make_targets,
    read_checked_rows,
    targets_path,
    write_files,
)
from tests.support.members import AT_ONCE, Members
from tests.support.table_engine import installed_runs, runs_of, write_rows

CONFIG = Config(
    kafka=AT_ONCE,
    engine=EngineConfig(engine="spark"),
    log=LogConfig(retention_days=0, files_kept_ms=0),
)
ROWS = pa.table(
    {
        "member_id": ["m1", "m2"],
        "topic_id": ["i", "i"],
        "topic": ["a", "a"],
        "first_partition": pa.array([0, 3], pa.int32()),
        "partition_count": pa.array([3, 3], pa.int32()),
    }
)
ENTRY = "/targets/_delta_log/0000"


@pytest.fixture
def store(s3):
    return s3.new_store()


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    """A store on a disk, or in an object store."""
    return str(tmp_path) if request.param == "disk" else request.getfixturevalue("s3").new_store()


def opened(store, engine):
    return Coordinator.open(store, topics={"a": 6}, config=CONFIG, engine=engine)


def test_targets_are_installed_read_by_a_successor_and_dropped(place, engine):
    with opened(place, engine) as coordinator:
        members = Members(coordinator)
        for name in ("m1", "m2", "m3"):
            members.join(name)
            members.settle()
    *superseded, last = installed_runs(place)
    assert superseded
    assert set(runs_of(place)) == {*superseded, last}
    named = len(runs_of(place))
    write_rows(place, "g", 99, "orphan", ROWS)
    assert len(runs_of(place)) > named
    assert frame(place, "targets", group_id="g").num_rows == named
    done = compaction.compact(place, CONFIG, time.time_ns() // 1_000_000 + 10)
    assert (done.by, done.runs_dropped, done.runs_kept) == ("us", len(superseded) + 1, 1)
    assert set(runs_of(place)) == {last}
    owned = dict(members.owned)
    with opened(place, engine) as coordinator:
        members.coordinator = coordinator
        members.settle()
        assert members.owned == owned
    assert not engine.jobs[3:]  # the successor has read the target, and asked for no other


def test_a_run_is_in_the_table_once_if_any_process_repeats_it(place):
    first = write_rows(place, "g", 1, "run", ROWS)
    assert write_rows(place, "g", 1, "run", ROWS) == first
    ready, got = threading.Barrier(4), []

    def race(number):
        ready.wait()
        got.append(write_rows(place, "g", 2, f"raced-{number % 2}", ROWS, parts=2))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs_of(place) == sorted(["run", "raced-0", "raced-1"] * 2)
    named = {uri.rpartition("/targets/")[2] for uri in open_delta(targets_path(place)).file_uris()}
    there = files_at(place).names_below(targets_path(place))
    assert {name for name in there if name.startswith("run-")} == named


def test_a_job_that_wrote_half_is_not_committed(place):
    write_rows(place, "g", 1, "whole", ROWS)
    files_at(place).make_folder(f"{targets_path(place)}/half")
    files_at(place).write_rows(
        f"{targets_path(place)}/half/part-0.parquet",
        ROWS.slice(0, 1).append_column("run_id", pa.array(["half"])),
    )
    with pytest.raises(LogError, match=r"run half wrote 2 rows to .*, but 1 are there"):
        commit_target(place, "half", "g", 2, "half", 2, 0, sync=True)
    assert set(runs_of(place)) == {"whole"}


def test_a_target_on_a_disk_is_synced_before_it_counts(tmp_path, monkeypatch):
    make_targets(str(tmp_path), 7, sync=True)
    done = []
    sync, link = Filesystem.sync, os.link
    monkeypatch.setattr(
        Filesystem, "sync", lambda disk, path: (done.append(path), sync(disk, path))
    )
    monkeypatch.setattr(os, "link", lambda one, other: (done.append("put"), link(one, other)))
    version = write_rows(tmp_path, "g", 1, "run", ROWS, parts=2)
    targets = targets_path(tmp_path)
    files = sorted(path.removeprefix("file://") for path in open_delta(targets).file_uris())
    folders = [os.path.dirname(files[0]), targets]
    entry = commit_file(targets, version)
    assert done == [*files, *folders, "put", entry, os.path.dirname(entry)]


@pytest.mark.parametrize("kind", ["lost", "503"])
def test_a_lost_answer_is_no_second_target(store, s3, kind):
    write_rows(store, "g", 1, "one", ROWS)
    s3.fault(kind, ENTRY, "PUT")
    version = write_rows(store, "g", 2, "two", ROWS)
    assert open_delta(targets_path(store)).version() == version
    assert runs_of(store) == ["one", "one", "two", "two"]


def test_a_target_that_was_never_acknowledged_is_written_by_the_next_run(store, s3):
    write_rows(store, "g", 1, "one", ROWS)
    s3.fault("never", ENTRY, "PUT", times=99)
    with pytest.raises(CommitFailed, match="the same run id"):
        write_rows(store, "g", 2, "two", ROWS)
    s3.heal()
    assert runs_of(store) == ["one", "one"]
    write_rows(store, "g", 2, "two", ROWS)
    assert runs_of(store) == ["one", "one", "two", "two"]


def test_files_that_a_job_may_still_commit_are_not_vacuumed(store):
    write_rows(store, "g", 1, "one", ROWS)
    left = f"{targets_path(store)}/run-left/part-0.parquet"
    files_at(store).write_rows(left, ROWS)
    with Coordinator.open(store, topics={"a": 6}):
        pass
    config = replace(CONFIG, log=replace(CONFIG.log, retention_days=7))
    compaction.compact(store, config, time.time_ns() // 1_000_000)
    assert files_at(store).exists(left)


def test_rows_that_others_rewrote_and_vacuumed_are_read_from_the_newest_version(place):
    """OPTIMIZE and VACUUM of a pipeline that takes care of all tables of its lake."""
    stored = StoredTarget("g", 3, "run", 0, digest_rows(ROWS), 2, len(ROWS))
    stored = stored._replace(version=write_rows(place, "g", 3, "run", ROWS, parts=2))
    write_rows(place, "g", 3, "other", ROWS)
    table = open_delta(targets_path(place))
    table.optimize.compact()
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(gone) == 3
    assert read_checked_rows(place, stored).cast(RANGE_SCHEMA).sort_by("member_id").equals(ROWS)
    table.delete("run_id = 'other'")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert read_checked_rows(place, stored).cast(RANGE_SCHEMA).sort_by("member_id").equals(ROWS)
    assert [run for _, run, _ in list_runs(table)] == ["run"]
    table.delete("run_id = 'run'")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(LostTarget, match="it has 0 rows of 2"):
        read_checked_rows(place, stored)


def test_a_restored_table_has_the_targets_from_before_and_takes_others(place):
    before = write_rows(place, "g", 1, "before", ROWS)
    after = write_rows(place, "g", 2, "after", ROWS)
    open_delta(targets_path(place)).restore(before)
    newest = write_rows(place, "g", 3, "newest", ROWS)
    for epoch, (run, version) in enumerate(
        [("before", before), ("after", after), ("newest", newest)], 1
    ):
        stored = StoredTarget("g", epoch, run, version, digest_rows(ROWS), 2, len(ROWS))
        assert read_checked_rows(place, stored).num_rows == len(ROWS)


def written(store, run_id, write, patience_s=0.0):
    target = StoredTarget("g", 1, run_id, 0, digest_rows(ROWS), 2, len(ROWS))
    return add_target(store, target, write, patience_s, 7, sync=False)


def test_a_write_that_fails_leaves_no_file(place):
    def fail(path):
        write_files(place, ROWS, "half", path)
        raise OSError(errno.ENOSPC, "No space left on device", path)

    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            written(place, "half", fail)
    names = files_at(place).names_below(targets_path(place))
    assert [name for name in names if name.endswith(".parquet")] == []


def test_a_writer_that_stands_still_holds_up_a_compaction_and_no_other_writer(tmp_path):
    store = str(tmp_path)

    def stand_still(path):
        write_files(store, ROWS, "slow", path)
        written(store, "quick", partial(write_files, store, ROWS, "quick"))
        with pytest.raises(BusyError, match="was held by others"), lock_targets(store, 0.0):
            pass

    assert written(store, "slow", stand_still) == 2
    assert runs_of(store) == ["quick"] * 2 + ["slow"] * 2
    with lock_targets(store, 0.0), pytest.raises(BusyError, match="was held by others"):
        written(store, "late", partial(write_files, store, ROWS, "late"))
