"""A cluster of two real brokers whose topic of groups a node leads."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.clients.kafka_broker import Kafka, KafkaMissingError, SecondBroker
from tests.clients.test_cluster_kafka import SETTINGS, NodeProcess, make_topic
from tests.clients.world import free_port, until
from tests.support.processes import end


@contextmanager
def led_cluster(folder, topics, settings=""):
    """The node, which has an `address`, and the brokers; nothing was left without an answer.

    The node's settings may name the `{servers}` of the cluster.
    """
    for name in ("first", "second"):
        (folder / name).mkdir()
    try:
        with (
            Kafka(folder / "first", topics, SETTINGS) as one,
            SecondBroker(folder / "second", one) as two,
        ):
            make_topic(one)
            node = NodeProcess(folder, (one, two))
            node.address = f"127.0.0.1:{free_port()}"
            servers = f"{one.address},{two.address}"
            (folder / "muster.toml").write_text(settings.format(servers=servers))
            node.start("--listen", node.address, "--config", folder / "muster.toml")
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
