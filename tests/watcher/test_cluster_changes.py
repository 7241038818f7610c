"""What happens to a cluster while it is watched: another one at its address, more partitions."""

import asyncio
from types import SimpleNamespace

import pytest

from coordinator.core.java_hash import place_of
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.watcher.client_settings import ClientSettings
from coordinator.watcher.kafka_brokers import KafkaBrokers

from .fake_cluster import FakeCluster, following, wait_for
from .test_read_anew import follow_until, groups_of, is_read, open_store
from .written import group_of, offset_of


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


def test_a_topic_that_was_made_anew_has_other_groups(tmp_path):
    cluster = FakeCluster()
    for group_id in ("old", "both"):
        cluster.write(0, [*group_of(group_id), offset_of(group_id)])
    follow_until(tmp_path, cluster)
    again = FakeCluster()
    again.write(0, group_of("both"))
    found, _ = follow_until(tmp_path, again, lambda store: "old" not in groups_of(store))
    assert found == {"both"}


def test_a_topic_that_grows_is_read_whole(tmp_path):
    cluster = FakeCluster()
    moved, stays = "a", "b"
    assert (place_of(moved, 2), place_of(stays, 2)) == (1, 0)
    for group_id in (moved, stays):
        cluster.write(0, group_of(group_id))
    with open_store(tmp_path) as store, following(cluster, store, topics_ms=100):
        wait_for(is_read(cluster, store))
        cluster.logs[1], cluster.ends[1], cluster.starts[1] = [], 0, 0
        cluster.write(1, group_of("c"))
        # Kafka looks for the other one in its new place; both partitions are read, then this.
        wait_for(lambda: groups_of(store) == {stays, "c"})
