"""Very large groups, handed to Spark by a coordinator embedded in its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench, Figure, ranges_a_member
from benchmarks.report import Section
from benchmarks.shape import EPOCH, GROUP, Shape
from benchmarks.store import temporary_store, write_group
from coordinator import Coordinator, Fenced

TITLE = "Delegated: a coordinator in a Spark driver"
TEXT = """\
Elapsed ms, `local[2]`, 4 GiB of heap, a warm session. The coordinator, its log, Spark and members
that send heartbeats share two cores. *One in a hundred leaves and joins* is the time from the end
of the assignment interval until the target is installed and served. Memory is that of the driver's
Python process, which is the coordinator too, without the JVM. *Takeover* is the time until another
process, which opens the store after `kill -9`, answers its first heartbeat; it does not include
waiting for the lease to expire.

A group that fits `engine.local_mib_max` is assigned in the driver and written from there: a range
of its target takes 98 bytes at the peak, beside 75 of the coordinator's state.

One more member joins after the others have left and joined; members then have two ranges each, or
51.
"""
SETTINGS = {"consumer.session.timeout.ms": "3600000", "consumer.assignor.engine": "spark"}
FULL = (
    Shape(1_000_000, 100),
    Shape(1_000_000, 100, classes=1_000),
    Shape(100_000, 100),
    Shape(100_000, 100, ranges=10),
    Shape(100_000, 100, ranges=50),
    Shape(1_000_000, 100, ranges=50),
)
SMOKE = (Shape(400, 100, ranges=2),)


def run(bench: Bench) -> Section:
    """Measure each group in a driver of its own."""
    figures: list[Figure] = []
    for shape in SMOKE if bench.smoke else FULL:
        bench.say(f"delegation: {_name(shape)}")
        with temporary_store() as store:
            write_group(store, shape, SETTINGS, snapshot=True)
            figures += _figures(shape, store, full=not bench.smoke)
    return Section(TITLE, TEXT, figures)


def _name(shape: Shape) -> str:
    classes = f", {shape.classes:,} classes" if shape.classes > 1 else ""
    return (
        f"{shape.members:,} x {shape.members * shape.each:,}, {ranges_a_member(shape.ranges)}"
        f"{classes}"
    )


def _figures(shape: Shape, store: Path, *, full: bool) -> Iterator[Figure]:
    command = [sys.executable, "-m", "benchmarks.delegated_driver", str(store)]
    driver = subprocess.Popen(  # noqa: S603 - our own program
        [*command, json.dumps(asdict(shape))], stdout=subprocess.PIPE, start_new_session=True
    )
    assert driver.stdout is not None
    lines = driver.stdout.readlines() if driver.poll() else [driver.stdout.readline()]
    found: dict[str, Any] = json.loads(lines[0]) if lines[0] else {}
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    if not found:
        raise RuntimeError(f"the driver for {_name(shape)} died; its last words are above")
    name = _name(shape)
    large = full and shape.members == FULL[0].members and shape.ranges == 1
    goals = {"churn": 15_000.0 if shape.classes == 1 else 90_000.0, "joins": 30_000.0}
    goals |= {"joins_local": 1_000.0, "beats_p99": 25.0}
    labels = {
        "churn": "one in a hundred leaves and joins, until installed and served",
        "joins": "one more member joins, delegated",
        "joins_local": "one more member joins, local",
        "beats_p99": "heartbeats meanwhile, p99",
    }
    for key, label in labels.items():
        goal = goals[key] if large and (shape.classes == 1 or key == "churn") else None
        yield Figure.of(f"{name}: {label}", [found[key]], "ms", goal)
    memory = 4_096.0 if large and shape.classes == 1 else None
    if full and shape.members * shape.ranges >= FULL[-1].members * FULL[-1].ranges:
        memory = 16_384.0
    yield Figure.of(f"{name}: the driver's Python at its peak", [found["mib"]], "MiB", memory)
    took = _takeover(store, shape)
    yield Figure.of(
        f"{name}: takeover, until the first answer", [took], "ms", 15_000.0 if large else None
    )


def _takeover(store: Path, shape: Shape) -> float:
    """Open the store that a killed driver left, as a stand-by would once the lease is over."""
    began = time.perf_counter()
    with Coordinator.open(store, topics=shape.topics(), takeover="force") as coordinator:
        member_id = shape.ids()[-1]
        with suppress(Fenced):  # that is an answer too
            coordinator.consumer_group_heartbeat(
                group_id=GROUP, member_id=member_id, member_epoch=EPOCH
            )
        took = (time.perf_counter() - began) * 1000
    return took
