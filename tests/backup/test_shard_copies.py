"""A store of shards is backed up and restored: every shard, and the root."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.history import frame
from coordinator.storage.shards import make_shards, root_at, shard_at, store_of, stores_of
from tests.support.members import AT_ONCE, join

EARLY, LATE = "g0", "g1"
CONFIG = Config(kafka=AT_ONCE)


@pytest.fixture
def store(tmp_path):
    """A store of three shards: two have a group each, and one has no log."""
    root = str(tmp_path / "store")
    make_shards(root, 3, CONFIG)
    assert store_of(root, EARLY) != store_of(root, LATE)
    open_in(root_at(root), "muster.nodes")
    open_in(store_of(root, EARLY), EARLY)
    return root


def open_in(store, group_id):
    with Coordinator.open(store, topics={"a": 6}, config=CONFIG) as opened:
        join(opened, "m", group=group_id)


def groups(store):
    return sorted(frame(store, "groups")["group_id"].to_pylist())


def run(muster_here, *words):
    done = muster_here(*words)
    assert done.returncode == 0, done.stderr
    return [row["shard"] for row in json.loads(done.stdout)["shards"]]


def test_every_shard_is_in_a_backup_and_restored_as_of_a_time(store, tmp_path, muster_here):
    time.sleep(0.002)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.002)
    open_in(store_of(store, LATE), LATE)
    copy, new = str(tmp_path / "copy"), str(tmp_path / "new")
    parts = sorted(one.removeprefix(store) for one in stores_of(store))
    names = [part.rpartition("/")[2] for part in parts]
    assert run(muster_here, "backup", "--store", store, "--into", copy) == [*names, "root"]
    assert groups(copy) == [EARLY, LATE]
    assert muster_here("verify", "--store", copy).returncode == 0
    refused = muster_here("serve", "--store", copy, "--listen", "127.0.0.1:0")
    assert (refused.returncode, b"is a backup" in refused.stderr) == (2, True)

    assert run(muster_here, "restore", "--from", copy, "--store", new) == [*names, "root"]
    assert sorted(one.removeprefix(new) for one in stores_of(new)) == parts
    assert groups(new) == [EARLY, LATE]
    assert groups(root_at(new)) == ["muster.nodes"]
    assert muster_here("verify", "--store", new).returncode == 0

    early = str(tmp_path / "early")
    run(muster_here, "restore", "--from", copy, "--store", early, "--to", between)
    assert groups(early) == [EARLY]
    open_in(store_of(early, LATE), LATE)
    assert groups(early) == [EARLY, LATE]


def test_what_cannot_be_copied_is_refused_whole(store, tmp_path, muster_here):
    new = tmp_path / "new"
    words = ("restore", "--from", store, "--store", new, "--to")
    for to, why in (("3", b"a position"), ("2001-01-01", b"before the first record")):
        done = muster_here(*words, to)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
        assert not new.exists()
    done = muster_here("backup", "--store", store, "--into", shard_at(store, 9))
    assert (done.returncode, b"inside" in done.stderr) == (2, True)
    newest = max(Path(store_of(store, EARLY), "log", "_delta_log").glob("*.json"))
    newest.write_text("{")
    done = muster_here("backup", "--store", store, "--into", new)
    assert done.returncode != 0
    assert not new.exists()
