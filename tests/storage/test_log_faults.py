"""What goes wrong with commits and disks: nothing is lost, and the message names it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordinator.config import LogConfig
from coordinator.storage import delta_log
from coordinator.storage.data_files import write_part
from coordinator.storage.delta_log import DeltaLog, open_log_table, read_log
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_log import CommitFailed, CorruptLog, LogError, WriterFenced
from coordinator.storage.tables.commit_writer import Commit, write_commit
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.recovery import commit_file
from coordinator.verify import verify
from tests.support.lives import claimed, life, replayed, rows_of

# Commits ------------------------------------------------------------------------------------------


class Commits:
    """Commits that fail before, or after they landed."""

    def __init__(self):
        self.fail = None

    def __call__(self, *commit):
        if self.fail == "before":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_commit(*commit)
        if self.fail == "after":
            raise OSError(errno.ETIMEDOUT, "the answer was lost")


@pytest.fixture
def commits():
    return Commits()


def test_a_commit_that_did_not_land_may_be_tried_again(tmp_path, commits):
    log = claimed(tmp_path, write_commit=commits)
    log.append(life(1), 2)
    commits.fail = "before"
    with pytest.raises(CommitFailed, match=r"nothing was written to .*No space left"):
        log.append(life(2), 3)
    commits.fail = None
    assert replayed(log) == life(1)
    assert log.append(life(3), 4) == 23
    assert replayed(log) == life(1) + life(3)
    files = {name for name in os.listdir(tmp_path / "log") if name.endswith(".parquet")}
    assert len(files) == 3  # the file of the failed commit is gone


def test_a_commit_that_landed_unheard_is_found_and_not_written_twice(tmp_path, commits):
    log = claimed(tmp_path, write_commit=commits)
    commits.fail = "after"
    assert log.append(life(1), 2) == 12
    assert log.append(life(2), 3) == 23
    assert replayed(log) == life(1) + life(2)


def test_a_claim_that_landed_unheard_is_ours(tmp_path, commits):
    commits.fail = "after"
    assert claimed(tmp_path, write_commit=commits).epoch == 1
    assert claimed(tmp_path, write_commit=commits).epoch == 2


@pytest.mark.parametrize("landed", ["before", "after"])
def test_what_cannot_be_seen_is_settled_by_the_replay(tmp_path, commits, monkeypatch, landed):
    log = claimed(tmp_path, write_commit=commits)
    commits.fail = landed

    def unreadable(*_):
        raise CorruptLog("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(log._table, "_open_table", unreadable)
        with pytest.raises(
            CommitFailed, match="Muster cannot check whether it landed: the disk is away"
        ):
            log.append(life(1), 2)
    commits.fail = None
    there = life(1) if landed == "after" else []
    assert replayed(log) == there
    assert log.append(life(2), 3) == 1 + len(there) + 11
    assert replayed(log) == there + life(2)


def once(before=lambda: None, after=lambda: None):
    """Commit with something happening just before and just after it, the first time."""
    happenings = [(before, after)]

    def commit(*given):
        first, then = happenings.pop() if happenings else (lambda: None, lambda: None)
        first()
        write_commit(*given)
        then()

    return commit


def test_of_two_claims_at_the_same_moment_one_is_fenced(tmp_path):
    faster = DeltaLog(tmp_path)
    slower = DeltaLog(tmp_path, write_commit=once(before=lambda: faster.claim("faster", "", 1)))
    with pytest.raises(WriterFenced, match="at the same time, with epoch 1"):
        slower.claim("slower", "", 1)
    faster.append(life(1), 2)
    assert slower.claim("slower", "", 1) == 2


def test_a_claim_wins_against_the_appends_of_the_one_before(tmp_path):
    old = claimed(tmp_path)
    new = DeltaLog(tmp_path, write_commit=once(before=lambda: old.append(life(1), 2)))
    assert new.claim("new", "", 3) == 2
    assert new.position == 13
    assert replayed(new) == life(1)


def test_a_claim_right_after_our_commit_ends_it(tmp_path):
    """What we have written is durable, and what it answers true; the next commit is refused."""
    new = DeltaLog(tmp_path)
    old = claimed(tmp_path)
    old._table._write_commit = once(after=lambda: new.claim("new", "", 3))
    assert old.append(life(1), 2) == 12
    for _ in range(2):
        with pytest.raises(WriterFenced, match="with epoch 2"):
            old.append(life(2), 2)
    assert replayed(new) == life(1)
    assert [batch.epoch for batch in read_log(tmp_path)] == [1, 1, 2]


def test_a_commit_of_a_writer_that_does_not_claim_is_stepped_over(tmp_path):
    """A job that sets a property, say; it takes the version that we wanted."""
    log = claimed(tmp_path)
    for epoch in (1, 2):
        DeltaTable(tmp_path / "log").alter.set_table_properties(
            {"delta.logRetentionDuration": "interval 9 days"}
        )
        log.look()
        log.append(life(epoch), 2)
        DeltaTable(tmp_path / "log").alter.set_table_properties(
            {"delta.logRetentionDuration": "interval 8 days"}
        )
    assert replayed(log) == life(1) + life(2)


def test_a_commit_takes_the_next_version_or_none(tmp_path):
    """A rebased one could lie behind a claim that it never saw."""
    claimed(tmp_path)
    ours, theirs = (
        write_part(
            Filesystem(), f"{tmp_path}/log", encode_records(life(epoch), 2, 1, 1), sync=False
        )
        for epoch in (1, 2)
    )
    newer = open_log_table(tmp_path)
    newer.create_write_transaction([theirs], "append", newer.schema())
    with pytest.raises(FileExistsError):
        write_commit(Filesystem(), f"{tmp_path}/log", Commit(2, [ours], 1, ""))
    assert rows_of(tmp_path) == life(2)


@pytest.mark.parametrize("asked", ["look", "append"])
def test_a_zombie_is_fenced_by_a_claim_that_clean_ups_leave(tmp_path, asked):
    """What its successor wrote is long gone, but for the entry after its own last one."""
    zombie = claimed(tmp_path)
    zombie.append(life(1), 2)
    config = LogConfig(reopen_commits=5, pack_commits=10_000, commits_kept_ms=0)
    successor = claimed(tmp_path, config=config)
    for epoch in range(2, 20):
        successor.append(life(epoch), epoch)
        if successor.is_maintenance_due():
            successor.maintain()
    there = [os.path.exists(commit_file(str(tmp_path / "log"), version)) for version in range(6)]
    assert there == [True, True, False, True, False, False]  # made, claimed, claimed again
    with pytest.raises(WriterFenced, match="with epoch 2"):
        zombie.look() if asked == "look" else zombie.append(life(99), 99)
    successor.append(life(20), 20)
    assert [r for r in replayed(successor) if r == life(99)[0]] == []
    assert len(replayed(successor)) == 20 * 11


@pytest.mark.parametrize("asked", ["look", "append"])
def test_a_zombie_whose_last_entry_alone_was_left_by_a_clean_up_is_fenced(tmp_path, asked):
    """A store that removes many objects at once may fail for some of them, in any order."""
    zombie = claimed(tmp_path)
    zombie.append(life(1), 2)
    last = commit_file(str(tmp_path / "log"), zombie._table.version)

    class Partial(Filesystem):
        def remove_all(self, paths):
            super().remove_all(path for path in paths if path != last)

    config = LogConfig(reopen_commits=5, pack_commits=10_000, commits_kept_ms=0)
    successor = DeltaLog(tmp_path, config, Partial())
    successor.claim("successor", "", 3)
    for epoch in range(2, 20):
        successor.append(life(epoch), epoch)
        if successor.is_maintenance_due():
            successor.maintain()
    assert os.path.exists(last)
    assert not os.path.exists(commit_file(str(tmp_path / "log"), zombie._table.version + 2))
    with pytest.raises(WriterFenced, match="with epoch 2"):
        zombie.look() if asked == "look" else zombie.append(life(99), 99)
    assert len(replayed(successor)) == 19 * 11


def test_a_claim_made_for_an_old_version_where_entries_were_removed_is_void(tmp_path):
    """It lands, since nothing is there, and no reader would see what follows it."""
    old = claimed(tmp_path, config=LogConfig(reopen_commits=5, commits_kept_ms=0))
    old.append(life(1), 2)

    def sleep():
        for epoch in range(2, 20):
            old.append(life(epoch), epoch)
            if old.is_maintenance_due():
                old.maintain()

    late = DeltaLog(tmp_path, write_commit=once(before=sleep))
    assert late.claim("late", "", 30) == 2
    assert late.append(life(20), 31) == old.position + 1 + 11
    assert rows_of(tmp_path) == [record for epoch in range(1, 21) for record in life(epoch)]


def test_another_copy_of_the_log_in_its_place_is_not_written(tmp_path):
    log = claimed(tmp_path)
    log.append(life(1), 2)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    log.append(life(2), 3)
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "copy").rename(tmp_path / "log")
    with pytest.raises(LogError, match="was at version 3 and is at 2: another copy was put"):
        log.append(life(3), 4)
    assert claimed(tmp_path).epoch == 2
    assert rows_of(tmp_path) == life(1)


def test_an_entry_that_was_changed_is_found_by_the_one_after_it(tmp_path):
    log = claimed(tmp_path)
    log.append(life(1), 2)
    log.append(life(2), 3)
    entry = Path(commit_file(f"{tmp_path}/log", 2))
    entry.write_text(entry.read_text().replace('"dataChange":true', '"dataChange":false'))
    for use in (lambda: claimed(tmp_path), lambda: verify(tmp_path)):
        with pytest.raises(CorruptLog, match=r"0003.json does not follow the entry before it"):
            use()


def test_a_clock_that_is_set_back_does_not_set_the_log_back(tmp_path):
    log = claimed(tmp_path)
    for at_ms in (500, 100, 101, 400, 600):
        log.append(life(1), at_ms)
    DeltaLog(tmp_path).claim("next", "", 50)
    assert [batch.at_ms for batch in read_log(tmp_path)] == [1, 500, 501, 502, 503, 600, 601]


@pytest.mark.parametrize("pack_commits", [0, 5])
@pytest.mark.parametrize("heard", [True, False])
def test_rows_of_a_commit_that_a_successor_cleaned_up_before_it_was_heard_stay(
    tmp_path, heard, pack_commits
):
    """Its entry and the one before are gone by then; the successor's checkpoint has its file."""
    config = LogConfig(reopen_commits=5, pack_commits=pack_commits, commits_kept_ms=0)
    old, new = claimed(tmp_path), DeltaLog(tmp_path, config)

    def succeed():
        new.claim("new", "", 3)
        for epoch in range(2, 12):
            new.append(life(epoch), epoch)
            if new.is_maintenance_due():
                new.maintain()
        if not heard:
            raise OSError(errno.ETIMEDOUT, "the answer was lost")

    old._table._write_commit = once(after=succeed)
    with pytest.raises(WriterFenced, match="with epoch 2"):
        old.append(life(1), 2)
    assert not os.path.exists(commit_file(str(tmp_path / "log"), 2))
    assert rows_of(tmp_path) == [record for epoch in range(1, 12) for record in life(epoch)]


def test_a_claim_that_slept_while_what_it_saw_was_cleaned_up_looks_again(tmp_path, monkeypatch):
    """Its row has the position after the newest row, not after the one that it saw at first."""
    old = claimed(tmp_path, config=LogConfig(reopen_commits=5, commits_kept_ms=0))

    def sleep(*given, **settings):
        monkeypatch.undo()
        part = write_part(*given, **settings)
        for epoch in range(1, 20):
            old.append(life(epoch), epoch)
            if old.is_maintenance_due():
                old.maintain()
        return part

    monkeypatch.setattr(delta_log, "write_part", sleep)
    new = DeltaLog(tmp_path)
    assert new.claim("new", "", 20) == 2
    assert new.position == old.position + 1
    assert replayed(new) == [record for epoch in range(1, 20) for record in life(epoch)]
    positions = [batch.position for batch in read_log(tmp_path)]
    assert positions == sorted(set(positions))


# Disks --------------------------------------------------------------------------------------------


class BrokenDisk(Filesystem):
    """Fails on request: `fail` gets the name of the call and the path, and may raise."""

    def __init__(self):
        self.calls = []
        self.fail = lambda *_: None

    def sync(self, path):
        self.calls.append(path)
        self.fail("sync", path)
        super().sync(path)

    def write_rows(self, path, rows):
        self.fail("write", path)
        return super().write_rows(path, rows)

    def exists(self, path):
        self.fail("exists", path)
        return super().exists(path)


@pytest.fixture
def disk():
    return BrokenDisk()


def failing(call, ending, code):
    def fail(called, path):
        if called == call and path.endswith(ending):
            raise OSError(code, os.strerror(code), path)

    return fail


def test_an_append_waits_for_the_disk_and_in_order(tmp_path, disk):
    log = claimed(tmp_path, disk=disk)
    disk.calls.clear()
    commit = commit_file(log.store + "/log", 2)

    def fail(call, path):
        if call == "sync" and path.endswith(".parquet"):
            assert not os.path.exists(commit)  # no reader can see the commit yet

    disk.fail = fail
    log.append(life(1), 2)
    part, folder, *rest = disk.calls
    assert part.endswith(".parquet")
    assert [folder, *rest] == [f"{log.store}/log", commit, f"{log.store}/log/_delta_log"]


@pytest.mark.parametrize("killed", [False, True])
def test_the_folders_of_a_new_store_are_durable_before_its_first_entry(tmp_path, disk, killed):
    """Those above it too, also where who made it was killed before they were synced."""
    store = tmp_path / "a" / "b" / "store"
    if killed:
        disk.fail = failing("sync", "/store", errno.EIO)
        with pytest.raises(CommitFailed, match="cannot be opened"):
            claimed(store, disk=disk)
        disk.fail = lambda *_: None
        disk.calls.clear()
    claimed(store, disk=disk)
    first = disk.calls.index(commit_file(f"{store}/log", 1))
    above = [str(folder) for folder in (store / "log", *(store / "log").parents)]
    above = above[: above.index(str(tmp_path)) + 1]
    assert set(above) <= set(disk.calls[:first])


def test_without_fsync_nothing_waits(tmp_path, disk):
    log = claimed(tmp_path, disk=disk, config=LogConfig(fsync=False))
    log.append(life(1), 2)
    assert disk.calls == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_data_file_that_cannot_be_written_costs_nothing_else(tmp_path, disk, call, code):
    log = claimed(tmp_path, disk=disk)
    log.append(life(1), 2)
    disk.fail = failing(call, ".parquet", code)
    with pytest.raises(CommitFailed, match=f"nothing was written to .*{os.strerror(code)}"):
        log.append(life(2), 3)
    disk.fail = lambda *_: None
    assert replayed(log) == life(1)
    log.append(life(3), 4)
    assert replayed(log) == life(1) + life(3)


def test_nothing_is_built_on_a_commit_that_the_disk_did_not_confirm(tmp_path, disk):
    log = claimed(tmp_path, disk=disk)
    disk.fail = failing("sync", ".json", errno.EIO)
    for _ in range(2):
        with pytest.raises(CommitFailed, match=r"did not confirm .*2\.json.*check the disk"):
            log.append(life(1), 2)
        disk.fail = lambda *_: None
    for use in (log.look, lambda: replayed(log)):  # nor answered what it says
        with pytest.raises(CommitFailed, match="did not confirm"):
            use()
    again = claimed(tmp_path)
    again.append(life(2), 3)
    assert replayed(again) == life(1) + life(2)


def test_a_checkpoint_holds_nothing_that_a_power_cut_undoes(tmp_path, disk):
    log = claimed(tmp_path, disk=disk, config=LogConfig(reopen_commits=1))
    log.append(life(1), 2)
    disk.fail = failing("sync", f"{3:020}.json", errno.EIO)
    with pytest.raises(CommitFailed, match="did not confirm"):
        log.append(life(2), 3)
    with pytest.raises(CommitFailed, match="did not confirm"):
        log.maintain()  # but the checkpoint is made
    os.unlink(commit_file(log.store + "/log", 3))  # the power is cut
    again = claimed(tmp_path)
    again.append(life(3), 4)
    assert replayed(again) == life(1) + life(3)


def test_what_turns_out_to_have_landed_is_synced_before_anything_is_built_on_it(tmp_path, disk):
    log = claimed(tmp_path, disk=disk)
    unseen = commit_file(log.store + "/log", 2)
    disk.fail = failing("exists", f"{2:020}.json", errno.EIO)

    def unheard(*commit):
        write_commit(*commit)
        raise OSError(errno.ETIMEDOUT, "the answer was lost")

    log._table._write_commit = unheard
    with pytest.raises(CommitFailed, match="Muster cannot check whether it landed"):
        log.append(life(1), 2)
    disk.fail = lambda *_: None
    disk.calls.clear()
    assert replayed(log) == life(1)
    assert unseen in disk.calls


def test_a_look_that_fails_is_not_a_yes(tmp_path, disk):
    log = claimed(tmp_path, disk=disk)
    disk.fail = failing("exists", ".json", errno.EIO)
    with pytest.raises(CommitFailed, match=r"cannot check whether .* is still ours"):
        log.look()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing_wherever_it_fills_up(small_disk):
    log = claimed(small_disk)
    log.append(life(1), 2)
    kept = life(1)
    page = 4096
    for room in range(0, 9 * page, page):  # the data file is about two pages, the commit one
        log.append(life(2), 2)
        kept += life(2)
        free = shutil.disk_usage(small_disk).free
        (small_disk / "ballast").write_bytes(b"x" * max(0, free - room))
        try:
            log.append(life(3), 3)
            kept += life(3)
        except CommitFailed as error:
            assert "No space left" in str(error)  # noqa: PT017 - with enough room it does not fail
        (small_disk / "ballast").unlink()
        assert replayed(log) == kept
    assert replayed(claimed(small_disk)) == kept


def test_a_read_only_disk_refuses_and_goes_on_when_it_can(small_disk):
    log = claimed(small_disk)
    log.append(life(1), 2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(CommitFailed, match="Read-only file system"):
        log.append(life(2), 3)
    with pytest.raises(CommitFailed, match="Read-only file system"):
        claimed(small_disk)
    assert replayed(log) == life(1)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    log.append(life(3), 4)
    assert replayed(log) == life(1) + life(3)
