"""A group over very many topics of one partition each: how long do members of others wait?

    python -m benchmarks.availability.many_topics serve STORE TOPICS
    python -m benchmarks.availability.many_topics beat ADDRESS

`serve` is `muster serve` that measures its threads: a line on its input has it print the dearest
steps since the line before. `beat` is the only member of another group, which beats all the time,
and prints the same of its waits. Both are processes of their own, so that neither waits for the
benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from benchmarks.store import temporary_store
from coordinator.cli.main import main
from coordinator.core.events import Answer, Event
from coordinator.runtime.event_processor import EventProcessor
from coordinator.wire import listener
from coordinator.wire.codec import Api
from tests.support.wire_client import Client, request_frame, take_frame

TITLE = "A group over very many topics"
TEXT = """\
`muster serve` with default settings, but a session timeout of ten minutes, and 100,000 topics of
one partition each. One member joins a group by a regular expression, confirms, and does what a
client may do; a second one joins and leaves. The only member of another group beats all the time.
Its longest *wait* is given in the CPU that the server took meanwhile, of all its threads: on a
machine with nothing else to do it waits no longer than that. Heartbeats that change nothing are
answered beside a batch that takes long; all other requests of other groups wait for one such
*batch* at most.
"""
FIRST = "the first member joins by a pattern"
DEAREST = {
    "network": "dearest turn of the network's thread, CPU",
    "collector-2": "longest full garbage collection, CPU",
}
PATTERN, OTHER = "topic-.*", "beside"
SETTINGS = """\
[kafka]
"group.consumer.session.timeout.ms" = 600000
"group.consumer.max.session.timeout.ms" = 600000
"""
"""Members that a busy neighbour keeps from their beats stay in their group."""
PAUSE_S = 0.002
PATIENCE_S = 120.0
SETTLE_S = 0.3


# The server --------------------------------------------------------------------------------------


class Dearest:
    """The pieces of work that took most CPU, by thread."""

    def __init__(self) -> None:
        self.most: dict[str, tuple[float, str]] = {}

    def note(self, thread: str, took_s: float, what: str) -> None:
        """Note a piece of work."""
        if took_s > self.most.get(thread, (0.0, ""))[0]:
            self.most[thread] = took_s, what

    def take(self) -> dict[str, tuple[float, str]]:
        """Return the dearest pieces, and start over."""
        found, self.most = self.most, {}
        return found


def watch(dearest: Dearest) -> None:
    """Have the threads that all groups wait for note what they do."""
    decide, run = EventProcessor.run, asyncio.Handle._run  # noqa: SLF001

    def timed_decide(processor: EventProcessor, events: Sequence[Event]) -> list[Answer]:
        began = time.thread_time()
        answers = decide(processor, events)
        what = type(events[0]).__name__ if events else ""
        dearest.note("coordinator", time.thread_time() - began, what)
        return answers

    def timed_run(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        # Its repr would have all that it answers, and take longer than it.
        what = getattr(handle._callback, "__qualname__", "")  # type: ignore[attr-defined] # noqa: SLF001
        dearest.note("network", time.thread_time() - began, what)

    began = [0.0]

    def collected(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            began[0] = time.thread_time()
        else:
            took = time.thread_time() - began[0]
            dearest.note(f"collector-{info['generation']}", took, threading.current_thread().name)

    gc.callbacks.append(collected)
    listener.find_spec = lambda _: None  # type: ignore[attr-defined] # uvloop has no handles
    EventProcessor.run = timed_decide  # type: ignore[method-assign]
    asyncio.Handle._run = timed_run  # type: ignore[method-assign] # noqa: SLF001


def serve(store: str, topics: int) -> None:
    """Serve until the input ends."""
    dearest = Dearest()
    watch(dearest)
    listed = Path(store).with_suffix(".json")
    settings = Path(store).with_suffix(".toml")
    settings.write_text(SETTINGS)
    names = {f"topic-{number:06}": 1 for number in range(topics)}
    listed.write_text(json.dumps({"topics": names | {OTHER: 1}}))

    def report() -> None:
        for _ in sys.stdin:
            print(json.dumps(dearest.take()), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=report, daemon=True).start()
    sys.argv = ["muster", "serve", "--store", store, "--listen", "127.0.0.1:0"]
    sys.argv += ["--topics", str(listed), "--config", str(settings)]
    main()


# The member of another group ---------------------------------------------------------------------


def beat(address: str, server: int) -> None:
    """Beat until the input ends; a wait is also measured in the CPU that the server takes in it."""
    waits, cpu_clock = [0.0, 0.0], ~server << 3 | 2  # as clock_getcpuclockid makes it
    client = Client(address)
    answer = client.join(OTHER, "m", OTHER)
    epoch = answer.member_epoch
    while not answer.assignment:
        answer = client.beat(OTHER, "m", epoch)
        epoch = answer.member_epoch
        time.sleep(PAUSE_S)
    frame = request_frame(
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=OTHER,
        member_id="m",
        member_epoch=epoch,
        topic_partitions=None,
    )

    def go_on() -> None:
        while True:
            began, cpu = time.perf_counter(), time.clock_gettime(cpu_clock)
            client.socket.sendall(frame)
            assert take_frame(client.socket)[13:15] == b"\0\0"
            waits[0] = max(waits[0], time.perf_counter() - began)
            waits[1] = max(waits[1], time.clock_gettime(cpu_clock) - cpu)
            time.sleep(PAUSE_S)

    threading.Thread(target=go_on, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(waits), flush=True)
        waits[:] = [0.0, 0.0]


# The large group ---------------------------------------------------------------------------------


class Process:
    """One of the two others: a line in, a line out."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._in, self._out = self._process.stdin, self._process.stdout

    def read(self) -> str:
        """Return its next line."""
        line = self._out.readline()
        assert line, "a process of the benchmark has ended"
        return line.strip()

    def ask(self, line: str) -> Any:
        """Say a line, and return the answer."""
        self._in.write(f"{line}\n")
        self._in.flush()
        return json.loads(self.read())

    def close(self) -> None:
        """End it."""
        self._in.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Member:
    """A member of the large group."""

    def __init__(self, address: str, member_id: str) -> None:
        self.client = Client(address)
        self.client.socket.settimeout(PATIENCE_S)
        self.member_id, self.epoch = member_id, 0
        self.owned: tuple[Mapping[str, Any], ...] = ()

    def beat(self, **fields: object) -> bool:
        """Beat; whether the answer had its assignment."""
        answer: Any = self.client.beat("large", self.member_id, self.epoch, **fields)
        assert not answer.error_code.value, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        self.owned = tuple(
            {"topic_id": one.topic_id, "partitions": one.partitions}
            for one in answer.assignment.topic_partitions
        )
        return True

    def join(self) -> None:
        """Join with a pattern."""
        self.beat(rebalance_timeout=60_000, subscribed_topic_regex=PATTERN, topic_partitions=())

    def report(self) -> None:
        """Say everything, as a client does that is not sure."""
        self.beat(
            rebalance_timeout=60_000, subscribed_topic_regex=PATTERN, topic_partitions=self.owned
        )

    def until(self, count: int, *others: Member) -> float:
        """Beat until it owns so many topics; return the seconds."""
        began = time.monotonic()
        while len(self.owned) != count:
            for one in (*others, self):
                if one.beat():
                    one.beat(topic_partitions=one.owned)
            time.sleep(PAUSE_S)
            assert time.monotonic() - began < PATIENCE_S, (len(self.owned), count)
        return time.monotonic() - began


def phases(address: str, topics: int) -> Iterator[tuple[str, float]]:
    """Live the life of a large group; yield what was done, and how long it took."""
    one = Member(address, "m1")
    one.join()
    began = time.monotonic()
    while not one.beat():
        time.sleep(PAUSE_S)
    yield FIRST, time.monotonic() - began
    began = time.monotonic()
    one.beat(topic_partitions=one.owned)
    yield "it confirms what it was assigned", time.monotonic() - began
    began = time.monotonic()
    one.report()
    yield "it reports everything", time.monotonic() - began
    began = time.monotonic()
    one.client.ask(
        Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("large",), include_authorized_operations=False
    )
    yield "the group is described", time.monotonic() - began
    names = tuple(f"topic-{number:06}" for number in range(topics))
    began = time.monotonic()
    commit(one, names)
    yield "it commits an offset of each topic", time.monotonic() - began
    began = time.monotonic()
    fetch(one, names)
    yield "it fetches all offsets", time.monotonic() - began
    two = Member(address, "m2")
    two.join()
    yield "a second member joins", two.until(topics // 2, one)
    two.epoch = -1
    two.beat()
    yield "the second member leaves", one.until(topics)


def commit(member: Member, names: Sequence[str]) -> None:
    """Commit an offset of each topic, in one request."""
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
        for name in names
    ]
    member.client.ask(
        Api.OFFSET_COMMIT,
        9,
        group_id="large",
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch,
        topics=[
            topic | {"partitions": [p | {"committed_metadata": ""} for p in topic["partitions"]]}  # type: ignore[union-attr]
            for topic in topics
        ],
    )


def fetch(member: Member, names: Sequence[str]) -> None:
    """Fetch the offsets of all topics, in one request."""
    asked = [{"name": name, "partition_indexes": (0,)} for name in names]
    group = {"group_id": "large", "member_id": None, "member_epoch": -1, "topics": asked}
    member.client.ask(Api.OFFSET_FETCH, 9, groups=[group])


@contextmanager
def served(store: Path, topics: int) -> Iterator[tuple[Process, Process, str]]:
    """Serve a store with topics, and have a member of another group beat."""
    server = Process("serve", store, topics)
    try:
        address = server.read().split()[4]
        beater = Process("beat", address, server.pid)
        try:
            beater.read()
            yield server, beater, address
        finally:
            beater.close()
    finally:
        server.close()


def measure(topics: int) -> Iterator[tuple[str, float, list[float], Mapping[str, Any]]]:
    """Yield each phase: what it is, its seconds, the longest waits of others, the dearest steps."""
    with temporary_store() as store, served(store, topics) as (server, beater, address):
        server.ask("-")
        beater.ask("-")
        for name, took_s in phases(address, topics):
            time.sleep(SETTLE_S)
            yield name, took_s, beater.ask("-"), server.ask("-")


def run(bench: Bench) -> Section:
    """Measure."""
    topics = 2_000 if bench.smoke else 100_000
    bench.say(f"regex: {topics:,} topics")
    return Section(TITLE, TEXT, list(figures(topics)))


def figures(topics: int) -> Iterator[Figure]:
    """Measure; yield the figures of the section."""
    worst = dict.fromkeys(DEAREST, 0.0)
    for name, took_s, (_, cpu_s), dearest in measure(topics):
        if name == FIRST:
            yield Figure.of(f"{name}, until it is assigned all", [took_s], "s", goal=2.0)
        yield Figure.of(f"{name}: wait of another group, CPU", [cpu_s * 1000], goal=50.0)
        dearest_s = dearest.get("coordinator", (0.0, ""))[0]
        yield Figure.of(f"{name}: dearest batch, CPU", [dearest_s * 1000], goal=50.0)
        for thread, most in worst.items():
            worst[thread] = max(most, dearest.get(thread, (0.0, ""))[0])
    for thread, words in DEAREST.items():
        yield Figure.of(words, [worst[thread] * 1000])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "beat":
        beat(sys.argv[2], int(sys.argv[3]))
    else:
        for name, took_s, wait_s, dearest in measure(int(sys.argv[1])):
            dear = {k: f"{v[0] * 1000:.0f} ms {v[1]}" for k, v in dearest.items()}
            took = ", ".join(f"{wait * 1000:.0f} ms" for wait in wait_s)
            print(f"{name:40} {took_s:6.2f} s, waits (elapsed, CPU) {took}, {dear}", flush=True)
