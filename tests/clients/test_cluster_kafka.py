"""A node of a real cluster: two brokers of Kafka 4.4.0, one of them the controller.

`make test-cluster-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.jars import JarsMissingError
from tests.clients.java import JavaMissingError, compiled
from tests.clients.kafka_broker import Kafka, KafkaMissingError, SecondBroker, free_pair
from tests.clients.world import Group, free_port, partitions, until
from tests.support.processes import end, run_as_text, start

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
TOPIC = "__consumer_offsets"
NODE = 1001
ORDERS = partitions("orders", 4)


@pytest.fixture
def brokers(tmp_path):
    """Two brokers, both replicas of Kafka's topic of groups."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    try:
        with Kafka(first, {"orders": 4}, SETTINGS) as one, SecondBroker(second, one) as two:
            make_topic(one)
            yield one, two
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def make_topic(broker):
    """Make the topic of groups before the first group comes."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    compact = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    (made,) = admin.create_topics([NewTopic(TOPIC, 3, 2, config=compact)]).values()
    made.result(30)


@pytest.fixture
def java(tmp_path):
    """The command of a member."""
    (tmp_path / "classes").mkdir()
    try:
        return compiled(tmp_path / "classes")
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)


SETTINGS = ("offsets.topic.num.partitions=3", "broker.session.timeout.ms=6000")


class NodeProcess:
    """`muster node` in a process of its own, and the commands about it."""

    def __init__(self, folder, brokers, node_id=NODE):
        self.folder, self.log = folder / f"store{node_id}", folder / f"node{node_id}.log"
        self.node_id = node_id
        servers = ",".join(one.address for one in brokers)
        self.words = ["--cluster", f"kafka://{servers}", "--store", str(self.folder)]

    def start(self, *words):
        with self.log.open("a") as log:
            self.process = start(
                [sys.executable, "-m", "coordinator", "node", *self.words, "--node-id", self.node_id, *words],
                stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    def ask(self, action, *words):
        return run_as_text("node", action, *self.words, *words)

    def findings(self):
        done = self.ask("check", "--node-id", self.node_id)
        return {row["subject"]: row for row in map(json.loads, done.stdout.splitlines())}

    def wait_in_sync(self, partitions):
        says = f"{partitions} partitions of {TOPIC}, all in sync"
        until(lambda: self.findings().get("replicas", {}).get("says") == says, self.said, 60)

    def said(self):
        return self.log.read_text()

    def logs(self):
        found = (self.folder / "kafka_node/logs").glob(f"{TOPIC}-*/batches.log")
        return {one.parent.name: one.read_bytes() for one in found}


class Commits:
    """Offsets of six groups, committed all the time while it is entered."""

    def __init__(self, address):
        names = {"bootstrap.servers": address, "enable.auto.commit": False, "log_level": 0}
        self.groups = [ck.Consumer(names | {"group.id": f"g{i}"}) for i in range(6)]
        self.done, self.stop = {}, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        count = 0
        while not self.stop.is_set():
            count += 1
            for number, group in enumerate(self.groups):
                place = ck.TopicPartition("orders", count % 4, count)
                try:
                    group.commit(offsets=[place], asynchronous=False)
                except ck.KafkaException:
                    continue
                self.done[f"g{number}", count % 4] = count

    def __exit__(self, *_error):
        self.stop.set()
        self.thread.join()

    def kept(self):
        """What Kafka says of each commit that it has acknowledged."""
        places = [ck.TopicPartition("orders", partition) for partition in range(4)]
        found = {
            (f"g{number}", one.partition): one.offset
            for number, group in enumerate(self.groups)
            for one in group.committed(places, 30)
            if one.offset >= 0
        }
        for group in self.groups:
            group.close()
        return found


def replicas_of(broker):
    topic = AdminClient({"bootstrap.servers": broker.address}).list_topics(TOPIC, 30).topics[TOPIC]
    return {number: set(one.replicas) for number, one in topic.partitions.items()}


def test_a_node_follows_through_every_failure_and_leaves_nothing(tmp_path, brokers):
    one, two = brokers
    node = NodeProcess(tmp_path, brokers)
    levels = {name: row["level"] for name, row in node.findings().items()}
    assert "bad" not in levels.values(), levels
    assert node.ask("join", "--partitions", "0").returncode == 2  # it is no node yet
    node.start()
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    done = node.ask("join", "--partitions", "0-2", "--yes")
    assert "in sync in 3 more partitions" in done.stdout, done.stderr
    assert all(NODE in ids for ids in replicas_of(one).values())

    with Commits(f"{one.address},{two.address}") as commits:
        time.sleep(1)
        end(node.process)  # killed
        time.sleep(1)
        node.start()
        node.wait_in_sync(3)
        two.kill()
        time.sleep(8)  # it is fenced, and others lead
        two.start()
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(8)  # so is the node
        node.process.send_signal(signal.SIGCONT)
        node.wait_in_sync(3)
    kept = commits.kept()
    assert {place: kept[place] >= count for place, count in commits.done.items()} == (
        dict.fromkeys(commits.done, True)
    )
    until(lambda: same_logs(node, one, two), node.said, 30)

    done = node.ask("leave", "--yes")
    assert f"node {NODE} has left" in done.stdout, done.stderr
    assert node.process.wait(30) == 0, node.said()
    assert f"node {NODE} was unregistered" in node.said()
    assert replicas_of(one) == {key: {1, 2} for key in range(3)}
    assert node.logs() == {}
    assert node.ask("leave", "--yes").returncode == 2


def leaders(broker):
    topic = AdminClient({"bootstrap.servers": broker.address}).list_topics(TOPIC, 30).topics[TOPIC]
    return {one.leader for one in topic.partitions.values()}


def test_groups_go_on_at_a_broker_where_the_node_that_leads_is_killed(tmp_path, brokers, java):
    """No partition is in two hands, and no acknowledged offset is lost: leaving a group checks it."""
    one, two = brokers
    node = NodeProcess(tmp_path, brokers)
    node.start()
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    assert node.ask("join", "--partitions", "0-2", "--yes").returncode == 0
    assert (
        "start `muster node` with --listen" in node.ask("lead", "--partitions", "0", "--yes").stderr
    )
    node.process.send_signal(signal.SIGTERM)
    node.process.wait(60)
    here = f"127.0.0.1:{free_pair()}"
    node.start("--listen", here)
    node.wait_in_sync(3)

    addresses = [one.address, two.address, here]
    with Group(tmp_path, "consumers", addresses) as group:
        group.join("c", ["orders"])
        group.join("java", ["orders"], command=java)
        group.settled(["c", "java"], ORDERS)
        done = node.ask("lead", "--partitions", "0-2", "--yes")
        assert "leads 3 partitions" in done.stdout, done.stderr
        assert leaders(one) == {NODE}
        group.works(["c", "java"])
        before = group.changes()
        end(node.process)  # killed
        until(lambda: NODE not in leaders(two), node.said, 60)
        group.works(["c", "java"])
        node.start("--listen", here)
        node.wait_in_sync(3)
        assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
        group.works(["c", "java"])
        assert group.changes() == before  # no member had to join again
        node.process.send_signal(signal.SIGSTOP)  # clients wait for what does not answer
        until(lambda: NODE not in leaders(two), node.said, 60)
        group.works(["c", "java"])
        node.process.send_signal(signal.SIGCONT)
        node.wait_in_sync(3)
        assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
        group.works(["c", "java"])
        done = node.ask("yield", "--yes")
        assert "brokers lead 3 partitions" in done.stdout, done.stderr
        group.works(["c", "java"])
    until(lambda: same_logs(node, one, two), node.said, 30)
    assert "cannot be loaded" not in node.said()


def test_another_node_takes_over_before_a_broker_does(tmp_path, brokers):
    one, two = brokers
    nodes = [NodeProcess(tmp_path, brokers, node_id) for node_id in (NODE, NODE + 1)]
    listens = [f"127.0.0.1:{free_port()}" for _ in nodes]
    for node, listen in zip(nodes, listens, strict=True):
        node.start("--listen", listen)
        until(lambda node=node: "alive in the cluster" in node.said(), node.said, 60)
        assert node.ask("join", "--partitions", "0-2", "--yes").returncode == 0
    first, second = nodes
    for node in (second, first):  # the one that leads last is the first of all
        done = node.ask("lead", "--partitions", "0-2", "--yes")
        assert "leads 3 partitions" in done.stdout, (done.stderr, node.said())
    with Group(tmp_path, "consumers", [one.address, two.address]) as group:
        for name, protocol in (("a", "consumer"), ("b", "consumer")):
            group.join(name, ["orders"], group_protocol=protocol)
        group.settled(["a", "b"], ORDERS)
        before = group.changes()
        end(first.process)  # killed
        until(lambda: leaders(two) == {NODE + 1}, second.said, 60)
        group.works(["a", "b"])
        first.start("--listen", listens[0])
        first.wait_in_sync(3)
        end(second.process)
        until(lambda: NODE + 1 not in leaders(two), first.said, 60)
        group.works(["a", "b"])
        assert group.changes() == before  # no member had to join again
    assert "cannot be loaded" not in first.said() + second.said()


class Producer:
    """A transactional producer, Java's or librdkafka's, which does one thing after the other."""

    def __init__(self, folder, addresses, name, command=None, timeout_ms=60_000):
        self.name, servers = name, ",".join(addresses)
        if command is None:
            settings = {"transactional.id": name, "transaction.timeout.ms": timeout_ms}
            self.inside = ck.Producer({"bootstrap.servers": servers, "log_level": 0} | settings)
            self.readers = {}
            self.servers = servers
        else:
            self.inside = None
            with (folder / f"{name}.err").open("w") as log:
                self.process = start(
                    [*command, servers, name, str(timeout_ms)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                )  # fmt: skip

    def __call__(self, *words):
        """Do something; "ok", or what refuses it."""
        if self.inside is None:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()
        try:
            getattr(self, f"_{words[0]}")(*words[1:])
        except ck.KafkaException as error:
            return str(error)
        return "ok"

    def _init(self):
        self.inside.init_transactions(60)

    def _begin(self):
        self.inside.begin_transaction()

    def _offsets(self, group, topic, partition, offset):
        if group not in self.readers:
            settings = {"bootstrap.servers": self.servers, "group.id": group, "log_level": 0}
            self.readers[group] = ck.Consumer(settings)
        places = [ck.TopicPartition(topic, partition, offset)]
        meta = self.readers[group].consumer_group_metadata()
        self.inside.send_offsets_to_transaction(places, meta, 60)

    def _commit(self):
        self.inside.commit_transaction(60)

    def _abort(self):
        self.inside.abort_transaction(60)


class Transactions:
    """Two producers, which commit offsets for groups of several partitions of the topic of groups.

    Each has a partition of its own, so a group has an offset of each.
    """

    groups = tuple(f"eos{number}" for number in range(4))

    def __init__(self, broker, node, *producers):
        self.broker, self.node, self.producers = broker, node, producers
        for producer in producers:
            assert producer("init") == "ok"

    def send(self, offset, *, ends=None):
        for partition, producer in enumerate(self.producers):
            assert producer("begin") == "ok"
            for group in self.groups:
                said = producer("offsets", group, "orders", partition, offset)
                assert said == "ok", (producer.name, group, said, self.node.said())
        if ends is not None:
            self.end(ends)

    def end(self, how):
        for producer in self.producers:
            assert producer(how) == "ok", (producer.name, self.node.said())

    def have(self, *offsets):
        """See that every group has these offsets; "unstable" where a transaction is open."""
        wanted = {group: dict(enumerate(offsets)) for group in self.groups}
        until(lambda: self.seen() == wanted, lambda: (self.seen(), self.node.said()), 60)

    def seen(self):
        return {group: self.stable(group) for group in self.groups}

    def stable(self, group):
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        places = [ck.TopicPartition("orders", partition) for partition in range(2)]
        asked = ck.ConsumerGroupTopicPartitions(group, places)
        (found,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
        try:
            offsets = found.result(30).topic_partitions
        except ck.KafkaException:
            return {}  # its coordinator loads
        return {one.partition: "unstable" if one.error else one.offset for one in offsets}


def test_transactions_outlive_their_leader(tmp_path, brokers):
    """Committed, aborted, timed out, and open while the node, or a broker, takes over."""
    one, two = brokers
    try:
        command = compiled(tmp_path, "Transactions")
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)
    node, here = NodeProcess(tmp_path, brokers), f"127.0.0.1:{free_pair()}"
    node.start("--listen", here)
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    assert node.ask("join", "--partitions", "0-2", "--yes").returncode == 0
    addresses = [one.address, two.address, here]
    java = Producer(tmp_path, addresses, "java", command)
    both = Transactions(one, node, java, Producer(tmp_path, addresses, "librdkafka"))
    both.send(1)  # by brokers
    assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
    both.have("unstable", "unstable")
    both.end("commit")
    both.have(1, 1)
    both.send(2, ends="commit")
    both.have(2, 2)
    both.send(3, ends="abort")
    both.have(2, 2)

    late = Producer(tmp_path, addresses, "late", command, timeout_ms=4_000)
    assert [late("init"), late("begin")] == ["ok"] * 2
    assert late("offsets", both.groups[0], "orders", 0, 99) == "ok"
    both.send(4)
    end(node.process)  # killed
    until(lambda: NODE not in leaders(two), node.said, 60)
    both.end("commit")  # by brokers
    both.have(4, 4)  # and they have aborted what was late
    assert late("commit") != "ok"
    both.send(5)
    node.start("--listen", here)
    node.wait_in_sync(3)
    assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
    both.have("unstable", "unstable")
    both.end("abort")
    both.have(4, 4)
    both.send(6, ends="commit")
    assert "brokers lead 3" in node.ask("yield", "--yes").stdout, node.said()
    both.have(6, 6)
    both.send(7, ends="commit")
    both.have(7, 7)
    until(lambda: same_logs(node, one, two), node.said, 30)
    assert not any(word in node.said() for word in ("cannot be loaded", "Traceback", "ERROR"))


BY_WEIGHT = '[kafka]\n"group.consumer.assignors" = ["weighted", "uniform", "range"]\n'


def test_a_node_that_leads_keeps_the_history_of_the_cluster(tmp_path, brokers):
    """By an assignor that Kafka lacks, with metrics and pages; after a kill, nothing is missing."""
    one, two = brokers
    (tmp_path / "muster.toml").write_text(BY_WEIGHT)
    node, ports = NodeProcess(tmp_path, brokers), [free_port(), free_port()]
    words = ["--listen", f"127.0.0.1:{free_pair()}", "--config", tmp_path / "muster.toml"]
    for option, port in zip(["--http", "--web"], ports, strict=True):
        words += [option, f"127.0.0.1:{port}"]
    node.start(*words)
    own, pages = (f"http://127.0.0.1:{port}" for port in ports)
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    assert node.ask("join", "--partitions", "0-2", "--yes").returncode == 0
    assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
    until(lambda: fetch(f"{own}/readyz")[0] == 200, node.said, 60)
    with Group(tmp_path, "billing", [one.address, two.address]) as group:
        group.join("a", ["orders"], group_protocol="consumer")
        group.settled(["a"], ORDERS)
        group.join("b", ["orders"], group_protocol="consumer")
        group.settled(["a", "b"], ORDERS)
        until(lambda: len(epochs(pages)) >= 2, node.said, 30)
        before = epochs(pages)
        assert {row["assignor"] for row in before} == {"weighted"}
        end(node.process)  # killed
        until(lambda: NODE not in leaders(two), node.said, 60)
        group.works(["a", "b"])
        group.members["b"].leave()  # a broker sees that
        group.settled(["a"], ORDERS)
        node.start(*words)
        node.wait_in_sync(3)
        assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
        group.join("c", ["orders"], group_protocol="consumer")
        group.settled(["a", "c"], ORDERS)
        until(lambda: len(epochs(pages)) >= len(before) + 2, node.said, 60)
    found = epochs(pages)
    kept = ("group_epoch", "position", "recorded_at", "reason", "member_id")
    assert [[row[one] for one in kept] for row in found[: len(before)]] == [
        [row[one] for one in kept] for row in before
    ]  # what was known then; when the members had got there is seen later
    assert [row["reason"] for row in found[len(before) :]][:2] == ["member left", "member joined"]
    assert found[len(before) + 1]["assignor"] == "weighted"
    metrics = fetch(f"{own}/metrics")[1]
    assert "\nwatched_records_total{" in metrics
    assert '\ntarget_assignment_total{assignor="weighted",group="billing"}' in metrics
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(60) == 0


def fetch(url):
    """The status and the text of a page; 0 while none answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def epochs(pages):
    """The epochs of a group that had a reason, the first one first."""
    status, text = fetch(f"{pages}/api/v1/groups/billing/epochs?limit=100")
    rows = json.loads(text)["items"] if status == 200 else []
    return sorted(rows, key=lambda row: row["group_epoch"])


def same_logs(node, *brokers):
    """Whether the node has what each broker has, byte for byte."""
    found = node.logs()
    return len(found) == 3 and all(
        data == broker.log_of(name) for name, data in found.items() for broker in brokers
    )
