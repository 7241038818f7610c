"""The Kafka wire protocol: `muster serve` in a process of its own, its clients in another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Bench, Figure, cpu_s
from benchmarks.report import Section
from benchmarks.shape import GROUP, in_thousands
from benchmarks.store import temporary_store, write_group, write_small_groups

TITLE = "The wire"
TEXT = """\
`muster serve` with default settings (a Delta store, fsync, Kafka's intervals), on loopback; its
clients are another process on the same machine. *CPU* is that of all threads of the server's
process. The members that send heartbeats have a connection each and send bytes prepared beforehand;
the consumers that join are real consumers of librdkafka, all in one process.

A join of librdkafka takes two heartbeat intervals, as with Kafka: the answer to its first heartbeat
has no partitions yet, and the answer to its third has. That is 10 s of the 10.2 s.
"""
RATE = 25_000
ACLS = 1_000
DESCRIBE_TITLE = "One client describes very many groups"
DESCRIBE_TEXT = """\
`muster serve` as in *The wire*, with 100,000 groups of one member. One client describes all of them
in one request, and again as soon as it has its answer, while members of another group send
heartbeats. The request is decoded outside the event loop, and answered in pieces of 100 groups;
heartbeats are answered between the pieces.
"""
DESCRIBE_SETTINGS = """
[kafka]
"group.consumer.session.timeout.ms" = 600000
"group.consumer.max.session.timeout.ms" = 600000
"""
"""No member beats in the groups that are described."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large each measurement is."""

    connections: int
    seconds: float
    members: int
    paced_s: float
    interval_s: float
    joiners: int
    groups: int


FULL = Sizes(1_000, 10.0, 10_000, 20.0, 5.0, 100, 100_000)
SMOKE = Sizes(10, 0.5, 20, 1.0, 0.5, 3, 500)


def run(bench: Bench) -> Section:
    """Measure; each on a server of its own."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for work in (_steady, _paced, _join):
        bench.say(f"wire: {work.__name__.strip('_')}")
        with temporary_store() as store:
            figures += work(store, sizes)
    return Section(TITLE, TEXT, figures)


def run_describe(bench: Bench) -> Section:
    """Measure heartbeats beside a client that describes very many groups."""
    bench.say("wire: describe")
    with temporary_store() as store:
        figures = list(_describe(store, SMOKE if bench.smoke else FULL))
    return Section(DESCRIBE_TITLE, DESCRIBE_TEXT, figures)


def _describe(store: Path, sizes: Sizes) -> Iterator[Figure]:
    count = sizes.connections
    write_group(store, in_thousands(count, 1))
    write_small_groups(store, sizes.groups)
    settings = store.parent / "muster.toml"
    settings.write_text(DESCRIBE_SETTINGS, encoding="ascii")
    with _served(store, "--config", str(settings)) as (server, address):
        words = (address, GROUP, count, sizes.paced_s, sizes.interval_s / 5)
        alone, _ = _measured(server, "paced", *words)
        found, _ = _measured(server, "describe", *words, sizes.groups)
    label = f"{sizes.groups:,} groups described in one request"
    yield Figure.of(f"{label}: its answer", [found["described_ms"]])
    yield Figure.of(f"{count:,} members beat once a second, alone: p99", [alone["p99_ms"]])
    yield Figure.of(f"{label}: heartbeats of others, p50", [found["p50_ms"]])
    yield Figure.of(f"{label}: heartbeats of others, p99", [found["p99_ms"]], goal=50.0)


def _steady(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """As many heartbeats as the server answers: without access lists, and with them."""
    count = sizes.connections
    write_group(store, in_thousands(count, 1))
    label = f"{RATE:,} steady heartbeats, {count:,} connections"
    cpu_ms = {}
    for words in ((), ("--config", _with_acls(store.parent))):
        with _served(store, *words) as (server, address):
            found, cpu_s = _measured(server, "steady", address, GROUP, count, sizes.seconds)
        cpu_ms[bool(words)] = cpu_s * 1000 / found["beats"] * RATE
        if not words:
            yield Figure.of(f"{label}: CPU", [cpu_ms[False]], goal=1_000.0)
            yield Figure.of(f"{label}: elapsed", [found["seconds"] * 1000 / found["beats"] * RATE])
    ratio = cpu_ms[True] / cpu_ms[False]
    yield Figure.of(f"the same by {ACLS:,} access lists: CPU, ratio", [ratio], "", 1.1)


def _with_acls(folder: Path) -> str:
    """Write many access lists, of which one lets members in, and settings that name them."""
    entry = "[[acls]]\nprincipal = '{}'\noperations = ['READ']\nresource_type = 'GROUP'\n"
    entry += "resource_name = '{}'\npattern_type = 'PREFIXED'\n"
    names = [("User:*", GROUP[:2]), *((f"User:u{i}", f"team-{i}-") for i in range(1, ACLS))]
    (folder / "acls.toml").write_text("".join(entry.format(*pair) for pair in names))
    (folder / "muster.toml").write_text(f"[server]\nacls = '{folder}/acls.toml'\n")
    return str(folder / "muster.toml")


def _paced(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """As real members beat."""
    count = sizes.members
    write_group(store, in_thousands(count, 1))
    with _served(store) as (server, address):
        words = (count, sizes.paced_s, sizes.interval_s)
        found, cpu_s = _measured(server, "paced", address, GROUP, *words)
    label = f"{count:,} members, a heartbeat every {sizes.interval_s:g} s"
    yield Figure.of(f"{label}: CPU", [cpu_s / found["seconds"] * 100], "% of a core", 20.0)
    yield Figure.of(f"{label}: p50 of an answer", [found["p50_ms"]])
    yield Figure.of(f"{label}: p99 of an answer", [found["p99_ms"]], goal=25.0)


def _join(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Consumers of librdkafka join an empty group at once."""
    count, partitions = sizes.joiners, 2 * sizes.joiners
    with _served(store, "--topic", f"clicks={partitions}") as (server, address):
        found, cpu_s = _measured(server, "join", address, "joiners", count, "clicks", partitions)
    label = f"{count:,} consumers of librdkafka join at once"
    yield Figure.of(f"{label}: until all are settled", [found["seconds"] * 1000], goal=10_000.0)
    yield Figure.of(f"{label}: CPU", [cpu_s * 1000])


@contextmanager
def _served(store: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a store on a free port until the end."""
    command = [sys.executable, "-m", "coordinator", "serve", "--store", str(store)]
    command += ["--listen", "127.0.0.1:0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("muster serves groups at "), line
        yield server, line.split()[4]
        server.terminate()


def _measured(server: subprocess.Popen[str], *words: object) -> tuple[dict[str, float], float]:
    """Run the clients; return what they saw, and the server's CPU seconds meanwhile."""
    command = [sys.executable, "-m", "benchmarks.wire_clients", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:  # noqa: S603
        assert clients.stdout is not None
        assert clients.stdout.readline() == "ready\n", "the clients have failed"
        before = cpu_s(server.pid)
        line = clients.stdout.readline()
        assert line, "the clients have failed"
        return json.loads(line), cpu_s(server.pid) - before
