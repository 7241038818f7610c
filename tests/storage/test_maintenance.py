"""Housekeeping and snapshots: they change how fast the log is, and never what it says."""

from __future__ import annotations

import errno
import random
import resource
import shutil
import statistics
import sys
import threading
import time
from contextlib import suppress

import pytest

from coordinator.backup import backup, restore
from coordinator.config import LogConfig
from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    OffsetCommitted,
    TopicChanged,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.state_records import records_of
from coordinator.storage import delta_log, maintenance
from coordinator.storage.data_files import Part, list_parts
from coordinator.storage.delta_log import DeltaLog, open_log_table, read_log
from coordinator.storage.maintenance import (
    PACKED_BYTES_MAX,
    PACKED_FILES_MAX,
    select_small_files,
)
from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    MaintenanceStopped,
    WriterFenced,
)
from coordinator.storage.snapshot_table import list_snapshots
from coordinator.storage.state_loader import write_snapshot
from coordinator.storage.tables.commit_writer import write_commit
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.verify import verify
from tests.support.fingerprint import fingerprint
from tests.support.lives import FOO, life


def claimed(store, **settings):
    log = DeltaLog(store, LogConfig(**settings))
    log.claim("me", "", 1)
    return log


def files(store, name="log"):
    return {path.name for path in (store / name).glob("*.parquet")}


def commits(store):
    """Return the versions that have an entry."""
    folder = store / "log" / "_delta_log"
    return sorted(int(path.stem) for path in folder.glob("[0-9]*.json"))


def rows(store, **more):
    """Return what the log says, row by row, whatever file it is in."""
    return [(b.epoch, b.at_ms, r) for b in read_log(store, **more) for r in b.records]


def test_packing_keeps_every_row_its_order_and_every_position(tmp_path):
    log = claimed(tmp_path, pack_commits=5)
    at_position = {}
    for epoch in range(1, 31):
        position = log.append(life(epoch), epoch + 1)
        at_position[position] = rows(tmp_path)
        if log.is_maintenance_due():
            log.maintain()
        assert rows(tmp_path) == at_position[position]
    assert len(list_parts(open_log_table(tmp_path))) < 10
    for position, then in at_position.items():
        assert rows(tmp_path, until=position) == then
    assert rows(tmp_path, after=12) == at_position[position][11:]
    log.look()
    log.append(life(31), 32)
    assert [r for b in log.replay() for r in b.records][-11:] == life(31)


def test_a_table_of_files_stays_short_and_rows_are_not_moved_again_and_again():
    """A thousand packings of ten commits each, of random sizes."""
    chance = random.Random(1)
    parts, moved, written = [], 0, 0
    for _ in range(1000):
        for _ in range(10):
            size = chance.choice([5_000, 20_000, 100_000])
            parts.append(Part("", size, 1, len(parts), len(parts)))
            written += size
        small = select_small_files(parts)
        total = sum(part.bytes for part in small)
        assert total <= PACKED_BYTES_MAX
        assert parts[len(parts) - len(small) :] == small  # neighbours, so that order is kept
        count = sum(part.rows for part in small)
        parts[len(parts) - len(small) :] = [Part("", total, count, 0, 0)] if small else []
        moved += total
    assert len(parts) < 40 + written / PACKED_BYTES_MAX * 2
    assert moved < 14 * written


def test_a_file_of_many_rows_is_left_alone_by_few_that_take_as_many_bytes():
    """Commits of a row take kilobytes each: names of columns, sizes, checksums."""
    many = Part("", 1_500_000, 300_000, 1, 300_000)
    for each, there in ((1, False), (2_000, True)):
        few = [Part("", 8_000, each, 0, 0) for _ in range(200)]
        assert select_small_files([many, *few]) == [*([many] if there else []), *few]


def test_replaced_files_stay_for_readers_that_began_before(tmp_path):
    log = claimed(tmp_path, pack_commits=5)
    slow = read_log(tmp_path)
    for epoch in range(1, 7):
        log.append(life(epoch), epoch + 1)
    slow = read_log(tmp_path)
    first = next(slow)
    log.maintain()
    assert len(list_parts(open_log_table(tmp_path))) == 1
    assert [first, *slow] == list(read_log(tmp_path))


def test_replaced_files_and_leftovers_go_in_the_end(tmp_path):
    claimed(tmp_path).append(life(1), 2)
    (tmp_path / "log" / "part-left-by-a-crash.parquet").write_bytes(b"half")
    log = claimed(tmp_path, pack_commits=3, files_kept_ms=0)
    for epoch in range(2, 12):
        log.append(life(epoch), epoch + 1)
        if log.is_maintenance_due():
            log.maintain()
    log.maintain()
    assert files(tmp_path) == {part.path for part in list_parts(open_log_table(tmp_path))}
    assert len(rows(tmp_path)) == 11 * 11


@pytest.mark.parametrize("zombie", [False, True])
def test_a_file_that_another_coordinator_is_about_to_commit_stays(tmp_path, zombie):
    """A claim of another one is under way, or it has claimed and we do not know it yet."""
    old = claimed(tmp_path, reopen_commits=1, files_kept_ms=0)
    old.append(life(1), 2)

    def meanwhile(*commit):
        for _ in range(3):
            with suppress(WriterFenced):
                old.maintain()
        write_commit(*commit)

    new = DeltaLog(tmp_path, write_commit=write_commit if zombie else meanwhile)
    new.claim("new", "", 3)
    new._table._write_commit = meanwhile
    new.append(life(2), 4)
    for _ in range(3):
        with suppress(WriterFenced):
            old.maintain()
    assert [r for _, _, r in rows(tmp_path)] == life(1) + life(2)


def test_the_folder_of_commits_stays_short(tmp_path):
    log = claimed(tmp_path, reopen_commits=4, pack_commits=10_000)
    for epoch in range(1, 25):
        log.append(life(epoch, members=1), epoch + 1)
        if log.is_maintenance_due():
            log.maintain()
    assert len(commits(tmp_path)) == 26  # readers may still be at them
    log = claimed(tmp_path, reopen_commits=4, pack_commits=10_000, commits_kept_ms=0)
    for epoch in range(25, 33):
        log.append(life(epoch, members=1), epoch + 1)
        if log.is_maintenance_due():
            log.maintain()
    assert commits(tmp_path) == [0, 1, 26, *range(31, 35)]  # what was made and claimed stays
    assert len(rows(tmp_path)) == 32 * 5
    log.look()
    assert claimed(tmp_path).epoch == 3


def test_a_coordinator_that_was_replaced_removes_no_claim(tmp_path):
    """Others that slept learn by its successor's claim, and by nothing else, that they have one."""
    often = {"reopen_commits": 1, "commits_kept_ms": 0}
    old = claimed(tmp_path, **often)
    old.append(life(1), 2)
    new = claimed(tmp_path, **often)
    claim = commits(tmp_path)[-1]
    for epoch in range(2, 6):
        new.append(life(epoch), epoch + 1)
        new.maintain()
    assert claim + 1 not in commits(tmp_path), "the successor has cleaned up after its claim"
    with suppress(WriterFenced):
        old.look()
    for _ in range(3):
        with pytest.raises(WriterFenced):
            old.maintain(pack=True)
    assert claim in commits(tmp_path)


def test_appends_go_on_during_maintenance(tmp_path):
    """Five hundred commits; the last ones are about as fast as the first."""
    log = claimed(
        tmp_path, reopen_commits=20, pack_commits=50, files_kept_ms=500, commits_kept_ms=500
    )
    done, took = threading.Event(), []

    def care():
        while not done.wait(0.02):
            if log.is_maintenance_due():
                log.maintain()

    thread = threading.Thread(target=care)  # what it raises fails the test
    thread.start()
    for epoch in range(1, 501):
        began = time.perf_counter()
        log.append(life(epoch, members=1), epoch + 1)
        took.append(time.perf_counter() - began)
    done.set()
    thread.join()
    assert [r for b in read_log(tmp_path) for r in b.records] == [
        r for epoch in range(1, 501) for r in life(epoch, members=1)
    ]
    ratio = statistics.median(took[-50:]) / statistics.median(took[:50])
    sys.stdout.write(f"the last 50 of 500 commits took {ratio:.2f} x the first 50\n")
    assert ratio < 10  # without care it is 30 and more


# Snapshots ----------------------------------------------------------------------------------------


def replayed(batches):
    state = State()
    for batch in batches:
        for record in batch.records:
            replay(state, record)
    return state


@pytest.fixture
def lived(tmp_path):
    """Return the log of a group that changed twelve times."""
    log = claimed(tmp_path)
    log.append([TopicChanged(FOO.name, FOO.topic_id, 100, (("r1",), ("r2",)))], 2)
    for epoch in range(1, 8):
        log.append(life(epoch), epoch + 2)
    log.append([CurrentMember("g", "m1", 8, 7)], 20)
    log.append([MemberMetadata("g", "m2", "i2", subscribed_topic_regex="f.*")], 21)
    return log


def test_a_snapshot_and_the_rest_are_the_whole_from_any_position(tmp_path, lived):
    whole = fingerprint(replayed(lived.replay()))
    ends = [batch.position for batch in read_log(tmp_path)]
    for position in ends[1:-1]:
        state = replayed(read_log(tmp_path, until=position))
        lived.snapshot(records_of(state), position, 99)
        first = next(lived.replay())
        assert (first.position, first.at_ms) == (position, 99)
        assert fingerprint(replayed(lived.replay())) == whole
    assert len(files(tmp_path, "snapshots")) == len(ends) - 2  # of which two are named
    successor = claimed(tmp_path)
    assert fingerprint(replayed(successor.replay())) == whole


def test_a_damaged_snapshot_is_passed_over(tmp_path, lived, caplog):
    whole = fingerprint(replayed(lived.replay()))
    for position in (13, 24):
        state = replayed(read_log(tmp_path, until=position))
        lived.snapshot(records_of(state), position, 99)
        (new,) = files(tmp_path, "snapshots") - {"left"}
        (tmp_path / "snapshots" / new).rename(tmp_path / "left")
        (tmp_path / "left").rename(tmp_path / "snapshots" / "left")
        assert fingerprint(replayed(lived.replay())) == whole
        assert f"skipping snapshot {position}: " in caplog.text
    commit = max((tmp_path / "snapshots" / "_delta_log").glob("*.json"))
    commit.write_text("{")
    assert fingerprint(replayed(lived.replay())) == whole
    assert "snapshots are passed over" in caplog.text


@pytest.fixture
def short(tmp_path):
    """A log of one life."""
    log = claimed(tmp_path / "short")
    log.append(life(1), 2)
    return log


def test_a_log_that_ends_before_its_snapshot_is_refused(short, caplog):
    """As a copy of a live store may be, whose log was copied before its snapshots."""
    short.snapshot(life(99), 1000, 99)
    for use in (lambda: claimed(short.store), lambda: verify(short.store)):
        with pytest.raises(CorruptLog, match=r"snapshot.* position 1000.*remove"):
            use()
    assert claimed(short.store, fsync=False).position == short.position + 1
    assert "has lost rows" in caplog.text


@pytest.fixture
def copied(tmp_path, short):
    """A copy of a store whose log is older than its snapshot, by a claim and a commit."""
    copy = tmp_path / "copy"
    shutil.copytree(short.store, copy)
    late = claimed(copy)
    late.append([OffsetCommitted("g", "foo", "id", 0, 555)], 30)
    write_snapshot(late, 31)
    shutil.rmtree(copy / "log")
    shutil.copytree(f"{short.store}/log", copy / "log")
    return copy


def snapshots_of(store):
    return [one.position for one in list_snapshots(Filesystem(), f"{store}/snapshots")]


def test_a_snapshot_of_another_copy_of_the_log_is_never_believed(copied, caplog):
    """Neither while it is ahead of the log nor once the log is beyond it."""
    log = claimed(copied)
    for offset in (105, 106, 107):
        log.append([OffsetCommitted("g", "foo", "id", 0, offset)], 40)
    assert snapshots_of(copied) == [14]
    assert log.position == 16
    whole = fingerprint(replayed(read_log(copied)))
    assert fingerprint(replayed(log.replay())) == whole
    assert "skipping snapshot 14: it belongs to another log" in caplog.text
    assert verify(copied).snapshots_passed_over == 1
    write_snapshot(log, 50)
    assert snapshots_of(copied) == [16]
    assert fingerprint(replayed(claimed(copied).replay())) == whole


def test_a_snapshot_goes_with_its_log_into_a_backup(tmp_path, short):
    write_snapshot(short, 50)
    short.append([OffsetCommitted("g", "foo", "id", 0, 9)], 51)
    backup(short.store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert next(claimed(tmp_path / "restored").replay()).position == short.position - 1


def test_a_fenced_coordinator_writes_no_snapshot(tmp_path, lived):
    successor = claimed(tmp_path)
    successor.snapshot(life(1), 24, 99)
    before = files(tmp_path, "snapshots")
    with pytest.raises(WriterFenced, match="coordinator epoch 1 ended"):
        lived.snapshot(life(2), 35, 99)
    assert files(tmp_path, "snapshots") == before
    assert next(successor.replay()).position == 24


def test_old_snapshots_go_in_the_end(tmp_path, lived):
    config = LogConfig(pack_commits=2, reopen_commits=2)
    log = DeltaLog(tmp_path, config, snapshot_files_kept_ms=0)
    log.claim("me", "", 1)
    for position in (13, 24, 35, 46):
        log.snapshot(life(1), position, 99)
        log.maintain()
    assert len(files(tmp_path, "snapshots")) == 2
    assert next(log.replay()).position == 46


def test_a_snapshot_that_cannot_be_written_leaves_nothing(tmp_path, lived, monkeypatch):
    disk, rows = lived._disk, []

    def fail(path, table):
        rows.append(path)
        if len(rows) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Filesystem.write_rows(disk, path, table)

    monkeypatch.setattr(disk, "write_rows", fail)
    with pytest.raises(CommitFailed, match="No space left"):
        lived.snapshot(life(1), 13, 99, part_rows=4)
    assert len(rows) == 3
    assert files(tmp_path, "snapshots") == set()
    lived.snapshot(life(1), 13, 99)
    assert [r for b in lived.replay() for r in b.records][:11] == life(1)


def test_a_checkpoint_that_cannot_be_written_is_no_damage(tmp_path):
    log = claimed(tmp_path, reopen_commits=1)
    log.append(life(1), 2)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most[1]))  # as on a full disk
    try:
        with pytest.raises(CommitFailed, match=r"no checkpoint was written to .*/log: ") as error:
            log.maintain()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert str(error.value).endswith("File too large (os error 27)")
    log.append(life(2), 3)
    log.maintain()
    assert verify(tmp_path).position == log.position


def test_a_snapshot_of_nothing_new_is_not_written_again(tmp_path, lived):
    for _ in range(2):
        lived.snapshot(life(1), 13, 99)
    assert len(files(tmp_path, "snapshots")) == 1


class NotNow(Filesystem):
    """A disk that does not confirm the commits of one table."""

    table = "none"

    def sync(self, path):
        if f"/{self.table}/_delta_log/" in path and path.endswith(".json"):
            raise OSError(errno.EIO, "Input/output error", path)
        super().sync(path)


def test_snapshots_go_on_after_one_that_the_disk_did_not_confirm(tmp_path):
    log = DeltaLog(tmp_path, disk=NotNow())
    log.claim("me", "", 1)
    position = log.append(life(1), 2)
    log.snapshot(life(1), position, 3)
    log.append(life(2), 4)
    log._disk.table = "snapshots"
    with pytest.raises(CommitFailed, match="did not confirm"):
        log.snapshot(life(1) + life(2), log.position, 5)
    log._disk.table = "none"
    position = log.append(life(3), 6)
    log.snapshot(life(1) + life(2) + life(3), position, 7)
    first, *_ = log.replay()
    assert first.position == position


def test_after_a_packing_no_append_reads_the_table(tmp_path, monkeypatch):
    """It would take the longer the more there is, and everybody would wait for it."""
    log = claimed(tmp_path, reopen_commits=5, pack_commits=5)
    for epoch in range(1, 7):
        log.append(life(epoch), epoch + 1)
    log.maintain()
    assert len(list_parts(open_log_table(tmp_path))) == 1

    def refuse(*_):
        raise AssertionError("the table is read")

    with monkeypatch.context() as patch:
        for name in ("load", "refresh", "read"):
            patch.setattr(log._table, name, refuse)
        position = log.append(life(7), 8)
    assert position == 1 + 7 * 11
    assert rows(tmp_path)[-11:] == [(1, 8, record) for record in life(7)]


@pytest.mark.parametrize("reading", ["a checkpoint", "a snapshot", "old files"])
def test_appends_go_on_while_maintenance_reads_the_table(tmp_path, monkeypatch, reading):
    log = claimed(tmp_path, reopen_commits=2, pack_commits=1000)
    for epoch in range(1, 7):
        log.append(life(epoch), epoch + 1)
    went_on = []

    def append_meanwhile(table):
        writer = threading.Thread(target=log.append, args=(life(7), 8), daemon=True)
        writer.start()
        writer.join(60)
        went_on.append(not writer.is_alive())
        return list_parts(table)

    monkeypatch.setattr(maintenance, "list_parts", append_meanwhile)
    monkeypatch.setattr(delta_log, "list_parts", append_meanwhile)
    if reading == "a snapshot":
        assert [record for batch in log.replay() for record in batch.records]
    else:
        log.maintain(pack=reading == "a checkpoint")
    assert went_on
    assert all(went_on)


def test_few_files_are_packed_at_once_and_all_in_the_end():
    parts = [Part("", 100, 1, at, at) for at in range(10_000)]
    rounds = 0
    while len(parts) > 100:
        small = select_small_files(parts)
        assert len(small) <= PACKED_FILES_MAX
        at = parts.index(small[0])
        assert parts[at : at + len(small)] == small
        size, count = sum(part.bytes for part in small), sum(part.rows for part in small)
        packed = Part("", size, count, small[0].first, small[-1].last)
        parts[at : at + len(small)] = [packed]
        rounds += 1
    assert rounds < 20


def test_maintenance_that_is_asked_to_stop_ends_and_what_it_did_is_whole(tmp_path):
    log = claimed(tmp_path, reopen_commits=2)
    for epoch in range(1, 7):
        log.append(life(epoch), epoch + 1)
    log.stop_maintenance()
    with pytest.raises(MaintenanceStopped):
        log.maintain(pack=True)
    with pytest.raises(MaintenanceStopped):
        log.snapshot(life(1), 12, 8)
    log.append(life(7), 8)
    assert len(rows(tmp_path)) == 77
    again = [record for batch in claimed(tmp_path).replay() for record in batch.records]
    assert again == [record for epoch in range(1, 8) for record in life(epoch)]
