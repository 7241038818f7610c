"""A driver, run as a process of its own: it does what its argument names, and prints JSON.

Arguments: the master, or the URL of a Spark Connect server; the store; the stages to run.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pyarrow as pa

import spark_jobs
from assignors import GroupSpec, get_assignor
from spark_jobs.session import spark_session
from spark_jobs.session.kinds import kind_of
from spark_jobs.session.session import SHORT_LIVED
from spark_jobs.sql.views import register
from tests.spark.test_target_job import SPARK
from tests.support.members import Members, wait_for
from tests.support.spark.groups import ORDER, crowd, tables

MEMBERS = pa.table({"member_id": ["m1", "m2", "m3"], "subscribed": [["a"]] * 3})
TOPICS = pa.table({"topic": ["a"], "partitions": [9]})
SMALL = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": f"{SHORT_LIVED} -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    # as in tests/conftest.py: each of the hundreds of queries is run once
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
WAIT_S = 400


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def same(rows, assignor, tables_, **options):
    """Whether rows of Spark are those of the local engine."""
    local = get_assignor(assignor, **options).assign(GroupSpec.from_arrow(*tables_)).to_arrow()
    return rows.toArrow().sort_by(ORDER).to_pylist() == local.sort_by(ORDER).to_pylist()


def settled(members):
    """Whether the group is at rest, and each member owns something."""
    members.beat()
    (group,) = members.coordinator.consumer_group_describe("g")
    return group["group_state"] == "Stable" and all(members.owned.values())


def assign(spark, _store):
    """Every assignor on Spark, DataFrames and Python alike."""
    from spark_jobs.assignors import uniform, weighted
    from spark_jobs.assignors.dispatch import assign_frames

    given = tables(crowd(4, members=60, classes=2), seed=4)
    frames = [spark.createDataFrame(table) for table in given]

    few = {"imbalance": "10%", "long_ranges": 0}

    def on_executors(assignor, **options):
        return assign_frames(spark, assignor, *frames, driver_rows=0, **options).rows

    return {
        "range": same(on_executors("range"), "range", given),
        "uniform": same(uniform.assign(spark, *frames), "uniform", given),
        "sticky": same(on_executors("sticky", **few), "sticky", given, **few),
        "weighted": same(weighted.assign(spark, *frames), "weighted", given),
    }  # fmt: skip


def groups(spark, _store):
    """Many groups, which run in executors' Python."""
    from spark_jobs.assignors.groups import assign_groups

    members = MEMBERS.append_column("group_id", pa.array(["g", "g", "h"]))
    named = {"members": spark.createDataFrame(members), "topics": spark.createDataFrame(TOPICS)}
    return assign_groups(spark, "uniform", named, {}).partitions


def embed(spark, store):
    """Targets of an embedded coordinator, one after the other, and the views over its store."""
    with spark_jobs.embed(spark, store, SPARK, topics={"a": 6}) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        wait_for(lambda: settled(members), WAIT_S)
        owned = [len(owned["a"]) for owned in members.owned.values()]
    register(spark, store, only=["partition_owners"], engine="spark")
    return {
        "owned": sorted(owned),
        "rows": spark.table("partition_owners").count(),
    }


def lasting(spark, store):
    """Targets while the test outside ends executors, a server, or the like, until it says so."""
    with spark_jobs.embed(spark, store, SPARK, topics={"a": 60}) as coordinator:
        members = Members(coordinator)
        for turn in range(int(sys.stdin.readline())):
            members.join(f"m{turn}")
            say("joined")
            wait_for(lambda: settled(members), WAIT_S)
            say("settled")
        return {"owned": sum(len(owned["a"]) for owned in members.owned.values())}


def hold_cores(spark, _store):
    """Keep executors, and give them nothing to do, until the test outside says so."""
    spark.range(2).collect()
    say("holds")
    sys.stdin.readline()
    return {}


def watch_cancel(spark, store):
    """A computation that is cancelled ends its jobs, and its engine is at work again."""
    kind = kind_of(spark)
    began = time.monotonic()
    found = []

    def work():
        try:
            with kind.tagged("to-cancel", "a long job"):
                spark.range(10**13).selectExpr("sum(id % 7)").collect()
        except Exception as error:  # noqa: BLE001 - Spark's own
            found.append(type(error).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: kind.tasks("to-cancel")[1])
    kind.cancel("to-cancel")
    thread.join(100)
    return {"ended": not thread.is_alive(), "failed": bool(found), "s": time.monotonic() - began}


def main():
    master, store, *stages = sys.argv[1:]
    spark = spark_session("driver", None if master.startswith("sc:") else master, SMALL)
    for stage in stages:
        say(json.dumps({stage: globals()[stage](spark, store)}))
    spark.stop()


if __name__ == "__main__":
    main()
