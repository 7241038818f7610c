"""The metadata of a cluster: what Kafka 4.4.0 wrote, replayed, is what its admin API says."""

from __future__ import annotations

import base64
import contextlib
import random
from types import SimpleNamespace

import pytest

from coordinator.kraft.metadata_image import MetadataImage, Partition
from coordinator.kraft.metadata_log import MetadataLog, SnapshotId
from coordinator.kraft.metadata_records import (
    MetadataError,
    MetadataRecord,
    read_metadata_record,
)
from coordinator.watcher.record_batches import read_batches

from .recorded import METADATA, SAID, answer, split

END = split(METADATA)[-1][1] + 1


@pytest.fixture(scope="module")
def image():
    log = MetadataLog()
    assert log.take(answer(METADATA, END)) is None
    assert log.applied == END
    assert log.is_caught_up
    return log.image


def test_topics_and_leaders_are_those_that_kafka_names(image):
    assert set(image.topic_ids) == set(SAID["topics"])
    for name, said in SAID["topics"].items():
        topic = image.topic(name)
        assert base64.b64encode(topic.topic_id.bytes).decode().rstrip("=") == said["id"]
        found = {
            str(number): {
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": sorted(one.isr),
            }
            for number, one in topic.partitions.items()
        }
        assert found == said["partitions"]


def test_brokers_are_those_that_kafka_names(image):
    found = {
        str(one.node_id): [one.endpoints[0].host, one.endpoints[0].port]
        for one in image.brokers.values()
        if not one.is_fenced
    }
    assert found == SAID["brokers"]
    assert image.brokers[2].features["metadata.version"] == (7, 33)
    assert image.features["metadata.version"] == 33


def test_settings_access_and_users_are_those_that_kafka_has(image):
    assert image.settings[2, "orders"] == SAID["orders_settings"]
    assert image.setting(2, "orders", "min.insync.replicas") == "1"  # of the cluster
    (acl,), (said,) = image.acls.values(), SAID["acls"]
    assert (acl.resource_name, acl.principal, acl.host) == (said[1], said[3], said[4])
    assert {user: [[SCRAM[kind], v.iterations]] for (user, kind), v in image.verifiers.items()} == (
        SAID["verifiers"]
    )


SCRAM = {1: "SCRAM_SHA_256", 2: "SCRAM_SHA_512"}


def test_a_leader_that_returns_raises_both_epochs(image):
    """Broker 2 was stopped: its partitions were led by 1 then, in the next epoch."""
    one = image.topic("orders").partitions[0]
    assert (one.replicas, one.leader, one.leader_epoch, one.partition_epoch) == ((2, 1), 1, 1, 2)
    assert one.directory_of(1) == image.brokers[1].log_dirs[0]
    assert one.directory_of(7) is None
    assert [topic.name for topic, _ in image.held_by(1)] == ["__consumer_offsets"] * 3 + (
        ["orders"] * 4
    )
    assert image.held_by(7) == []


@pytest.mark.parametrize("seed", range(5))
def test_any_split_of_the_log_gives_the_same_image(image, seed):
    """Only what is decided is replayed, in whole batches, however it arrives."""
    chance, log, batches = random.Random(seed), MetadataLog(), split(METADATA)
    mark = 0
    while batches:
        some = [batches.pop(0) for _ in range(min(len(batches), chance.randint(1, 99)))]
        end = some[-1][1] + 1
        mark = max(mark, chance.randint(some[0][0], end))
        log.take(answer(b"".join(raw for _, _, raw in some), mark))
        assert log.applied <= mark
        assert log.fetch_offset == end
    assert not log.is_caught_up or mark == log.applied
    log.take(answer(b"", END))
    assert vars(log.image) == vars(image)


def test_what_was_not_decided_is_cut_off(image):
    log, batches = MetadataLog(), split(METADATA)
    log.take(answer(METADATA, batches[-9][1] + 1))
    undecided = batches[-8][0]
    assert log.applied == undecided
    log.take(answer(diverging_epoch=SimpleNamespace(epoch=1, end_offset=batches[-3][0])))
    assert log.fetch_offset == batches[-3][0]
    log.take(answer(b"".join(raw for _, _, raw in batches[-3:]), END))
    assert vars(log.image) == vars(image)
    with pytest.raises(MetadataError, match="they lost some"):
        log.take(answer(diverging_epoch=SimpleNamespace(epoch=1, end_offset=undecided)))


def test_a_snapshot_replaces_everything(image):
    log = MetadataLog()
    log.take(answer(split(METADATA)[0][2], 1))
    wanted = log.take(answer(snapshot_id=SimpleNamespace(epoch=3, end_offset=END)))
    assert wanted == SnapshotId(END, 3)
    log.begin_snapshot(wanted)
    log.take_snapshot(METADATA)
    assert vars(log.image) == vars(image)
    (asked,) = log.request(7, "cluster", None, 500)["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["last_fetched_epoch"]) == (END, 3)


def test_a_transaction_counts_when_it_ends_or_never():
    begin, end, abort = (
        MetadataRecord(f"{name}TransactionRecord", None) for name in ("Begin", "End", "Abort")
    )
    level = MetadataRecord("FeatureLevelRecord", SimpleNamespace(name="f", feature_level=2))
    for last, features in ((end, {"f": 2}), (abort, {})):
        image = MetadataImage()
        for one in (begin, level, begin, level):
            image.replay(one)
            assert image.features == {}
        image.replay(last)
        assert image.features == features


def test_a_change_of_what_is_not_there_is_a_gap():
    change = SimpleNamespace(broker_id=9)
    with pytest.raises(MetadataError, match="is about 9, which no record before it has made"):
        MetadataImage().replay(MetadataRecord("UnregisterBrokerRecord", change))


def test_what_is_newer_is_named():
    with pytest.raises(MetadataError, match="TopicRecord of version 1: Muster knows 0"):
        read_metadata_record(bytes([1, 2, 1]))
    with pytest.raises(MetadataError, match="type 99 of version 0: Muster knows none"):
        read_metadata_record(bytes([1, 99, 0]))


def test_damaged_records_are_errors_of_the_metadata():
    values = [
        r.value for b in read_batches(METADATA) for r in b.records if r.key is None and r.value
    ]
    chance = random.Random(1)
    for value in chance.sample(values, 60):
        for cut in range(len(value)):
            with pytest.raises(MetadataError):
                read_metadata_record(value[:cut])
        damaged = bytearray(value)
        damaged[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
        with contextlib.suppress(MetadataError):
            read_metadata_record(bytes(damaged))


def test_a_new_epoch_of_the_controllers_is_learned_once():
    log = MetadataLog()
    assert log.learn_epoch(SimpleNamespace(leader_epoch=4))
    assert not log.learn_epoch(SimpleNamespace(leader_epoch=4))
    assert not log.learn_epoch(SimpleNamespace(leader_epoch=-1))
    assert log.request(7, "c", None, 5)["topics"][0]["partitions"][0]["current_leader_epoch"] == 4


def test_eligible_leaders_may_be_cleared(image):
    one = Partition((1, 2), (1,), (), (), 1, 0, 0, 0, (), (2,))
    topic = image.topic("orders")
    kept = dict(topic.partitions)
    try:
        for named in ("", "orders"):
            topic.partitions[0] = one
            image.replay(MetadataRecord("ClearElrRecord", SimpleNamespace(topic_name=named)))
            assert topic.partitions[0].eligible_leaders == ()
    finally:
        topic.partitions.update(kept)
