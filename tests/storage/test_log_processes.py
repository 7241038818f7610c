"""Two coordinators in real processes, stopped and woken at any time, write one log."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from coordinator.storage.delta_log import DeltaLog, open_log_table, read_log
from coordinator.storage.record_log import CLAIM
from coordinator.storage.tables.table_io import read_delta
from tests.conftest import ROOT
from tests.support import processes
from tests.support.lives import claimed, life

AT_THE_END = """
import atexit, sys
from coordinator.storage.delta_log import read_log
atexit.register(lambda: print(sum(len(batch.records) for batch in read_log(sys.argv[1]))))
"""


class Other:
    """A process of log_process.py."""

    def __init__(self, *words):
        command = [sys.executable, "-m", "tests.support.log_process", *map(str, words)]
        self._process = processes.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def go(self):
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def stop(self):
        self._process.send_signal(signal.SIGSTOP)

    def wake(self):
        self._process.send_signal(signal.SIGCONT)

    def reports(self):
        """Yield what it tells, until its end."""
        while line := self._process.stdout.readline():
            yield json.loads(line)

    def wait_for(self, name):
        return next(line[name] for line in self.reports() if name in line)

    def reported_already(self):
        """Return what it reported before it was stopped."""
        os.set_blocking(self._process.stdout.fileno(), False)
        try:
            return list(self.reports())
        finally:
            os.set_blocking(self._process.stdout.fileno(), True)

    def kill(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(tmp_path):
    started = []

    def run(mode, *words):
        started.append(Other(mode, tmp_path, *words))
        return started[-1]

    try:
        yield run
    finally:
        for other in started:
            other.kill()


def check_order(store):
    """Every claim has an epoch of its own, and no one writes after a higher claim."""
    rows = read_delta(open_log_table(store)).sort_by("position")
    positions, epochs = rows["position"].to_numpy(), rows["coordinator_epoch"].to_numpy()
    assert np.array_equal(positions, np.arange(1, len(positions) + 1))
    assert (np.diff(epochs) >= 0).all()
    kinds = np.array(rows["kind"].to_pylist())
    assert epochs[kinds == CLAIM].tolist() == list(range(1, epochs[-1] + 1))


def test_six_processes_claim_at_once(tmp_path, start):
    outcomes = list(start("contend", 6).reports())
    assert sorted(outcome["epoch"] for outcome in outcomes) == [1, 2, 3, 4, 5, 6]
    kept = {outcome["epoch"] for outcome in outcomes if "position" in outcome}
    assert 6 in kept
    batches = [batch for batch in read_log(tmp_path) if batch.records]
    assert {batch.epoch for batch in batches} == kept
    assert all(batch.records == life(batch.epoch) for batch in batches)
    check_order(tmp_path)


def test_a_zombie_that_writes_nothing_is_fenced(tmp_path, start):
    zombie = start("look")
    for epoch in (1, 3, 5):
        zombie.go()
        zombie.wait_for("looked")
        zombie.stop()
        assert DeltaLog(tmp_path).claim("successor", "", 1) == epoch + 1
        zombie.reported_already()
        zombie.wake()
        first = next(zombie.reports())
        if "looked" in first:  # it was stopped between a look and telling of it
            first = next(zombie.reports())
        assert f"coordinator epoch {epoch} ended" in first["fenced"]


def test_a_writer_stopped_anywhere_writes_nothing_after_its_successor(tmp_path, start):
    zombie = start("append")
    chance = random.Random(7)
    for round_ in range(8):
        zombie.go()
        acknowledged = zombie.wait_for("position")
        time.sleep(chance.uniform(0, 0.1))
        zombie.stop()
        acknowledged = max(
            [acknowledged, *(line["position"] for line in zombie.reported_already())]
        )
        successor = DeltaLog(tmp_path)
        assert successor.claim("successor", "", 1) == 2 * round_ + 2
        there = [batch for batch in successor.replay() if batch.epoch == 2 * round_ + 1]
        assert there[-1].position >= acknowledged
        assert all(
            not batch.records or batch.records == life(batch.records[0].epoch) for batch in there
        )
        zombie.wake()
        assert "ended: another coordinator claimed" in zombie.wait_for("fenced")
        assert successor.append(life(7), 2) == successor.position
    check_order(tmp_path)


def test_a_log_is_read_while_its_program_ends(tmp_path):
    """No thread begins after that, and none is needed."""
    log = claimed(tmp_path)
    for epoch in (1, 2, 3):
        log.append(life(epoch), epoch + 1)
    log.close()
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{3 * len(life(1))}\n", done.stderr
