"""Files of a log that are torn, damaged, missing or of another: set aside, or refused by name."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from coordinator.config import LogConfig
from coordinator.core.state.records import OffsetCommitted
from coordinator.storage.data_files import list_parts
from coordinator.storage.delta_log import read_log
from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    LogError,
    NewerLog,
    WriterFenced,
)
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.storage.tables.entries import names_files
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.read_table import ReadTable
from coordinator.storage.tables.recovery import commit_file
from tests.support.lives import claimed, life, replayed, rows_of


def written(store, **more):
    log = claimed(store, **more)
    for epoch in (1, 2, 3):
        log.append(life(epoch), epoch + 1)
    return commit_file(log.store + "/log", 4)


def cut(path, keep):
    with open(path, "rb+") as file:
        file.truncate(int(os.path.getsize(path) * keep))


TEARS = {
    "empty": lambda path: cut(path, 0),
    "half": lambda path: cut(path, 0.5),
    "zeros": lambda path: Path(path).write_bytes(b"\0" * 512),
    "one line": lambda path: _keep_lines(path, 1),
    "two lines": lambda path: _keep_lines(path, 2),
}


def _keep_lines(path, count):
    with open(path) as file:
        lines = file.readlines()[:count]
    with open(path, "w") as file:
        file.writelines(lines)


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_newest_commit_is_set_aside(tmp_path, caplog, tear):
    newest = written(tmp_path)
    TEARS[tear](newest)
    log = claimed(tmp_path)
    assert f"{newest} was torn by a crash and is set aside as" in caplog.text
    assert replayed(log) == life(1) + life(2)
    log.append(life(4), 9)
    assert replayed(log) == life(1) + life(2) + life(4)
    assert [batch.position for batch in read_log(tmp_path)] == [1, 12, 23, 24, 35]


@pytest.mark.parametrize("tear", TEARS)
def test_without_fsync_a_torn_newest_commit_is_refused(tmp_path, tear):
    config = LogConfig(fsync=False)
    newest = written(tmp_path, config=config)
    TEARS[tear](newest)
    with pytest.raises(
        CorruptLog, match=f"{newest} is damaged: a coordinator with log.fsync on sets it aside"
    ):
        claimed(tmp_path, config=config)


@pytest.mark.parametrize("tear", TEARS)
def test_an_older_torn_commit_is_refused_by_name(tmp_path, tear):
    written(tmp_path)
    older = commit_file(str(tmp_path / "log"), 3)
    TEARS[tear](older)
    with pytest.raises(CorruptLog, match=f"{older} is damaged: restore it"):
        claimed(tmp_path)
    if tear != "two lines":  # the rows are in the second one
        with pytest.raises(CorruptLog, match=f"{older} is damaged"):
            list(read_log(tmp_path))


def test_a_missing_commit_is_refused_by_name(tmp_path):
    written(tmp_path)
    older = commit_file(str(tmp_path / "log"), 3)
    os.unlink(older)
    with pytest.raises(CorruptLog, match=f"{older} is missing"):
        claimed(tmp_path)


def test_a_missing_newest_commit_that_a_checkpoint_holds_is_refused_by_name(tmp_path):
    """Readers do without it."""
    written(tmp_path)
    log = claimed(tmp_path, config=LogConfig(reopen_commits=1))
    log.maintain()
    newest = commit_file(log.store + "/log", log._table.version)
    os.unlink(newest)
    with pytest.raises(CorruptLog, match=f"{newest} is missing: restore it"):
        claimed(tmp_path)
    assert rows_of(tmp_path) == life(1) + life(2) + life(3)


def test_maintenance_names_the_commit_that_it_cannot_read(tmp_path):
    """The coordinator goes on; its operator reads this again and again."""
    written(tmp_path)
    log = claimed(tmp_path, config=LogConfig(reopen_commits=1))
    older = commit_file(log.store + "/log", 3)
    cut(older, 0.5)
    with pytest.raises(LogError, match=f"maintenance of .* failed: {older} is damaged: restore it"):
        log.maintain()


def newest_part(store):
    parts = (store / "log").glob("*.parquet")
    return max(parts, key=lambda path: path.stat().st_mtime_ns)


def test_a_damaged_data_file_is_refused_by_name(tmp_path):
    written(tmp_path)
    log = claimed(tmp_path)
    log.append(life(4, members=400), 9)
    part = newest_part(tmp_path)
    data = bytearray(part.read_bytes())
    data[len(data) // 4] ^= 0x40
    for damage in (bytes(data), bytes(data[: len(data) // 2]), b""):
        part.write_bytes(damage)
        with pytest.raises(CorruptLog, match=f"{part} cannot be read"):
            replayed(log)
    part.unlink()
    with pytest.raises(CorruptLog, match=f"{part} cannot be read.*No such file"):
        replayed(log)


def blot(path):
    """Overwrite something in the middle: the file's end, which says what is where, is whole."""
    with open(path, "rb+") as file:
        file.seek(os.path.getsize(path) // 3)
        file.write(b"\xff" * 200)


def test_a_damaged_name_of_a_column_is_refused_by_name(tmp_path):
    """A Parquet footer has no checksum: one changed bit would silently hide a column."""
    written(tmp_path)
    part = newest_part(tmp_path)
    names = {"rebalance_timeout_ms": "rebalance_timeout_mr"}
    pq.write_table(pq.read_table(part).rename_columns(names), part)
    with pytest.raises(CorruptLog, match=f"{part} has a column 'rebalance_timeout_mr' that no"):
        list(read_log(tmp_path))


@pytest.mark.parametrize("harm", [lambda path: cut(path, 0.5), blot, os.unlink])
def test_a_damaged_checkpoint_costs_nothing(tmp_path, caplog, harm):
    config = LogConfig(reopen_commits=3)
    written(tmp_path)
    log = claimed(tmp_path, config=config)
    log.maintain()
    (checkpoint,) = (tmp_path / "log" / "_delta_log").glob("*.checkpoint.parquet")
    harm(checkpoint)
    log = claimed(tmp_path)
    hint = checkpoint.with_name("_last_checkpoint")
    assert f"{hint if harm is os.unlink else checkpoint} was torn" in caplog.text
    assert replayed(log) == life(1) + life(2) + life(3)


def test_a_log_of_a_newer_version_is_refused(tmp_path):
    written(tmp_path)
    DeltaTable(tmp_path / "log").alter.set_table_properties(
        {"muster.format": "3"}, raise_if_not_exists=False
    )
    for opened in (claimed, lambda store: list(read_log(store))):
        with pytest.raises(
            NewerLog, match=r"has format 3, this version of Muster knows .* up to 1"
        ):
            opened(tmp_path)


def test_another_delta_table_is_not_taken_for_a_log(tmp_path):
    write_deltalake(tmp_path / "log", pa.table({"a": [1]}))
    with pytest.raises(CorruptLog, match="not of a coordinator: it has no property"):
        claimed(tmp_path)


def test_a_store_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(
        CommitFailed, match=r"store .*/store cannot be opened: .*Not a directory|File exists"
    ):
        claimed(tmp_path / "store")


def _snapshotted(store):
    log = claimed(store)
    for epoch in (1, 2, 3):
        log.append(life(epoch), epoch + 1)
    log.snapshot(life(3), log.position, 5)


LOSSES = {
    "the commits": lambda store: shutil.rmtree(store / "log" / "_delta_log"),
    "every file of the commits": lambda store: [
        file.unlink() for file in (store / "log" / "_delta_log").iterdir()
    ],
    "the log, the snapshots stay": lambda store: shutil.rmtree(store / "log"),
    "the commits and the snapshots": lambda store: (
        shutil.rmtree(store / "log" / "_delta_log"),
        shutil.rmtree(store / "snapshots"),
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_store_without_its_commits_is_not_taken_for_a_new_one(tmp_path, loss):
    _snapshotted(tmp_path)
    LOSSES[loss](tmp_path)
    before = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    for _ in range(2):
        with pytest.raises(CorruptLog, match="_delta_log is gone or empty, but") as error:
            claimed(tmp_path)
    assert "restore it from a copy of the store" in str(error.value)
    assert sorted(file for file in tmp_path.rglob("*") if file.is_file()) == before


def test_snapshots_without_their_commits_are_remade(tmp_path):
    """The log has everything."""
    _snapshotted(tmp_path)
    shutil.rmtree(tmp_path / "snapshots" / "_delta_log")
    log = claimed(tmp_path)
    assert replayed(log) == life(1) + life(2) + life(3)
    log.snapshot(life(3), log.position, 5)


COMMITS = 25


def behind(store, commits=COMMITS):
    """A log with commits since its checkpoint."""
    log = claimed(store, config=LogConfig(fsync=False))
    log.append(life(1), 2)
    log.maintain(pack=True)
    for number in range(commits):
        log.append([OffsetCommitted("g", "t", "id", 0, number, commit_timestamp=1)], 3 + number)
    return log


def test_a_start_asks_nothing_of_delta_rs(tmp_path, monkeypatch):
    """Which reads all of them for each thing that it is asked; and what we read is the same."""
    log = behind(tmp_path)
    opened, reads = [], Counter()
    with monkeypatch.context() as patch:
        really, read = DeltaTable.__init__, Filesystem.read

        def note(table, path, *words, **more):
            opened.append(str(path))
            really(table, path, *words, **more)

        def count(disk, path):
            reads[path] += path.endswith(".json")
            return read(disk, path)

        patch.setattr(DeltaTable, "__init__", note)
        patch.setattr(Filesystem, "read", count)
        successor = claimed(tmp_path)
        assert replayed(successor)[: len(life(1))] == life(1)
        assert len(replayed(successor)) == len(life(1)) + COMMITS
    assert not [path for path in opened if path.endswith("/log")]
    entries = [times for path, times in reads.items() if "/log/_delta_log/0" in path]
    assert sum(entries) < len(entries) + 20, "each once, but for the newest"
    ours, theirs = successor._table.load(), DeltaTable(f"{tmp_path}/log")
    assert isinstance(ours, ReadTable)
    assert list_parts(ours) == list_parts(theirs)
    numbers = ["coordinator", "none", "muster.claim.1.position", "muster.claim.2.claim_id"]
    for ask in (
        lambda table: table.version(),
        lambda table: table.protocol(),
        lambda table: table.schema(),
        lambda table: table.metadata().configuration,
        lambda table: [table.transaction_version(name) for name in numbers],
    ):
        assert ask(ours) == ask(theirs)
    assert ours.history(1) == theirs.history(1), "what we do not read ourselves, delta-rs is asked"
    log.close()


def test_a_coordinator_behind_a_checkpoint_goes_on_as_any_other(tmp_path):
    behind(tmp_path)
    successor = claimed(tmp_path, config=LogConfig(pack_commits=50, commits_kept_ms=0))
    successor.append(life(2), 999)
    successor.snapshot(life(2), successor.position, 999)
    while successor.is_maintenance_due():
        successor.maintain()
    successor.append(life(3), 1_000)
    third = claimed(tmp_path)
    assert third.epoch == 3
    assert replayed(third) == life(2) + life(3)
    with pytest.raises(WriterFenced):
        successor.append(life(4), 1_001)
    assert [batch.position for batch in read_log(tmp_path)][-1] == third.position


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("tear", TEARS)
def test_what_is_torn_behind_a_checkpoint_is_seen_all_the_same(tmp_path, caplog, tear, fsync):
    log = behind(tmp_path)
    newest = commit_file(log.store + "/log", log._table.version)
    TEARS[tear](newest)
    if not fsync:
        with pytest.raises(CorruptLog, match=f"{newest} is damaged"):
            claimed(tmp_path, config=LogConfig(fsync=False))
        return
    successor = claimed(tmp_path)
    assert f"{newest} was torn by a crash and is set aside as" in caplog.text
    assert len(replayed(successor)) == len(life(1)) + COMMITS - 1


@pytest.mark.parametrize("harm", ["missing", "torn", "another's"])
def test_an_older_entry_that_is_damaged_behind_a_checkpoint_is_named(tmp_path, harm):
    log = behind(tmp_path)
    old = commit_file(log.store + "/log", log._table.version - 10)
    if harm == "missing":
        os.remove(old)
    elif harm == "torn":
        cut(old, 0.5)
    else:
        said = Path(old).read_text()
        Path(old).write_text(said.replace('"size":', '"size": '))
    with pytest.raises(CorruptLog, match=f"{old} is missing|{old} is damaged|does not follow"):
        claimed(tmp_path)


def test_a_table_without_files_names_none(tmp_path):
    """A first commit that may not have landed asks."""
    DeltaTable.create(tmp_path, pa.schema([("position", pa.int64())]))
    found = ReadTable(read_table_files(str(tmp_path)))
    assert not names_files(found, [AddAction("a.parquet", 1, {}, 0, True, "{}")])
