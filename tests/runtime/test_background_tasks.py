"""Background tasks: log maintenance runs as soon as it is due, and not after the log is lost."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from coordinator import Coordinator
from coordinator.config import Config, LogConfig
from coordinator.runtime.log_maintenance import LogMaintenance
from tests.support.members import code_of, log_of, wait_for

PATIENCE_S = 120.0
BUSY = Config(log=LogConfig(fsync=False, reopen_commits=5, maintenance_ms=60_000))
"""Nobody would look by itself before a test is over."""


def commit(coordinator, times):
    for n in range(times):
        coordinator.offset_commit(group_id="simple", topics={"a": {0: n}})


@pytest.mark.parametrize("maintenance_ms", [60_000, 10**20])
def test_a_busy_log_is_maintained_at_once(tmp_path, maintenance_ms):
    """However seldom it is looked for, as none would be before the test is over."""
    config = replace(BUSY, log=replace(BUSY.log, maintenance_ms=maintenance_ms))
    with Coordinator.open(tmp_path, topics={"a": 1}, config=config) as coordinator:
        commit(coordinator, BUSY.log.reopen_commits)
        wait_for((tmp_path / "log" / "_delta_log" / "_last_checkpoint").exists)
        began = time.monotonic()
    assert time.monotonic() - began < 50.0  # its threads do not sleep on


def test_a_coordinator_that_lost_the_log_does_not_maintain_it(tmp_path, monkeypatch):
    """It sees another one's commits come, and is asked and asked."""
    seen = []
    run = LogMaintenance.run
    monkeypatch.setattr(
        LogMaintenance, "run", lambda self: seen.append(self._processor.status) or run(self)
    )
    with (
        Coordinator.open(tmp_path, topics={"a": 1}, config=BUSY) as first,
        Coordinator.open(tmp_path, topics={"a": 1}, config=BUSY, takeover="force") as second,
    ):
        commit(second, 3 * BUSY.log.reopen_commits)
        assert {code_of(commit, first, 1) for _ in range(50)} == {"NOT_COORDINATOR"}
        wait_for(lambda: "active" in seen)
    assert "fenced" not in seen


def test_who_closes_does_not_wait_for_maintenance(tmp_path, monkeypatch):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    config = Config(log=LogConfig(reopen_commits=1))
    with Coordinator.open(tmp_path, topics={"a": 1}, config=config) as coordinator:

        def maintain(**_):
            begun.set()
            go.wait(PATIENCE_S)
            ended.set()

        monkeypatch.setattr(log_of(coordinator), "maintain", maintain)
        commit(coordinator, 2)
        assert begun.wait(PATIENCE_S)
        coordinator.close()
        assert not ended.is_set()
        with Coordinator.open(tmp_path, topics={"a": 1}, takeover="refuse") as second:
            found = second.offset_fetch(group_id="simple")["topics"]["a"][0]
            assert found["committed_offset"] == 1
        go.set()


def test_commits_slow_down_for_maintenance_that_is_late(tmp_path, monkeypatch):
    """They share commits then; none is refused, and it catches up."""
    config = Config(log=LogConfig(reopen_commits=1, fsync=False))
    with Coordinator.open(tmp_path, topics={"a": 1}, config=config) as coordinator:
        log = log_of(coordinator)
        with monkeypatch.context() as patch:
            patch.setattr(log, "maintain", lambda **_: None)
            commit(coordinator, 12)
            assert log.lag() >= 10
            assert coordinator._inner._catch_up_ms() == 200
        log.maintain()
        assert log.lag() < 5
        assert coordinator._inner._catch_up_ms() == 0


def test_an_orderly_end_is_no_error(tmp_path, caplog):
    with Coordinator.open(tmp_path, topics={"a": 1}) as coordinator:
        commit(coordinator, 1)
    assert not caplog.records
    assert not (tmp_path / "_lease.json").exists()
