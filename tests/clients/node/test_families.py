"""Every family of clients in groups that a node leads, in front of two real brokers.

`make test-cluster-kafka` only: it needs Java, Maven, Go, Node.js, and their registries once.
"""

from __future__ import annotations

import os

import confluent_kafka as ck
import pytest

from tests.clients.java import compiled
from tests.clients.kafka_broker import Kafka, KafkaMissingError, SecondBroker
from tests.clients.test_classic_clients import CLIENTS, SOON, make_client
from tests.clients.test_cluster_kafka import NODE, SETTINGS, NodeProcess, leaders, make_topic
from tests.clients.world import MEMBER, Group, free_port, partitions, until
from tests.support.processes import end

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
ORDERS = partitions("orders", 4)
RECORDS = 5_000
FAMILIES = {
    **CLIENTS,
    "librdkafka-consumer": ("", lambda _: MEMBER, {"group_protocol": "consumer"}),
    "java-consumer": ("", compiled, {"group_protocol": "consumer"}),
}


@pytest.fixture(scope="module")
def led(tmp_path_factory):
    """A cluster of two brokers whose topic of groups a node leads."""
    folder = tmp_path_factory.mktemp("led")
    for name in ("first", "second"):
        (folder / name).mkdir()
    try:
        with (
            Kafka(folder / "first", {"orders": 4}, SETTINGS) as one,
            SecondBroker(folder / "second", one) as two,
        ):
            make_topic(one)
            fill(one)
            node = NodeProcess(folder, (one, two))
            node.address = f"127.0.0.1:{free_port()}"
            node.start("--listen", node.address)
            try:
                until(lambda: "alive in the cluster" in node.said(), node.said)
                node.ask("join", "--partitions", "0-2", "--yes")
                done = node.ask("lead", "--partitions", "0-2", "--yes")
                assert "leads 3" in done.stdout, done.stderr + node.said()
                yield node, one, two
                assert "no answer to" not in node.said()
            finally:
                end(node.process)
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def fill(broker):
    """Write records at every offset that members may commit: kafkajs falls back where none is."""
    producer = ck.Producer({"bootstrap.servers": broker.address})
    for number in range(4 * RECORDS):
        producer.produce("orders", b"", partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_members_share_come_and_go(tmp_path, led, family):
    """They know the node alone at first; a broker would serve them as well, so it must lead."""
    node, _, two = led
    (tmp_path / "classes").mkdir()
    words = make_client(FAMILIES[family], tmp_path / "classes")
    if words.get("group_protocol") != "consumer":
        words = SOON | words
    with Group(tmp_path, f"of-{family}", [node.address]) as group:
        for name in ("a", "b"):
            group.join(name, ["orders"], **words)
        group.settled(["a", "b"], ORDERS)
        group.works(["a", "b"])
        group.members["b"].leave()
        group.settled(["a"], ORDERS)
        group.works(["a"])
        assert leaders(two) == {NODE}
