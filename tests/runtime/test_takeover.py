"""`Coordinator` on a store: restarts, successors, zombies, and the lease."""

from __future__ import annotations

import os

import pytest

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.record_log import LogError
from coordinator.storage.tables.table_io import BusyError
from tests.support.members import AT_ONCE, beat, code_of, join, wait_for


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


def test_an_idle_zombie_does_not_take_the_lease_after_its_successor_closed(tmp_path):
    """It was stopped all the time, so it has seen nothing; nobody asks it anything."""
    config = Config(lease=LeaseConfig(renew_ms=3_600_000))
    lease = tmp_path / "_lease.json"
    with Coordinator.open(tmp_path, config=config) as zombie:
        with Coordinator.open(tmp_path, config=config, takeover="force"):
            pass
        assert not lease.exists()
        zombie._background._renew()
        wait_for(lambda: zombie.status == "fenced")
        assert not lease.exists()


def test_a_lease_that_somebody_removed_is_taken_again(tmp_path):
    config = Config(lease=LeaseConfig(renew_ms=20))
    with Coordinator.open(tmp_path, config=config) as coordinator:
        (tmp_path / "_lease.json").unlink()
        wait_for((tmp_path / "_lease.json").exists)
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
        wait_for(lambda: "lease failed, is tried again" in caplog.text)
        wait_for(lambda: "the log cannot be replayed: there is no table" in caplog.text)
        assert "Traceback" not in caplog.text
        assert not store.exists()
        os.rename(away, store)
        wait_for(lambda: coordinator.status == "active")
        assert join(coordinator, "m2").member_epoch == 3, "nothing of before was lost"


def test_a_store_that_is_moved_away_is_not_made_anew_by_a_close(tmp_path, caplog):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}):
        os.rename(store, tmp_path / "away")
    assert "the lease is not given back" in caplog.text
    assert not store.exists()
