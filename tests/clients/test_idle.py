"""An idle Kafka client uses no CPU."""

from __future__ import annotations

import os
import sys
import time

from coordinator import Coordinator
from tests.support.members import wait_for
from tests.support.processes import running

WATCHED_S = 3.0


def test_an_idle_client_keeps_no_core_busy():
    """librdkafka spins when a node lacks an API that its fetcher needs."""
    with (
        Coordinator.open(None, topics={"clicks": 2}) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        words = [serving.address, "g", "clicks", "ann"]
        with running([sys.executable, "-m", "spark_jobs.demo.member", *words]) as client:
            wait_for(lambda: coordinator.consumer_group_describe("g")[0].get("members"))
            time.sleep(1)  # it settles: partitions, offsets, leaders
            before = cpu_s(client.pid)
            time.sleep(WATCHED_S)
            used = cpu_s(client.pid) - before
    assert used < WATCHED_S / 20, f"{used} s of CPU within {WATCHED_S} s"


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
