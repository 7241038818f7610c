"""Availability: how long clients wait when the machine, the disk or the store is bad."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from benchmarks.store import temporary_store
from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.state.records import OffsetCommitted
from coordinator.errors import GroupError
from coordinator.storage.delta_log import DeltaLog
from tests.support.s3.client import S3Server

TITLE = "Availability"
TEXT = """\
Times are elapsed unless marked CPU, with default settings. *Long answers* are those of more
than 500 ms among 70 offset commits a second, of 35 callers, while two other processes use a
core each. The start is of a coordinator that finds commits of one record each, none of them in
a checkpoint, as if maintenance had never run; commits slow down long before it comes to that.
A disk that does not confirm one commit ends a coordinator: from there until its stand-by has
answered. A store that accepts connections and never answers: until the first request is
refused (`log.answer_ms`).
"""
RATE, CALLERS, LONG_S = 70, 35, 0.5
START = """
import sys, time
from coordinator import Coordinator
coordinator = Coordinator.open(sys.argv[1], topics={"t": 1})
print(time.process_time() * 1000, flush=True)
coordinator.close()
"""


def run(bench: Bench) -> Section:
    """Measure; each on a store of its own."""
    figures: list[Figure] = []
    bench.say("availability: answers beside busy neighbours")
    figures += _answers(5.0 if bench.smoke else 600.0)
    bench.say("availability: a start behind many commits")
    figures += _starts(500 if bench.smoke else 40_000)
    bench.say("availability: ends")
    figures += _closes(2 if bench.smoke else 20)
    bench.say("availability: a disk that does not confirm")
    figures += _stand_by(1 if bench.smoke else 5)
    bench.say("availability: a store that does not answer")
    figures += _silence(1_000 if bench.smoke else Config().log.answer_ms)
    return Section(TITLE, TEXT, figures)


def _commit(coordinator: Coordinator, number: int) -> None:
    coordinator.offset_commit(group_id="g", topics={"t": {0: number}})


def _answers(seconds: float) -> Iterator[Figure]:
    with temporary_store() as store, _neighbours(2):
        with Coordinator.open(store, topics={"t": 1}) as coordinator:
            took = _load(coordinator, seconds)
        files = len(list((store / "log" / "_delta_log").iterdir()))
    took.sort()
    named = f"of {len(took):,}"
    yield Figure.of(
        f"long answers, {named}", [float(sum(one > LONG_S for one in took))], "answers", 0.0
    )
    yield Figure.of("slowest answer", [took[-1] * 1000])
    yield Figure.of("answer, 99 of 100", [took[len(took) * 99 // 100] * 1000])
    yield Figure.of("files of commits at the end", [float(files)], "files")


def _load(coordinator: Coordinator, seconds: float) -> list[float]:
    """Return how long each answer took; a caller is never late because of the answer before."""
    took: list[float] = []
    until = time.monotonic() + seconds

    def call(number: int) -> None:
        at = time.monotonic() + number / RATE
        while at < until:
            time.sleep(max(0.0, at - time.monotonic()))
            began = time.monotonic()
            _commit(coordinator, number)
            took.append(time.monotonic() - began)
            at += CALLERS / RATE

    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return took


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in busy:
            one.send_signal(signal.SIGKILL)
            one.wait()


def _starts(commits: int) -> Iterator[Figure]:
    with temporary_store() as store:
        config = replace(Config().log, reopen_commits=0, pack_commits=0, fsync=False)
        log = DeltaLog.open(store, config)
        log.claim("benchmark", "", wall_ms())
        for number in range(commits):
            log.append([OffsetCommitted("g", "t", "id", 0, number, commit_timestamp=1)], wall_ms())
        nothing = _start_ms(store.parent / "nothing")
        yield Figure.of(
            f"start behind {commits:,} commits, CPU",
            [_start_ms(store) - nothing],
            goal=5_000.0 * commits / 40_000,
        )


def _start_ms(store: Path) -> float:
    found = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", START, str(store)], check=True, capture_output=True, text=True
    )
    return float(found.stdout)


def _closes(times: int) -> Iterator[Figure]:
    """At any moment of a life under load."""
    took, chance = [], random.Random(1)
    with temporary_store() as store:
        for _ in range(times):
            coordinator = Coordinator.open(store, topics={"t": 1})
            stop = threading.Event()

            def load(asked: Coordinator = coordinator, over: threading.Event = stop) -> None:
                with suppress(GroupError):
                    while not over.is_set():
                        _commit(asked, 1)

            callers = [threading.Thread(target=load) for _ in range(8)]
            for caller in callers:
                caller.start()
            time.sleep(chance.uniform(0.0, 3.0))
            began = time.monotonic()
            coordinator.close()
            took.append(time.monotonic() - began)
            stop.set()
            for caller in callers:
                caller.join()
    yield Figure.of("close under load", took, "s")
    yield Figure.of("close under load, slowest", [max(took)], "s", goal=2.0)


def _stand_by(times: int) -> Iterator[Figure]:
    took = []
    for _ in range(times):
        with temporary_store() as store, Coordinator.open(store, topics={"t": 1}) as first:
            _commit(first, 1)
            opened: list[Coordinator] = []
            waits = threading.Thread(target=_open, args=(store, opened))
            waits.start()
            time.sleep(1.0)
            table: Any = first._processor.log._table  # type: ignore[attr-defined] # noqa: SLF001
            table._disk = _FailingDisk(table._disk)  # noqa: SLF001
            began = time.monotonic()
            with suppress(GroupError):
                _commit(first, 2)
            waits.join()
            _commit(opened[0], 3)
            took.append(time.monotonic() - began)
            opened[0].close()
    goal = Config().lease.ttl_ms / 1000 + 2.0
    yield Figure.of("from a failed fsync until the stand-by answers", took, "s", goal)


def _open(store: Path, opened: list[Coordinator]) -> None:
    opened.append(Coordinator.open(store, topics={"t": 1}))


class _FailingDisk:
    """A disk that confirms no commit."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync(self, path: str) -> None:
        if path.endswith(".json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._disk.sync(path)


def _silence(answer_ms: int) -> Iterator[Figure]:
    """A store in S3 that answers, and then accepts requests without answering."""
    server = S3Server.start()
    hole = _Hole(server.endpoint)
    before = dict(os.environ)
    os.environ.update(server.environment() | {"AWS_ENDPOINT_URL": hole.url})
    config = replace(Config(), log=replace(Config().log, answer_ms=answer_ms))
    try:
        with Coordinator.open(server.new_store(), topics={"t": 1}, config=config) as coordinator:
            _commit(coordinator, 1)
            hole.silent.set()
            took = []
            for _ in range(3):
                began = time.monotonic()
                with suppress(GroupError):
                    _commit(coordinator, 2)
                took.append(time.monotonic() - began)
            began = time.monotonic()
            coordinator.close()
            closing = time.monotonic() - began
    finally:
        hole.close()
        os.environ.clear()
        os.environ.update(before)
        server.stop()
    yield Figure.of("store that does not answer: first refusal", took[:1], "s", 30.0)
    yield Figure.of("store that does not answer: later refusals", took[1:], "s", 30.0)
    yield Figure.of("store that does not answer: close", [closing], "s", 2.0)


class _Hole:
    """A relay in front of a server; once it is silent it accepts, and passes nothing on."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._behind = (host, int(port))
        self.silent = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection(self._behind)
                self._held += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if not self.silent.is_set():
                    other.sendall(data)
            if not self.silent.is_set():
                other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Stop."""
        self._socket.close()
        for one in self._held:
            one.close()
