"""`muster compact`: fewer files, the same rows; only targets that cannot be asked for are dropped."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, LogConfig
from coordinator.core.state.records import TargetMetadata
from coordinator.storage import compaction
from coordinator.storage.delta_log import read_log
from coordinator.storage.inbox import Compact, Inbox
from coordinator.storage.log_scan import list_data_files
from coordinator.storage.tables.table_io import BusyError
from tests.support.members import AT_ONCE, Members, log_of, wait_for
from tests.support.table_engine import installed_runs, runs_of, write_rows

CONFIG = Config(
    kafka=AT_ONCE,
    engine=EngineConfig(engine="spark"),
    log=LogConfig(retention_days=90, files_kept_ms=0),
)
AT_ONCE_GONE = replace(CONFIG, log=replace(CONFIG.log, retention_days=0))


def now():
    return time.time_ns() // 1_000_000


def opened(store, engine):
    return Coordinator.open(store, topics={"a": 6}, config=CONFIG, engine=engine)


@pytest.fixture
def lived(tmp_path, engine):
    """A group with three whole targets, one after the other, and an orphan beside them."""
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        for name in ("m1", "m2", "m3"):
            members.join(name)
            members.settle()
    rows = {"member_id": ["m"], "topic_id": ["i"], "topic": ["a"]}
    rows |= {name: pa.array([1], pa.int32()) for name in ("first_partition", "partition_count")}
    write_rows(tmp_path, "g", 99, "orphan", pa.table(rows))
    return members


def test_within_the_retention_nothing_is_dropped(tmp_path, lived):
    before, rows = set(runs_of(tmp_path)), list(read_log(tmp_path))
    done = compaction.compact(tmp_path, CONFIG, now())
    assert (done.by, done.runs_dropped, done.runs_kept) == ("us", 0, len(before))
    assert done.log_files_after < done.log_files_before
    assert set(runs_of(tmp_path)) == before
    assert list(read_log(tmp_path))[: len(rows)] == rows
    assert not (tmp_path / "_lease.json").exists()


def test_past_the_retention_what_is_in_force_stays(tmp_path, lived, engine):
    *superseded, last = installed_runs(tmp_path)
    assert superseded
    done = compaction.compact(tmp_path, AT_ONCE_GONE, now() + 10)
    assert done.runs_dropped == len(superseded) + 1  # and the orphan
    assert set(runs_of(tmp_path)) == {last}
    with opened(tmp_path, engine) as coordinator:
        lived.coordinator = coordinator
        assert sorted(map(len, lived.settle().values())) == [2, 2, 2]
    later = compaction.compact(tmp_path, AT_ONCE_GONE, now() + 20)
    assert later.runs_dropped == 0


def test_a_target_is_needed_as_long_as_its_time_can_be_asked_for(tmp_path, lived):
    """Out of force since the cutoff: who asks for the moment before it still gets it."""
    ended = {}
    for batch in read_log(tmp_path):
        for record in batch.records:
            if isinstance(record, TargetMetadata) and record.computation_id:
                for run in ended.keys() & {"open"}:
                    ended[ended.pop(run)] = batch.at_ms
                ended["open"] = record.computation_id
    last = ended.pop("open")
    for run, at_ms in ended.items():
        assert run in compaction.find_runs_needed(str(tmp_path), at_ms)
        assert run not in compaction.find_runs_needed(str(tmp_path), at_ms + 1)
    assert last in compaction.find_runs_needed(str(tmp_path), 2**60)


def test_what_a_killed_job_left_goes(tmp_path, lived):
    before = set(runs_of(tmp_path))
    left = [
        tmp_path / "targets" / "run-killed" / name
        for name in ("part-0.parquet", ".part-0.parquet.crc", "_temporary/0/part-1.parquet")
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert compaction.compact(tmp_path, CONFIG, now()).files_vacuumed == len(left)
    assert not any(path.exists() for path in left)
    assert set(runs_of(tmp_path)) == before


def test_a_group_that_is_gone_needs_no_target(tmp_path, lived, engine):
    with opened(tmp_path, engine) as coordinator:
        lived.coordinator = coordinator
        assert compaction.find_runs_needed(str(tmp_path), 2**60) != set()
        for member in list(lived.epochs):
            lived.leave(member)
        coordinator.delete_groups("g").raise_for_error()
    assert compaction.find_runs_needed(str(tmp_path), 2**60) == set()


def test_a_live_coordinator_packs_its_own_log(tmp_path, engine):
    with opened(tmp_path, engine) as coordinator:
        for number in range(12):
            coordinator.offset_commit(group_id="simple", topics={"a": {0: number}})
        epoch = log_of(coordinator).epoch
        done = compaction.compact(tmp_path, CONFIG, now())
        assert done.by == "coordinator"
        assert done.log_files_after < done.log_files_before
        assert log_of(coordinator).epoch == epoch
        fetched = coordinator.offset_fetch(group_id="simple")
        assert fetched["topics"]["a"][0]["committed_offset"] == 11
        assert len(list_data_files(tmp_path)) == done.log_files_after
    assert Inbox(tmp_path).waiting() == []


def test_a_request_that_is_being_written_is_none_yet(tmp_path):
    """If it were removed, its writer would have nothing to rename."""
    Inbox(tmp_path).put(Compact("compact-1"))
    (tmp_path / "inbox" / "compact-1.json.123").touch()
    assert Inbox(tmp_path).waiting() == ["compact-1"]


def test_a_coordinator_that_does_not_answer_is_named(tmp_path, engine, monkeypatch):
    with opened(tmp_path, engine) as coordinator:
        monkeypatch.setattr(coordinator._background.maintenance, "_compact", lambda: None)
        with pytest.raises(BusyError, match=r"did not compact the log within 0.2 s: check it"):
            compaction.compact(tmp_path, CONFIG, now(), patience_s=0.2)


def test_the_command(tmp_path, lived, muster_here):
    done = muster_here("compact", "--store", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["by"] == "us"
    nowhere = muster_here("compact", "--store", tmp_path / "nowhere")
    assert nowhere.returncode == 2
    assert b"nowhere" in nowhere.stderr
    assert not (tmp_path / "nowhere").exists()
    wait_for(lambda: not (tmp_path / "_lease.json").exists())
