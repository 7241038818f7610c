"""A node of clusters of older brokers: it leads, dies, comes back, and leaves.

`make test-cluster-kafka` only: it needs Java and Maven, and the jars of each Kafka once.
"""

from __future__ import annotations

import os

import pytest

from tests.clients.kafka_broker import Kafka, KafkaMissingError, SecondBroker
from tests.clients.test_cluster_kafka import (
    NODE,
    SETTINGS,
    NodeProcess,
    leaders,
    make_topic,
    replicas_of,
)
from tests.clients.world import Group, free_port, partitions, until
from tests.support.processes import end

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
PROTOCOLS = {"3.9.2": "classic", "4.1.1": "consumer"}
"""Of the groups: in 3.9, brokers have the newer one on trial only."""


@pytest.mark.parametrize("version", PROTOCOLS)
def test_a_node_leads_in_front_of_older_brokers(tmp_path, version, monkeypatch):
    monkeypatch.setattr(Kafka, "version", version)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    try:
        with (
            Kafka(tmp_path / "first", {"orders": 4}, SETTINGS) as one,
            SecondBroker(tmp_path / "second", one) as two,
        ):
            make_topic(one)
            lead_and_leave(tmp_path, one, two, PROTOCOLS[version])
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def lead_and_leave(folder, one, two, protocol):
    node, here = NodeProcess(folder, (one, two)), f"127.0.0.1:{free_port()}"
    found = {name: row["level"] for name, row in node.findings().items()}
    assert "bad" not in found.values(), found
    assert found["cordon"] == "warning"  # 4.3 and later can keep new topics away
    node.start("--listen", here)
    until(lambda: "alive in the cluster" in node.said(), node.said, 60)
    joined = node.ask("join", "--partitions", "0-2", "--yes")
    assert "in sync in 3 more partitions" in joined.stdout, joined.stderr + node.said()
    with Group(folder, "consumers", [one.address, two.address, here]) as group:
        names = ["a", "b"]
        for name in names:
            group.join(name, ["orders"], group_protocol=protocol)
        group.settled(names, partitions("orders", 4))
        done = node.ask("lead", "--partitions", "0-2", "--yes")
        assert "leads 3 partitions" in done.stdout, done.stderr + node.said()
        group.works(names)
        end(node.process)  # killed
        until(lambda: NODE not in leaders(two), node.said, 60)
        group.works(names)
        node.start("--listen", here)
        node.wait_in_sync(3)
        done = node.ask("lead", "--partitions", "0-2", "--yes")
        assert "leads 3" in done.stdout, done.stderr + node.said()
        group.works(names)
        done = node.ask("leave", "--yes")
        assert f"node {NODE} has left" in done.stdout, done.stderr + node.said()
        group.works(names)
    assert "cannot be loaded" not in node.said()
    assert replicas_of(one) == {key: {1, 2} for key in range(3)}
