"""Pages for browsers: many groups, a very large group, many open pages."""

from __future__ import annotations

import http.client
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section, Table, number
from benchmarks.shape import GROUP, Shape, small_group_id
from benchmarks.store import temporary_store, write_group
from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.reasons import Reason
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    Record,
    TargetMember,
    TargetMetadata,
    TopicChanged,
)
from coordinator.storage.delta_log import DeltaLog

TITLE = "Pages for browsers"
TEXT = """\
`muster web` runs in a process of its own. *Cold* is the first answer of that process, *first* the
first one after the store has changed, *again* the next ones, before it changes; all are elapsed,
from the request to the last byte. Pages are not compressed. Open pages show a group that rebalances
each second; CPU is that of the process that serves them. Heartbeats are those of a member of
another group, 50 a second, with these pages open and without. The coordinator, the pages and the
browsers are a process each.
"""
GROUPS, PAGES, SECONDS = 15_000, 100, 20
AGAIN, BEAT_S = 5, 0.02
Beat: TypeAlias = Callable[[str, int | None], None]
LIST, LARGE = "group list, 15,000 groups, first page", "a group of 100,000 members, first paint"


def run(bench: Bench) -> Section:
    """Serve stores, and ask for their pages."""
    groups, members = (50, 200) if bench.smoke else (GROUPS, 100_000)
    figures, rows = [], []

    def add(store: Path, url: str, path: str, name: str, *goals: float) -> None:
        group = GROUP if path.endswith(f"={GROUP}") else small_group_id(0)
        taken, size = _ask(url, path, lambda: change(store, group))
        ms, kb = goals or (None, None)
        figures.append(Figure.of(f"{name}: elapsed", [taken[1] * 1000], goal=ms))
        figures.append(Figure.of(f"{name}: size", [size / 1000], goal=kb, unit="KB"))
        cold, first, again = taken[0] * 1000, taken[1] * 1000, min(taken[2:]) * 1000
        rows.append([name, *map(number, (cold, first, again, size / 1000))])

    with temporary_store() as store:
        bench.say(f"web: writing {groups:,} groups")
        _write_groups(store, groups)
        with served(store) as (url, _):
            add(store, url, "/", LIST, 200.0, 100.0)
            add(store, url, f"/group?id={small_group_id(0)}", "one of these groups")
    with temporary_store() as store:
        bench.say(f"web: writing a group of {members:,} members")
        write_group(store, Shape(members, 100))
        with served(store) as (url, _):
            add(store, url, f"/group?id={GROUP}", LARGE, 1_500.0, 300.0)
            add(store, url, f"/picture?id={GROUP}", "its picture")
            add(store, url, f"/history?id={GROUP}", "its history")
    with temporary_store() as store:
        bench.say(f"web: {PAGES} open pages")
        share, more_ms = _follow(store, 2 if bench.smoke else SECONDS)
    name = f"{PAGES} open pages on a group that rebalances each second"
    figures.append(Figure.of(f"{name}: CPU", [share], goal=10.0, unit="% of a core"))
    figures.append(Figure.of(f"{name}: heartbeats' p99 above that without", [more_ms], goal=3.0))
    head = ("page", "cold, ms", "first, ms", "again, ms", "KB")
    return Section(TITLE, TEXT, figures, [Table("", head, rows)])


def _write_groups(store: Path, count: int) -> None:
    now, topic = wall_ms(), TopicKey("clicks", "clicks")
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", now)
    records: list[Record] = [TopicChanged(topic.name, topic.topic_id, 16)]
    for group in map(small_group_id, range(count)):
        records += [
            GroupMetadata(group, 3, 0, Reason.MEMBER_JOINED, "b"),
            TargetMetadata(group, 3, now),
        ]
        for low, member in ((0, "a"), (8, "b")):
            span = (topic, low, low + 8)
            records += [
                MemberMetadata(group, member, subscribed_topic_names=(topic.name,)),
                TargetMember(group, member, (span,)),
                CurrentMember(group, member, 3, 2, MemberState.STABLE, ((*span, 3),)),
            ]
    log.append(records, now)
    log.close()


@contextmanager
def served(store: Path) -> Iterator[tuple[str, int]]:
    """Serve a store in a process; yield its address and the process's id."""
    words = [sys.executable, "-u", "-m", "coordinator", "web", "--store", str(store)]
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            yield next(w for w in process.stdout.readline().split() if "://" in w), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _open(url: str, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=120)
    connection.request("GET", path)
    return connection, connection.getresponse()


def _ask(url: str, path: str, change: Callable[[], None]) -> tuple[list[float], int]:
    """Return the seconds of each answer, the second one after a change, and the bytes of one."""
    taken, size = [], 0
    for turn in range(2 + AGAIN):
        if turn == 1:
            change()
        begun = time.perf_counter()
        connection, answer = _open(url, path)
        size = len(answer.read())
        assert answer.status == 200, answer.status
        taken.append(time.perf_counter() - begun)
        connection.close()
    return taken, size


def change(store: Path, group: str) -> None:
    """Begin an epoch of a group."""
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    log.append([GroupMetadata(group, 9, 0, Reason.MEMBER_JOINED)], wall_ms())
    log.close()


def _follow(store: Path, seconds: int) -> tuple[float, float]:
    """Return what open pages cost: the share of a core, in percent, and ms of heartbeats' p99."""
    with Coordinator.open(store, topics={"clicks": 16}) as coordinator:
        beat = _beats(coordinator, GROUP)
        beat("a", 0)
        with served(store) as (url, pid):
            alone_ms = _rebalance(coordinator, beat, seconds)
            path = f"/live?view=group&id={GROUP}"
            with _browsers(url, path):
                before, begun = cpu_s(pid), time.perf_counter()
                beside_ms = _rebalance(coordinator, beat, seconds)
                share = 100 * (cpu_s(pid) - before) / (time.perf_counter() - begun)
    return share, beside_ms - alone_ms


@contextmanager
def _browsers(url: str, path: str) -> Iterator[None]:
    """Keep a page open, many times."""
    words = [sys.executable, "-m", "benchmarks.web.readers", url, path, str(PAGES)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as browsers:  # noqa: S603
        assert browsers.stdout is not None
        assert browsers.stdout.readline() == "open\n", "the pages do not open"
        try:
            yield
        finally:
            browsers.terminate()


def _rebalance(coordinator: Coordinator, beat: Beat, seconds: int) -> float:
    """Rebalance each second; return the p99 of heartbeats of another group meanwhile, in ms."""
    other, taken, ended = _beats(coordinator, f"{GROUP}-2"), [], threading.Event()
    other("c", 0)
    beat("a", 0)  # a session may have ended meanwhile

    def measure() -> None:
        while not ended.wait(BEAT_S):
            begun = time.perf_counter()
            other("c", None)
            taken.append(1000 * (time.perf_counter() - begun))

    measuring = threading.Thread(target=measure)
    measuring.start()
    for turn in range(seconds):
        beat("b", -1 if turn % 2 else 0)
        beat("a", None)
        time.sleep(1)
    ended.set()
    measuring.join()
    return statistics.quantiles(taken, n=100)[98]


def _beats(coordinator: Coordinator, group: str) -> Beat:
    known: dict[str, tuple[int, dict[str, list[int]]]] = {}

    def beat(member: str, epoch: int | None) -> None:
        reached, owned = known.get(member, (0, {}))
        answer = coordinator.consumer_group_heartbeat(
            group_id=group, member_id=member, member_epoch=reached if epoch is None else epoch,
            rebalance_timeout_ms=60_000, subscribed_topic_names=["clicks"],
            topic_partitions=owned if epoch != 0 else {},
        )  # fmt: skip
        assigned = answer.assignment
        known[member] = (answer.member_epoch, owned if assigned is None else assigned)
        if epoch == -1:
            del known[member]

    return beat


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
