"""500 topics of a real Kafka 4.4.0, divided over five drivers, one of them killed: `make test-kafka`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import confluent_kafka as ck
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import muster
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.world import free_port
from tests.conftest import ROOT
from tests.streams.drivers import Driver
from tests.streams.kafka import environment
from tests.support import processes

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
TABLES = int(os.environ.get("MUSTER_TABLES", "500"))
DRIVERS, RECORDS, NIGHT = 5, 3, 20260301
EXAMPLE = ROOT / "examples/many_tables"
PATIENCE_S = 540


@pytest.fixture
def kafka(tmp_path):
    try:
        with Kafka(tmp_path, {"first": 1}) as running:
            yield running
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
def coordinator(tmp_path, tables):
    """The coordinator's process; its address."""
    address = f"127.0.0.1:{free_port()}"
    words = [EXAMPLE / "coordinate.py", tmp_path / "store", tables, address]
    with (tmp_path / "coordinator.log").open("w") as log:
        command = [sys.executable, *words]
        started = processes.start(command, stdout=log, stderr=log, env=environment(), cwd=ROOT)
    until(lambda: _answers(address) or started.poll() is not None)
    assert started.poll() is None, (tmp_path / "coordinator.log").read_text()
    return address


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "tables.txt").write_text("\n".join(names()))
    return tmp_path / "tables.txt"


def names():
    return [f"table{number:03}" for number in range(TABLES)]


def _answers(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.5)
    assert condition()


def test_five_drivers_divide_500_tables(kafka, coordinator, tables, tmp_path):
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.create_topics([NewTopic(name, 1) for name in names()]).values():
        future.result(120)
    producer = ck.Producer({"bootstrap.servers": kafka.address})
    for name in names():
        for at in range(RECORDS):
            producer.produce(name, f"0/{at}".encode(), partition=0)
    assert producer.flush(120) == 0
    lake = tmp_path / "lake"
    words = coordinator, tables, NIGHT, kafka.address, lake
    drivers = [
        Driver(tmp_path, f"driver{number}", EXAMPLE / "driver.py", *words)
        for number in range(DRIVERS)
    ]
    try:
        until(lambda: len(list(lake.glob("*/*/_SUCCESS"))) >= TABLES // 10)
        drivers[0].signal(signal.SIGKILL)
        until(lambda: all(one.process.poll() is not None for one in drivers))
        assert [one.process.returncode for one in drivers[1:]] == [0] * (DRIVERS - 1), [
            one.messages()[-2_000:] for one in drivers
        ]
    finally:
        for one in drivers:
            one.kill()
    for name in names():
        rows = pq.read_table(lake / name / f"night={NIGHT}")
        assert sorted(rows["value"].to_pylist()) == [f"0/{at}" for at in range(RECORDS)]
    found = muster.frame(tmp_path / "store", "offsets", group_id="nightly")
    assert found["offset"].to_pylist() == [NIGHT] * TABLES
    assert all(float(seconds) > 0 for seconds in found["metadata"].to_pylist())
