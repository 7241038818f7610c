"""`Coordinator` as a pipeline embeds it: threads, tasks, topics, wrong requests, metrics."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator, Fenced, GroupError, PartitionsRefusedError
from coordinator.config import Config, TopicsConfig
from coordinator.core.events import Heartbeat
from coordinator.runtime.topic_catalog import DictCatalog, FileCatalog
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from tests.support.members import AT_ONCE, beat, code_of, join, wait_for


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 4, "b": 2}, config=Config(kafka=AT_ONCE)) as found:
        yield found


def test_two_members_share_and_one_leaves(coordinator):
    assert join(coordinator, "m1").assignment == {"a": [0, 1, 2, 3]}
    second = join(coordinator, "m2")
    assert second.assignment == {}
    less = beat(coordinator, "m1", 2, topic_partitions={"a": [0, 1, 2, 3]})
    assert less.assignment == {"a": [0, 1]}
    assert beat(coordinator, "m1", 2, topic_partitions={"a": [0, 1]}).member_epoch == 3
    assert beat(coordinator, "m2", second.member_epoch).assignment == {"a": [2, 3]}
    assert beat(coordinator, "m2", -1).member_epoch == -1
    assert beat(coordinator, "m1", 3).assignment == {"a": [0, 1, 2, 3]}


def test_many_threads_get_one_consistent_group(coordinator):
    """Every partition has one owner, however many ask at once; all answers leave after the commit."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: join(coordinator, f"m{n:02}", topics=("a", "b")), range(40))
        )
    assert {answer.error_code for answer in answers} == {0}
    (group,) = coordinator.consumer_group_describe("g")
    owned = [
        (topic["topic_name"], partition)
        for member in group["members"]
        for topic in member["assignment"]["topic_partitions"]
        for partition in topic["partitions"]
    ]
    assert len(owned) == len(set(owned)) == 6
    assert group["group_epoch"] == 41


def test_a_batch_is_one_commit():
    storage = MemoryRecords()
    log = MemoryLog(storage)
    log.claim("me", "", 0)
    with Coordinator.open(None, topics={"a": 4}, log=log) as coordinator:
        before = len(storage.batches)
        beats = [
            Heartbeat(
                "g",
                f"m{n}",
                0,
                rebalance_timeout_ms=1,
                subscribed_topic_names=["a"],
                topic_partitions={},
            )
            for n in range(20)
        ]
        assert [a.error_code for a in coordinator.consumer_group_heartbeats(beats)] == [0] * 20
        assert len(storage.batches) == before + 1
        steady = coordinator.steady_heartbeats("g", ["m0", "nobody"], [2, 2])
        assert [a.error for a in steady] == ["NONE", "UNKNOWN_MEMBER_ID"]
        assert len(storage.batches) == before + 1


def test_the_asyncio_coordinator(coordinator):
    async def ask():
        join_all = [
            coordinator.aio.consumer_group_heartbeat(
                group_id="g", member_id=f"m{n}", member_epoch=0, rebalance_timeout_ms=1,
                subscribed_topic_names=["a"], topic_partitions={},
            )
            for n in range(10)
        ]  # fmt: skip
        return await asyncio.gather(*join_all), await coordinator.aio.list_groups()

    answers, groups = asyncio.run(ask())
    assert {answer.error_code for answer in answers} == {0}
    assert [group["group_id"] for group in groups["groups"]] == ["g"]


def test_offsets_are_fenced_by_epoch(coordinator):
    epoch = join(coordinator, "m1").member_epoch
    coordinator.offset_commit(
        group_id="g", member_id="m1", member_epoch=epoch, topics={"a": {0: 7, 1: (8, "mark")}}
    )
    with pytest.raises(Fenced) as stale:
        coordinator.offset_commit(
            group_id="g", member_id="m1", member_epoch=epoch + 1, topics={"a": {0: 9}}
        )
    assert stale.value.code.name == "STALE_MEMBER_EPOCH"
    found = coordinator.offset_fetch(group_id="g", member_id="m1", member_epoch=epoch)
    assert found["topics"]["a"] == {
        0: {"committed_offset": 7, "metadata": ""},
        1: {"committed_offset": 8, "metadata": "mark"},
    }
    with pytest.raises(PartitionsRefusedError) as kept:
        coordinator.offset_delete(group_id="g", topics={"a": [0], "other": [0]})
    assert kept.value.partitions == {("a", 0): 86}


def test_the_settings_of_a_group_come_before_it_and_stay_after_it(coordinator):
    coordinator.alter_group_config("g", {"consumer.heartbeat.interval.ms": 6000})
    assert join(coordinator, "m1").heartbeat_interval_ms == 6000
    beat(coordinator, "m1", -1)
    coordinator.delete_groups("g").raise_for_error()
    assert coordinator.describe_group_config("g") == {"consumer.heartbeat.interval.ms": "6000"}
    with pytest.raises(GroupError, match="5000 to 15000") as wrong:
        coordinator.alter_group_config("g", {"consumer.heartbeat.interval.ms": 1})
    assert wrong.value.code.name == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"member_id": 5}, "member_id"),
        ({"group_id": None}, "group_id"),
        ({"member_epoch": "0"}, "member_epoch"),
        ({"member_epoch": 2**31}, "member_epoch"),
        ({"subscribed_topic_names": "a"}, "subscribed_topic_names"),
        ({"subscribed_topic_names": [1]}, "subscribed_topic_names"),
        ({"topic_partitions": {"a": [-1]}}, "topic_partitions"),
        ({"topic_partitions": [0]}, "topic_partitions"),
        ({"rebalance_timeout_ms": -5}, "rebalance_timeout_ms"),
        ({"member_id": "\ud800"}, "written"),
        ({"group_id": []}, "group_id"),
    ],
)
def test_wrong_types_are_refused_and_nothing_is_written(coordinator, fields, word):
    good = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["a"],
        "topic_partitions": {},
    }
    with pytest.raises(GroupError, match=word) as refused:
        coordinator.consumer_group_heartbeat(**good | fields)
    assert refused.value.code.name == "INVALID_REQUEST"
    assert coordinator.list_groups()["groups"] == []
    assert coordinator.status == "active"


def test_an_unknown_field_is_a_type_error(coordinator):
    with pytest.raises(TypeError, match="subscribed"):
        beat(coordinator, "m", 0, subscribed=["a"])


def test_a_closed_coordinator_says_so(coordinator):
    coordinator.close()
    assert code_of(beat, coordinator, "m1", 2) == "COORDINATOR_NOT_AVAILABLE"


def test_regexes_are_resolved_beside_the_loop(coordinator):
    answer = coordinator.consumer_group_heartbeat(
        group_id="g", member_id="r", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_regex="[ab]", topic_partitions={},
    )  # fmt: skip
    assert answer.assignment == {}
    got = wait_for(lambda: beat(coordinator, "r", answer.member_epoch).assignment)
    assert got == {"a": [0, 1, 2, 3], "b": [0, 1]}


def test_topics_are_watched():
    catalog = DictCatalog({"a": 2})
    config = Config(kafka=AT_ONCE, topics=TopicsConfig(poll_ms=20))
    with Coordinator.open(None, topics=catalog, config=config) as coordinator:
        epoch = join(coordinator, "m1").member_epoch
        catalog.set("a", 3)
        got = wait_for(lambda: beat(coordinator, "m1", epoch).assignment)
        assert got == {"a": [0, 1, 2]}


def test_a_catalog_that_cannot_be_read_changes_nothing(tmp_path):
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"a": 2}))
    config = Config(kafka=AT_ONCE, topics=TopicsConfig(poll_ms=20))
    with Coordinator.open(None, topics=FileCatalog(file), config=config) as coordinator:
        assert join(coordinator, "m1").assignment == {"a": [0, 1]}
        file.write_text("{")

        def failures():
            return coordinator.metrics.registry.get_sample_value("topic_catalog_failed_total")

        wait_for(lambda: failures() >= 1)
        file.unlink()
        before = failures()
        wait_for(lambda: failures() >= before + 2)  # one may have begun before
        assert beat(coordinator, "m1", 2).member_epoch == 2
        file.write_text(json.dumps({"a": {"partitions": 3, "topic_id": "other"}}))
        wait_for(lambda: beat(coordinator, "m1", 2, topic_partitions={}).member_epoch == 3)


def test_metrics_bear_kafkas_names(coordinator):
    join(coordinator, "m1")
    assert code_of(beat, coordinator, "m1", 9) == "FENCED_MEMBER_EPOCH"
    text = generate_latest(coordinator.metrics.registry).decode()
    for line in (
        'group_count{protocol="consumer"} 1.0',
        'consumer_group_count{state="stable"} 1.0',
        'consumer_group_rebalance_total{group="g",reason="member joined"} 1.0',
        'num_partitions{state="active"} 1.0',
        'fences_total{cause="FENCED_MEMBER_EPOCH",group="g"} 1.0',
        'load_spread{group="g"} 0.0',
        'assignment_time_ms_count{group="g"} 1.0',
        'moved_partitions_total{group="g"} 0.0',
    ):
        assert line in text, line


def test_a_coordinator_starts_no_jvm():
    code = (
        "import sys\nfrom coordinator import Coordinator\n"
        "with Coordinator.open(None, topics={'a': 1}): pass\n"
        "assert not {'pyspark', 'delta', 'py4j'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
