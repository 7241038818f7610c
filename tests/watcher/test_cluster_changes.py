"""What happens to a cluster while it is watched: another one at its address, more partitions."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from coordinator.core.java_hash import place_of
from coordinator.core.state.groups import TopicView
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.watcher.kafka_brokers import KafkaBrokers
from coordinator.watcher.record_batches import KafkaRecord
from coordinator.watcher.translator import Translator

from .fake_cluster import FakeCluster, following, wait_for
from .test_reread import follow_until, groups_of, is_read, open_store
from .written import group_of, offset_of, record


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


@pytest.mark.parametrize("other_id", ["cluster-2", None])
def test_another_cluster_at_the_same_address_is_not_read(monkeypatch, other_id):
    broker = Broker(other_id)

    async def connect(*_args):
        return broker

    monkeypatch.setattr(KafkaConnection, "open", connect)
    brokers = KafkaBrokers(ClientSettings.read("kafka://h:1", {}), cluster_id="cluster-1")
    with pytest.raises(ConnectionError, match=f"h:1: this is now Kafka cluster {other_id}, but"):
        asyncio.run(brokers.describe("t"))
    assert not broker.is_open
    broker.cluster_id = "cluster-1"
    assert asyncio.run(brokers.describe("t")).cluster_id == "cluster-1"


def test_a_topic_that_was_recreated_has_other_groups(tmp_path):
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


# Before an epoch of other topics is written, the cluster is asked what happened to them ------------


def metadata(offset, hash_, group_id="g", at_ms=None):
    """An epoch of a group, with the hash of its topics: a tagged field."""
    key = record(3, {"group_id": group_id}).key
    value = None
    if hash_ is not None:
        value = struct.pack(">hiBBBq", 0, offset, 1, 0, 8, hash_)
    return KafkaRecord(offset, at_ms or offset * 1_000, key, value)


@pytest.mark.parametrize(
    ("hashes", "asked"),
    [((1, 1), 0), ((1, 2), 1), ((1, 2, 2, 1), 2), ((1, None, 2), 0)],
)
def test_topics_are_asked_for_when_a_group_has_others(hashes, asked):
    counted = []
    translator = Translator(TopicView)
    translator.find_topics = lambda: counted.append(1)
    for offset, hash_ in enumerate(hashes, 1):
        translator.take([metadata(offset, hash_)])
    assert len(counted) == asked


def test_what_is_loaded_is_known_and_asks_for_nothing():
    counted = []
    translator = Translator(TopicView)
    translator.find_topics = lambda: counted.append(1)
    translator.load([metadata(1, 1), metadata(2, 1, "h")])
    assert counted == []
    translator.take([metadata(3, 2)])
    assert counted == [1]


def test_of_many_groups_that_have_a_new_topic_the_first_one_asks():
    counted = []
    translator = Translator(TopicView)
    translator.find_topics = lambda: counted.append(1)
    groups = [f"g{number}" for number in range(100)]
    for hash_, at_ms in ((1, 5_000), (2, 7_000)):
        for group_id in groups:
            translator.take([metadata(1, hash_, group_id, at_ms)])
    assert counted == [1]
