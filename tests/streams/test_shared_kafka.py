"""Three drivers on one topic of a real Kafka 4.4.0, one killed, one frozen: `make test-kafka`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

import pytest
from deltalake import DeltaTable

from coordinator import Coordinator
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.conftest import ROOT
from tests.member.runs import QUICK
from tests.streams.drivers import Driver
from tests.streams.kafka import describe, produce

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
SCRIPT = ROOT / "examples/shared_topic.py"
PARTITIONS, A_SECOND = 6, 60
PATIENCE_S = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    topics = {"kafka-group": PARTITIONS, "muster-group": PARTITIONS}
    try:
        with Kafka(tmp_path_factory.mktemp("kafka"), topics) as running:
            yield running
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


class Producer:
    """Adds records to all partitions for as long as it is entered."""

    def __init__(self, address, topic):
        self.address, self.topic, self.each = address, topic, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.5):
            produce(self.address, self.topic, dict.fromkeys(range(PARTITIONS), A_SECOND), self.each)
            self.each += A_SECOND


def written(output):
    """Return the rows of the table as (partition, offset), and by which driver's files."""
    if not DeltaTable.is_deltatable(str(output)):
        return []
    rows = DeltaTable(str(output)).to_pyarrow_table(columns=["partition", "offset", "value"])
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def grows(output, by, drivers):
    """Wait for more rows."""
    wanted, end = len(written(output)) + by, time.monotonic() + PATIENCE_S
    while len(written(output)) < wanted:
        alive = [one.name for one in drivers if one.process.poll() is None]
        assert time.monotonic() < end, (alive, [one.messages()[-2_000:] for one in drivers])
        time.sleep(0.5)


def live(folder, group, topic, kafka, *serving):
    """Let three drivers share a topic through all that may happen to them.

    The group is at Kafka, or at `serving`, where Muster has it.
    """
    output = folder / "output"
    drivers = {}

    def start(name):
        drivers[name] = Driver(folder, name, SCRIPT, kafka.address, group, topic, output, *serving)

    try:
        with Producer(kafka.address, topic) as producer:
            start("ann")
            start("bob")
            grows(output, 600, drivers.values())
            start("eve")
            grows(output, 2_000, drivers.values())
            drivers["ann"].signal(signal.SIGKILL)
            grows(output, 1_000, drivers.values())
            drivers["bob"].signal(signal.SIGSTOP)
            time.sleep(12)  # the session timeout is 6 s: eve has everything
            grows(output, 1_000, drivers.values())
            drivers["bob"].signal(signal.SIGCONT)
            grows(output, 2_000, drivers.values())
        total = producer.each * PARTITIONS
        end = time.monotonic() + PATIENCE_S
        while len(written(output)) < total and time.monotonic() < end:
            time.sleep(0.5)
        ended = {name: drivers[name].end() for name in ("bob", "eve")}
        assert ended == {"bob": 0, "eve": 0}, [one.messages()[-3_000:] for one in drivers.values()]
        rows = written(output)
        assert [row for row, times in Counter(rows).items() if times > 1] == []
        assert len(rows) == total
        assert all(value.decode() == f"{place}/{offset}" for place, offset, value in rows)
        return {f"{topic}-{number}": producer.each for number in range(PARTITIONS)}
    finally:
        for one in drivers.values():
            one.kill()


def test_a_group_of_kafkas(kafka, tmp_path):
    ends = live(tmp_path, "shared", "kafka-group", kafka)
    found = describe(kafka.address, "shared")
    assert found == {place: (end, 0) for place, end in ends.items()}


def test_a_group_of_musters(kafka, tmp_path):
    topics = {"muster-group": PARTITIONS}
    with (
        Coordinator.open(None, config=QUICK, topics=topics) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        ends = live(tmp_path, "shared", "muster-group", kafka, serving.address)
        committed = coordinator.offset_fetch(group_id="shared")["topics"]["muster-group"]
    found = {f"muster-group-{number}": one["committed_offset"] for number, one in committed.items()}
    assert found == ends
