"""Stores: commits on a local disk, and what a store in S3 asks and takes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.coordinator import FULL, SMOKE, _commits, _durable
from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from benchmarks.shape import EPOCH, GROUP, Shape
from benchmarks.store import temporary_store, write_group
from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.state.records import OffsetCommitted
from coordinator.storage.delta_log import DeltaLog
from tests.support.s3.client import S3Server, Versitygw

TITLE = "Stores"
TEXT = """\
Elapsed, with default settings. S3 is versitygw where that is installed, behind a proxy that counts
requests, else moto: on this machine, so times are those of Muster and of a server next to it. A
real one takes tens of milliseconds more for a request. A take-over begins when the lease is free.
"""
COMMITS, IDLE_S, MEMBERS = 200, 10.0, 100_000


def run(bench: Bench) -> Section:
    """Measure; each on a store of its own."""
    figures: list[Figure] = []
    sizes = SMOKE if bench.smoke else FULL
    for work, goals in ((_commits, (3.0, 10.0)), (_durable, (50_000 / 150,))):
        bench.say(f"stores: {work.__name__.strip('_')} on this disk")
        with temporary_store() as store:
            for one, goal in zip(work(store, sizes), goals, strict=True):
                figures.append(Figure.of(f"disk: {one.name}", [one.median], one.unit, goal))
    with _s3() as server:
        bench.say(f"stores: {server.name}")
        figures += _requests(server, 10 if bench.smoke else COMMITS)
        figures += _idle(server, 2.0 if bench.smoke else IDLE_S)
        bench.say("stores: a take-over from S3")
        figures += _take_over(server, 200 if bench.smoke else MEMBERS)
    return Section(TITLE, TEXT, figures)


def _requests(server: Any, commits: int) -> Iterator[Figure]:
    """What a commit asks, and what its care in the background asks besides."""
    store = server.new_store()
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    server.requests()
    took = []
    for number in range(commits):
        began = time.perf_counter()
        log.append([OffsetCommitted("g", "t", "id", 0, number, commit_timestamp=1)], wall_ms())
        took.append((time.perf_counter() - began) * 1000)
    asked = len(server.requests())
    for _ in range(commits):
        log.append([OffsetCommitted("g", "t", "id", 0, 1, commit_timestamp=1)], wall_ms())
        if log.is_maintenance_due():
            log.maintain()
    cared = len(server.requests())
    yield Figure.of("S3: requests a commit", [asked / commits], "requests", 2.0)
    yield Figure.of("S3: with checkpoints and packing", [cared / commits], "requests")
    yield Figure.of(f"S3: commit, median of {commits:,}", [statistics.median(took)])


def _idle(server: Any, seconds: float) -> Iterator[Figure]:
    """What a coordinator without clients asks."""
    with Coordinator.open(server.new_store(), topics={"t": 1}):
        time.sleep(1.0)
        server.requests()
        time.sleep(seconds)
        asked = len(server.requests())
    yield Figure.of("S3: idle coordinator, requests a second", [asked / seconds], "requests", 2.5)


def _take_over(server: Any, members: int) -> Iterator[Figure]:
    """From a free lease until a large group is served."""
    store = server.new_store()
    write_group(Path(store), Shape(members, 100), snapshot=True)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        with Coordinator.open(store, topics=Shape(members, 100).topics()) as coordinator:
            (row,) = coordinator.group_epochs(GROUP)
            assert row[0] == EPOCH
            took.append((time.perf_counter() - began) * 1000)
    yield Figure.of(f"S3: take over a store of {members:,} members", took, goal=3_000.0)


@contextmanager
def _s3() -> Iterator[Any]:
    """Serve S3 to this process, by its environment."""
    real = Versitygw.start()
    server = S3Server.start(real.endpoint, "versitygw") if real else S3Server.start()
    before = dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()
        if real:
            real.stop()
