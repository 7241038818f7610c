"""Backups from and to object stores; and every command that names a store, by odd URLs."""

from __future__ import annotations

import json
import os

import pytest

from coordinator import Coordinator
from coordinator.backup import backup, restore
from coordinator.config import ConfigError
from coordinator.history import frame
from coordinator.storage.record_log import CommitFailed
from coordinator.storage.tables.store_files import files_at
from coordinator.verify import verify
from tests.storage.test_store_by_url import TOPICS, join
from tests.support.s3.client import SECRET

PLACES = [("here", "there"), ("there", "here"), ("there", "there")]


@pytest.fixture
def place(s3, tmp_path):
    """Return a new root, on this disk or in the bucket."""
    made = iter(range(99))
    return lambda where: (
        s3.new_store() + "/a b/ü" if where == "there" else str(tmp_path / f"{next(made)}")
    )


def written(store, members=4):
    with Coordinator.open(store, topics=TOPICS) as coordinator:
        for number in range(members):
            join(coordinator, f"m{number}")
    return store


def members(store):
    return sorted(row["member_id"] for row in frame(store, "members").to_pylist())


@pytest.mark.parametrize(("of", "to"), PLACES)
def test_a_store_is_backed_up_and_restored_from_and_to_urls(place, of, to):
    store, copy, restored_at = written(place(of)), place(to), place(of)
    done = backup(store, copy)
    assert done.verified
    assert verify(copy).position == done.position
    assert members(copy) == ["m0", "m1", "m2", "m3"]
    with pytest.raises(ConfigError, match="is a backup, which is read-only"):
        Coordinator.open(copy)
    before = frame(store, "log")["position"].to_pylist()
    restored = restore(copy, restored_at)
    assert restored.position == before[-1]
    assert verify(restored_at).coordinator_epoch == 2
    with Coordinator.open(restored_at, topics=TOPICS) as coordinator:
        join(coordinator, "m9")
    assert members(restored_at) == ["m0", "m1", "m2", "m3", "m9"]
    with pytest.raises(ConfigError, match="is not empty"):
        backup(store, copy)
    assert members(store) == ["m0", "m1", "m2", "m3"]


def test_a_live_store_is_backed_up_and_restored_as_of_a_position(place):
    store, copy, restored_at = place("there"), place("there"), place("there")
    with Coordinator.open(store, topics=TOPICS) as coordinator:
        join(coordinator, "m0")
        at = backup(store, copy).position
        join(coordinator, "m1")
        restore(store, restored_at, at)
    assert members(copy) == members(restored_at) == ["m0"]
    with pytest.raises(ConfigError, match="is inside"):
        backup(store, f"{store}/copy")


def test_a_whole_bucket_is_a_store_and_a_backup(s3, tmp_path, muster):
    store, copy, restored_at = (s3.new_bucket() for _ in range(3))
    backup(written(store), copy)
    restore(copy, restored_at)
    assert verify(restored_at).groups == 1
    assert members(restored_at) == ["m0", "m1", "m2", "m3"]
    with pytest.raises(ConfigError, match="is not empty: empty it, or name another URL"):
        backup(store, copy)
    with pytest.raises(ConfigError, match="is inside"):
        backup(store, f"{store}/copy")
    config = tmp_path / "muster.toml"
    config.write_text('[store]\nendpoint = "http://127.0.0.1:9"\n')
    done = muster("describe", "g", "--store", restored_at, "--config", config)
    assert b"http://127.0.0.1:9 does not answer" in done.stderr


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_destination_that_refuses_us_is_bad_input(s3, place, method):
    store, copy = written(place("here")), place("there")
    s3.fault("403", "", method, times=99)
    with pytest.raises(ConfigError, match=r"403 Forbidden \(SignatureDoesNotMatch\): credentials"):
        backup(store, copy)


def test_a_backup_that_fails_leaves_nothing_behind(s3, place):
    store, copy = written(place("here")), place("there")
    s3.fault("503", "/log/part-", "PUT", times=99)
    with pytest.raises(CommitFailed, match="503 Service Unavailable"):
        backup(store, copy)
    s3.heal()
    assert files_at(copy).names_below(copy) == []


def test_a_backup_that_was_killed_is_refused_by_all(place, muster_here):
    store, copy = written(place("there")), place("there")
    files_at(copy).create(f"{copy}/_incomplete", b"a backup of x (process 1)\n")
    for words in (["verify"], ["groups"], ["web"]):
        said = muster_here(*words, "--store", copy)
        assert (said.returncode, said.stderr.count(b"\n")) == (2, 1), said
        assert b"is incomplete: a backup of x" in said.stderr
    with pytest.raises(ConfigError, match="has an incomplete copy: remove it"):
        backup(store, copy)


COMMANDS = (
    ["groups"], ["describe", "g"], ["history", "g"], ["explain", "g"], ["verify"], ["compact"],
    ["plans"], ["plan", "g"],
    ["backup", "--to", "COPY"],
)  # fmt: skip
"""What reads a store, or asks its coordinator; `serve` and `web` have tests of their own."""


def test_every_command_takes_a_url_as_it_is_written(place, muster_here, tmp_path):
    store = written(place("there"))
    for words in COMMANDS:
        copy = place("there")
        said = muster_here(
            *[word.replace("COPY", copy) for word in words], "--store", f"{store}/", cwd=tmp_path
        )
        if words[0] == "plan":  # the group's assignor is not weighted
            assert said.stderr.count(b"\n") <= 1
            continue
        assert said.returncode == 0, (words, said.stderr.decode())
    assert json.loads(muster_here("verify", "--store", copy).stdout)["groups"] == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        *((words, "wrong keys") for words in COMMANDS),
        *((words, "nothing there") for words in COMMANDS),
        *((words, "no bucket") for words in COMMANDS if words[0] in {"groups", "backup"}),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_what_cannot_be_reached_ends_in_one_line(
    s3, muster_here, monkeypatch, tmp_path, words, trouble
):
    store = s3.new_store()
    if trouble == "no bucket":
        store = "s3://no-such-bucket/a"
    if trouble == "wrong keys":
        s3.fault("403", times=999)
    said = muster_here(
        *[word.replace("COPY", str(tmp_path / "copy")) for word in words],
        "--store", store, cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 2, said.stderr.decode()
    assert said.stderr.count(b"\n") == 1
    assert SECRET.encode() not in said.stderr
    assert b"Traceback" not in said.stderr
    assert os.listdir(tmp_path) == []
