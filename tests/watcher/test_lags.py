"""How far the groups of a Kafka cluster are behind: in the store, and wherever a store is read."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from prometheus_client import generate_latest

from coordinator.core.events import CatalogTopic
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import LoadsNoted, Tombstone
from coordinator.core.watched.lags import Behind, find_lags, note_lags
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.watcher.kafka_brokers import KafkaBrokers
from coordinator.wire.codec import Api
from tests.support.members import position_of
from tests.support.processes import run_as_text

from .fake_cluster import FakeCluster, following, wait_for
from .test_reread import is_read, open_store
from .test_unread_groups import end_of
from .written import group_of, offset_of, record

TOPIC_ID = "00000000-0000-0000-0000-000000000001"
TOPICS = {"t": CatalogTopic(TOPIC_ID, 3)}


class Cluster(FakeCluster):
    """Has a topic with an end of each partition, and may not say them."""

    def __init__(self):
        super().__init__(topics=TOPICS)
        self.topic_ends = {("t", 0): 10, ("t", 1): 20}
        self.failure = None

    async def end_offsets(self, places):
        if self.failure is not None:
            raise self.failure
        return {place: self.topic_ends[place] for place in places if place in self.topic_ends}


def lags_of(store, group_id="g"):
    return store.coordinator.look(lambda state: find_lags(state, group_id))


@pytest.fixture
def cluster():
    cluster = Cluster()
    cluster.write(0, [*group_of("g"), offset_of("g", partition=0, offset=4)])
    cluster.write(0, [offset_of("g", partition=1, offset=25), offset_of("g", partition=2)])
    return cluster


def test_lag_follows_commits_and_ends(tmp_path, cluster):
    with open_store(tmp_path) as store, following(cluster, store, lag_ms=20):
        wait_for(lambda: lags_of(store) == {("t", 0): 6, ("t", 1): 0})
        cluster.topic_ends["t", 0] = 110
        wait_for(lambda: lags_of(store)["t", 0] == 106)
        cluster.write(0, [offset_of("g", partition=0, offset=100)])
        wait_for(lambda: lags_of(store)["t", 0] == 10)
        metrics = generate_latest(store.coordinator.metrics.registry).decode()
        assert 'group_lag{group="g"} 10.0' in metrics
        cluster.write(0, [*end_of("g"), *map(end_at, range(3))])
        wait_for(lambda: lags_of(store) == {})
        assert store.coordinator.look(lambda state: dict(state.loads)) == {}


def end_at(partition):
    return record(1, {"group_id": "g", "topic": "t", "partition": partition})


def test_what_does_not_change_is_not_written(tmp_path, cluster):
    with open_store(tmp_path) as store, following(cluster, store, lag_ms=20):
        wait_for(lambda: lags_of(store))
        asked = []
        cluster.end_offsets = note_asked(cluster.end_offsets, asked)
        at = position_of(store.coordinator)
        wait_for(lambda: len(asked) > 5)
        assert position_of(store.coordinator) == at


def note_asked(ask, asked):
    async def end_offsets(places):
        asked.append(places)
        return await ask(places)

    return end_offsets


def test_lags_stay_while_the_cluster_does_not_say(tmp_path, cluster, caplog):
    with open_store(tmp_path) as store, following(cluster, store, lag_ms=20):
        wait_for(lambda: lags_of(store))
        cluster.failure = ConnectionError("broker 1 is not known")
        cluster.write(0, [offset_of("g", partition=0, offset=9)])
        wait_for(is_read(cluster, store))
        wait_for(lambda: "lags stay as they were noted: broker 1" in caplog.text)
        assert lags_of(store)["t", 0] == 6
        cluster.failure = None
        wait_for(lambda: lags_of(store)["t", 0] == 1)
    assert caplog.text.count("lags stay") == 1


def test_pages_and_describe_show_the_lag(tmp_path, cluster):
    pytest.importorskip("starlette")
    from tests.web.browsing import browse

    with open_store(tmp_path) as store, following(cluster, store, lag_ms=20):
        wait_for(lambda: lags_of(store))
    described = json.loads(run_as_text("describe", "g", "--store", tmp_path).stdout)
    assert [(row["partition"], row["lag"]) for row in described["offsets"]] == [
        (0, 6),
        (1, 0),
        (2, None),
    ]
    pages = browse(tmp_path)
    assert "Lag" in pages.get("/").text
    offsets = pages.get("/offsets?id=g").text
    assert "Lag was noted" in offsets
    assert "smoothed" not in offsets


def test_without_an_interval_no_end_is_asked_for(tmp_path, cluster):
    cluster.failure = AssertionError("asked")
    with open_store(tmp_path) as store, following(cluster, store, lag_ms=0):
        wait_for(is_read(cluster, store))
        assert lags_of(store) == {}
    rows = LogRows(LogReader(tmp_path)).present([LoadsNoted.kind], ["group_id"])
    assert not len(rows)


PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 9))


@given(st.dictionaries(st.sampled_from("gh"), OFFSETS), OFFSETS, st.sampled_from(["g", "i"]))
def test_noted_lags_are_ends_minus_offsets(committed, ends, noted):
    before = {noted: (TopicWeights("a", (3.0,)),)}
    records = note_lags(Behind(committed, before), ends, 7)
    after = dict(before)
    for one in records:
        if isinstance(one, Tombstone):
            del after[one.group_id]
        else:
            assert one.timestamp == 7
            after[one.group_id] = one.weights
    found = {
        (group_id, one.topic, partition): lag
        for group_id, some in after.items()
        for one in some
        for partition, lag in enumerate(one.weights)
        if lag >= 0
    }
    assert found == {
        (group_id, *place): max(ends[place] - offset, 0)
        for group_id, offsets in committed.items()
        for place, offset in offsets.items()
        if place in ends
    }
    assert note_lags(Behind(committed, after), ends, 8) == []


# What brokers are asked ----------------------------------------------------------------------------


class Connection:
    """Answers as a broker that leads some partitions; one of them it does not know."""

    opened = 0

    def __init__(self):
        Connection.opened += 1
        self.asked = []

    async def ask(self, api, **fields):
        await asyncio.sleep(0.01)
        if api is Api.METADATA:
            nodes = [SimpleNamespace(node_id=n, host="h", port=n, rack=None) for n in (1, 2)]
            led = [SimpleNamespace(partition_index=p, leader_id=p % 2 + 1) for p in range(4)]
            led.append(SimpleNamespace(partition_index=4, leader_id=-1))
            topic = SimpleNamespace(name="t", error_code=ErrorCode.none, partitions=led)
            return SimpleNamespace(cluster_id="c", brokers=nodes, topics=[topic])
        (topic,) = fields["topics"]
        found = [
            SimpleNamespace(
                partition_index=one["partition_index"],
                error_code=6 if one["partition_index"] == 3 else 0,
                offset=100 + one["partition_index"],
            )
            for one in topic["partitions"]
        ]
        assert all(one["timestamp"] == -1 for one in topic["partitions"])
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=found)])

    async def close(self):
        pass


@pytest.fixture
def brokers(monkeypatch):
    async def connect(*_args):
        await asyncio.sleep(0.01)
        return Connection()

    monkeypatch.setattr(KafkaConnection, "open", connect)
    monkeypatch.setattr(Connection, "opened", 0)
    return KafkaBrokers(ClientSettings.read("kafka://h:1", {}))


def test_each_leader_is_asked_for_the_ends_of_its_own(brokers):
    asked = [("t", partition) for partition in range(6)]
    assert asyncio.run(brokers.end_offsets(asked)) == {("t", p): 100 + p for p in (0, 1, 2)}
    assert asyncio.run(brokers.end_offsets([])) == {}


def test_two_that_ask_at_once_share_a_connection(brokers):
    async def ask():
        await asyncio.gather(*(brokers.leaders({"t"}) for _ in range(3)))
        await asyncio.gather(*(brokers.ask(1, Api.METADATA) for _ in range(3)))

    asyncio.run(ask())
    assert Connection.opened == 2
