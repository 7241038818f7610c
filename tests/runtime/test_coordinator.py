"""`Coordinator` as a pipeline embeds it: threads, tasks, engines, topics, stores, wrong requests."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.compute import engine as engine_module
from coordinator.compute.engine import LocalEngine
from coordinator.config import Config, EngineConfig, LeaseConfig, TopicsConfig
from coordinator.core import target_assignment
from coordinator.core.events import Heartbeat
from coordinator.errors import ErrorCode, GroupError
from coordinator.kafka_config import kafka_config
from coordinator.runtime.topic_catalog import DictCatalog, FileCatalog
from coordinator.storage.record_log import LogError, MemoryLog, MemoryRecords
from coordinator.storage.tables.table_io import BusyError

AT_ONCE = kafka_config({"group.consumer.assignment.interval.ms": 0})


def join(coordinator, member, *, group="g", topics=("a",), **fields):
    return coordinator.consumer_group_heartbeat(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions={},
        **fields,
    )


def beat(coordinator, member, epoch, *, group="g", **fields):
    return coordinator.consumer_group_heartbeat(
        group_id=group, member_id=member, member_epoch=epoch, **fields
    )


def wait_for(found, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it did not come")


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 4, "b": 2}, config=Config(kafka=AT_ONCE)) as found:
        yield found


def test_two_members_share_and_one_leaves(coordinator):
    assert join(coordinator, "m1").assignment == {"a": [0, 1, 2, 3]}
    second = join(coordinator, "m2")
    assert second.assignment == {}
    told = beat(coordinator, "m1", 2, topic_partitions={"a": [0, 1, 2, 3]})
    assert told.assignment == {"a": [0, 1]}
    assert beat(coordinator, "m1", 2, topic_partitions={"a": [0, 1]}).member_epoch == 3
    assert beat(coordinator, "m2", second.member_epoch).assignment == {"a": [2, 3]}
    assert beat(coordinator, "m2", -1).member_epoch == -1
    assert beat(coordinator, "m1", 3).assignment == {"a": [0, 1, 2, 3]}


def test_many_threads_get_one_consistent_group(coordinator):
    """Every partition has one owner whoever asks at once; all answers leave after the commit."""
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


def test_the_asyncio_face(coordinator):
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
    ok = coordinator.offset_commit(
        group_id="g", member_id="m1", member_epoch=epoch, topics={"a": {0: 7, 1: (8, "mark")}}
    )
    assert ok["topics"] == {"a": {0: 0, 1: 0}}
    stale = coordinator.offset_commit(
        group_id="g", member_id="m1", member_epoch=epoch + 1, topics={"a": {0: 9}}
    )
    assert stale["error"] == "STALE_MEMBER_EPOCH"
    found = coordinator.offset_fetch(group_id="g", member_id="m1", member_epoch=epoch)
    assert found["topics"]["a"] == {
        0: {"committed_offset": 7, "metadata": ""},
        1: {"committed_offset": 8, "metadata": "mark"},
    }
    kept = coordinator.offset_delete(group_id="g", topics={"a": [0], "other": [0]})
    assert kept["topics"] == {"a": {0: 86}, "other": {0: 0}}


def test_the_settings_of_a_group_come_before_it_and_stay_after_it(coordinator):
    assert (
        coordinator.alter_group_config("g", {"consumer.heartbeat.interval.ms": 6000})["error"]
        == "NONE"
    )
    assert join(coordinator, "m1").heartbeat_interval_ms == 6000
    beat(coordinator, "m1", -1)
    assert coordinator.delete_groups("g")[0]["error"] == "NONE"
    assert coordinator.describe_group_config("g") == {"consumer.heartbeat.interval.ms": "6000"}
    wrong = coordinator.alter_group_config("g", {"consumer.heartbeat.interval.ms": 1})
    assert (wrong["error"], "5000 to 15000" in wrong["error_message"]) == ("INVALID_CONFIG", True)


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
    answer = coordinator.consumer_group_heartbeat(**good | fields)
    assert answer.error == "INVALID_REQUEST"
    assert word in answer.error_message
    assert coordinator.list_groups()["groups"] == []
    assert coordinator.status == "active"


def test_an_unknown_field_is_a_type_error(coordinator):
    with pytest.raises(TypeError, match="subscribed"):
        beat(coordinator, "m", 0, subscribed=["a"])


def test_a_closed_coordinator_says_so(coordinator):
    coordinator.close()
    assert beat(coordinator, "m1", 2).error == "COORDINATOR_NOT_AVAILABLE"


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
        failed = "topic_catalog_failed_total 1.0"
        wait_for(lambda: failed in generate_latest(coordinator.metrics.registry).decode())
        file.unlink()
        time.sleep(0.1)
        assert beat(coordinator, "m1", 2).error == "NONE"
        file.write_text(json.dumps({"a": {"partitions": 3, "topic_id": "other"}}))
        wait_for(lambda: beat(coordinator, "m1", 2, topic_partitions={}).member_epoch == 3)


DELEGATED = Config(kafka=AT_ONCE, engine=EngineConfig(step_rows_max=0, max_failures=2))


def settled(coordinator, member, epoch):
    return wait_for(lambda: beat(coordinator, member, epoch).assignment)


def test_a_large_target_is_computed_beside_the_loop():
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED) as coordinator:
        first = join(coordinator, "m1")
        assert (first.error, first.assignment) == ("NONE", {})
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}
        (group,) = coordinator.consumer_group_describe("g")
        assert group["assignment_epoch"] == group["group_epoch"] == 2


def join_and_wait(coordinator, member, group="g"):
    """Join, and wait until the group's target is for this member too."""
    assert join(coordinator, member, group=group).error == "NONE"
    wait_for(lambda: len(set(coordinator.group_epochs(group)[0])) == 1)


def test_the_next_target_is_put_into_columns_from_the_last(monkeypatch):
    """One joins many: no time is spent on the targets that stay."""
    sizes = []
    columns = target_assignment._to_columns
    monkeypatch.setattr(
        target_assignment, "_to_columns", lambda some: sizes.append(len(some)) or columns(some)
    )
    with Coordinator.open(None, topics={"a": 8}, config=DELEGATED) as coordinator:
        for number in range(9):
            join_and_wait(coordinator, f"m{number}")
        sizes.clear()
        join_and_wait(coordinator, "one more")
    assert sizes
    assert max(sizes) <= 1


def test_an_engine_keeps_the_targets_of_a_few_groups(monkeypatch):
    monkeypatch.setattr(engine_module, "GROUPS_KEPT", 2)
    engine = LocalEngine()
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED, engine=engine) as coordinator:
        for number, group in enumerate(("g1", "g2", "g1", "g3")):
            coordinator.alter_group_config(group, {"consumer.assignor.engine": "spark"})
            join_and_wait(coordinator, f"m{number}", group)
    assert list(engine._before) == ["g1", "g3"]


class HoldingEngine(LocalEngine):
    """Computes only when it is let."""

    def __init__(self):
        super().__init__()
        self.let = threading.Event()

    def submit(self, job):
        future: Future = Future()

        def work():
            self.let.wait()
            try:
                future.set_result(LocalEngine.submit(self, job).result())
            except Exception as error:  # noqa: BLE001
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


def test_a_stale_target_is_installed_and_the_next_one_computed():
    """K-49: computed for epoch X, the group is at X+1: installed, then computed anew."""
    engine = HoldingEngine()
    config = replace(DELEGATED, kafka=AT_ONCE)
    with Coordinator.open(None, topics={"a": 4}, config=config, engine=engine) as coordinator:
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        first = join(coordinator, "m1")
        second = join(coordinator, "m2")
        assert beat(coordinator, "m1", first.member_epoch).assignment is None  # the last target
        engine.let.set()
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}
        wait_for(
            lambda: (
                coordinator.group_epochs("g") == [(3, 3)]
                or not beat(coordinator, "m2", second.member_epoch)
            )
        )
        (group,) = coordinator.consumer_group_describe("g")
        target_assignment = {
            member["member_id"]: member["target_assignment"]["topic_partitions"][0]["partitions"]
            for member in group["members"]
        }
        assert target_assignment == {"m1": [0, 1], "m2": [2, 3]}


class FailingEngine(LocalEngine):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def submit(self, _job):
        self.asked += 1
        future: Future = Future()
        future.set_exception(RuntimeError("no executors"))
        return future


def test_an_engine_that_fails_is_tried_again_and_then_the_local_one(monkeypatch, caplog):
    monkeypatch.setattr("coordinator.runtime.target_jobs.BACKOFF_S", 0.01)
    engine = FailingEngine()
    with Coordinator.open(None, topics={"a": 4}, config=DELEGATED, engine=engine) as coordinator:
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        first = join(coordinator, "m1")
        assert settled(coordinator, "m1", first.member_epoch) == {"a": [0, 1, 2, 3]}
        assert engine.asked == 2
        assert "no executors" in caplog.text
        text = generate_latest(coordinator.metrics.registry).decode()
        assert 'target_assignment_failed_total{group="g"} 2.0' in text


def test_an_external_computer(coordinator):
    join(coordinator, "m1")
    coordinator.alter_group_config("g", {"consumer.assignor.engine": "external"})
    join(coordinator, "m2")
    work = coordinator.consumer_group_prepare_assignment("g")
    assert work["members"]["member_id"].to_pylist() == ["m1", "m2"]
    ranges = pa.table(
        {
            "member_id": ["m1", "m2"],
            "topic": ["a", "a"],
            "first_partition": [1, 0],
            "partition_count": [3, 1],
        }
    )
    call = {
        "group_id": "g",
        "computation_id": work["computation_id"],
        "group_epoch": work["group_epoch"],
    }
    gap = coordinator.consumer_group_install_assignment(**call, ranges=ranges.slice(0, 1))
    assert (gap["error"], "1 partitions have no owner" in gap["error_message"]) == (
        "INVALID_ASSIGNMENT",
        True,
    )
    assert coordinator.consumer_group_install_assignment(**call, ranges=ranges)["moved"] == 1
    again = coordinator.consumer_group_install_assignment(**call, ranges=ranges)
    assert again["error"] == "STALE_MEMBER_EPOCH"
    assert (
        coordinator.consumer_group_install_assignment(**call, ranges=[1])["error"]
        == "INVALID_REQUEST"
    )


def test_metrics_bear_kafkas_names(coordinator):
    join(coordinator, "m1")
    beat(coordinator, "m1", 9)
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


# On a store --------------------------------------------------------------------------------------


def test_what_was_answered_is_there_after_a_restart(tmp_path):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}) as coordinator:
        epoch = join(coordinator, "m1").member_epoch
        coordinator.offset_commit(
            group_id="g", member_id="m1", member_epoch=epoch, topics={"a": {0: 5}}
        )
    with Coordinator.open(store, topics={"a": 4}, takeover="refuse") as coordinator:
        again = beat(coordinator, "m1", epoch, topic_partitions={"a": [0, 1, 2, 3]})
        assert (again.error, again.member_epoch, again.assignment) == ("NONE", epoch, None)
        found = coordinator.offset_fetch(group_id="g")["topics"]["a"][0]
        assert found["committed_offset"] == 5


def test_a_second_one_is_refused_by_name_and_a_forced_one_fences(tmp_path):
    store = tmp_path / "store"
    with Coordinator.open(store, topics={"a": 4}, address="here:1") as first:
        join(first, "m1")
        with pytest.raises(BusyError, match="here:1"):
            Coordinator.open(store, topics={"a": 4}, takeover="refuse")
        assert beat(first, "m1", 2).error == "NONE"
        with Coordinator.open(store, topics={"a": 4}, takeover="force") as second:
            assert beat(second, "m1", 2).error == "NONE"
            wait_for(lambda: beat(first, "m1", 2).error == "NOT_COORDINATOR")
            assert beat(second, "m1", 2).error == "NONE"


def test_who_was_taken_over_notices_though_nobody_asks(tmp_path):
    store = tmp_path / "store"
    config = Config(lease=LeaseConfig(renew_ms=50))
    with (
        Coordinator.open(store, config=config) as first,
        Coordinator.open(store, config=config, takeover="force"),
    ):
        wait_for(lambda: first.status == "fenced")


def test_a_zombie_reads_nothing_to_anybody(tmp_path):
    """Woken after its successor went on, it looks before it answers from its memory."""
    store = tmp_path / "store"
    config = Config(kafka=AT_ONCE, lease=LeaseConfig(renew_ms=3_600_000, check_ms=0))
    reads = [
        lambda zombie: zombie.group_epochs("g"),
        lambda zombie: zombie.describe_group_config("g"),
    ]
    for read in reads:
        with Coordinator.open(store, topics={"a": 4}, config=config, takeover="force") as zombie:
            read(zombie)
            with Coordinator.open(store, topics={"a": 4}, takeover="force"):
                for _ in range(2):  # the second time it knows
                    with pytest.raises(GroupError) as error:
                        read(zombie)
                    assert error.value.code is ErrorCode.NOT_COORDINATOR
            assert zombie.status == "fenced"
    with pytest.raises(GroupError, match="shut down"):
        zombie.group_epochs("g")


def test_an_idle_zombie_does_not_take_the_lease_after_its_successor_closed(tmp_path):
    """It was stopped all the time, so it has seen nothing; nobody asks it anything."""
    config = Config(lease=LeaseConfig(renew_ms=3_600_000))
    lease = tmp_path / "_lease.json"
    with Coordinator.open(tmp_path, config=config) as zombie:
        with Coordinator.open(tmp_path, config=config, takeover="force"):
            pass
        assert not lease.exists()
        zombie._background._renew()
        wait_for(lambda: zombie.status == "fenced")
        assert not lease.exists()


def test_a_lease_that_somebody_removed_is_taken_again(tmp_path):
    config = Config(lease=LeaseConfig(renew_ms=20))
    with Coordinator.open(tmp_path, config=config) as coordinator:
        (tmp_path / "_lease.json").unlink()
        wait_for((tmp_path / "_lease.json").exists)
        assert coordinator.status == "active"


def test_a_spoilt_lease_neither_stops_an_open_nor_a_close(tmp_path):
    spoilt = b'{"owner": "\xff"}'
    lease = tmp_path / "_lease.json"
    lease.write_bytes(spoilt)
    coordinator = Coordinator.open(tmp_path, topics={"a": 1})
    lease.write_bytes(spoilt)
    coordinator.close()
    lease.unlink(missing_ok=True)
    coordinator = Coordinator.open(tmp_path, topics={"a": 1}, takeover="refuse")
    lease.unlink()
    lease.mkdir()
    coordinator.close()
    with pytest.raises(LogError, match="_lease"):
        Coordinator.open(tmp_path, topics={"a": 1})
