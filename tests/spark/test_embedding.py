"""A coordinator embedded in the driver of a Spark pipeline: its life is tied to the session's."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import spark_jobs
from coordinator import GroupError
from coordinator.config import ConfigError
from coordinator.core.events import CatalogTopic
from coordinator.member.member import Member
from coordinator.runtime.plan_tasks.weight_source import WeightTables
from coordinator.storage.shards import make_shards, store_of
from tests.runtime.test_plans import Running, weights
from tests.spark.test_target_job import SPARK
from tests.support.members import Members, wait_for

pytestmark = pytest.mark.spark


def test_embedded_coordinator_computes_on_the_drivers_session(spark, tmp_path):
    with spark_jobs.embed(spark, tmp_path, SPARK, topics={"a": 6}) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
        assert sorted(map(len, owned.values())) == [3, 3]
        assert (tmp_path / "targets" / "_delta_log").is_dir()  # where Spark wrote them
    assert coordinator.status == "closed"
    assert not (tmp_path / "_lease.json").exists()
    assert spark.range(3).count() == 3  # the session is the pipeline's, and stays


def test_embedded_coordinator_works_inside_foreach_batch(spark, tmp_path):
    """The function of foreachBatch runs in the driver: it beats, and reads only what is its own."""
    seen = []
    with spark_jobs.embed(spark, tmp_path / "store", topics={"a": 2}) as coordinator:
        members = Members(coordinator)

        def batch(frame, _number):
            if not members.epochs:
                members.join("m1")
            members.beat()
            own = members.owned["m1"].get("a", [])
            seen.extend(row.id for row in frame.where(frame.id.isin(own)).collect())

        spark.range(5).write.parquet(str(tmp_path / "rows"))
        stream = spark.readStream.schema("id long").parquet(str(tmp_path / "rows"))
        query = (
            stream.writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert sorted(seen) == [0, 1]


def test_embedded_coordinator_closes_with_its_session(tmp_path):
    """In a process of its own: the session of these tests has to go on."""
    program = """
import sys, time
from spark_jobs import embed
from spark_jobs.session import spark_session
spark = spark_session("ends", "local[1]", {"spark.driver.memory": "512m"})
coordinator = embed(spark, sys.argv[1], topics={"a": 1})
print(coordinator.status, flush=True)
spark.stop()
until = time.monotonic() + 30
while coordinator.status == "active" and time.monotonic() < until:
    time.sleep(0.05)
coordinator.close()
print(coordinator.status, flush=True)
try:
    embed(spark, sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["active", "closed"]
    assert said[2].startswith("ConfigError the Spark session has been stopped")
    assert not (tmp_path / "store" / "_lease.json").exists()


def test_embedding_refuses_a_session_without_delta(spark, tmp_path):
    plain = SimpleNamespace(
        sparkContext=spark.sparkContext, conf=SimpleNamespace(get=lambda _name, _other: "")
    )
    with pytest.raises(ConfigError, match=r"has no Delta .* conf/spark-defaults\.conf"):
        spark_jobs.embed(plain, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_session_watcher_ends_with_the_coordinator(spark, tmp_path):
    coordinator = spark_jobs.embed(spark, tmp_path, topics={"a": 1})
    assert any(thread.name == "muster-embedded" for thread in threading.enumerate())
    coordinator.close()
    wait_for(lambda: all(t.name != "muster-embedded" for t in threading.enumerate()))


def note_loads(group):
    """Let a group have weights, capacities, racks, a member that drains, and a constraint."""
    group.tables = WeightTables(
        weights(*np.random.default_rng(5).lognormal(0, 1, 40)),
        pa.table({"name": ["m1", "m4"], "capacity": [2.0, 1.0], "state": ["active", "draining"]}),
        pa.table({"kind": ["exclude"], "selector": ["clicks/0"], "value": ["m2"], "hard": [True]}),
    )
    for member, rack in (("m1", "r1"), ("m2", "r2"), ("m3", "r2"), ("m4", "r1")):
        group.beat(member, rack_id=rack)
    group.poll()


@pytest.mark.parametrize(
    ("assignor", "settings"),
    [
        ("weighted", {}),
        ("weighted", {"consumer.assignor.rack": "ignore", "consumer.assignor.max.moves": 2}),
        ("sticky", {"consumer.assignor.imbalance": "20%"}),
        ("range", {}),
    ],
)
def test_a_plan_is_the_same_on_spark_to_its_digest(spark, assignor, settings):
    racks = tuple((("r1",), ("r2",), ())[at % 3] for at in range(40))
    group = Running(topics={"clicks": CatalogTopic("id", 40, racks), "other": 3})
    try:
        note_loads(group)
        asked = {"assignor": assignor, "settings": settings, "add": 2, "without": ["m3"]}
        here, there = (
            group.coordinator.plan("g", **asked, engine=engine) for engine in ("local", "spark")
        )
        assert here.plan.moves
        assert there.plan == here.plan
        with pytest.raises(GroupError, match="engine 'gpu': give one of local, spark"):
            group.coordinator.plan("g", engine="gpu")
    finally:
        group.coordinator.close()


def test_a_driver_is_a_node_of_a_store_of_shards(spark, tmp_path):
    """Members find its shards by its address, and Spark computes the targets of their groups."""
    store = tmp_path / "cluster"
    config = replace(SPARK, server=replace(SPARK.server, listen="127.0.0.1:0"))
    with pytest.raises(ConfigError, match="is not a store of shards: use embed"):
        spark_jobs.embed_node(spark, store, config)
    make_shards(str(store), 2, config)
    with pytest.raises(ConfigError, match="is a store of 2 shards"):
        spark_jobs.embed(spark, store, config)
    with (
        spark_jobs.embed_node(spark, store, config, topics={"a": 6}) as node,
        Member(node.address, group_id="g", topics=["a"]) as member,
    ):
        assert len(member.wait_for_change(60).owned) == 6
        assert Path(store_of(store, "g"), "targets", "_delta_log").is_dir()
    node.close()
    assert node.status == "closed"
    assert spark.range(3).count() == 3
