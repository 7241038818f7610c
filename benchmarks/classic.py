"""The classic group protocol on the wire, and what hostile clients of it cost others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Bench, Figure, cpu_s, resident_mib
from benchmarks.report import Section
from benchmarks.shape import GROUP, in_thousands
from benchmarks.store import temporary_store, write_group

TITLE = "Classic groups on the wire"
TEXT = """\
`muster serve` as in *The wire*, for members of classic groups, without an initial rebalance delay;
each member has a connection, and speaks the versions of librdkafka. *CPU* is that of the server's
process, all its threads together; ratios are to what is measured beside it in the same run.

Hostile clients act in one group, or make many, while 200 members of another group beat twice a
second. *Alone* is what these see without the others: on a machine that does other work as well,
only the ratio of the two says something. The default limits are in force
(`quotas.parked_requests_max` is 10,000).

A rebalance is one commit, in the path of its leader's sync. *An offset of its leader* is a commit
of one offset by the same member in the same round: what a commit and the way to it take without a
rebalance. The sync of ten members takes a fifth more.

In a profile of steady heartbeats (py-spy, the thread of the wire), uvloop and the kernel take two
thirds: half of that to send, half to receive. Deciding takes a twentieth. Of the rest, which is to
cut requests out of bytes, to find their events and to write answers, a repeated heartbeat is spared
the event, and its answer is one struct.

With `MUSTER_KAFKA=host:port` the same members join there, too (a Kafka 4.4.0 with
`group.initial.rebalance.delay.ms=0`).
"""
KAFKA = "MUSTER_KAFKA"
SETTINGS = """
[kafka]
"group.initial.rebalance.delay.ms" = {delay_ms}
"""
BEATS = 30_000
FLOODS = {
    "unsynced": ("joins that are answered, and never sync", 0),
    "parked": ("joins that wait", 3_000),
    "pending": ("ids that are never used", 3_000),
    "groups": ("groups of one member", 3_000),
    "reconnect": ("connections that join and close", 3_000),
    "protocols": ("joins with 3,000 protocols each", 3_000),
    "metadata": ("joins with 1 MB of metadata each", 3_000),
}
"""By kind: in words, and the initial rebalance delay in ms."""
LARGE = {"protocols", "metadata"}
"""Floods of few requests: each is large."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large each measurement is."""

    members: int
    seconds: float
    rounds: int
    beating: int
    flood: int
    large: int
    flood_s: float
    repeats: int


FULL = Sizes(1_000, 5.0, 50, 200, 10_000, 300, 15.0, 3)
SMOKE = Sizes(5, 0.3, 3, 3, 20, 2, 1.0, 1)


def run(bench: Bench) -> Section:
    """Measure; each on a server of its own."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for work in (_join, _steady, _sync, _alone_and_hostile):
        bench.say(f"classic: {work.__name__.strip('_')}")
        figures += work(sizes)
    return Section(TITLE, TEXT, figures)


def _join(sizes: Sizes) -> Iterator[Figure]:
    """All join at once; here and, where there is one, with Kafka, in turn, after one time each."""
    count, ours, theirs = sizes.members, [], []
    with _served() as (_, _, address):
        for number in range(sizes.repeats + 1):
            group = f"joiners-{os.getpid()}-{number}"
            ours.append(_measured("join", address, group, count)["seconds"] * 1000)
            if KAFKA in os.environ:
                words = (os.environ[KAFKA], group, count)
                theirs.append(_measured("join", *words)["seconds"] * 1000)
    ours, theirs = ours[1:], theirs[1:]
    label = f"{count:,} classic members join at once, until all have synced"
    yield Figure.of(label, ours, goal=2_000.0)
    if theirs:
        yield Figure.of(f"{label}, Kafka 4.4.0", theirs)
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        yield Figure.of(f"{label}: by Kafka's", ratios, "x", 1.0)


def _steady(sizes: Sizes) -> Iterator[Figure]:
    """As many heartbeats as the server answers, and those of the consumer protocol beside them."""
    count, classic, consumer = sizes.members, [], []
    for _ in range(sizes.repeats):
        with _served() as (server, _, address):
            words = ("steady", address, GROUP, count, sizes.seconds)
            classic.append(_cpu_ms(server, "benchmarks.classic_clients", *words))
        with temporary_store() as store:
            write_group(store, in_thousands(count, 1))
            with _served(store=store) as (server, _, address):
                words = ("steady", address, GROUP, count, sizes.seconds)
                consumer.append(_cpu_ms(server, "benchmarks.wire_clients", *words))
    label = f"{BEATS:,} steady classic heartbeats, {count:,} connections: CPU"
    yield Figure.of(label, classic, goal=1_000.0)
    ratios = [mine / other for mine, other in zip(classic, consumer, strict=True)]
    yield Figure.of(f"{label}, by that of the consumer protocol's", ratios, "x")


def _cpu_ms(server: subprocess.Popen[str], module: str, *words: object) -> float:
    with _clients(module, *words) as read:
        before = cpu_s(server.pid)
        found = read()
        return (cpu_s(server.pid) - before) * 1000 / found["beats"] * BEATS


def _sync(sizes: Sizes) -> Iterator[Figure]:
    """What is in the path of a leader's sync, and what a commit costs without one."""
    with _served() as (_, store, address):
        words = ("rounds", address, "g", 10, sizes.rounds)
        with _clients("benchmarks.classic_clients", *words) as read:
            before = _count_commits(store)
            found = read()
            commits = _count_commits(store) - before - sizes.rounds
    label = "rebalance of a classic group of 10"
    yield Figure.of(f"{label}: commits", [commits / sizes.rounds], "commits", 1.0)
    led, committed = found["led_ms"], found["committed_ms"]
    yield Figure.of(f"{label}: sync of its leader, until answered", [led], goal=5.0)
    yield Figure.of(f"{label}: an offset of its leader, until answered", [committed])
    yield Figure.of(f"{label}: its sync by its offset", [led / committed], "x")


def _count_commits(store: Path) -> int:
    versions = [int(path.stem) for path in (store / "log/_delta_log").glob("*.json")]
    return max(versions, default=0)


def _alone_and_hostile(sizes: Sizes) -> Iterator[Figure]:
    """Heartbeats of others, without and with each flood."""
    beating = f"{sizes.beating} members beat twice a second"
    alone = _flooded(sizes, None, 0, 3_000)
    yield Figure.of(f"{beating}, alone: p99", [alone["p99_ms"]])
    yield Figure.of(f"{beating}, alone: memory", [alone["mib"]], "MiB")
    for kind, (words, delay_ms) in FLOODS.items():
        count = sizes.large if kind in LARGE else sizes.flood
        found = _flooded(sizes, kind, count, delay_ms)
        label = f"{count:,} {words}"
        yield Figure.of(f"{label}: heartbeats of others, p99", [found["p99_ms"]], goal=50.0)
        ratio = found["p99_ms"] / alone["p99_ms"]
        yield Figure.of(f"{label}: p99 by that alone", [ratio], "x")
        yield Figure.of(f"{label}: memory", [found["mib"]], "MiB", 1_024.0)


def _flooded(sizes: Sizes, kind: str | None, count: int, delay_ms: int) -> dict[str, float]:
    with _served(delay_ms=delay_ms) as (server, _, address):
        words = ("paced", address, "steady", sizes.beating, sizes.flood_s, 0.5)
        with _clients("benchmarks.classic_clients", *words) as read:
            if kind is None:
                found = read()
            else:
                flood = ("flood", address, "hostile", count, kind, sizes.flood_s * 0.8)
                with _clients("benchmarks.classic_clients", *flood, ready=False):
                    found = read()
        return found | {"mib": resident_mib(process=server.pid)}


@contextmanager
def _served(
    delay_ms: int = 0, store: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], Path, str]]:
    """Serve a store on a free port until the end."""
    with temporary_store() as own:
        place = store or own
        settings = own.parent / "classic.toml"
        settings.write_text(SETTINGS.format(delay_ms=delay_ms), encoding="ascii")
        command = [sys.executable, "-m", "coordinator", "serve", "--store", str(place)]
        command += ["--topic", "clicks=1", "--listen", "127.0.0.1:0", "--config", str(settings)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("muster serves groups at "), line
            yield server, place, line.split()[4]
            server.terminate()


def _measured(*words: object) -> dict[str, float]:
    with _clients("benchmarks.classic_clients", *words) as read:
        return read()


@contextmanager
def _clients(
    module: str, *words: object, ready: bool = True
) -> Iterator[Callable[[], dict[str, float]]]:
    """Run clients; what is yielded waits for what they saw."""
    command = [sys.executable, "-m", module, *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:  # noqa: S603
        assert clients.stdout is not None
        if ready:
            assert clients.stdout.readline() == "ready\n", "the clients have failed"
        stdout = clients.stdout

        def read() -> dict[str, float]:
            line = stdout.readline()
            assert line, "the clients have failed"
            found: dict[str, float] = json.loads(line)
            return found

        yield read
        clients.terminate()  # a flood may wait without end until the server takes more of it
