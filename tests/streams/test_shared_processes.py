"""Drivers without a JVM share a topic, one is killed and one frozen: also in `make test-kafka`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter

import confluent_kafka as ck
import pytest
from deltalake import DeltaTable

from coordinator import Coordinator
from tests.clients.kafka_broker.mock import mock_kafka
from tests.conftest import ROOT
from tests.member.runs import QUICK
from tests.streams.plain_driver import SCHEMA
from tests.support import processes

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
PATIENCE_S = 60


def written(output):
    rows = DeltaTable(str(output)).to_pyarrow_table()
    return Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


class Life:
    """Drivers of one table, and records that arrive."""

    def __init__(self, folder, address, kafka):
        self.folder, self.words = folder, [address, kafka, str(folder / "out")]
        self.output, self.drivers, self.each = folder / "out", {}, 0
        self.producer = ck.Producer({"bootstrap.servers": kafka})
        DeltaTable.create(str(self.output), SCHEMA)

    def start(self, name):
        with (self.folder / f"{name}.log").open("w") as log:
            self.drivers[name] = processes.start(
                [sys.executable, "-m", "tests.streams.plain_driver", *self.words],
                stdout=log, stderr=log, cwd=ROOT,
            )  # fmt: skip

    def produce(self, each=5):
        for partition in range(4):
            for _ in range(each):
                self.producer.produce("clicks", b"x", partition=partition)
        assert self.producer.flush(20) == 0
        self.each += each

    def grows(self, by):
        """Have records arrive until so many more rows are written, to each partition."""
        began, end = Counter(p for p, _ in written(self.output)), time.monotonic() + PATIENCE_S
        while True:
            self.produce()
            time.sleep(0.2)
            now = Counter(p for p, _ in written(self.output))
            if all(now[p] - began[p] >= by for p in range(4)):
                return
            assert time.monotonic() < end, self.messages()

    def messages(self):
        return [file.read_text()[-2_000:] for file in self.folder.glob("*.log")]


def test_each_row_is_written_once_if_drivers_are_killed_or_frozen(tmp_path):
    with (
        mock_kafka("clicks", {}) as kafka,
        Coordinator.open(None, config=QUICK, topics={"clicks": 4}) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        life = Life(tmp_path, serving.address, kafka)
        try:
            life.start("ann")
            life.start("bob")
            life.grows(10)
            life.start("eve")
            life.grows(20)
            life.drivers["ann"].kill()
            life.grows(10)  # its partitions too, within the session timeout
            for _ in range(3):
                life.drivers["bob"].send_signal(signal.SIGSTOP)
                life.grows(10)
                life.drivers["bob"].send_signal(signal.SIGCONT)
                life.grows(10)
            end = time.monotonic() + PATIENCE_S
            while len(written(life.output)) < 4 * life.each and time.monotonic() < end:
                time.sleep(0.1)
            for name in ("bob", "eve"):
                life.drivers[name].terminate()
                assert life.drivers[name].wait(PATIENCE_S) == 0, life.messages()
        finally:
            for one in life.drivers.values():
                one.kill()
                one.wait()
        rows = written(life.output)
        assert rows == Counter((p, at) for p in range(4) for at in range(life.each))
        committed = coordinator.offset_fetch(group_id="g")["topics"]["clicks"]
        assert [one["committed_offset"] for one in committed.values()] == [life.each] * 4
