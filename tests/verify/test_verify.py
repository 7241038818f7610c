"""`muster verify`: sound stores pass, errors name the damage, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator import Coordinator
from coordinator.backup import backup
from coordinator.config import Config, EngineConfig
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MembersAdvanced,
    MemberState,
    TargetMetadata,
)
from coordinator.core.state.state_records import records_of
from coordinator.history import frame
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.state_loader import load_state as loaded
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.verify import verify
from tests.faults.damage import live
from tests.support.classic_stories import classic_log
from tests.support.lives import FOO, claimed, life
from tests.support.members import AT_ONCE, Members


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A store with commits, checkpoints, packed files and snapshots."""
    return live(tmp_path_factory.mktemp("lived")).store


@pytest.fixture
def store(lived, tmp_path):
    shutil.copytree(lived, tmp_path / "store")
    return tmp_path / "store"


def files(store, pattern):
    found = sorted(store.glob(pattern))
    assert found, pattern
    return found


def flip(path, at):
    content = bytearray(Path(path).read_bytes())
    content[at] ^= 0x10
    Path(path).write_bytes(content)


def in_a_page(path):
    """Where the values of the positions end."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    (found,) = [column for column in columns if column.path_in_schema == "position"]
    return found.data_page_offset + found.total_compressed_size - 2


def everything(store):
    """Every file with its content and its time."""
    found = sorted(path for path in store.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def test_verify_passes_a_sound_store_and_writes_nothing(store, muster_here):
    before = everything(store)
    done = muster_here("verify", "--store", str(store))
    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert (said["sound"], said["position"], said["groups"], said["members"]) == (True, 311, 1, 20)
    assert said["snapshots"] == 2
    assert everything(store) == before


DAMAGE = {
    "a data file is missing": ("log/*.parquet", Path.unlink, "is missing"),
    "a data file is cut": (
        "log/*.parquet", lambda path: os.truncate(path, path.stat().st_size - 9), "bytes",
    ),
    "a byte of a page": ("log/*.parquet", lambda path: flip(path, in_a_page(path)), "is damaged"),
    "a byte of a column's name": (
        "log/*.parquet", lambda path: flip(path, path.read_bytes().find(b"position")), "is damaged",
    ),
    "a commit is missing": ("log/_delta_log/*3.json", Path.unlink, "is missing"),
    "a commit is cut": (
        "log/_delta_log/*3.json", lambda path: os.truncate(path, 300), "is damaged",
    ),
    "a checkpoint is cut": (
        "log/_delta_log/*.checkpoint.parquet", lambda path: os.truncate(path, 300), "is damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_error_names_the_damaged_file_and_the_remedy(store, damage, muster_here):
    pattern, harm, what = DAMAGE[damage]
    named = {path.name for path in store.glob("log/*.parquet")} if pattern[4] == "*" else set()
    harmed = [path for path in files(store, pattern) if not named or is_named(store, path)][-1]
    harm(harmed)
    done = muster_here("verify", "--store", str(store))
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"")
    assert said.count("\n") == 1
    for part in (str(harmed), what, "restore"):
        assert part in said


def is_named(store, path):
    """Whether the newest version of the log names a data file."""
    return path.name in read_table_files(str(store / "log")).files


def test_missing_commits_are_damage_not_an_empty_store(store, muster_here):
    shutil.rmtree(store / "log" / "_delta_log")
    done = muster_here("verify", "--store", str(store))
    assert done.returncode == 1
    assert f"{store}/log/_delta_log has no commits".encode() in done.stderr


def test_a_table_without_commits_is_skipped(tmp_path):
    """A live coordinator makes the folder of a table's commits before its first commit."""
    store = tmp_path / "store"
    claimed(store).close()
    shutil.rmtree(store / "snapshots", ignore_errors=True)
    (store / "snapshots" / "_delta_log").mkdir(parents=True)
    assert verify(store).snapshots == 0
    backup(store, tmp_path / "copy")
    assert verify(tmp_path / "copy").snapshots == 0


def test_commit_naming_a_file_outside_its_table_is_refused(store):
    newest = files(store, "log/_delta_log/*.json")[-1]
    text = newest.read_text()
    for path in ("../log/", "/etc/", "%2e%2e/", "file:///etc/"):
        newest.write_text(text.replace('"path":"', f'"path":"{path}'))
        with pytest.raises(CorruptLog, match="outside of its table"):
            verify(store)


def test_commit_with_wrong_file_size_or_row_count_is_refused(store):
    newest = files(store, "log/_delta_log/*.json")[-1]
    text = newest.read_text()
    size = json.loads(text.splitlines()[1])["add"]["size"]
    for old, new in (
        (f'"size":{size}', f'"size":{size + 1}'),
        ('\\"numRecords\\": ', '\\"numRecords\\": 1'),
        ('\\"position\\": ', '\\"position\\": 1'),
    ):
        assert old in text
        newest.write_text(text.replace(old, new))
        with pytest.raises(CorruptLog, match=r"bytes|positions|position \d+ is missing|no data"):
            verify(store)


def first_of(pattern):
    return lambda store: files(store, pattern)[0]


OLD = {
    "an old commit": first_of("log/_delta_log/*.json"),
    "an old checkpoint": first_of("log/_delta_log/*.checkpoint.parquet"),
    "an old commit of snapshots": first_of("snapshots/_delta_log/*.json"),
    "which checkpoint is the newest": first_of("log/_delta_log/_last_checkpoint"),
}


@pytest.mark.parametrize("old", OLD)
def test_old_commits_and_checkpoints_are_checked(store, old):
    path = OLD[old](store)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CorruptLog, match="is damaged") as error:
        verify(store)
    assert str(path) in str(error.value)


def test_missing_newest_checkpoint_is_damage(store):
    last = store / "log" / "_delta_log" / "_last_checkpoint"
    said = json.loads(last.read_text())
    last.write_text(json.dumps(said | {"version": said["version"] + 1}))
    with pytest.raises(CorruptLog, match=r"_last_checkpoint names checkpoint .* does not exist"):
        verify(store)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('\\"group_id\\": \\"g\\"', '\\"group_id\\": \\"h\\"'),
        ('\\"at_ms\\": ', '\\"at_ms\\": 1'),
        ('\\"at\\": \\"1970', '\\"at\\": \\"1971'),
    ],
)
def test_wrong_statistics_in_a_commit_are_damage(store, old, new):
    newest = files(store, "log/_delta_log/*.json")[-1]
    text = newest.read_text()
    assert old in text
    newest.write_text(text.replace(old, new))
    with pytest.raises(CorruptLog, match=r"statistics that the commits have of .* do not match"):
        verify(store)


def test_wrong_statistics_in_a_data_file_are_damage(tmp_path):
    log = claimed(tmp_path)
    log.append(life(1), 2)
    log.append([GroupMetadata("groupname", 1, 1)], 3)
    verify(tmp_path)
    path = max(
        (tmp_path / "log").glob("*.parquet"), key=lambda file: b"groupname" in file.read_bytes()
    )
    content = path.read_bytes()
    at = content.rfind(b"groupname")  # what the footer says is at the end
    path.write_bytes(content[:at] + b"h" + content[at + 1 :])
    with pytest.raises(
        CorruptLog, match="its statistics do not match its rows, which have group_id"
    ):
        verify(tmp_path)


# What no coordinator writes ----------------------------------------------------------------------


def held(member, first, epoch=1):
    span = (FOO, first, first + 10, 1)
    return CurrentMember("g", member, epoch, 0, MemberState.STABLE, (span,))


FORGED = {
    "two owners": ([held("m0", 5)], r"partition 10 of topic 'foo' has two owners in group 'g'"),
    "the group epoch falls": ([GroupMetadata("g", 0, 1)], "the epoch of group 'g' falls"),
    "the assignment epoch falls": ([TargetMetadata("g", 0)], "the assignment epoch .* falls"),
    "the assignment epoch is ahead": ([TargetMetadata("g", 9)], "ahead of the group epoch 1"),
    "a member epoch is ahead": ([held("m0", 0, 2)], "epoch of member 'm0' .* ahead"),
    "many advance too far": ([MembersAdvanced("g", 7, ("m1",))], "epoch of member 'm1' .* ahead"),
    "a member epoch falls": (
        [GroupMetadata("g", 5, 1), held("m0", 0, 5), held("m0", 0, 4)],
        "epoch of member 'm0' of group 'g' falls from 5 to 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_error_names_the_position_of_a_contradicting_record(tmp_path, forged):
    records, what = FORGED[forged]
    log = claimed(tmp_path)
    log.append(life(1), 2)
    assert verify(tmp_path).position == 12
    log.append(records, 3)
    with pytest.raises(CorruptLog, match=what) as error:
        verify(tmp_path)
    assert f"position {12 + len(records)}: " in str(error.value)
    assert f"muster restore --to {11 + len(records)}" in str(error.value)


def test_rows_of_a_fenced_coordinator_are_refused(tmp_path):
    """Its commit got through: its rows are after those of its successor."""
    claimed(tmp_path)
    log = claimed(tmp_path)
    log.append(life(1), 5)
    assert verify(tmp_path).coordinator_epoch == 2
    log._write(encode_records(life(1), log.position + 1, 6, 1), 2)
    with pytest.raises(CorruptLog, match=r"position 14 is written with .* epoch 1, after epoch 2"):
        verify(tmp_path)


# Snapshots, targets, the lease -------------------------------------------------------------------


def test_snapshot_that_differs_from_the_log_is_damage(store, muster_here):
    """Also one that is whole: only the log says what is right."""
    log = claimed(store)
    state, _, position = loaded(log)
    member = next(iter(state.groups["g"].members.values()))
    member.held = msgspec.structs.replace(member.current, previous_member_epoch=99)
    log.snapshot(records_of(state), position, 7)
    done = muster_here("verify", "--store", str(store))
    assert done.returncode == 1
    for part in (
        f"the snapshot at position {position} in {store}/snapshots",
        "different records current_member_assignment of group 'g'",
        "remove the folder",
    ):
        assert part in done.stderr.decode()
    shutil.rmtree(store / "snapshots")
    assert verify(store).snapshots == 0


def test_snapshot_that_lacks_a_record_is_damage(tmp_path):
    log = claimed(tmp_path)
    log.append(life(1), 2)
    state, _, position = loaded(log)
    kept = [one for one in records_of(state) if not isinstance(one, TargetMetadata)]
    log.snapshot(kept, position, 3)
    with pytest.raises(CorruptLog, match="has 0 records target_assignment_metadata of group 'g'"):
        verify(tmp_path)


def test_a_snapshot_ahead_of_the_log_is_damage(tmp_path):
    log = claimed(tmp_path)
    log.append(life(1), 2)
    log.snapshot(life(1), log.position + 1, 3)
    with pytest.raises(CorruptLog, match="position 13, but the log ends at 12"):
        verify(tmp_path)


@pytest.fixture
def targets(tmp_path, engine):
    """A store with three whole targets, of which the last is in force."""
    config = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark"))
    store = tmp_path / "targets-store"
    with Coordinator.open(store, topics={"a": 6}, config=config, engine=engine) as coordinator:
        members = Members(coordinator)
        for name in ("m1", "m2", "m3"):
            members.join(name)
            members.settle()
    return store


def test_verify_counts_the_targets_it_checked(targets):
    whole = verify(targets).targets
    assert whole >= 3
    table = DeltaTable(targets / "targets")
    epochs = table.to_pyarrow_table(columns=["assignment_epoch"])["assignment_epoch"].to_pylist()
    table.delete(f"assignment_epoch = {min(epochs)}")
    assert verify(targets).targets == whole - 1  # one past the retention


def test_missing_or_changed_target_is_damage(targets, muster_here):
    folder = targets / "targets"

    def newest():
        return max(folder.glob("run-*/*.parquet"), key=lambda path: path.stat().st_mtime_ns)

    harms = {
        "has 0 rows, not": lambda: shutil.rmtree(folder),
        "is missing": lambda: os.unlink(newest()),
        "is damaged": lambda: os.truncate(newest(), 99),
        "the digest is": lambda: swap_members(newest(), folder),
    }
    shutil.copytree(targets, targets.with_name("kept"))
    for what, harm in harms.items():
        harm()
        done = muster_here("verify", "--store", str(targets))
        said = done.stderr.decode()
        assert done.returncode == 1, what
        for part in (what, str(folder), "restore it from a copy"):
            assert part in said
        shutil.rmtree(targets)
        shutil.copytree(targets.with_name("kept"), targets)
    verify(targets)


def swap_members(path, folder):
    """Rewrite the rows with another owner, and let the commits say so."""
    rows = pq.read_table(path, partitioning=None)
    names = rows["member_id"].to_pylist()[::-1]
    column = rows.column_names.index("member_id")
    size = path.stat().st_size
    pq.write_table(rows.set_column(column, "member_id", pa.array(names)), path)
    for commit in folder.glob("_delta_log/*.json"):
        text = commit.read_text()
        commit.write_text(text.replace(f'"size":{size}', f'"size":{path.stat().st_size}'))


LEASE = '{"owner":"o","coordinator_epoch":%d,"address":"","expires_ms":%d,"token":"t"}'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff\xfe", "_lease.json is damaged"),
        (b"{}", "_lease.json is damaged"),
        ((LEASE % (1, 1 << 60)).encode(), "more than a day from now"),
        ((LEASE % (1, 32503680000000)).encode(), "3000-01-01"),
        ((LEASE % (9, 1)).encode(), "has coordinator epoch 9, but the log's last one is 1"),
    ],
)
def test_an_impossible_lease_is_damage(store, content, what):
    (store / "_lease.json").write_bytes(content)
    with pytest.raises(CorruptLog, match=what) as error:
        verify(store)
    assert "remove the file" in str(error.value)


# Bad input ---------------------------------------------------------------------------------------


def test_a_folder_without_a_store_is_bad_input(tmp_path, muster_here):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    table = {"position": [1]}
    write_deltalake(tmp_path / "delta", pa.table(table))
    write_deltalake(tmp_path / "other" / "log", pa.table(table))
    for name, what in (
        ("file", "is a file"),
        ("empty", "no coordinator's store found"),
        ("nothing", "no store found in"),
        ("delta", "is itself a Delta table"),
        ("other", "not the log of a coordinator"),
    ):
        done = muster_here("verify", "--store", str(tmp_path / name))
        assert (done.returncode, done.stdout) == (2, b""), name
        assert what in done.stderr.decode(), name
        assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "nothing").exists()


def test_a_newer_format_is_bad_input(tmp_path, muster_here):
    claimed(tmp_path)
    DeltaTable(str(tmp_path / "log")).alter.set_table_properties(
        {"muster.format": "2"}, raise_if_not_exists=False
    )
    done = muster_here("verify", "--store", str(tmp_path))
    assert done.returncode == 2
    assert b"has format 2" in done.stderr


def test_groups_of_every_protocol_are_counted(tmp_path):
    classic_log(tmp_path)
    there = frame(tmp_path, "groups").to_pylist()
    found = verify(tmp_path)
    assert found.groups == len(there) > 1
    assert found.members == frame(tmp_path, "members").num_rows > 1
