"""Weights from a Kafka cluster: lag and rates, by offsets and records that a cluster answers."""

from __future__ import annotations

import pytest

from coordinator.config import ConfigError, parse
from coordinator.runtime.plan_tasks import kafka_weights
from coordinator.runtime.plan_tasks.kafka_weights import (
    GroupPosition,
    KafkaWeights,
    open_weights,
)
from coordinator.runtime.plan_tasks.record_sizes import (
    PARTITIONS_MAX,
    KafkaRecordSizes,
    choose_places,
)
from coordinator.runtime.plan_tasks.weight_poller import WeightPoller
from tests.runtime.test_plans import running
from tests.support.members import state_of

__all__ = ["running"]


class Cluster:
    """A cluster of one topic, whose partitions begin and end at these offsets."""

    def __init__(self, first, end):
        self.offsets = {True: first, False: end}
        self.away = False

    def find(self, places, *, first):
        if self.away:
            raise OSError("the Kafka cluster does not answer: timed out")
        known = self.offsets[first]
        return {(t, at): known[at] for t, at in places if t == "clicks" and at < len(known)}


class Records:
    """The sizes of a cluster's records, and what was asked for."""

    def __init__(self, sizes):
        self.sizes, self.asked = sizes, []

    def measure(self, ends):
        self.asked.append(dict(ends))
        return {place: self.sizes[place] for place in ends if place in self.sizes}


def weights_of(tables):
    return {
        (row["group_id"], row["topic"], row["partition"]): row["weight"]
        for row in tables.partitions.to_pylist()
    }


def test_lag_is_what_a_group_has_not_committed():
    cluster = Cluster([5, 0, 0], [100, 100, 0])
    found = KafkaWeights(cluster, "lag").read(
        {
            "g": GroupPosition({"clicks": 3, "gone": 1}, {("clicks", 0): 90, ("clicks", 2): 7}),
            "h": GroupPosition({"clicks": 1}),
        }
    )
    # what was committed beyond the end is no lag: the topic is a new one of the name
    assert weights_of(found) == {
        ("g", "clicks", 0): 10.0, ("g", "clicks", 1): 100.0, ("g", "clicks", 2): 0.0,
        ("h", "clicks", 0): 95.0,
    }  # fmt: skip
    assert KafkaWeights(cluster, "lag").read({}).partitions.num_rows == 0


def test_a_rate_needs_two_looks():
    now = [10.0]
    cluster = Cluster([0, 0], [100, 100])
    source = KafkaWeights(cluster, "rate", lambda: now[0])
    group = {"g": GroupPosition({"clicks": 2})}
    assert weights_of(source.read(group)) == {}
    assert weights_of(source.read(group)) == {}  # no time passed
    now[0], cluster.offsets[False] = 14.0, [140, 90]
    assert weights_of(source.read(group)) == {("g", "clicks", 0): 10.0, ("g", "clicks", 1): 0.0}


def test_a_byte_rate_is_records_by_their_size():
    now, cluster = [0.0], Cluster([0] * 4, [100] * 4)
    records = Records({("clicks", 0): 10.0, ("clicks", 1): 1000.0})
    source = KafkaWeights(cluster, "byte_rate", lambda: now[0], records)
    group = {"g": GroupPosition({"clicks": 4})}
    assert weights_of(source.read(group)) == {}
    now[0], cluster.offsets[False] = 10.0, [200, 110, 100, 102]
    # partition 2 stands still and is not read; of 3 nothing could be read, so its topic is asked
    assert weights_of(source.read(group)) == {
        ("g", "clicks", 0): 100.0, ("g", "clicks", 1): 1000.0, ("g", "clicks", 2): 0.0,
        ("g", "clicks", 3): 0.2 * 505,
    }  # fmt: skip
    assert records.asked == [{}, {("clicks", 0): 200, ("clicks", 1): 110, ("clicks", 3): 102}]
    now[0], cluster.offsets[False] = 20.0, [300, 120, 100, 102]
    records.sizes = {("clicks", 0): 30.0}
    found = weights_of(source.read(group))
    assert (found["g", "clicks", 0], found["g", "clicks", 1]) == (10 * (10 + 30) / 2, 1000.0)


def test_partitions_with_unknown_records_have_no_weight():
    now, cluster = [0.0], Cluster([0, 0], [0, 0])
    source = KafkaWeights(cluster, "byte_rate", lambda: now[0], Records({}))
    source.read({"g": GroupPosition({"clicks": 2})})
    now[0], cluster.offsets[False] = 1.0, [5, 0]
    assert weights_of(source.read({"g": GroupPosition({"clicks": 2})})) == {("g", "clicks", 1): 0}


def test_a_look_reads_a_bounded_number_of_partitions_in_turn():
    ends = {("clicks", at): 9 for at in range(3 * PARTITIONS_MAX)}
    rates = {place: float(place[1] % 2) for place in ends}
    seen = []
    for _ in range(2):
        chosen = choose_places(ends, rates, seen)
        assert len(chosen) == PARTITIONS_MAX
        seen = [place for place in seen if place not in chosen] + list(chosen)
    assert sorted(seen) == [place for place in ends if rates[place]]
    assert next(iter(choose_places(ends, rates, seen))) == seen[0] != ("clicks", 1)


def test_a_group_follows_its_lag_and_stays_while_the_cluster_is_away(running, caplog):
    group = running()
    group.beat("m1", "m2")
    cluster = Cluster([0] * 6, [10] * 6)
    group.poller = WeightPoller(group.coordinator._loop, KafkaWeights(cluster, "lag"))
    group.poll()
    heavy = sorted(group.owned["m1"]["clicks"])
    for at in heavy:
        cluster.offsets[False][at] = 1000
    group.poll()
    group.beat("m1", "m2", "m1", "m2")
    mine = [at for at in heavy if at in group.owned["m1"]["clicks"]]
    assert len(mine) in (1, 2)  # of three
    group.coordinator.offset_commit(
        group_id="g", member_id="m1", member_epoch=group.epochs["m1"],
        topics={"clicks": dict.fromkeys(mine, (1000, ""))},
    )  # fmt: skip
    cluster.away = True
    before = noted(group)
    group.poll()
    assert noted(group) == before
    assert "weights stay as they were: the Kafka cluster does not answer" in caplog.text
    cluster.away = False
    group.poll()
    assert noted(group) == [0 if at in mine else one for at, one in enumerate(before)]


def noted(group):
    (topic,) = state_of(group.coordinator).loads["g"].weights
    return list(topic.weights)


def test_a_cluster_is_named_in_the_settings(monkeypatch):
    asked = []
    monkeypatch.setattr(kafka_weights, "KafkaOffsets", asked.append)
    text = "[weights]\nmeasure = 'rate'\nkafka = {'security.protocol' = 'SSL'}"
    source = open_weights("kafka://one:9092,two:9092", parse(text, "x").weights)
    assert isinstance(source, KafkaWeights)
    assert asked == [{"bootstrap.servers": "one:9092,two:9092", "security.protocol": "SSL"}]
    text = text.replace("rate", "byte_rate")
    source = open_weights("kafka://one:9092,two:9092", parse(text, "x").weights)
    assert isinstance(source._sizes, KafkaRecordSizes)
    assert source._sizes._settings == asked[1] == asked[0]
    with pytest.raises(ConfigError, match="Invalid enum value 'bytes'"):
        parse("[weights]\nmeasure = 'bytes'", "x")


def test_a_cluster_that_is_not_there_is_an_os_error():
    offsets = kafka_weights.KafkaOffsets({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1)
    assert offsets.find([], first=True) == {}
    with pytest.raises(OSError, match="does not answer"):
        offsets.find([("clicks", 0)], first=False)
    sizes = KafkaRecordSizes({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.3)
    assert sizes.measure({("clicks", 0): 0}) == {}
    with pytest.raises(OSError, match=r"no record of topic 'clicks', partition 3, within 0\.3 s"):
        sizes.measure({("clicks", 3): 10})
