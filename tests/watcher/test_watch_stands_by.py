"""A watcher that is started while no broker answers waits for one, and shows what it has."""

import subprocess
import sys
import threading
import time

import pytest

from benchmarks.watch.broker import Broker
from benchmarks.watch.topic import TopicBytes
from coordinator.config import Config
from coordinator.watcher.kafka_source import KafkaSource
from coordinator.watcher.watch import Watch, open_store, watch
from tests.clients.world import free_port
from tests.support.processes import running

PATIENCE_S = 60
TOPIC = TopicBytes(groups=20, first_ms=1_000, partitions=2)
ENDS = {number: TOPIC.batches_for_all(number) for number in range(2)}


def until(holds):
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def count(store):
    """How many groups a store shows."""
    return len(store.coordinator.list_groups()["groups"])


def test_one_that_no_broker_answers_says_so_once_and_begins_when_one_does(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "coordinator", "watch", f"kafka://127.0.0.1:{port}"]
    command += ["--store", str(tmp_path / "s")]
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        running(command, stdout=subprocess.PIPE, stderr=errors, text=True) as watcher,
    ):
        until(lambda: f"standing by: 127.0.0.1:{port}" in log.read_text())
        time.sleep(2.5)
        assert watcher.poll() is None
        assert len(log.read_text().splitlines()) == 1
        with Broker(TOPIC, ENDS, port).serving():
            assert "muster watches" in watcher.stdout.readline()


def test_one_that_stands_by_ends_at_a_signal(tmp_path):
    stop, found = threading.Event(), []
    source = KafkaSource(f"127.0.0.1:{free_port()}")

    def wait():
        found.append(open_store(source, tmp_path / "s", Config(), "wait", stop))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    stop.set()
    thread.join(PATIENCE_S)
    assert found == [None]
    assert not (tmp_path / "s").exists()


def test_a_store_is_shown_while_its_cluster_is_away(tmp_path, caplog):
    port = free_port()
    source = KafkaSource(f"127.0.0.1:{port}", topics_ms=100)
    with (
        Broker(TOPIC, ENDS, port).serving(),
        Watch(open_store(source, tmp_path / "s", Config(), "wait"), source) as first,
    ):
        until(lambda: first.store.has_caught_up)
    with Watch(open_store(source, tmp_path / "s", Config(), "wait"), source) as second:
        assert "showing what is in the store, and trying again" in caplog.text
        assert count(second.store) == 20
        assert not second.store.has_caught_up
        with Broker(TOPIC, ENDS, port).serving():
            until(lambda: second.store.has_caught_up)
        assert count(second.store) == 20


def test_an_outage_is_said_once_each_time(tmp_path, caplog):
    port = free_port()
    source = KafkaSource(f"127.0.0.1:{port}", topics_ms=100)
    with Broker(TOPIC, ENDS, port).serving():
        watching = Watch(open_store(source, tmp_path / "s", Config(), "wait"), source)
        until(lambda: watching.store.has_caught_up)

    def said(text):
        return sum(text in one for one in caplog.messages)

    with watching:
        for outage in (1, 2):
            until(lambda: said("the Kafka cluster does not answer") == outage)  # noqa: B023
            time.sleep(0.5)
            assert said("the Kafka cluster does not answer") == outage
            with Broker(TOPIC, ENDS, port).serving():
                until(lambda: said("the Kafka cluster can be read now") == outage)  # noqa: B023


def test_in_python_a_cluster_that_is_away_is_an_error(tmp_path):
    with pytest.raises(OSError, match=r"127\.0\.0\.1:"):
        watch(f"kafka://127.0.0.1:{free_port()}", tmp_path / "s")
    assert not (tmp_path / "s").exists()
