"""A store that is written by what Kafka wrote: every recorded topic, batch by batch, and restarts."""

import random
import time

import pytest
from deltalake import DeltaTable

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, TopicsConfig, WeightsConfig
from coordinator.core.classic.membership import find_steady_member
from coordinator.core.classic_events import ClassicHeartbeat
from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeat
from coordinator.core.events import CatalogTopic, Heartbeat
from coordinator.core.state.records import KafkaWatched
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.topic_catalog import SLICE_MAX
from coordinator.watcher.record_batches import RecordBatch
from coordinator.watcher.watched_store import WatchedStore, _raise
from tests.support.longer import EVERY

from .recorded import FILES, batches_of, change, read_lines

CLUSTER = KafkaWatched("cluster-1", "records", 1)
OURS = {"coordinator_epoch", "position", "at"}
"""Columns that say who wrote a row of the log, and where."""


def open_store(folder, cluster=CLUSTER):
    return WatchedStore.open(folder, cluster, is_live=False)


def wrap(records):
    return RecordBatch(records[0].offset, records[-1].offset, 0, -1, -1, False, None, records)


def feed(folder, name, restart=lambda: False, most=None):
    """Write a recorded topic, or its first lines, to a store, and leave it closed."""
    store = open_store(folder)
    topics, waiting = {}, []
    for line in read_lines(name)[:most]:
        if "topics" in line:
            waiting.append(line)
        for batch in batches_of(line) if "records" in line else ():
            while waiting and waiting[0]["at"] <= batch[0].timestamp_ms:
                at = waiting[0]["at"]
                change(topics, waiting.pop(0))
                store.report_topics(topics, at)
            store.take(0, [wrap(batch)])
            if restart():
                store.close()
                store = open_store(folder)
                assert store.next_offsets()[0] <= batch[-1].offset + 1
                store.take(0, [wrap(one) for one in batches_of(line) if one[0] <= batch[0]])
    store.flush()
    store.close()


def rows(folder, *, without=()):
    """What the log says of the groups, in order."""
    table = DeltaTable(str(folder / "log")).to_pyarrow_table()
    table = table.sort_by("position").drop_columns([*OURS, *without])
    return [row for row in table.to_pylist() if row["kind"] not in {"claim", "partition_read"}]


@pytest.mark.parametrize("name", FILES[:: 1 if EVERY else 3])
def test_rows_are_dated_by_kafka(tmp_path, name):
    feed(tmp_path, name)
    dates = {row["at_ms"] for row in rows(tmp_path) if row["kind"] == "group_metadata"}
    written = [r for line in read_lines(name) for r in line.get("records", ())]
    dated = {ms for _, ms, *_ in written}
    assert dates <= dated


@pytest.mark.parametrize("name", FILES[:: 1 if EVERY else 6])
def test_a_store_that_was_stopped_anywhere_has_the_same_groups(tmp_path, name):
    most = None if EVERY else 12
    feed(tmp_path / "whole", name, most=most)
    rng = random.Random(name)
    feed(tmp_path / "cut", name, lambda: rng.random() < 0.1, most)
    # Offsets are folded until the next change, so a stop writes some that were not the last.
    dated = [
        [
            r
            for r in rows(tmp_path / one, without=("reason", "member_id"))
            if "offset" not in r["kind"]
        ]
        for one in ("whole", "cut")
    ]
    for whole, cut in zip(*dated, strict=False):
        assert whole == cut
    assert len(dated[0]) == len(dated[1]) > 0


def test_another_cluster_is_refused(tmp_path):
    open_store(tmp_path).close()
    with pytest.raises(ConfigError, match="give each cluster a store of its own"):
        open_store(tmp_path, KafkaWatched("cluster-2", "records", 1))
    open_store(tmp_path).close()


def test_a_store_of_muster_is_not_overwritten(tmp_path):
    with Coordinator.open(tmp_path, topics={"t": 1}) as coordinator:
        coordinator.alter_group_config("g", {"consumer.session.timeout.ms": 50_000})
    before = rows(tmp_path)
    with pytest.raises(ConfigError, match="that Muster coordinates"):
        open_store(tmp_path)
    assert rows(tmp_path) == before


def test_a_watched_store_is_not_served(tmp_path):
    open_store(tmp_path).close()
    with pytest.raises(ConfigError, match="muster watch"):
        Coordinator.open(tmp_path)


def test_nothing_changes_a_watched_group(tmp_path):
    with open_store(tmp_path) as store:
        coordinator = store.coordinator
        for change_it in (
            lambda: coordinator.alter_group_config("g", {}),
            lambda: coordinator.offset_commit(group_id="g", topics={"t": {0: 1}}),
        ):
            with pytest.raises(GroupError, match="cluster-1 coordinates group g") as refused:
                change_it()
            assert refused.value.code is ErrorCode.NOT_COORDINATOR


def consumers(state):
    groups = state.groups.values()
    return [(g.group_id, m.member_id, m.epoch) for g in groups for m in g.members.values()]


def classic_members(state):
    return [(g.group_id, one, g.generation) for g in state.classic.values() for one in g.members]


@pytest.mark.parametrize("name", ["wide-00.jsonl", "classic-00.jsonl"])
def test_a_heartbeat_of_a_watched_member_is_refused_on_every_path(tmp_path, name):
    """It would change nothing, and so be answered without a step."""
    feed(tmp_path, name)
    with open_store(tmp_path) as store:
        look, asked = store.coordinator.look, 0
        for group_id, member_id, epoch in look(consumers):
            steady = Heartbeat(group_id, member_id, epoch, client_id="client")
            (answer,) = store.coordinator.submit([steady]).result()
            assert isinstance(answer, GroupError)
            assert look(lambda state, e=steady: answer_steady_heartbeat(state, Config(), e)) is None
            (answer,) = store.coordinator.steady_heartbeats(group_id, [member_id], [epoch])
            assert answer.error_code == ErrorCode.NOT_COORDINATOR
            asked += 1
        for group_id, member_id, generation in look(classic_members):
            steady = ClassicHeartbeat(group_id, member_id, generation)
            assert look(lambda state, e=steady: find_steady_member(state, e)) is None
            (answer,) = store.coordinator.submit([steady]).result()
            assert isinstance(answer, GroupError)
            asked += 1
        assert asked


def test_only_the_source_says_which_topics_a_watched_cluster_has(tmp_path):
    """Settings that name topics and weights are for groups that Muster coordinates."""
    (tmp_path / "topics.json").write_text('{"elsewhere": 3}')
    (tmp_path / "weights").mkdir()
    config = Config(
        topics=TopicsConfig(source=str(tmp_path / "topics.json"), poll_ms=10),
        weights=WeightsConfig(source=str(tmp_path / "weights"), poll_ms=10),
    )
    with WatchedStore.open(tmp_path / "s", CLUSTER, config=config, is_live=False) as store:
        time.sleep(0.2)
        assert store.coordinator.topics.by_name == {}
        assert store.coordinator.topics_unread_since is None


def test_very_many_topics_are_reported_in_slices_and_once(tmp_path):
    """Others would wait while they are looked at, every few seconds."""
    topics = {f"t{at}": CatalogTopic(f"id{at}", 2) for at in range(2 * SLICE_MAX + 1)}
    asked = []
    with open_store(tmp_path) as store:
        submit = store.coordinator.submit
        store.coordinator.submit = lambda events: asked.append(events) or submit(events)
        store.report_topics(topics, 5)
        assert [len(event.topics) for (event,) in asked] == [SLICE_MAX, SLICE_MAX, 1]
        assert store.coordinator.topics.by_name.keys() == topics.keys()
        store.report_topics(topics, 6)
        assert len(asked) == 3
        del topics["t7"]
        store.report_topics(topics, 7)
        assert store.coordinator.topics.by_name.keys() == topics.keys()


def test_a_refusal_that_others_may_hold_is_not_raised_itself():
    """Each raise adds to an error's traceback; each caller gets an error of its own."""
    refusal = GroupError(ErrorCode.NOT_COORDINATOR, "the store was lost")
    for _ in range(2):
        with pytest.raises(GroupError, match="the store was lost") as raised:
            _raise([refusal])
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
    assert refusal.__traceback__ is None
