"""A node of a real cluster with three controllers, of which the active one dies, hangs and returns.

`make test-cluster-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from coordinator.kraft.links import Links
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import Api
from tests.clients.kafka_broker import KafkaMissingError, Quorum
from tests.clients.test_cluster_kafka import NODE, SETTINGS, TOPIC, NodeProcess
from tests.clients.world import Group, free_port, partitions, until
from tests.support.processes import end

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)


def test_a_node_stays_when_the_active_controller_dies_and_when_it_hangs(tmp_path):
    try:
        with Quorum(tmp_path, SETTINGS) as quorum:
            lead_through_failures(tmp_path, quorum)
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def lead_through_failures(folder, quorum):
    node, here = NodeProcess(folder, quorum.brokers.values()), f"127.0.0.1:{free_port()}"
    addresses = [one.address for one in quorum.brokers.values()]
    admin = AdminClient({"bootstrap.servers": ",".join(addresses)})
    compact = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    wanted = [NewTopic(TOPIC, 3, 3, config=compact), NewTopic("orders", 4, 3)]
    for made in admin.create_topics(wanted).values():
        made.result(30)
    node.start("--listen", here)
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    assert node.ask("join", "--partitions", "0-2", "--yes").returncode == 0, node.said()
    assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout, node.said()
    with Group(folder, "consumers", [*addresses, here]) as group:
        for name in ("a", "b"):
            group.join(name, ["orders"], group_protocol="consumer")
        group.settled(["a", "b"], partitions("orders", 4))
        seen = set()
        for number, fail in enumerate((kill, kill, hang)):
            active = quorum.active()
            seen.add(active)
            fail(quorum.brokers[active])
            make_topic_at(here, f"made{number}")  # by an Envelope to the next one
            assert quorum.active() not in {None, active}
            revive(quorum.brokers[active])
            node.wait_in_sync(3)
            group.works(["a", "b"])
    assert len(seen) > 1
    assert "is fenced" not in node.said(), "it was taken for dead"
    led = admin.list_topics(TOPIC, 30).topics[TOPIC].partitions.values()
    assert {one.leader for one in led} == {NODE}
    end(node.process)


def make_topic_at(address, name):
    """Make a topic by way of the node itself; it waits until a controller is active."""
    host, _, port = address.partition(":")
    topic = {
        "name": name, "num_partitions": 1, "replication_factor": 2, "assignments": (), "configs": (),
    }  # fmt: skip
    settings = ClientSettings([(host, int(port))], None, None, "test")

    async def ask():
        links = Links(settings, 45, {Api.API_VERSIONS: (0, 0), Api.CREATE_TOPICS: (7, 7)})
        try:
            words = {"topics": [topic], "timeout": 20_000, "validate_only": False}
            return await links.ask_any(Api.CREATE_TOPICS, **words)
        finally:
            await links.close()

    (made,) = asyncio.run(ask()).topics
    assert int(made.error_code) in {0, 36}, made  # made, or made by an Envelope sent before


def pid_of(broker):
    return int((broker.folder / "kafka/pid").read_text())


def kill(broker):
    broker.kill()


def hang(broker):
    os.kill(pid_of(broker), signal.SIGSTOP)


def revive(broker):
    """Start it again, or let it go on."""
    if broker.listens():
        os.kill(pid_of(broker), signal.SIGCONT)
    else:
        broker.start()
