"""/readyz of `muster watch`: who relies on it may do so once all is read that there was."""

import http.client
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import pytest

from benchmarks.watch.broker import Broker
from benchmarks.watch.topic import TopicBytes
from coordinator.cli.service import Ready
from coordinator.config import Config
from coordinator.history.log_reader import LogReader
from coordinator.watcher.describe_source import DescribeSource
from coordinator.watcher.kafka_source import KafkaSource
from coordinator.watcher.watch import Watch, open_store
from tests.clients.world import free_port
from tests.support.processes import running

PATIENCE_S = 60
TOPIC = TopicBytes(groups=20, first_ms=1_000, partitions=2)
ENDS = {number: TOPIC.batches_for_all(number) for number in range(2)}


def test_a_watcher_is_not_ready_before_it_has_read_what_there_was(tmp_path):
    broker = Broker(TOPIC, ENDS)
    broker.answers.clear()
    port = free_port()
    with broker.serving() as address:
        command = [sys.executable, "-m", "coordinator", "watch", f"kafka://{address}"]
        command += ["--store", str(tmp_path / "s"), "--http", f"127.0.0.1:{port}"]
        with running(command, stdout=subprocess.PIPE, text=True) as watcher:
            assert "muster watches" in watcher.stdout.readline()
            assert broker.fetched.wait(PATIENCE_S)
            assert [asked(port, path) for path in ("/readyz", "/healthz")] == [
                (503, "loading"),
                (200, "loading"),
            ]
            broker.answers.set()
            end = time.monotonic() + PATIENCE_S
            while asked(port, "/readyz") != (200, "active"):
                assert time.monotonic() < end
                time.sleep(0.02)


def test_a_source_says_when_it_has_caught_up():
    with Broker(TOPIC, ENDS).serving() as address:
        for source, catches_up in ((KafkaSource(address), True), (DescribeSource(address), False)):
            store = open_store(source, None, Config(), "wait")
            with Watch(store, source) as watching:
                end = time.monotonic() + (PATIENCE_S if catches_up else 0.3)
                while not store.has_caught_up and time.monotonic() < end:
                    watching.wait(0.02)
                assert store.has_caught_up is catches_up, "this broker lists no groups"
                listed = store.coordinator.list_groups()["groups"]
                assert len(listed) == (20 if catches_up else 0)


def asked(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


def test_a_watcher_with_pages_is_ready_once_the_first_page_is():
    """Pages are opened on an empty store: what the first one reads is read when all is there."""
    pytest.importorskip("starlette")
    caught_up, asked_for, page = threading.Event(), [], Future()

    def prepare():
        asked_for.append(page)
        return page

    ready = Ready(caught_up.is_set)
    ready.prepare = prepare
    ready.look()
    assert (ready.unless_behind("active"), asked_for) == ("loading", [])
    caught_up.set()
    assert ready.unless_behind("active") == "loading"
    assert ready.unless_behind("standby") == "standby"
    page.set_result(None)
    ready.look()
    assert (ready.unless_behind("active"), asked_for) == ("active", [page])


def test_the_first_page_is_read_when_it_is_prepared(tmp_path):
    pytest.importorskip("starlette")
    from coordinator.web.server import WebServer

    with Broker(TOPIC, ENDS).serving() as address:
        source = KafkaSource(address)
        with (
            Watch(open_store(source, tmp_path / "s", Config(), "wait"), source) as watching,
            WebServer(tmp_path / "s", Config(), "127.0.0.1:0") as shown,
        ):
            end = time.monotonic() + PATIENCE_S
            while not watching.store.has_caught_up and time.monotonic() < end:
                watching.wait(0.02)
            shown.prepare().result(PATIENCE_S)
            assert shown._pages.reader.position == LogReader(tmp_path / "s").position
