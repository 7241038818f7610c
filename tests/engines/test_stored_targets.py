"""A target computed elsewhere: installed by one small record, served, kept over restarts; faults."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.core.state.records import TargetMember, TargetMetadata
from coordinator.storage.delta_log import read_log
from coordinator.storage.target_table import targets_path
from tests.support.members import AT_ONCE, Members, beat, code_of, wait_for
from tests.support.table_engine import TableEngine

SPARK = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark", backoff_ms=10))


def opened(store, engine, config=SPARK, partitions=6):
    return Coordinator.open(store, topics={"a": partitions}, config=config, engine=engine)


def records(store, *kinds):
    return [r for batch in read_log(store) for r in batch.records if isinstance(r, kinds)]


def test_computed_target_is_one_record_and_survives_a_restart(tmp_path, engine):
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2", "m3")
        owned = members.settle()
        assert sorted(p for had in owned.values() for p in had) == list(range(6))
        assert {len(had) for had in owned.values()} == {2}
    last = records(tmp_path, TargetMetadata)[-1]
    assert (last.members, last.ranges) == (3, 3)
    assert all(not r.spans for r in records(tmp_path, TargetMember))  # newcomers only, and empty
    with opened(tmp_path, engine) as coordinator:
        (group,) = coordinator.consumer_group_describe("g")
        targets = {
            m["member_id"]: m["target_assignment"]["topic_partitions"][0]["partitions"]
            for m in group["members"]
        }
        assert targets == owned
        members.coordinator = coordinator
        assert members.settle() == owned
        members.join("m4")
        assert sorted(map(len, members.settle().values())) == [1, 1, 2, 2]


def test_target_in_the_log_builds_on_one_in_the_table(tmp_path, engine):
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        before = members.settle()
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "local"})
        jobs = len(engine.jobs)
        members.join("m3")
        owned = members.settle()
        assert len(engine.jobs) == jobs
        assert all(set(owned[m]) < set(before[m]) for m in before)  # sticky: each gave one
    with opened(tmp_path, engine) as coordinator:
        members.coordinator = coordinator
        assert members.settle() == owned


def test_members_that_join_and_leave_during_a_computation(tmp_path, engine):
    """K-49: the stale target is installed for who is still there, and the next one computed."""
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        members.join("s1", instance_id="s")
        members.settle()
        engine.let.clear()
        members.join("m3")
        wait_for(lambda: len(engine.jobs) >= 2)
        members.leave("m1")
        beat(coordinator, "s1", -2, instance_id="s")
        del members.epochs["s1"], members.owned["s1"]
        members.join("s2", instance_id="s")
        members.join("m4")
        engine.let.set()
        owned = members.settle()
        assert sorted(p for had in owned.values() for p in had) == list(range(6))
        assert owned.keys() == {"m2", "m3", "m4", "s2"}
        epochs = [r.assignment_epoch for r in records(tmp_path, TargetMetadata)]
        assert epochs == sorted(epochs)
    with opened(tmp_path, engine) as coordinator:
        members.coordinator = coordinator
        assert members.settle() == owned


@pytest.mark.parametrize("wrong", ["digest", "members"])
def test_target_that_differs_from_its_digest_changes_nothing(tmp_path, engine, wrong, caplog):
    """It is computed again; the last target, whose rows are all there, stays the group's."""
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
        engine.named[wrong] = 7
        members.join("m3")
        wait_for(lambda: "is refused" in caplog.text)
        members.beat()
        assert {m: members.owned[m]["a"] for m in owned} == owned
        assert "its members keep what they have" not in caplog.text
        engine.named.clear()
        assert sorted(map(len, members.settle().values())) == [2, 2, 2]


def overlap(rows):
    return pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "member_id", [["m2"]])])


def gap(rows):
    return rows.slice(1)


def unknown_member(rows):
    return rows.set_column(0, "member_id", [["m9"] * len(rows)])


@pytest.mark.behaviour("K-47", "S-32")
@pytest.mark.parametrize("spoil", [overlap, gap, unknown_member])
def test_rows_that_are_no_assignment_are_refused(tmp_path, engine, spoil, caplog):
    """They have the digest that was said: an engine computed wrongly."""
    right, engine.spoil = engine.spoil, spoil
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        wait_for(lambda: "The assignment is refused" in caplog.text)
        engine.spoil = right
        assert sorted(map(len, members.settle().values())) == [3, 3]


@pytest.mark.parametrize("how", ["table gone", "file gone", "file cut", "rows swapped"])
def test_lost_rows_of_a_target_are_detected(tmp_path, engine, how, caplog):
    """Members keep what they have, the coordinator says so, and another one is computed."""
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
        epoch = coordinator.group_epochs("g")[0][0]
    spoil(Path(targets_path(tmp_path)), how)
    engine.let.clear()
    with opened(tmp_path, engine) as coordinator:
        members.coordinator = coordinator
        members.beat()
        members.beat()
        assert {m: had["a"] for m, had in members.owned.items()} == owned
        assert "its members keep what they have" in caplog.text
        metrics = generate_latest(coordinator.metrics.registry).decode()
        assert 'target_assignment_lost_total{group="g"} 1.0' in metrics
        if how == "table gone":
            shutil.rmtree(targets_path(tmp_path), ignore_errors=True)
        engine.let.set()
        assert members.settle() == owned
        assert coordinator.group_epochs("g") == [(epoch + 1, epoch + 1)]


def spoil(table, how):
    file = max(table.rglob("*.parquet"), key=lambda f: f.stat().st_mtime_ns)
    if how == "table gone":
        shutil.rmtree(table)
    elif how == "file gone":
        file.unlink()
    elif how == "file cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        import pyarrow.parquet as pq

        rows = pq.ParquetFile(file).read()
        at = rows.schema.get_field_index("member_id")
        turned = rows["member_id"].combine_chunks()[::-1]
        pq.write_table(rows.set_column(at, "member_id", turned), file)


@pytest.mark.parametrize("how", ["overlap", "gap", "stranger", "not subscribed"])
def test_a_wrong_target_is_not_installed(tmp_path, how, caplog):
    def wrong(rows):
        columns = {name: rows[name].to_pylist() for name in rows.column_names}
        if how == "overlap":
            columns["first_partition"][0] += 1
        elif how == "gap":
            columns["partition_count"][0] -= 1
        elif how == "stranger":
            columns["member_id"][0] = "nobody"
        else:
            columns["topic"][0] = "b"
        import pyarrow as pa

        return pa.table(columns).cast(rows.schema)

    engine = TableEngine()
    with opened(tmp_path, engine) as coordinator:
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
        engine.spoil = wrong
        members.join("m3")
        wait_for(lambda: "refused" in caplog.text)
        (group,) = coordinator.consumer_group_describe("g")
        assert group["assignment_epoch"] < group["group_epoch"]
        members.beat()
        assert {m: members.owned[m]["a"] for m in owned} == owned  # the last target stays
        engine.spoil = lambda rows: rows
        assert sorted(map(len, members.settle().values())) == [2, 2, 2]
    engine.close()


def test_a_crash_between_the_commit_and_its_record(tmp_path, engine):
    """No record names the rows, so the next coordinator computes the target again."""
    with opened(tmp_path, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
        epochs = coordinator.group_epochs("g")[0]
        engine.wrote.clear()
        engine.deliver.clear()
        members.join("m3")
        engine.wrote.wait()
    engine.deliver.set()
    second = TableEngine()
    with opened(tmp_path, second) as coordinator:
        members.coordinator = coordinator
        assert coordinator.group_epochs("g") == [(epochs[0] + 1, epochs[1])]
        found = members.settle()
        assert sorted(p for had in found.values() for p in had) == list(range(6))
        assert all(set(found[m]) < set(owned[m]) for m in owned)
    second.close()


def test_hanging_computation_is_restarted(tmp_path, engine, caplog):
    config = replace(SPARK, engine=replace(SPARK.engine, timeout_ms=200))
    with opened(tmp_path, engine, config) as coordinator:
        engine.let.clear()
        members = Members(coordinator)
        members.join("m1")
        wait_for(lambda: engine.cancelled == ["g"])
        assert "timed out after 0.2 s" in caplog.text
        engine.let.set()
        assert members.settle() == {"m1": [0, 1, 2, 3, 4, 5]}


def test_a_computation_can_be_cancelled(tmp_path, engine):
    with opened(tmp_path, engine) as coordinator:
        assert not coordinator.cancel_computation("g")
        engine.let.clear()
        members = Members(coordinator)
        members.join("m1")
        assert wait_for(lambda: coordinator.cancel_computation("g"))
        engine.let.set()
        assert members.settle() == {"m1": [0, 1, 2, 3, 4, 5]}
        assert engine.cancelled == ["g"]


def test_a_late_result_of_a_fenced_coordinator_is_refused(tmp_path, engine):
    first = opened(tmp_path, engine)
    members = Members(first)
    members.join("m1")
    members.settle()
    engine.let.clear()
    members.join("m2")
    wait_for(lambda: len(engine.jobs) >= 2)
    second_engine = TableEngine()
    with Coordinator.open(
        tmp_path, topics={"a": 6}, config=SPARK, engine=second_engine, takeover="force"
    ) as second:
        engine.let.set()
        wait_for(lambda: code_of(beat, first, "m1", 2) == "NOT_COORDINATOR")
        members.coordinator = second
        owned = members.settle()
        assert sorted(map(len, owned.values())) == [3, 3]
        named = {r.computation_id for r in records(tmp_path, TargetMetadata)}
        assert engine.jobs[-1].computation_id not in named
    first.close()
    second_engine.close()
