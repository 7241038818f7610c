"""`muster backup` and `muster restore`: consistent copies; incomplete ones are refused."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import stat
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator import Coordinator
from coordinator.backup import backup, copying, restore
from coordinator.config import Config, ConfigError, EngineConfig, LogConfig
from coordinator.core.state.records import GroupMetadata, MemberMetadata, TargetMetadata
from coordinator.display.times import format_time
from coordinator.history.log_reader import LogReader
from coordinator.storage import maintenance
from coordinator.storage.compaction import compact
from coordinator.storage.delta_log import read_log
from coordinator.storage.lease import Lease
from coordinator.storage.record_log import CommitFailed, WriterFenced
from coordinator.storage.store_marks import BACKUP, INCOMPLETE
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.target_digest import digest_rows
from coordinator.storage.target_table import PARTITION, targets_path
from coordinator.verify import verify
from tests.conftest import kill_when
from tests.faults.crowd import Crowd
from tests.faults.damage import live
from tests.faults.node import LARGE, SMALL
from tests.faults.process import QUICK, Node
from tests.support.fingerprint import fingerprint
from tests.support.lives import claimed, life
from tests.support.longer import EVERY
from tests.support.members import AT_ONCE, Members
from tests.support.table_engine import write_rows


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A store with commits, checkpoints, packed files and snapshots."""
    return live(tmp_path_factory.mktemp("lived")).store


@pytest.fixture
def copy(lived, tmp_path):
    """Its backup."""
    backup(lived, tmp_path / "backup")
    return tmp_path / "backup"


def state_of(store, position=None):
    return fingerprint(LogReader(store, position).state())


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# What a copy is ----------------------------------------------------------------------------------


def test_backup_equals_the_store_and_is_read_only(lived, tmp_path, muster_here):
    (lived / "_lease.json").write_bytes(b"{}")
    before = files_of(lived)
    done = muster_here("backup", "--store", str(lived), "--into", str(tmp_path / "backup"))
    (lived / "_lease.json").unlink()
    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert (said["position"], said["coordinator_epoch"], said["verified"]) == (311, 1, True)
    copy = tmp_path / "backup"
    assert not {"_lease.json", INCOMPLETE, "_locks"} & set(os.listdir(copy))
    assert "_lease.json" in before
    assert state_of(copy) == state_of(lived)
    assert list(read_log(copy)) == list(read_log(lived))
    assert verify(copy).snapshots == verify(lived).snapshots == 2
    assert muster_here("groups", "--store", str(copy)).returncode == 0
    for write in (
        lambda: Coordinator.open(copy, takeover="refuse"),
        lambda: compact(copy, Config(), 0),
        lambda: backup(copy, tmp_path / "second"),
    ):
        with pytest.raises(ConfigError, match=f"{copy} is a backup.*muster restore --from"):
            write()
    assert not (tmp_path / "second").exists()


def test_restored_store_serves_and_fences_old_coordinators(lived, copy, tmp_path):
    done = restore(copy, tmp_path / "new")
    assert (done.position, done.coordinator_epoch, done.verified) == (311, 2, True)
    assert state_of(tmp_path / "new", 311) == state_of(lived)
    assert verify(tmp_path / "new").coordinator_epoch == 2
    old = claimed(copy_of(lived, tmp_path))  # epoch 2 as well; another one claims here
    with Coordinator.open(tmp_path / "new", topics=SMALL | LARGE, config=QUICK):
        moved = tmp_path / "moved"
        shutil.move(old.store, moved)
        shutil.copytree(tmp_path / "new", old.store)
        with pytest.raises(WriterFenced):
            old.append(life(1), 9)
    assert verify(tmp_path / "new").coordinator_epoch == 3


def copy_of(store, tmp_path):
    shutil.copytree(store, tmp_path / "old")
    return tmp_path / "old"


def test_restore_to_a_position_or_time_equals_the_replay_to_it(lived, copy, tmp_path, muster_here):
    ends = [(batch.position, batch.at_ms) for batch in read_log(lived)]
    for position, at_ms in random.Random(7).sample(ends, 4):
        for to in (str(position), format_time(at_ms)):
            new = tmp_path / "new"
            done = muster_here("restore", "--from", str(copy), "--store", str(new), "--to", to)
            assert (done.returncode, done.stderr) == (0, b""), to
            said = json.loads(done.stdout)
            assert (said["position"], said["at"]) == (position, format_time(at_ms))
            assert state_of(new) == state_of(lived, position)
            assert verify(new).position == position + 1  # its own claim
            shutil.rmtree(new)


def test_restore_reads_a_store_that_is_no_backup(lived, tmp_path):
    restore(lived, tmp_path / "new", 205)
    assert state_of(tmp_path / "new") == state_of(lived, 205)


def test_backup_and_restore_keep_file_modes(lived, tmp_path):
    for at, _, names in os.walk(lived):
        os.chmod(at, 0o700)
        for name in names:
            os.chmod(os.path.join(at, name), 0o600)
    backup(lived, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", 205)
    for root in (tmp_path / "backup", tmp_path / "new"):
        for path in [root, *root.rglob("*")]:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_copy_that_the_disk_does_not_confirm_leaves_nothing(lived, tmp_path, monkeypatch):
    copy, sync = tmp_path / "copy", Filesystem.sync

    def fail(disk, path):
        if path == str(copy) and not (copy / INCOMPLETE).exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync(disk, path)

    monkeypatch.setattr(Filesystem, "sync", fail)
    with pytest.raises(
        CommitFailed, match=f"could not be written to {copy}.*{os.strerror(errno.EIO)}"
    ):
        backup(lived, copy)
    assert not copy.exists()


def test_backup_copies_the_targets_that_records_name(tmp_path, engine):
    config = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark"))
    store, group = tmp_path / "store", "g"
    with Coordinator.open(store, topics={"a": 6}, config=config, engine=engine) as coordinator:
        members = Members(coordinator)
        for name in ("m1", "m2", "m3"):
            members.join(name)
            members.settle()
    whole = verify(store).targets
    assert whole >= 3
    backup(store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    assert verify(tmp_path / "new").targets == whole
    with Coordinator.open(tmp_path / "new", topics={"a": 6}, config=config, engine=engine) as again:
        members.coordinator = again
        members.join("m4")
        members.settle()
        assert group in [one["group_id"] for one in again.list_groups()["groups"]]
    assert verify(tmp_path / "new").targets > whole


def write_by_folders(store, group_id, rows):
    """Commit a target in a folder of its group's name, as Spark's writer did in older versions."""
    names = {"group_id": pa.array([group_id]), "assignment_epoch": pa.array([1], pa.int32())}
    for name, column in (names | {"run_id": pa.array(["run"])}).items():
        rows = rows.append_column(name, column)
    path = targets_path(store)
    write_deltalake(path, rows, mode="append", partition_by=PARTITION)
    return DeltaTable(path).version()


@pytest.mark.parametrize("folders", [True, False])
def test_backup_copies_targets_of_groups_with_odd_names(tmp_path, folders):
    """As folders they are coded twice: by the table for the file system, and in its commits."""
    log = claimed(tmp_path / "store")
    names = ["plain", "a b", "a/b", "../../x", "ü%20=:?*<>|", "%2F", "{x}#\\\\", ".", "tab\there"]
    names += ["line\u2028end", "next\x85line", "file\x1cseparator"]  # no ends of lines in JSON
    columns = {"member_id": ["m"], "topic_id": ["i"], "topic": ["a"]}
    columns |= {n: pa.array([3], pa.int32()) for n in ("first_partition", "partition_count")}
    rows = pa.table(columns)
    for name in names:
        run_id = "run" if folders else f"run {name}"
        version = (
            write_by_folders(tmp_path / "store", name, rows)
            if folders
            else write_rows(tmp_path / "store", name, 1, run_id, rows)
        )
        target = TargetMetadata(
            name, 1, 0, "uniform", computation_id=run_id, targets_version=version,
            digest=digest_rows(rows), members=1, ranges=1,
        )  # fmt: skip
        log.append([GroupMetadata(name, 1, 1), MemberMetadata(name, "m"), target], 5)
    backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    assert verify(tmp_path / "new").targets == len(names)
    reading = LogReader(tmp_path / "new")
    for group in reading.state().groups.values():
        reading.read_target(group)
        assert group.targets["m"][0][1:] == (3, 6)


# Of a live store ---------------------------------------------------------------------------------


COPIES = 5 if EVERY else 2


def test_backup_under_load_is_sound_and_has_every_answered_change(tmp_path):
    """The coordinator packs and drops files all the time; heartbeats go on."""
    crowd, node = Crowd({"a": 4, "b": 3}, random.Random(7)), Node(tmp_path / "store")
    node.wait_serves()
    crowd.live(node, 1.0)
    made = []

    def beat():
        while len(made) < COPIES and not node.ended:
            crowd.live(node, 0.1)

    beating = threading.Thread(target=beat)
    beating.start()
    while beating.is_alive() and len(made) < COPIES:
        acknowledged = dict(crowd.epochs)
        copy = tmp_path / f"backup-{len(made)}"
        made.append((backup(tmp_path / "store", copy, check=False), acknowledged, copy))
        verify(tmp_path / "store")
    beating.join()
    node.close()
    assert len(made) == COPIES
    for done, acknowledged, copy in made:
        assert verify(copy).position == done.position
        assert state_of(copy) == state_of(tmp_path / "store", done.position)
        groups = LogReader(copy).state().groups
        for group_id, (epoch, assignment_epoch) in acknowledged.items():
            if epoch:
                assert groups[group_id].epoch >= epoch
                assert groups[group_id].assignment_epoch >= assignment_epoch
    restore(made[-1][2], tmp_path / "new")
    with Coordinator.open(tmp_path / "new", topics=SMALL | LARGE, config=QUICK) as coordinator:
        assert coordinator.status == "active"


class Packing:
    """Has the log packed, and what was packed removed, before so many copies of files."""

    def __init__(self, monkeypatch, store, times):
        monkeypatch.setattr(maintenance, "select_small_files", list)  # all of it, every time
        self.log = claimed(store, config=LogConfig(files_kept_ms=0, pack_commits=2))
        self.times, self.real = times, copying.copy_file
        self.epoch = 0
        for _ in range(5):
            self.append()
        monkeypatch.setattr(copying, "copy_file", self)

    def append(self):
        self.epoch += 1
        self.log.append([GroupMetadata("g", self.epoch, 1)], self.epoch)

    def __call__(self, source, to, size, wanted):
        if self.times and f"{os.sep}log{os.sep}" in source:
            self.times -= 1
            self.append()
            self.log.maintain(pack=True)
            self.log.maintain(pack=True)
        return self.real(source, to, size, wanted)


def test_backup_copies_again_when_compaction_replaces_files(tmp_path, monkeypatch):
    packing = Packing(monkeypatch, tmp_path / "store", 3)
    done = backup(tmp_path / "store", tmp_path / "backup")
    assert packing.times == 0
    assert list(read_log(tmp_path / "backup")) == list(read_log(tmp_path / "store"))
    assert verify(tmp_path / "backup").position == done.position


def test_backup_fails_with_a_remedy_when_files_are_always_replaced(tmp_path, monkeypatch):
    Packing(monkeypatch, tmp_path / "store", 100)
    with pytest.raises(CommitFailed, match=r"raise log\.files_kept_ms"):
        backup(tmp_path / "store", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


# Incomplete and damaged ----------------------------------------------------------------------------


@pytest.mark.parametrize("seen", ["log/_delta_log", "snapshots"])
def test_every_command_refuses_an_interrupted_backup(lived, tmp_path, seen, muster_here):
    folder = tmp_path / "backup"
    command = [sys.executable, "-m", "coordinator", "backup", "--store", lived, "--into", folder]
    assert kill_when((folder / seen).exists, [str(word) for word in command], tmp_path)
    assert (folder / INCOMPLETE).exists()
    assert not (folder / BACKUP).exists()
    new = tmp_path / "new"
    for words in (
        ("restore", "--from", str(folder), "--store", str(new)),
        ("backup", "--store", str(folder), "--into", str(new)),
        ("backup", "--store", str(lived), "--into", str(folder)),
        ("verify", "--store", str(folder)),
        ("groups", "--store", str(folder)),
        ("compact", "--store", str(folder)),
    ):
        done = muster_here(*words)
        assert done.returncode == 2, words
        assert done.stderr.count(b"\n") == 1
        assert b"incomplete" in done.stderr, words
        assert not new.exists()
    with pytest.raises(ConfigError, match=r"is incomplete: .* was interrupted"):
        Coordinator.open(folder, takeover="refuse")


HARMS = {
    "flipped": lambda path: flip(path, path.stat().st_size // 2),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "gone": Path.unlink,
}


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", HARMS)
def test_error_names_the_damaged_file_of_a_backup(copy, tmp_path, harm, muster_here):
    for pattern in ("log/*.parquet", "snapshots/*.parquet", "log/_delta_log/*1.json"):
        path = min(copy.glob(pattern))
        kept = path.read_bytes()
        HARMS[harm](path)
        done = muster_here("verify", "--store", str(copy))
        assert (done.returncode, str(path) in done.stderr.decode()) == (1, True), done.stderr
        done = muster_here("restore", "--from", str(copy), "--store", str(tmp_path / "new"))
        assert (done.returncode, done.stdout) == (2, b""), (pattern, done.stderr)
        assert path.name in done.stderr.decode()
        assert not (tmp_path / "new").exists()
        path.write_bytes(kept)
    restore(copy, tmp_path / "new")


def test_backup_refuses_a_damaged_store(lived, tmp_path, muster_here):
    shutil.copytree(lived, tmp_path / "store")
    log = read_table_files(str(tmp_path / "store" / "log"))
    path = Path(log.path(next(iter(log.files.values()))))
    path.unlink()
    done = muster_here("backup", "--store", str(tmp_path / "store"), "--into", str(tmp_path / "b"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"{path} is missing" in done.stderr.decode()
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("room", [4096, 0])
@pytest.mark.parametrize("name", ["new", "empty"])
def test_full_disk_is_a_one_line_error_and_leaves_nothing(lived, tmp_path, name, room, muster_here):
    """A limit per file stands in for a full disk; without any, there is room for names only."""
    (tmp_path / "empty").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for words in (
        ("backup", "--store", str(lived), "--into", str(tmp_path / name)),
        ("restore", "--from", str(lived), "--store", str(tmp_path / name)),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            done = muster_here(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        said = done.stderr.decode()
        assert (done.returncode, done.stdout, said.count("\n")) == (1, b"", 1)
        for part in (
            str(lived),
            f"could not be written to {tmp_path / name}",
            "File too large",
            "room",
        ):
            assert part in said
        assert files_of(tmp_path) == []
        assert (tmp_path / "new").exists() is False


# Bad input ---------------------------------------------------------------------------------------


def test_bad_destinations_are_refused_and_unchanged(lived, copy, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    for name, what in (("file", "is a file"), ("full", r"is not empty \(mine\)")):
        for make in (backup, restore):
            with pytest.raises(ConfigError, match=what):
                make(lived, tmp_path / name)
    for inside in (lived, lived / "copy"):
        with pytest.raises(ConfigError, match="is inside"):
            backup(lived, inside)
    for odd in ("a%41b", "new\nline"):
        with pytest.raises(ConfigError, match="in its path, and Delta would take that for"):
            backup(lived, tmp_path / odd)
    assert files_of(tmp_path / "full") == ["mine"]
    (tmp_path / "empty").mkdir()
    restore(copy, tmp_path / "empty")


@pytest.mark.parametrize(
    ("to", "what"),
    [
        (0, "position 0 is not in the log"),
        (312, "positions 1 to 311"),
        (202, r"positions 200 to 205, which was written at once: give --to 205, or 199"),
    ],
)
def test_positions_that_cannot_be_restored_are_refused(copy, tmp_path, to, what):
    with pytest.raises((SpecError, ConfigError), match=what):
        restore(copy, tmp_path / "new", to)
    assert not (tmp_path / "new").exists()


def test_bad_times_are_refused(copy, tmp_path, muster_here):
    words = ("restore", "--from", str(copy), "--store", str(tmp_path / "new"), "--to")
    for to, what in (
        ("soon", "--to 'soon' is neither a position nor a time"),
        ("1969-01-01", "before the first record"),
        ("2999-01-01", "is in the future"),
    ):
        done = muster_here(*words, to)
        assert done.returncode == 2
        assert what in done.stderr.decode()
    assert not (tmp_path / "new").exists()


def test_backup_does_not_copy_or_change_the_lease(lived, tmp_path):
    shutil.copytree(lived, tmp_path / "store")
    lease = Lease(str(tmp_path / "store"), "me", "", QUICK.lease, lambda: 1)
    lease.wait()
    before = (tmp_path / "store" / "_lease.json").read_bytes()
    backup(tmp_path / "store", tmp_path / "backup")
    assert (tmp_path / "store" / "_lease.json").read_bytes() == before
    assert not (tmp_path / "backup" / "_lease.json").exists()
