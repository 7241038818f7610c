"""A coordinator keeps groups in a partition that it leads, and the next one has them as they were."""

import time
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordinator.clock import monotonic_ms
from coordinator.config import Config, EngineConfig, LogConfig, WeightsConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.state.records import GroupMetadata, KafkaWatched
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.kraft.batch_writer import Change, KeyValue
from coordinator.kraft.partition_records import PartitionRecords, make_view
from coordinator.runtime.coordinator import Coordinator
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.plan_tasks.weight_poller import WeightPoller
from coordinator.runtime.plan_tasks.weight_source import WeightTables
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import CommitFailed, CorruptLog
from coordinator.watcher.record_batches import read_batches
from coordinator.watcher.watched_store import WatchedStore

from .leads import NODE, Led

BY_WEIGHT = {"group.consumer.assignors": ["weighted"], "group.consumer.assignment.interval.ms": 0}
EPOCH = 2
"""Of a group with its first member."""
CONFIG = Config(engine=EngineConfig(engine="local"), log=LogConfig(answer_ms=2_000))


class Here:
    """A node that leads a partition; each election brings another coordinator."""

    def __init__(self, folder):
        self.pair = Led(folder)
        self.pair.standing.hear(monotonic_ms(), is_fenced=False)
        self.catalog = DictCatalog({"clicks": 4, "orders": 2})
        self.led, self.coordinator, self.config = None, None, CONFIG

    def elect(self, **given):
        self.resign()
        self.led = self.pair.elect(**given)
        log = self.log()
        log.claim("", "", 0)
        self.coordinator = Coordinator.open_led(
            log, config=self.config, topics=self.catalog, metrics=Metrics(9)
        )
        return self.coordinator

    def log(self):
        view = make_view(self.catalog.topics())
        return PartitionRecords(self.led, lambda: view, ("uniform", "range"))

    def resign(self):
        if self.led is not None:
            self.led.stop()
        if self.coordinator is not None:
            self.coordinator.close()


@pytest.fixture
def here(tmp_path):
    one = Here(tmp_path / "p")
    yield one
    one.resign()


def beat(coordinator, member_id="a", epoch=0, **given):
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["clicks", "orders"]}
    return coordinator.consumer_group_heartbeat(
        group_id="g", member_id=member_id, member_epoch=epoch,
        **({} if epoch else joins | {"topic_partitions": {}}) | given,
    )  # fmt: skip


def commit(coordinator, offset):
    coordinator.offset_commit(
        group_id="g", topics={"clicks": {1: offset}}, member_id="a", member_epoch=EPOCH
    )


def committed(coordinator):
    found = coordinator.offset_fetch(group_id="g", topics={"clicks": [1]})
    return found["topics"]["clicks"][1]["committed_offset"]


def kinds(here):
    """Kafka's types of what the follower has."""
    return [one.key[1] for some in read_batches(here.pair.follower.raw) for one in some.records]


def test_the_next_coordinator_has_the_group_as_it_was(here):
    first = here.elect()
    joined = beat(first)
    assert joined.member_epoch == EPOCH
    commit(first, 7)
    count = len(kinds(here))
    assert {1, 3, 5, 6, 7, 8} == set(kinds(here))
    second = here.elect()
    again = beat(second, epoch=EPOCH, topic_partitions=joined.assignment)
    assert again.member_epoch == EPOCH  # its topics are the same by Kafka's hash
    assert len(kinds(here)) == count
    assert committed(second) == 7
    commit(second, 9)
    third = here.elect()
    assert committed(third) == 9


def test_who_watches_the_topic_has_what_only_the_leader_knew(here, tmp_path):
    here.config = replace(CONFIG, kafka=kafka_config(BY_WEIGHT))
    first = here.elect()
    for member_id in ("a", "b"):
        beat(first, member_id)
    beat(first, "b", -1)
    folder = tmp_path / "watched"
    cluster = KafkaWatched("cluster-1", "records", 1)
    with WatchedStore.open(folder, cluster, topics=here.catalog, is_live=False) as store:
        store.take(3, read_batches(here.pair.follower.raw))
    rows = DeltaTable(folder / "log").to_pyarrow_table().sort_by("position").to_pylist()
    epochs = [row for row in rows if row["kind"] == "group_metadata"]
    assert [row["reason"] for row in epochs] == ["member joined", "member joined", "member left"]
    targets = [row for row in rows if row["kind"] == "target_assignment_metadata"]
    assert {row["assignor"] for row in targets} == {"weighted"}  # Kafka's records have none


def test_what_kafka_would_compute_is_its_own_hash(here):
    beat(here.elect())
    view = make_view(here.catalog.topics())
    log = here.log()
    (batch,) = log.replay()
    (group,) = [one for one in batch.records if isinstance(one, GroupMetadata)]
    assert group.metadata_hash == sum(view.by_name[n].hash for n in ("clicks", "orders")) % 2**64


def test_a_commit_that_does_not_count_is_not_acknowledged(here):
    first = here.elect()
    beat(first)
    here.pair.follower.follows = False
    with pytest.raises(GroupError, match="try again"):
        commit(first, 7)
    here.pair.follower.follows = True
    here.pair.follower.pull()
    second = here.elect()
    assert committed(second) == 7  # it was written


def test_who_leads_no_longer_says_so(here):
    first = here.elect()
    beat(first)
    here.led.stop()
    with pytest.raises(GroupError, match="Another coordinator"):
        commit(first, 7)
    assert first.status == Status.FENCED.value


def test_what_cannot_be_read_is_no_empty_group(here):
    beat(here.elect())
    here.led.append([Change([KeyValue(b"\0\3\0\1g", b"\0\0\1")], 5)])
    here.led = here.pair.elect()
    with pytest.raises(CorruptLog, match="offset"):
        list(here.log().replay())


def test_what_kafka_has_no_record_for_moves_no_offset_but_is_checked(here):
    first = here.elect()
    end = here.led.end
    first.alter_group_config("g", {"consumer.session.timeout.ms": "50000"})
    assert here.led.end == end
    here.led.stop()
    with pytest.raises(GroupError, match="Another coordinator"):
        first.alter_group_config("g", {"consumer.session.timeout.ms": "55000"})


def test_weights_move_partitions_and_the_next_coordinator_has_them_there(here):
    here.config = replace(
        CONFIG,
        kafka=kafka_config(BY_WEIGHT),
        weights=WeightsConfig(half_life_ms=0, interval_ms=1),
    )
    heavy = pa.table({"topic": ["clicks"] * 4, "partition": range(4), "weight": [9.0, 1, 1, 1]})
    first = here.elect()
    only = ["clicks"]
    for member in "ab":
        epoch = beat(first, member, subscribed_topic_names=only).member_epoch
    WeightPoller(first._loop, lambda: WeightTables(heavy)).run()
    time.sleep(0.01)
    WeightPoller(first._loop, lambda: WeightTables(heavy)).run()
    beat(first, "b", epoch)
    targets = targets_of(first)
    assert sorted(map(len, targets.values())) == [1, 3]
    assert targets_of(here.elect()) == targets


def targets_of(coordinator):
    (found,) = coordinator.consumer_group_describe("g")
    return {
        one["member_id"]: sorted(
            number
            for topic in one["target_assignment"]["topic_partitions"]
            for number in topic["partitions"]
        )
        for one in found["members"]
    }


def test_groups_of_other_kinds_are_left_to_brokers(here):
    here.elect()
    here.led.append([Change([KeyValue(b"\0\13\0\1g", b"\0\0x")], 5)])
    here.led = here.pair.elect()
    with pytest.raises(CorruptLog, match="share or streams groups"):
        list(here.log().replay())


def test_no_replica_in_sync_is_no_reason_to_answer(here):
    beat(here.elect())
    here.led = here.pair.elect(isr=(NODE,))
    with pytest.raises(CommitFailed):
        list(here.log().replay())
