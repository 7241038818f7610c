"""`Coordinator` on a store: restarts, successors, zombies, the lease, and who cannot go on."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import contextmanager

import msgspec
import pytest

from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config, LeaseConfig, LogConfig
from coordinator.core.events import OffsetCommit, OffsetFetch
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.lease import Holder, read_holder
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import CommitFailed, LogError, MemoryLog
from coordinator.storage.store_claim import ReadAhead, sleep
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.table_io import BusyError
from tests.support.members import AT_ONCE, beat, code_of, join, log_of, wait_for

PATIENCE_S = 120.0
NOT_NOW = "COORDINATOR_NOT_AVAILABLE"


def test_answered_requests_survive_a_restart(tmp_path):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}) as coordinator:
        epoch = join(coordinator, "m1").member_epoch
        coordinator.offset_commit(
            group_id="g", member_id="m1", member_epoch=epoch, topics={"a": {0: 5}}
        )
    with Coordinator.open(store, topics={"a": 4}, takeover="refuse") as coordinator:
        again = beat(coordinator, "m1", epoch, topic_partitions={"a": [0, 1, 2, 3]})
        assert (again.member_epoch, again.assignment) == (epoch, None)
        found = coordinator.offset_fetch(group_id="g")["topics"]["a"][0]
        assert found["committed_offset"] == 5


def test_a_second_coordinator_is_refused_and_a_forced_one_fences(tmp_path):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}, address="here:1") as first:
        join(first, "m1")
        with pytest.raises(BusyError, match="here:1"):
            Coordinator.open(store, topics={"a": 4}, takeover="refuse")
        beat(first, "m1", 2)
        with Coordinator.open(store, topics={"a": 4}, takeover="force") as second:
            beat(second, "m1", 2)
            wait_for(lambda: code_of(beat, first, "m1", 2) == "NOT_COORDINATOR")
            beat(second, "m1", 2)


def test_a_replaced_coordinator_notices_without_requests(tmp_path):
    store = tmp_path / "store"
    config = Config(lease=LeaseConfig(renew_ms=50))
    with (
        Coordinator.open(store, config=config) as first,
        Coordinator.open(store, config=config, takeover="force"),
    ):
        wait_for(lambda: first.status == "fenced")


def test_a_stand_by_reads_the_log_once_its_holder_is_late(tmp_path, monkeypatch):
    """What it has read by the end of the lease need not be waited for after it."""
    store, done = tmp_path / "store", []
    config = Config(lease=LeaseConfig(ttl_ms=900, renew_ms=100))
    with Coordinator.open(store, topics={"a": 4}) as coordinator:
        join(coordinator, "m1")
    gone = Holder("gone", 1, "gone:1", wall_ms() + 60_000, "its token")
    (store / "_lease.json").write_bytes(msgspec.json.encode(gone))

    def noted(method):
        def call(log, *given):
            done.append(method.__name__)
            return method(log, *given)

        return call

    for method in (LogAhead.read_ahead, LogAhead.claim, LogAhead.replay):
        monkeypatch.setattr(LogAhead, method.__name__, noted(method))

    def wait(seconds, holder):
        done.append(holder.address)
        sleep(seconds, holder)

    with Coordinator.open(store, config=config, topics={"a": 4}, stand_by=wait) as second:
        assert done[0] == "gone:1", "it is not late yet"
        assert [one for one in done if one != "gone:1"] == ["read_ahead", "claim"]
        beat(second, "m1", 2)


def test_what_was_read_ahead_is_dropped_where_the_holder_is_not_late_after_all(tmp_path):
    Coordinator.open(tmp_path).close()
    ahead = ReadAhead(str(tmp_path), LogConfig())
    ahead.look(is_late=True)
    ahead.look(is_late=False)
    assert ahead.take().take_ahead() is None
    ahead.look(is_late=True)
    log = ahead.take()
    log.claim("me", "", 1)
    assert log.take_ahead() is not None
    assert ahead.take() is not log


def test_a_zombie_answers_no_reads(tmp_path):
    """Woken after its successor went on, it looks before it answers from its memory."""
    store = tmp_path / "store"
    config = Config(kafka=AT_ONCE, lease=LeaseConfig(renew_ms=3_600_000, check_ms=0))
    reads = [
        lambda zombie: zombie.group_epochs("g"),
        lambda zombie: zombie.describe_group_config("g"),
    ]
    for read in reads:
        with Coordinator.open(store, topics={"a": 4}, config=config, takeover="force") as zombie:
            read(zombie)
            with Coordinator.open(store, topics={"a": 4}, takeover="force"):
                for _ in range(2):  # the second time it knows
                    with pytest.raises(GroupError) as error:
                        read(zombie)
                    assert error.value.code is ErrorCode.NOT_COORDINATOR
            assert zombie.status == "fenced"
    with pytest.raises(GroupError, match="shut down"):
        zombie.group_epochs("g")


@pytest.mark.parametrize("between", ["a look", "a commit"])
def test_offsets_are_never_older_than_those_that_a_successor_acknowledged(tmp_path, between):
    """However short ago the log was seen to be its own: a worker would read what was read."""
    config = Config(lease=LeaseConfig(renew_ms=3_600_000, check_ms=3_600_000))
    commit = {"group_id": "g", "topics": {"a": {0: 5}}}
    fetch = {"group_id": "g", "topics": {"a": [0]}}
    with Coordinator.open(tmp_path, topics={"a": 4}, config=config) as first:
        first.offset_commit(**commit)
        if between == "a look":
            first.offset_fetch(**fetch)
        with Coordinator.open(tmp_path, topics={"a": 4}, takeover="force") as second:
            second.offset_commit(**commit | {"topics": {"a": {0: 6}}})
            assert code_of(lambda: first.offset_fetch(**fetch)) == "NOT_COORDINATOR"
            assert first.status == "fenced"
            found = second.offset_fetch(**fetch)["topics"]["a"][0]
            assert found["committed_offset"] == 6


def test_one_look_at_the_log_is_enough_for_a_batch_of_fetches(tmp_path, monkeypatch):
    fetch, one = OffsetFetch("g", {"a": [0]}), OffsetCommit("g", "", -1, {"a": {0: (1, "")}})
    with Coordinator.open(tmp_path, topics={"a": 4}) as coordinator:
        looks = []
        log = log_of(coordinator)
        looking = log.look
        monkeypatch.setattr(log, "look", lambda: looks.append(1) or looking())
        coordinator._loop.submit([fetch] * 20).result()
        assert len(looks) == 1
        coordinator._loop.submit([fetch, one]).result()
        assert len(looks) == 1  # the commit has met no successor


def test_an_idle_zombie_does_not_take_the_lease_after_its_successor_closed(tmp_path):
    """It was stopped all the time, so it has seen nothing; no client asks it anything."""
    config = Config(lease=LeaseConfig(renew_ms=3_600_000))
    lease = tmp_path / "_lease.json"
    with Coordinator.open(tmp_path, config=config) as zombie:
        with Coordinator.open(tmp_path, config=config, takeover="force"):
            pass
        assert not lease.exists()
        zombie._background._renew()
        wait_for(lambda: zombie.status == "fenced")
        assert not lease.exists()


@pytest.mark.parametrize("step", ["open", "claim"])
def test_a_lease_is_renewed_while_the_log_is_opened_and_claimed(tmp_path, monkeypatch, step):
    store, disk = tmp_path / "store", Filesystem()
    config = Config(lease=LeaseConfig(renew_ms=50))
    inner, seen = getattr(DeltaLog, step), []

    def slowly(*args):
        began = read_holder(disk, str(store))
        wait_for(lambda: read_holder(disk, str(store)).expires_ms > began.expires_ms)
        seen.append(began)
        return inner(*args)

    monkeypatch.setattr(DeltaLog, step, slowly)
    with Coordinator.open(store, topics={"a": 4}, config=config) as coordinator:
        join(coordinator, "m1")
    assert len(seen) == 1


def test_a_lease_that_was_removed_is_taken_again(tmp_path, caplog):
    config = Config(lease=LeaseConfig(renew_ms=20))
    with Coordinator.open(tmp_path, config=config) as coordinator:
        (tmp_path / "_lease.json").unlink()
        wait_for((tmp_path / "_lease.json").exists)
        wait_for(lambda: "the lease was not renewed" in caplog.text)
        assert coordinator.status == "active"


def test_a_spoilt_lease_neither_stops_an_open_nor_a_close(tmp_path):
    spoilt = b'{"owner": "\xff"}'
    lease = tmp_path / "_lease.json"
    lease.write_bytes(spoilt)
    coordinator = Coordinator.open(tmp_path, topics={"a": 1})
    lease.write_bytes(spoilt)
    coordinator.close()
    lease.unlink(missing_ok=True)
    coordinator = Coordinator.open(tmp_path, topics={"a": 1}, takeover="refuse")
    lease.unlink()
    lease.mkdir()
    coordinator.close()
    with pytest.raises(LogError, match="_lease"):
        Coordinator.open(tmp_path, topics={"a": 1})


def test_a_store_that_is_moved_away_may_come_back(tmp_path, caplog):
    """An operator reads one line each time, and finds the place free to move the store back."""
    store, away = tmp_path / "store", tmp_path / "away"
    config = Config(kafka=AT_ONCE, lease=LeaseConfig(renew_ms=20))
    with Coordinator.open(store, config=config, topics={"a": 4}) as coordinator:
        join(coordinator, "m1")
        os.rename(store, away)
        assert code_of(join, coordinator, "m2") in {
            "COORDINATOR_NOT_AVAILABLE",
            "COORDINATOR_LOAD_IN_PROGRESS",
        }
        wait_for(lambda: "lease failed, retrying" in caplog.text)
        wait_for(lambda: "the log cannot be replayed: no coordinator's table" in caplog.text)
        assert "Traceback" not in caplog.text
        assert not store.exists()
        os.rename(away, store)
        wait_for(lambda: coordinator.status == "active")
        assert join(coordinator, "m2").member_epoch == 3, "nothing of before was lost"


def test_a_store_that_is_moved_away_is_not_recreated_by_a_close(tmp_path, caplog):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}):
        os.rename(store, tmp_path / "away")
    assert "the lease could not be released" in caplog.text
    assert not store.exists()


def commit(coordinator, offset):
    coordinator.offset_commit(group_id="simple", topics={"a": {0: offset}})


def committed(coordinator):
    return coordinator.offset_fetch(group_id="simple")["topics"]["a"][0]["committed_offset"]


class FailingDisk:
    """A disk that confirms no commit of the log."""

    def __init__(self, disk):
        self._disk = disk

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def sync(self, path):
        if path.endswith(".json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._disk.sync(path)


def test_after_one_failed_sync_of_a_commit_a_stand_by_takes_over(tmp_path):
    """The process that saw it ends: what the disk has is unknown, whatever it says next."""
    with Coordinator.open(tmp_path, topics={"a": 1}) as first:
        commit(first, 1)
        table = log_of(first)._table
        table._disk = FailingDisk(table._disk)
        assert code_of(commit, first, 2) == NOT_NOW
        wait_for(lambda: not (tmp_path / "_lease.json").exists())
        assert (first.status, first.health, first.confirm_status()) == ("broken",) * 3
        assert code_of(commit, first, 3) == NOT_NOW
        with Coordinator.open(tmp_path, topics={"a": 1}, takeover="refuse") as second:
            assert committed(second) in {1, 2}
            commit(second, 4)
            assert code_of(commit, first, 5) == NOT_NOW
            assert committed(second) == 4


def test_who_cannot_load_again_gives_its_lease_up_and_takes_it_again(tmp_path, monkeypatch):
    config = Config(lease=LeaseConfig(ttl_ms=200, renew_ms=20))
    lease = tmp_path / "_lease.json"
    with Coordinator.open(tmp_path, topics={"a": 1}, config=config) as coordinator:
        commit(coordinator, 1)
        log = log_of(coordinator)

        def fail(*_):
            raise CommitFailed("the disk is away")

        with monkeypatch.context() as patch:
            patch.setattr(log, "append", fail)
            patch.setattr(log, "replay", fail)
            assert code_of(commit, coordinator, 2) == NOT_NOW
            wait_for(lambda: not lease.exists())
            assert coordinator.health == "stuck"
        wait_for(lambda: coordinator.status == "active")
        wait_for(lease.exists)
        assert coordinator.health == "active"
        commit(coordinator, 3)


@contextmanager
def silent(answer_ms=100, **more):
    """A coordinator whose log, once `begun` is cleared, does not answer until `go` is set."""
    begun, go = threading.Event(), threading.Event()
    go.set()

    def fault(when):
        if when == "before" and not go.is_set():
            begun.set()
            assert go.wait(PATIENCE_S)

    config = Config(log=LogConfig(answer_ms=answer_ms, **more))
    coordinator = Coordinator.open(None, topics={"a": 1}, config=config, log=MemoryLog(None, fault))
    try:
        yield coordinator, begun, go
    finally:
        go.set()
        coordinator.close()


def test_a_request_is_refused_when_its_time_is_over_whatever_the_store_does():
    with silent() as (coordinator, begun, go):
        commit(coordinator, 1)
        go.clear()
        for _ in range(3):  # the first is under way; others wait behind it
            with pytest.raises(GroupError, match="has not answered for 100 ms") as refused:
                commit(coordinator, 2)
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert refused.value.code.retriable
        with pytest.raises(GroupError, match="has not answered"):
            committed(coordinator)
        assert begun.is_set()
        go.set()
        wait_for(lambda: code_of(commit, coordinator, 3) == "NONE")
        assert committed(coordinator) == 3
        join(coordinator, "m1")


def test_who_closes_does_not_wait_for_a_store_that_does_not_answer():
    with silent(answer_ms=3_600_000) as (coordinator, begun, go):
        go.clear()
        answers = coordinator.submit_heartbeat(
            group_id="g",
            member_id="m1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["a"],
            topic_partitions={},
        )
        assert begun.wait(PATIENCE_S)
        coordinator.close()
        assert not go.is_set()
        with pytest.raises(GroupError, match="is shut down"):
            answers.result(PATIENCE_S)
