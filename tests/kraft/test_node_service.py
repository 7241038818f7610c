"""A node keeps the history of its cluster, and does not depend on it."""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace

import prometheus_client
import pytest

from coordinator.cli import node_service
from coordinator.config import Config, ConfigError, ServerConfig
from coordinator.core.state.records import Audited, KafkaWatched
from coordinator.core.watched_events import KeepRecords
from coordinator.errors import ErrorCode, GroupError
from coordinator.history import frame
from coordinator.shards.node_metrics import NodeMetrics
from tests.clients.world import free_port, until
from tests.watcher.recorded import FILES, batches_of, read_lines
from tests.watcher.test_watched_store import rows, wrap

from .test_full_disk import full_disk

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _process():
    """A service takes its process for its own."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)
    prometheus_client.enable_created_metrics()


class Node:
    """Stands for a node: it runs until a stop, or until it is let go."""

    def __init__(self, error=None):
        self.metrics, self.is_ready = NodeMetrics(9), True
        self.error, self.gone, self.was_stopped = error, threading.Event(), False
        self.history, self.asked = None, []

    def keep_records(self, history):
        self.history = history

    def decide_plan(self, event):
        self.asked.append(event)
        return GroupError(ErrorCode.NOT_COORDINATOR, "it leads nothing")

    async def run(self, stop):
        while not self.gone.is_set():
            if stop.is_set():
                self.was_stopped = True
                return "stopped"
            await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        return "node 1 was unregistered"


class History:
    """Stands for a cluster's topic of groups; it fails as often as is asked for."""

    topics, is_live = None, True

    def __init__(self, failures=(), finds=None):
        self.failures, self.follows, self.finds = list(failures), threading.Event(), finds

    def find_cluster(self):
        if self.finds is not None:
            raise self.finds
        return KafkaWatched("cluster-1", "topic", int(time.time() * 1000))

    def follow(self, store, stop):
        if self.failures:
            raise self.failures.pop(0)
        store.has_caught_up = True
        self.follows.set()
        stop.wait()


def run(node, history, folder, config=Config(), then=lambda: None):  # noqa: B008 - frozen
    """Run a node; when its history is followed, do something, from another thread."""

    def act():
        if history.follows.wait(20):
            then()

    acting = threading.Thread(target=act)
    acting.start()
    try:
        return node_service.run_with_history(
            node, asyncio.run, lambda: history, str(folder), config, again_s=0.01
        )
    finally:
        history.follows.set()
        acting.join()


def fetch(port, page):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_a_signal_ends_the_history_and_lets_the_node_leave(tmp_path):
    node = Node()
    why = run(node, History(), tmp_path, then=lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert (why, node.was_stopped) == ("stopped", True)


def test_the_history_keeps_what_the_node_has_refused(tmp_path):
    """Until it ends: then the node has nowhere to write it."""
    node = Node()
    denied = Audited("billing", "denied", "User:bob")

    def deny():
        try:
            until(lambda: node.history is not None, lambda: "nothing is kept", 20)
            node.history.submit([KeepRecords([denied])]).result(20)
        finally:
            node.gone.set()

    run(node, History(), tmp_path, then=deny)
    assert node.history is None
    (row,) = frame(str(tmp_path), "audit").to_pylist()
    assert (row["group_id"], row["principal"]) == ("billing", "User:bob")


def test_the_end_of_the_node_ends_it_all(tmp_path):
    node = Node()
    assert run(node, History(), tmp_path, then=node.gone.set) == "node 1 was unregistered"
    node = Node(ConfigError("node 1 was registered by another process since"))
    with pytest.raises(ConfigError, match="another process"):
        run(node, History(), tmp_path, then=node.gone.set)


def test_a_node_that_cannot_begin_says_so_while_its_cluster_does_not_answer(tmp_path):
    node = Node(ConfigError("--node-id is 1, but that is a broker"))
    node.gone.set()
    with pytest.raises(ConfigError, match="that is a broker"):
        run(node, History(finds=OSError("no broker answers")), tmp_path)


def test_a_history_that_cannot_begin_is_refused_and_the_node_leaves(tmp_path):
    node = Node()
    with pytest.raises(ConfigError, match="may not read the topic"):
        run(node, History(finds=ConfigError("muster may not read the topic")), tmp_path)
    assert node.was_stopped


def test_a_history_that_fails_is_begun_again_and_the_node_leads_on(tmp_path, caplog):
    node, history = Node(), History([OSError("the disk is full")])
    seen, port = [], free_port()
    config = replace(Config(), server=ServerConfig(http_listen=f"127.0.0.1:{port}"))

    def then():
        seen.append(node.was_stopped)
        until(lambda: fetch(port, "readyz")[0] == 200, lambda: "not ready")
        node.is_ready = False
        seen.append(fetch(port, "readyz")[0])
        seen.append(fetch(port, "metrics")[1])
        node.gone.set()

    assert run(node, history, tmp_path, config, then) == "node 1 was unregistered"
    assert seen[:2] == [False, 503]
    assert seen[2].count("# TYPE watched_records_total") == 1
    assert seen[2].count("# TYPE wire_connections") == 1
    assert "begun again: the disk is full" in caplog.text


class Recorded(History):
    """A recorded topic of groups, in the middle of which the disk takes nothing for a moment."""

    def __init__(self, fails):
        super().__init__()
        lines = [line for line in read_lines(FILES[3]) if "records" in line]
        self.batches = [wrap(batch) for line in lines for batch in batches_of(line)]
        self.fails_at = len(self.batches) // 2 if fails else -1

    def follow(self, store, stop):
        begin = store.next_offsets().get(0, 0)
        for number, batch in enumerate(self.batches):
            if number == self.fails_at:
                self.fails_at = -1
                with full_disk(0):
                    store.take(0, [batch])
            if batch.base_offset >= begin:
                store.take(0, [batch])
        store.flush()
        store.has_caught_up = True
        self.follows.set()
        stop.wait()


def test_a_history_that_found_the_disk_full_is_whole_in_the_end(tmp_path, caplog):
    node, kept = Node(), {}
    for fails in (False, True):
        node = Node()
        run(node, Recorded(fails), tmp_path / str(fails), then=node.gone.set)
        assert not node.was_stopped
        found = rows(tmp_path / str(fails), without=["at_ms"])
        kept[fails] = [row for row in found if row["kind"] != "kafka_watched"]
    assert "the history has stopped, and is begun again" in caplog.text
    assert kept[True] == kept[False] != []
