"""What happens to a cluster while it is watched: another one at its address, more partitions."""

import asyncio
from types import SimpleNamespace

import pytest

from coordinator.member.kafka_connection import KafkaConnection
from coordinator.watcher.client_settings import ClientSettings
from coordinator.watcher.kafka_brokers import KafkaBrokers


class Broker:
    """Answers Metadata as one of a cluster."""

    def __init__(self, cluster_id):
        self.cluster_id = cluster_id
        self.is_open = True

    async def ask(self, _api, **_fields):
        node = SimpleNamespace(node_id=1, host="h", port=1, rack=None)
        return SimpleNamespace(cluster_id=self.cluster_id, brokers=(node,), topics=())

    async def close(self):
        self.is_open = False


@pytest.mark.parametrize("told", ["cluster-2", None])
def test_another_cluster_at_the_same_address_is_not_read(monkeypatch, told):
    broker = Broker(told)

    async def connect(*_args):
        return broker

    monkeypatch.setattr(KafkaConnection, "open", connect)
    brokers = KafkaBrokers(ClientSettings.read("kafka://h:1", {}), cluster_id="cluster-1")
    with pytest.raises(ConnectionError, match=f"h:1: it is the Kafka cluster {told} by now"):
        asyncio.run(brokers.describe("t"))
    assert not broker.is_open
    broker.cluster_id = "cluster-1"
    assert asyncio.run(brokers.describe("t")).cluster_id == "cluster-1"
