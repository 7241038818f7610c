"""Kafka Connect and Kafka Streams, whose groups a node leads, until it is killed.

`make test-cluster-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.jars import cache_folder, java_command
from tests.clients.java import SMALL, beside
from tests.clients.node.led import led_cluster
from tests.clients.test_cluster_kafka import NODE, leaders
from tests.clients.world import free_port, until
from tests.support.processes import end, start

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
HERE = Path(__file__).parent
JARS = "kafka-applications-4.3.1"
START_S = 180
"""Connect looks through all jars for connectors first."""
INTERNAL = ("config", "offset", "status")


@pytest.fixture(scope="module")
def jars():
    """A class path with Connect and Streams."""
    folder = cache_folder() / JARS
    if not folder.exists():
        coming = folder.with_suffix(".part")
        words = ["dependency:copy-dependencies", f"-DoutputDirectory={coming}"]
        subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", *words], check=True)
        coming.rename(folder)
    return f"{folder}/*"


@pytest.fixture
def cluster(tmp_path):
    """Two brokers, and a node that leads the topic of groups."""
    with led_cluster(tmp_path, {"orders": 4, "copies": 4, "lines": 1}) as found:
        yield found


def kill(node, broker):
    """kill -9 of the node; brokers lead."""
    assert leaders(broker) == {NODE}
    end(node.process)
    until(lambda: NODE not in leaders(broker), node.said)


# Streams -----------------------------------------------------------------------------------------


def produce(broker, begin, count):
    producer = ck.Producer({"bootstrap.servers": broker.address})
    for number in range(begin, begin + count):
        producer.produce("orders", str(number), str(number))
    assert producer.flush(60) == 0


class Copies:
    """What is in the topic of copies, as a reader of committed records sees it."""

    def __init__(self, broker):
        words = {"bootstrap.servers": broker.address, "group.id": "reader", "log_level": 0}
        self.reader = ck.Consumer(words | {"isolation.level": "read_committed"})
        self.reader.assign([ck.TopicPartition("copies", n, 0) for n in range(4)])
        self.found = []

    def read(self):
        for message in self.reader.consume(1_000, 0.5):
            if message.error() is None:
                self.found.append(int(message.value()))
        return self.found


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_streams_continue_where_the_node_is_killed(tmp_path, cluster, jars, guarantee):
    node, one, two = cluster
    java = java_command()
    javac = Path(java).with_name("javac") if java else None
    compiler = str(javac) if javac and javac.exists() else "javac"
    subprocess.run(
        [compiler, "-cp", jars, "-d", tmp_path, HERE / "Streams.java"],
        check=True, env=os.environ | {"PATH": beside(java)},
    )  # fmt: skip
    words = [node.address, "copier", "orders", "copies", guarantee]
    path = f"{tmp_path}:{jars}"
    processes = []
    for name in ("one", "two"):
        with (tmp_path / f"{name}.log").open("wb") as log:
            command = [java, *SMALL, "-cp", path, "Streams", *words, str(tmp_path / name)]
            processes.append(start(command, stdout=log, stderr=log))
    copies = Copies(one)

    def says():
        return [(tmp_path / f"{name}.log").read_text()[-2_000:] for name in ("one", "two")]

    try:
        produce(one, 0, 100)
        until(lambda: set(copies.read()) == set(range(100)), says)
        assert all("RUNNING" in each for each in says())
        kill(node, two)
        produce(one, 100, 100)
        until(lambda: set(copies.read()) == set(range(200)), says)
        if guarantee != "at_least_once":
            assert len(copies.found) == len(set(copies.found)) == 200
    finally:
        copies.reader.close()
        for each in processes:
            end(each)


# Connect -----------------------------------------------------------------------------------------


class Worker:
    """A distributed worker of Connect, and its REST API."""

    def __init__(self, folder, jars, address):
        self.url, self.log = f"http://127.0.0.1:{free_port()}", folder / "worker.log"
        names = {f"{one}.storage.topic": f"connect-{one}" for one in INTERNAL}
        words = {
            "bootstrap.servers": address, "group.id": "connect", "listeners": self.url, **names,
            "offset.flush.interval.ms": 500,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }  # fmt: skip
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in words.items()))
        command = [
            java_command(), "-Xmx256m", "-Dorg.apache.logging.log4j.level=WARN", "-cp", jars,
            "org.apache.kafka.connect.cli.ConnectDistributed", str(file),
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = start(command, stdout=log, stderr=log)

    def ask(self, path, body=None):
        """The answer as JSON; None where there is none."""
        data = None if body is None else json.dumps(body).encode()
        words = {"Content-Type": "application/json"}
        with suppress(OSError, urllib.error.URLError):
            asked = urllib.request.Request(f"{self.url}{path}", data, words)
            with urllib.request.urlopen(asked, timeout=30) as found:
                return json.load(found)
        return None

    def says(self):
        return self.log.read_text()[-3_000:]

    def runs(self, name):
        found = self.ask(f"/connectors/{name}/status") or {"tasks": []}
        return [each["state"] for each in found["tasks"]] == ["RUNNING"]


def connector(name, kind, file, **words):
    base = f"org.apache.kafka.connect.file.FileStream{kind}Connector"
    return {"name": name, "config": {"connector.class": base, "file": str(file), **words}}


def test_connect_continues_where_the_node_is_killed(tmp_path, cluster, jars):
    """Its worker, its connectors' tasks and their offsets are members and commits of groups."""
    node, one, two = cluster
    admin = AdminClient({"bootstrap.servers": one.address})
    compact = {"cleanup.policy": "compact"}
    made = admin.create_topics(
        [NewTopic(f"connect-{name}", 1, 1, config=compact) for name in INTERNAL]
    )
    for future in made.values():
        future.result(30)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.write_text("".join(f"{n}\n" for n in range(50)))
    worker = Worker(tmp_path, jars, node.address)
    try:
        until(lambda: worker.ask("/connectors") == [], worker.says, START_S)
        worker.ask("/connectors", connector("reads", "Source", source, topic="lines"))
        worker.ask("/connectors", connector("writes", "Sink", sink, topics="lines"))
        until(lambda: worker.runs("reads") and worker.runs("writes"), worker.says)
        until(lambda: sink.exists() and len(sink.read_text().split()) == 50, worker.says)
        of_node = AdminClient({"bootstrap.servers": node.address})
        listed = of_node.list_consumer_groups().result(30)
        names = {each.group_id for each in listed.valid}
        assert names == {"connect-writes"}, (listed.errors, node.said())
        kill(node, two)
        with source.open("a") as more:
            more.write("".join(f"{n}\n" for n in range(50, 100)))
        until(lambda: set(map(int, sink.read_text().split())) == set(range(100)), worker.says)
        assert worker.runs("reads")
        assert worker.runs("writes")
    finally:
        end(worker.process)
