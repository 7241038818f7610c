"""A driver of the section `delegation`: embeds, measures, prints a line of JSON, is killed."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import spark_jobs
from benchmarks.measure import resident_mib
from benchmarks.shape import EPOCH, GROUP, Shape
from coordinator import Coordinator
from coordinator.config import parse
from spark_jobs.demo.crowd import Crowd
from spark_jobs.session.session import spark_session

INTERVAL, ENGINE = "consumer.assignment.interval.ms", "consumer.assignor.engine"
CONFIG = """
[kafka]
"group.consumer.max.session.timeout.ms" = 3600000
"""
"""The group's members need not beat while they are only there to be many."""


class Beater(threading.Thread):
    """The one member of a small group: beats a lot, and takes the ms of each answer."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(daemon=True)
        self.coordinator = coordinator
        self.waits: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        fields: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": {}}
        fields["subscribed_topic_names"] = ["small"]
        epoch = 0
        while not self.over.is_set():
            began = time.perf_counter()
            answer = self.coordinator.consumer_group_heartbeat(
                group_id="small", member_id="s", member_epoch=epoch, **fields
            )
            self.waits.append((time.perf_counter() - began) * 1000)
            epoch, fields = answer.member_epoch, {}
            time.sleep(0.005)


def measured(coordinator: Coordinator, shape: Shape) -> dict[str, float]:
    """Let members of the settled group come and go, while another group's member beats."""
    crowd = Crowd(coordinator, GROUP, shape.names(0))  # who joins subscribes as the first class
    crowd.epochs = dict.fromkeys(shape.ids(), EPOCH)
    beater = Beater(coordinator)
    beater.start()
    _join(crowd, ["warm"])
    _installed(crowd)
    beater.waits.clear()
    gone = shape.ids()[::100]
    settings = coordinator.describe_group_config(GROUP)
    coordinator.alter_group_config(GROUP, settings | {INTERVAL: "15000"})
    crowd.leave(gone)
    _join(crowd, [f"n{member_id}" for member_id in gone])
    coordinator.alter_group_config(GROUP, settings | {INTERVAL: "0"})
    found = {"churn": _took(lambda: _installed(crowd))}
    found["joins"] = _took(lambda: _one_joins(crowd, "one"))
    waits = sorted(beater.waits)
    found["beats_p99"] = waits[int(len(waits) * 0.99)]
    coordinator.alter_group_config(GROUP, settings | {INTERVAL: "0", ENGINE: "local"})
    found["joins_local"] = _took(lambda: _one_joins(crowd, "two"))
    beater.over.set()
    beater.join()
    return found | {"mib": resident_mib()}


def _join(crowd: Crowd, member_ids: list[str]) -> None:
    crowd.join(member_ids, lambda _: None)  # standard output is for figures


def _one_joins(crowd: Crowd, member_id: str) -> None:
    _join(crowd, [member_id])
    _installed(crowd)


def _installed(crowd: Crowd) -> None:
    """Wait until the group has a target for its newest epoch, and a member knows it."""
    epochs = crowd.one_beats()
    while epochs[0] != epochs[1]:
        time.sleep(0.05)
        epochs = crowd.one_beats()
    crowd.one_beats()


def _took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def main(store: str, shape: Shape) -> None:
    """Measure, say so, and wait."""
    spark = spark_session("muster-bench", "local[2]", {"spark.driver.memory": "4g"})
    config = parse(CONFIG, "benchmark")
    coordinator = spark_jobs.embed(spark, store, config, topics=shape.topics(), takeover="force")
    print(json.dumps(measured(coordinator, shape)), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], Shape(**json.loads(sys.argv[2])))
