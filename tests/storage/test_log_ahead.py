"""A log that is read before its claim: the first replay has what came since, and nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.core.state.records import GroupMetadata
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import CorruptLog, WriterFenced
from coordinator.storage.state_loader import load_state
from coordinator.storage.tables.read_table import open_table


def groups_of(log):
    state, _, position = load_state(log)
    assert position == log.position
    return list(state.groups)


def written(store, *group_ids):
    log = DeltaLog.open(store)
    log.claim("old", "", 1)
    add(log, *group_ids)
    return log


def add(log, *group_ids):
    for group_id in group_ids:
        log.append([GroupMetadata(group_id, 1, 0)], 2)


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "store")


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_only_what_came_since_is_read_after_the_claim(store, has_snapshot):
    old = written(store, "a", "b")
    if has_snapshot:
        old.snapshot([GroupMetadata("a", 1, 0), GroupMetadata("b", 1, 0)], old.position, 2)
    add(old, "c")
    log = LogAhead.open(store)
    assert log.read_ahead() == old.position
    add(old, "d")  # who has the log goes on
    log.claim("new", "", 3)
    shutil.rmtree(f"{store}/snapshots", ignore_errors=True)
    assert groups_of(log) == ["a", "b", "c", "d"]
    assert groups_of(log) == ["a", "b", "c", "d"], "a second replay reads all"


def test_what_was_read_before_the_claim_is_not_read_again(store):
    old = written(store)
    many = [f"g{n}" for n in range(20_000)]
    old.append([GroupMetadata(group_id, 1, 0) for group_id in many], 2)
    log = LogAhead.open(store)
    log.read_ahead()
    files = Path(store, "log").glob("**/*.parquet")
    largest = max(files, key=lambda file: file.stat().st_size)
    log.claim("new", "", 3)
    largest.unlink()
    assert groups_of(log) == many
    with pytest.raises(CorruptLog, match=largest.name):
        groups_of(log)


def test_another_copy_in_its_place_is_read_whole(store, tmp_path):
    written(store, "a", "b")
    written(tmp_path / "copy", "x", "y", "z")
    log = LogAhead.open(store)
    assert log.read_ahead() == 3
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "copy", store)
    log.claim("new", "", 3)
    assert groups_of(log) == ["x", "y", "z"]


def test_what_cannot_be_read_yet_is_left_to_the_claim(store):
    log = LogAhead.open(store)
    assert log.read_ahead() == 0
    log.claim("new", "", 1)
    assert groups_of(log) == []


@pytest.mark.parametrize("moved", ["not", "by rows", "by a claim"])
def test_the_table_is_opened_again_only_where_another_wrote_meanwhile(store, moved):
    """What was read says nothing of who may write: the entry after it does."""
    old = written(store, "a")
    opened = []

    def count(disk, path):
        opened.append(path)
        return open_table(disk, path)

    log = LogAhead(store, open_table=count)
    log.read_ahead()
    if moved == "by rows":
        add(old, "b")
    elif moved == "by a claim":
        old = written(store, "b")
    log.claim("new", "", 3)
    assert (log.epoch, log.position) == (old.epoch + 1, old.position + 1)
    assert groups_of(log) == (["a"] if moved == "not" else ["a", "b"])
    assert opened == [f"{store}/log"] * (1 if moved == "not" else 2)
    with pytest.raises(WriterFenced):
        add(old, "c")
