"""`muster watch`: reading a large topic, following a busy one, and how soon a member is shown."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow.parquet as pq

from benchmarks.measure import Bench, Figure, cpu_s, resident_mib
from benchmarks.report import Section
from benchmarks.shape import small_group_id
from benchmarks.store import temporary_store
from benchmarks.watch.broker import Broker
from benchmarks.watch.topic import BATCH, PARTITIONS, TopicBytes, joining, stamp
from coordinator.clock import wall_ms
from coordinator.core.java_hash import place_of

TITLE = "Watching a Kafka cluster"
TEXT = """\
`muster watch` runs in a process of its own, and reads a topic of groups from a broker of the
benchmark's, which makes its bytes: 50 partitions, batches of ten records, nine in ten of them
offsets, 1,000 groups of ten members with ten partitions each. *First reading* reduces the topic to
the last record of each key; *reading on* is what a watcher does that was stopped for so long: each
batch is a change of its own in the store. CPU is that of the process, all threads. A busy neighbour
makes it dearer, as caches and cores are shared, so compare it with the sort of the same run. A
member is shown once its row is in the log, or in the stream of a page that is open.
"""
RECORDS, GROUPS, MANY_GROUPS = 10_000_000, 1_000, 10_000
AFTER_S = 1.0
GOAL_MS = 10_000_000 / 150_000
"""Of CPU for 10,000 records, at 150,000 a second."""
COMMITS, SECONDS, JOINS = 20_000, 30, 10
PATIENCE_S, LOOK_S = 1800.0, 0.02


class Watcher(NamedTuple):
    """A process of `muster watch`."""

    process: subprocess.Popen[str]
    http: str
    web: str

    @property
    def cpu_s(self) -> float:
        """What it has used."""
        return cpu_s(self.process.pid)


def run(bench: Bench) -> Section:
    """Watch a small topic, a large one, a busy one, and one of many groups."""
    figures = [*_catch_up(bench), *_follow(bench), *_many_groups(bench)]
    return Section(TITLE, TEXT, figures)


def _catch_up(bench: Bench) -> Iterator[Figure]:
    """Read a topic, and read on after it has grown by a hundredth."""
    groups, records = (200, 100_000) if bench.smoke else (GROUPS, RECORDS)
    bench.say(f"watch: a topic of {records:,} records")
    topic = TopicBytes(groups, wall_ms() - records)
    broker = Broker(topic, _even(records))
    with broker.serving() as address, temporary_store() as store:
        taken, peak = _read(broker, address, store)
        yield _per_record(f"first reading of {records:,} records", taken, records, GOAL_MS)
        yield Figure.of("first reading: peak memory", [peak], "MiB", goal=1024.0)
        more = records // 100
        bench.say(f"watch: {more:,} more records")
        broker.grow(_even(records + more))
        taken, peak = _read(broker, address, store)
        yield _per_record(f"reading on for {more:,} records", taken, more)
        yield Figure.of("reading on: peak memory", [peak], "MiB")


def _per_record(name: str, taken_s: float, records: int, goal: float | None = None) -> Figure:
    return Figure.of(f"{name}: CPU for 10,000", [taken_s * 1e7 / records], goal=goal)


def _read(broker: Broker, address: str, store: Path) -> tuple[float, float]:
    """Return the CPU seconds from the first Fetch until all is read, and the most MiB."""
    broker.fetched.clear()
    with _watching(address, store) as watcher:
        assert broker.fetched.wait(PATIENCE_S), "no client fetches"
        before = watcher.cpu_s
        _wait_until_ready(watcher)
        return watcher.cpu_s - before, resident_mib(process=watcher.process.pid)


def _follow(bench: Bench) -> Iterator[Figure]:
    """Follow offset commits, and members that join meanwhile."""
    groups, seconds = (200, 3) if bench.smoke else (GROUPS, SECONDS)
    topic = TopicBytes(groups, wall_ms())
    broker = Broker(topic, dict.fromkeys(range(PARTITIONS), 0))
    with (
        broker.serving() as address,
        temporary_store() as store,
        _watching(address, store) as watcher,
    ):
        _wait_until_ready(watcher)
        bench.say(f"watch: {COMMITS:,} offset commits a second")
        broker.commit(COMMITS)
        time.sleep(1 if bench.smoke else 10)
        before, begun = watcher.cpu_s, time.perf_counter()
        time.sleep(seconds)
        broker.commit(0)
        taken = time.perf_counter() - begun
        while _lag(watcher):
            time.sleep(LOOK_S)
        share = (watcher.cpu_s - before) / taken
        name = f"following {COMMITS:,} offset commits a second: CPU of one second"
        yield Figure.of(name, [share * 1000], goal=400.0)
    bench.say("watch: members that join")
    broker = Broker(topic, dict.fromkeys(range(PARTITIONS), 0))
    with (
        broker.serving() as address,
        temporary_store() as store,
        _watching(address, store, web=True) as watcher,
    ):
        _wait_until_ready(watcher)
        joins = 2 if bench.smoke else JOINS
        stored = [_join(broker, _see_row(store)) for _ in range(joins)]
        shown = [_join(broker, _see_page(watcher)) for _ in range(joins)]
    yield Figure.of("a member that joins, until its row is in the store", stored, goal=1000.0)
    yield Figure.of("a member that joins, until an open page shows it", shown, goal=2000.0)


def _lag(watcher: Watcher) -> float:
    """Return how many records of the topic are not read yet."""
    connection = http.client.HTTPConnection(watcher.http, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(float(one.split()[-1]) for one in lines if one.startswith("watched_lag{"))


def _join(broker: Broker, opened: Callable[[str, str], Callable[[], object]]) -> float:
    """Have a member join a group of one, and return the ms until it is seen."""
    group = f"joined-{uuid4()}"
    members = [f"member-{uuid4()}" for _ in range(2)]

    def join(count: int) -> None:
        raw = joining(group, members[:count], count)
        place = place_of(group, PARTITIONS)
        broker.append(place, lambda offset: stamp(raw, offset, wall_ms()))

    join(1)
    time.sleep(AFTER_S)
    see = opened(group, members[1])
    time.sleep(AFTER_S)
    begun = time.perf_counter()
    join(2)
    see()
    return (time.perf_counter() - begun) * 1000


def _see_row(store: Path) -> Callable[[str, str], Callable[[], object]]:
    """Look into what is committed to the log: into each file that is new."""
    log = store / "log"

    def opened(_group: str, member: str) -> Callable[[], object]:
        seen = {entry.name for entry in (log / "_delta_log").glob("*.json")}

        def see() -> None:
            while True:
                for entry in (log / "_delta_log").glob("*.json"):
                    if entry.name not in seen and _names(entry, member):
                        return
                    seen.add(entry.name)
                time.sleep(LOOK_S)

        return see

    return opened


def _names(entry: Path, member: str) -> bool:
    """Whether a commit has rows of a member."""
    actions = map(json.loads, entry.read_text(encoding="utf-8").splitlines())
    added = [entry.parent.parent / one["add"]["path"] for one in actions if "add" in one]
    columns = [pq.ParquetFile(file).read() for file in added]
    return any(
        member in table["member_id"].to_pylist()
        for table in columns
        if "member_id" in table.column_names
    )


def _see_page(watcher: Watcher) -> Callable[[str, str], Callable[[], object]]:
    """Keep the page of groups open, and read what it is sent."""

    def opened(group: str, member: str) -> Callable[[], object]:
        at = urlsplit(watcher.web)
        connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
        connection.request("GET", f"/live?view=group&id={group}")
        answer = connection.getresponse()

        def see() -> None:
            found = b""
            while member.encode() not in found:
                more = answer.read1(1 << 16)
                assert more, "the page ended"
                found += more
            connection.close()

        return see

    return opened


def _many_groups(bench: Bench) -> Iterator[Figure]:
    """Ask for the first page once many groups are read."""
    groups = 200 if bench.smoke else MANY_GROUPS
    bench.say(f"watch: the first page of {groups:,} groups of ten members")
    topic = TopicBytes(groups, wall_ms() - 1_000_000, commits=0)
    broker = Broker(topic, {number: topic.batches_for_all(number) for number in range(PARTITIONS)})
    with (
        broker.serving() as address,
        temporary_store() as store,
        _watching(address, store, web=True) as watcher,
    ):
        _wait_until_ready(watcher)
        first = _ask(watcher.web) * 1000
        again = [_ask(watcher.web) * 1000 for _ in range(5)]
    name = f"{groups:,} groups of ten members"
    yield Figure.of(f"{name}: first page after the first reading", [first], goal=200.0)
    yield Figure.of(f"{name}: the page again", again)


def _ask(url: str) -> float:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=120)
    begun = time.perf_counter()
    connection.request("GET", "/")
    answer = connection.getresponse()
    body = answer.read()
    taken = time.perf_counter() - begun
    assert answer.status == 200, answer.status
    assert small_group_id(0).encode() in body, "the page lists no groups"
    connection.close()
    return taken


def _even(records: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), records // BATCH // PARTITIONS)


@contextmanager
def _watching(address: str, store: Path, *, web: bool = False) -> Iterator[Watcher]:
    port = _free_port()
    words = [sys.executable, "-u", "-m", "coordinator", "watch", f"kafka://{address}"]
    words += ["--store", str(store), "--http", f"127.0.0.1:{port}"]
    words += ["--web", "127.0.0.1:0"] if web else []
    process = subprocess.Popen(  # noqa: S603 - our own program
        words, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            url = ""
            if web:
                line = process.stdout.readline()
                url = next(word for word in line.split() if "://" in word)
            yield Watcher(process, f"127.0.0.1:{port}", url)
        finally:
            process.terminate()


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _wait_until_ready(watcher: Watcher) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert watcher.process.poll() is None, "the watcher ended"
        try:
            connection = http.client.HTTPConnection(watcher.http, timeout=60)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(LOOK_S)
    raise TimeoutError("the watcher is not ready")
