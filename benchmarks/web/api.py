"""The HTTP API: who owned a partition as of a time, in a store of a very large group."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlencode, urlsplit

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section, Table, number
from benchmarks.shape import GROUP, Shape
from benchmarks.store import temporary_store, write_group
from benchmarks.web.section import change, cpu_s, served
from coordinator.clock import wall_ms
from coordinator.display.times import format_time

TITLE = "HTTP API"
TEXT = """\
A program asks `muster web`, a process of its own, for the owner of one partition as of a time in
the past, in a store of a group of 100,000 members with ten million partitions. *Cold* is the first
answer of that process, *changed* the first one after an epoch has begun; *warm* are the next ones.
*Known* are answers to those who send the `ETag` that they have. Elapsed is from the request to the
last byte; CPU is that of the process, per request. Each request asks for another partition.
"""
TIMES = 200
"""How many requests are measured."""
NAME = "ownership of a partition as of a time, 100,000 members, warm"


def run(bench: Bench) -> Section:
    """Serve a store, and ask who owned what."""
    members = 200 if bench.smoke else 100_000
    shape = Shape(members, 100)
    (topic, partitions), *_ = shape.topics().items()
    with temporary_store() as store:
        bench.say(f"api: writing a group of {members:,} members")
        write_group(store, shape)
        with served(store) as (url, pid):
            client = Client(url, topic, partitions, format_time(wall_ms()))
            cold_ms, _ = client.ask(0)
            change(store, GROUP)
            changed_ms, _ = client.ask(1)
            begun = cpu_s(pid)
            warm = [client.ask(turn)[0] for turn in range(TIMES)]
            cpu_ms = 1000 * (cpu_s(pid) - begun) / TIMES
            tag = client.ask(7)[1]
            known = [client.ask(7, tag)[0] for _ in range(TIMES)]
    figures = [
        Figure.of(f"{NAME}: elapsed", warm, goal=50.0),
        Figure.of(f"{NAME}: CPU", [cpu_ms], goal=50.0),
        Figure.of("the same, known by its ETag: elapsed", known),
    ]
    head = ("cold, ms", "changed, ms", "warm, ms", "CPU, ms", "known, ms")
    row = [cold_ms, changed_ms, figures[0].median, cpu_ms, figures[2].median]
    return Section(TITLE, TEXT, figures, [Table("", head, [list(map(number, row))])])


class Client:
    """Asks for owners, over one connection."""

    def __init__(self, url: str, topic: str, partitions: int, as_of: str) -> None:
        at = urlsplit(url)
        self._connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=300)
        self._topic, self._partitions, self._as_of = topic, partitions, as_of

    def ask(self, turn: int, tag: str = "") -> tuple[float, str]:
        """Return the ms until an answer was read, and its tag."""
        partition = turn * 7_919 % self._partitions
        given = {"topic": self._topic, "partition": partition, "as_of": self._as_of}
        path = f"/api/v1/groups/{GROUP}/ownership?{urlencode(given)}"
        begun = time.perf_counter()
        self._connection.request("GET", path, headers={"If-None-Match": tag} if tag else {})
        answer = self._connection.getresponse()
        body = answer.read()
        taken_ms = 1000 * (time.perf_counter() - begun)
        assert answer.status == (304 if tag else 200), (answer.status, body)
        assert tag or body.count(b'"member_id"') == 1, body
        return taken_ms, answer.headers["etag"]
