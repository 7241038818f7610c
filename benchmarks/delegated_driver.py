"""A driver of the section `delegation`: embeds, measures, prints a line of JSON, is killed."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import spark_jobs
from benchmarks.delegated_group import GROUP, Shape
from benchmarks.measure import resident_mib
from coordinator import Coordinator
from coordinator.config import parse
from coordinator.events import LEAVE, Heartbeat
from spark_jobs.session import spark_session

BATCH = 10_000
INTERVAL, ENGINE = "consumer.assignment.interval.ms", "consumer.assignor.engine"
SETTINGS = {"consumer.session.timeout.ms": 3_600_000, ENGINE: "spark"}
CONFIG = """
[kafka]
"group.consumer.max.session.timeout.ms" = 3600000
"""
"""The group's members need not beat while they are only there to be many."""


class Members:
    """The group's members; one of another group beats a lot."""

    def __init__(self, coordinator: Coordinator, shape: Shape) -> None:
        self.coordinator, self.shape = coordinator, shape
        self.epochs = dict.fromkeys(shape.ids(), 2)
        self.waits: list[float] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def join(self, member_ids: list[str]) -> None:
        """Let members join; each subscribes as the first class does."""
        names = self.shape.names(0)
        for at in range(0, len(member_ids), BATCH):
            self._send(
                [
                    Heartbeat(
                        GROUP, member_id, 0, rebalance_timeout_ms=60_000,
                        subscribed_topic_names=names, topic_partitions={},
                    )
                    for member_id in member_ids[at : at + BATCH]
                ]
            )  # fmt: skip

    def leave(self, member_ids: list[str]) -> None:
        """Let members leave."""
        for at in range(0, len(member_ids), BATCH):
            part = member_ids[at : at + BATCH]
            self.coordinator.consumer_group_heartbeats([Heartbeat(GROUP, i, LEAVE) for i in part])
            for member_id in part:
                del self.epochs[member_id]

    def installed(self) -> None:
        """Wait until the group has a target for its newest epoch, and a member is told."""
        one = next(iter(self.epochs))
        while True:
            self._send([Heartbeat(GROUP, one, self.epochs[one])])
            ((group_epoch, assignment_epoch),) = self.coordinator.group_epochs(GROUP)
            if group_epoch == assignment_epoch:
                break
            time.sleep(0.05)
        self._send([Heartbeat(GROUP, one, self.epochs[one])])

    def _send(self, beats: list[Heartbeat]) -> None:
        for beat, answer in zip(
            beats, self.coordinator.consumer_group_heartbeats(beats), strict=True
        ):
            if answer.error_code:
                raise RuntimeError(f"{beat.member_id}: {answer}")
            self.epochs[beat.member_id] = answer.member_epoch

    def _beat(self) -> None:
        """Beat as one member of a small group, and take the time of each answer."""
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


def main(store: str, shape: Shape) -> None:
    """Measure, say so, and wait."""
    spark = spark_session("muster-bench", "local[2]", {"spark.driver.memory": "4g"})
    config = parse(CONFIG, "benchmark")
    coordinator = spark_jobs.embed(spark, store, config, topics=shape.catalog(), takeover="force")
    members = Members(coordinator, shape)
    members.join(["warm"])
    members.installed()
    members.waits.clear()
    gone = shape.ids()[::100]
    coordinator.alter_group_config(GROUP, SETTINGS | {INTERVAL: 15_000})
    members.leave(gone)
    members.join([f"n{member_id}" for member_id in gone])
    coordinator.alter_group_config(GROUP, SETTINGS | {INTERVAL: 0})
    found = {"churn": _took(members.installed)}
    found["joins"] = _took(lambda: (members.join(["one"]), members.installed()))
    waits = sorted(members.waits)
    found["beats_p99"] = waits[int(len(waits) * 0.99)]
    coordinator.alter_group_config(GROUP, SETTINGS | {INTERVAL: 0, ENGINE: "local"})
    found["joins_local"] = _took(lambda: (members.join(["two"]), members.installed()))
    found["mib"] = resident_mib()
    print(json.dumps(found), flush=True)
    threading.Event().wait()


def _took(work: Any) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    main(sys.argv[1], Shape(**json.loads(sys.argv[2])))
