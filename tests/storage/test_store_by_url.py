"""A store in an object store: written, read, taken over, and what its network does to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count

import pytest
from deltalake import DeltaTable

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, LeaseConfig, LogConfig
from coordinator.errors import GroupError
from coordinator.history import frame
from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import CommitFailed, CorruptLog, LogError, WriterFenced
from coordinator.storage.tables.recovery import commit_file
from coordinator.storage.tables.store_files import files_at
from coordinator.verify import verify
from tests.conftest import ROOT
from tests.support import members
from tests.support.lives import life
from tests.support.processes import start
from tests.support.s3.client import SECRET

TOPICS = {"clicks": 6}
join = partial(members.join, topics=TOPICS)
SHORT = Config(lease=LeaseConfig(ttl_ms=1_500, renew_ms=300))


@pytest.fixture
def store(s3):
    return s3.new_store()


@pytest.fixture
def log(store):
    log = DeltaLog(store)
    log.claim("one", "", 1)
    return log


def test_a_damaged_newest_commit_is_to_be_restored(log, store, muster_here):
    """Nobody sets it aside as on a disk: a put is never torn."""
    newest, files = commit_file(f"{store}/log", log._table.version), files_at(store)
    files.replace(newest, files.read(newest)[:100])
    said = f"{newest} is damaged: restore it from a copy of the store"
    with pytest.raises(CorruptLog, match=said):
        Coordinator.open(store)
    for words in (["verify"], ["groups"], ["compact"]):
        assert said in muster_here(*words, "--store", store).stderr.decode()


def positions(store):
    return [batch.position for batch in read_log(store)]


def test_what_is_written_is_read_by_everybody(store, muster_here):
    config = Config(log=LogConfig(reopen_commits=5, pack_commits=6, snapshot_rows=10))
    with Coordinator.open(store, topics=TOPICS, config=config) as coordinator:
        for number in range(8):
            join(coordinator, f"m{number}")
        live = muster_here("compact", "--store", store)  # which asks the coordinator
        assert json.loads(live.stdout)["by"] == "coordinator", live.stderr
    found = verify(store)
    assert (found.groups, found.members) == (1, 8)
    table = DeltaTable(f"{store}/log")
    rows = table.to_pyarrow_table()
    assert sorted(rows["position"].to_pylist()) == list(range(1, found.position + 1))
    assert frame(store, "log").num_rows == found.position
    assert frame(store, "groups").to_pylist()[0]["members"] == 8
    assert frame(store, "assignment_history").num_rows
    assert frame(store, "targets").num_rows == 0
    for words in (
        ["groups"],
        ["describe", "g"],
        ["history", "g"],
        ["explain", "g"],
        ["verify"],
        ["compact"],
    ):
        said = muster_here(*words, "--store", store)
        assert said.returncode == 0, (words, said.stderr)
        assert json.loads(said.stdout.splitlines()[0])
    assert verify(store).coordinator_epoch == 2  # it was free, so `compact` claimed it
    with Coordinator.open(store, topics=TOPICS) as coordinator:
        (group,) = coordinator.consumer_group_describe("g")
        assert len(group["members"]) == 8


ENTRY = "/log/_delta_log/0000"
SERVE = """
import sys, time
from coordinator import Coordinator
from tests.storage.test_store_by_url import SHORT, TOPICS, join
with Coordinator.open(sys.argv[1], topics=TOPICS, config=SHORT) as coordinator:
    for number in range(1_000):
        join(coordinator, f"m{number}")
        print(number, flush=True)
        time.sleep(0.01)
"""


def test_a_killed_coordinator_is_taken_over_and_nothing_acknowledged_is_lost(store):
    process = start(
        [sys.executable, "-c", SERVE, store],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    acknowledged = [process.stdout.readline() for _ in range(15)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.wait()
    began = time.monotonic()
    with Coordinator.open(store, topics=TOPICS, config=SHORT) as coordinator:
        assert 0.2 < time.monotonic() - began < 60
        there = {row["member_id"] for row in frame(store, "members").to_pylist()}
        assert {f"m{int(number)}" for number in acknowledged} <= there
        assert join(coordinator, "one-more").member_epoch
    verify(store)


def test_a_stand_by_takes_over_by_force_and_the_other_is_fenced(store):
    with Coordinator.open(store, topics=TOPICS) as first:
        join(first, "m0")
        with Coordinator.open(store, topics=TOPICS, takeover="force") as second:
            join(second, "m1")
            with pytest.raises(GroupError, match="Another coordinator has taken over the store"):
                join(first, "m2")
    assert frame(store, "groups")["members"].to_pylist() == [2]


def test_a_commit_is_two_requests_and_a_look_is_one(log, s3):
    s3.requests()
    for epoch in range(2, 12):
        log.append(life(epoch), epoch)
    assert [one.split()[0] for one in s3.requests()] == ["PUT"] * 20
    log.look()
    assert [one.split()[0] for one in s3.requests()] == ["HEAD"]


def test_who_takes_a_log_over_asks_for_each_entry_once_and_for_no_data(store, s3):
    """delta-rs asks for all entries each time it is asked something: seven times for a load."""
    with Coordinator.open(store, topics=TOPICS, config=SHORT) as coordinator:
        for number in range(30):
            join(coordinator, f"m{number}")
    s3.requests()
    there = LogAhead.open(store, LogConfig())
    there.read_ahead()
    asked = s3.requests()
    there.claim("next", "", 40)
    loaded, _ = there.take_ahead()
    assert len(loaded.state.groups["g"].members) == 30
    claim = s3.requests()
    assert len(claim) <= 5, "the next entry, the newest, the claim's file and entry, the floor"
    asked += claim
    times = Counter(one for one in asked if one.startswith("GET") and ENTRY in one)
    assert len(times) >= 30
    assert sum(times.values()) <= len(times) + 1, "the claim looks at the newest again"
    assert len([one for one in asked if one.startswith("GET") and ".parquet" in one]) == 1, "claim"


def test_an_idle_coordinator_asks_little(store, s3):
    with Coordinator.open(store, topics=TOPICS):
        s3.requests()
        began = time.monotonic()
        time.sleep(4.5)
        assert len(s3.requests()) <= 2.5 * (time.monotonic() - began)


@pytest.mark.parametrize("kind", ["lost", "503"])
def test_an_answer_that_was_lost_is_found_in_the_entry(log, store, s3, kind):
    s3.fault(kind, ENTRY, "PUT")
    at = log.append(life(2), 2)
    assert log.append(life(3), 3) > at
    assert positions(store) == [1, at, log.position]


def test_a_put_that_never_lands_is_done_again(log, store, s3):
    s3.fault("never", ENTRY, "PUT", times=4)  # as often as it is tried
    at = log.append(life(2), 2)
    assert positions(store) == [1, at]
    assert verify(store).position == at


def test_a_put_that_lands_after_it_was_given_up_is_not_lost_twice(log, store, s3):
    """Its data file must stay, and who goes on must know of it."""
    faults = [("late", ENTRY, "PUT", 1), ("503", ENTRY, "PUT", 100)]
    s3.faults(faults)
    with pytest.raises((CommitFailed, OSError)):
        log.append(life(2), 2)
    s3.heal()
    replayed = [batch.position for batch in log.replay()]
    assert replayed == positions(store) == [1, log.position]
    at = log.append(life(3), 3)
    assert positions(store) == [*replayed, at]
    assert verify(store).position == at


@pytest.mark.parametrize("said", ["409", "412"])
def test_a_put_that_conflicts_with_itself_and_lands_late_is_not_lost(log, store, s3, said):
    """Nothing is there yet when the answer to its second request says that something is."""
    s3.faults([("late", ENTRY, "PUT", 1), (said, ENTRY, "PUT", 1)])
    with suppress(CommitFailed):
        log.append(life(2), 2)
    time.sleep(1)  # the first request lands, or finds its version taken
    replayed = [batch.position for batch in log.replay()]
    assert replayed == positions(store) == [1, log.position]
    at = log.append(life(3), 3)
    assert positions(store) == [*replayed, at]
    assert verify(store).position == at


def test_a_put_that_would_land_late_finds_its_version_taken(log, store, s3):
    s3.fault("503", ENTRY, "PUT", times=100)
    with pytest.raises((CommitFailed, OSError)):
        log.append(life(2), 2)
    s3.heal()
    version = log._table.version
    assert [batch.position for batch in log.replay()] == [1]
    entry = f"{store}/log/_delta_log/{version + 1:020}.json"
    with pytest.raises(FileExistsError):  # as the late one would be
        log._disk.create(entry, b"late")
    at = log.append(life(2), 2)
    assert positions(store) == [1, at]
    assert verify(store).position == at


def test_no_writer_acts_on_a_list_that_lacks_commits(log, store, s3):
    """Else a replay forgets what was acknowledged, and a claim believes that the store is new."""
    for epoch in range(2, 6):
        log.append(life(epoch), epoch)
    s3.fault("stale", method="GET", times=999)
    log._table.unsure = True
    assert [batch.position for batch in log.replay()] == [1, 12, 23, 34, 45]
    log.append(life(6), 6)
    successor = DeltaLog(store)
    assert successor.claim("two", "", 2) == 2
    assert [batch.position for batch in successor.replay()] == [1, 12, 23, 34, 45, 56, 57]
    with pytest.raises(WriterFenced):
        log.append(life(7), 7)


def test_a_writer_that_always_has_a_next_commit_is_fenced_all_the_same(log, store, monkeypatch):
    """Else a busy coordinator is never taken over by force, nor gives up a shard."""
    successor, busy = DeltaLog(store), count(2)
    open_table = successor._table._open_table

    def open_while_it_writes(disk, path):
        opened = open_table(disk, path)
        for _ in range(3):
            epoch = next(busy)
            log.append(life(epoch), epoch)
        return opened

    monkeypatch.setattr(successor._table, "_open_table", open_while_it_writes)
    assert successor.claim("two", "", 3) == 2
    with pytest.raises(WriterFenced):
        log.append(life(99), 99)
    assert next(busy) < 12, "one list was enough"


def test_a_reader_does_not_take_an_old_list_for_no_store(log, store, s3):
    """Else `history` says of a young store that there is none, and `verify` exits with 2."""
    s3.fault("stale", method="GET", times=3)
    assert positions(store) == [1]


def test_a_packing_counts_although_lists_lack_it(log, store, s3):
    for epoch in range(2, 6):
        log.append(life(epoch), epoch)
        with suppress(LogError):  # "cannot be read now"
            log.maintain(pack=True)
        s3.fault("stale", method="GET", times=999)
    s3.heal()
    rows = DeltaTable(f"{store}/log").to_pyarrow_table(columns=["position"])
    assert sorted(rows["position"].to_pylist()) == list(range(1, log.position + 1))


def test_a_zombie_that_slept_through_clean_up_is_fenced(log, store, monkeypatch):
    log.append(life(2), 2)
    successor = DeltaLog(store, LogConfig(commits_kept_ms=0))
    successor.claim("two", "", 3)
    for epoch in range(3, 8):
        successor.append(life(epoch), epoch)
    with monkeypatch.context() as patch:  # as if all that had taken long
        patch.setattr(type(log._disk), "trust_s", 0.0)
        successor.maintain(pack=True)
        successor.append(life(8), 8)
        successor.maintain(pack=True)
    for version, there in ((log._table.version, False), (log._table.version + 1, True)):
        assert log._disk.exists(commit_file(f"{store}/log", version)) is there
    with pytest.raises(WriterFenced):
        log.append(life(9), 9)
    with pytest.raises(WriterFenced):
        log.look()
    assert verify(store).position == successor.position


def test_a_store_whose_server_passes_over_conditions_is_not_opened(store, s3):
    s3.fault("deaf", times=99)
    with pytest.raises(ConfigError, match="two coordinators could own it at once"):
        Coordinator.open(store)
    s3.heal()
    assert DeltaTable.is_deltatable(f"{store}/log") is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["groups", "--store", "STORE"], "is not the store of a coordinator"),
        (["verify", "--store", "STORE"], "no store found in STORE"),
        (["groups", "--store", "ftp://host/x"], "has an unknown scheme: use s3://"),
        (["serve", "--store", "s3://"], "names no bucket"),
        (["serve", "--store", "s3://nowhere/x", "--topic", "a=1"], "bucket or container not found"),
        (["compact", "--store", "s3://nowhere/x"], "bucket or container not found"),
        (["backup", "--store", "STORE", "--into", "copy"], "no store found in STORE"),
        (["restore", "--from", "STORE", "--store", "new"], "no store found in STORE"),
        (["sql", "SELECT 1", "--store", "STORE"], "is not the store of a coordinator"),
        (["assign", "--store", "STORE", "--group", "g"], "is not the store of a coordinator"),
    ],
)
def test_what_does_not_work_says_so_in_one_line(store, muster_here, tmp_path, words, said):
    done = muster_here(*[word.replace("STORE", store) for word in words], cwd=tmp_path)
    assert done.returncode == 2
    assert said.replace("STORE", store) in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_reached_is_said_without_secrets(store, s3, monkeypatch):
    s3.fault("403", times=99)
    with pytest.raises(ConfigError, match=r"cannot be opened: .*403 Forbidden") as error:
        Coordinator.open(store)
    assert SECRET not in str(error.value)
    with pytest.raises(Exception, match="403 Forbidden") as error:
        frame(store, "groups")
    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_network_that_fails_is_no_damage(log, store, s3):
    """No message says to restore a store because its network failed for a while."""
    s3.fault("503", "/log/_delta_log", times=99)
    with pytest.raises(CommitFailed, match=r"log cannot be read now: 503 Service Unavailable$"):
        DeltaLog(store).claim("two", "", 2)
    s3.heal()
    assert DeltaLog(store).claim("two", "", 2) == 2


@pytest.mark.parametrize("what", [".parquet", "/_lease.json"])
def test_a_file_that_a_network_does_not_bring_is_no_damage(store, s3, what):
    """Its removal, or a restore, would be the wrong remedy: a coordinator may be alive."""
    with Coordinator.open(store, topics={"clicks": 2}) as coordinator:
        join(coordinator, "m1")
        s3.fault("503", what, times=99)
        with pytest.raises((OSError, CommitFailed), match="503 Service Unavailable"):
            verify(store)
        if what == ".parquet":
            with pytest.raises(CommitFailed, match="cannot be read now: 503 Service Unavailable"):
                list(read_log(store))
        s3.heal()
        assert verify(store).groups == 1


def test_a_store_in_a_folder_of_another_one_is_refused(store, tmp_path):
    """Whose clean-up would remove its files; beside it, or below another name, it may be."""
    for outer in (store, str(tmp_path / "store")):
        Coordinator.open(outer, topics=TOPICS).close()
        for name in ("log", "log/inner", "targets", "plans/a/b"):
            said = f"is in {name.split('/')[0]}, a folder of the store|is itself a Delta table"
            with pytest.raises(ConfigError, match=said):
                Coordinator.open(f"{outer}/{name}", topics=TOPICS)
        for beside in (f"{outer}2", f"{outer}/orders"):
            with Coordinator.open(beside, topics=TOPICS) as coordinator:
                join(coordinator, "m0")
        assert verify(outer).members == 0


def test_a_store_in_memory_is_shared_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Coordinator.open("memory://shared", topics=TOPICS) as first:
        join(first, "m0")
    with Coordinator.open("memory://shared", topics=TOPICS) as second:
        (group,) = second.consumer_group_describe("g")
        assert len(group["members"]) == 1
    with pytest.raises(ConfigError, match="only it can read it"):
        frame("memory://shared", "groups")
    assert os.listdir(tmp_path) == []


def test_a_file_url_is_a_folder(tmp_path):
    with Coordinator.open(f"file://{tmp_path}/a%20b", topics=TOPICS) as coordinator:
        join(coordinator, "m0")
    assert frame(tmp_path / "a b", "groups").num_rows == 1
