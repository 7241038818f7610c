"""Telemetry: what traces and metrics for a collector cost the process that sends them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from benchmarks.store import temporary_store
from coordinator import Coordinator
from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.config.settings import TelemetryConfig
from coordinator.core.events import Heartbeat

TITLE = "Telemetry"
TEXT = """\
Two coordinators take turns, each on a store on this disk: one sends traces and metrics to a
collector, a process of its own that answers at once, and one sends nothing. *Heartbeats at rest*
change nothing. With *rebalances*, a member joins each of the groups and leaves it, while all their
members send heartbeats until they have settled: each time a trace a group, with a span a member.
The ratio is of CPU of the process, the thread that sends included.
"""
COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *words): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""
MEMBERS = 5
SENT_S = 1.0
"""How long the last traces may take to be sent."""
SEND = ("traces", "metrics")


class Life:
    """Groups of one coordinator, and what their members know."""

    def __init__(self, coordinator: Coordinator, groups: int) -> None:
        self._coordinator = coordinator
        self._groups = [f"g{number:04}" for number in range(groups)]
        self._epochs: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], dict[str, list[int]]] = {}
        for number in range(MEMBERS):
            self._join(f"m{number}")
        self.settle()

    def beat(self, times: int) -> None:
        """Send heartbeats that change nothing."""
        beats = [Heartbeat(group, member, at) for (group, member), at in self._epochs.items()]
        for _ in range(times):
            self._coordinator.consumer_group_heartbeats(beats).raise_for_error()

    def rebalance(self) -> None:
        """Let a member join each group, and leave it."""
        self._join("late")
        self.settle()
        gone = [Heartbeat(group, "late", -1) for group in self._groups]
        self._coordinator.consumer_group_heartbeats(gone).raise_for_error()
        for group in self._groups:
            del self._epochs[group, "late"]
        self.settle()

    def settle(self) -> None:
        """Send heartbeats until nothing changes."""
        before = None
        while before != self._epochs:
            before = dict(self._epochs)
            beats = [
                Heartbeat(*key, at, topic_partitions=self._owned.get(key, {}))
                for key, at in self._epochs.items()
            ]
            self._send(beats)

    def _join(self, member: str) -> None:
        self._send([
            Heartbeat(
                group, member, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",),
                topic_partitions={},
            )
            for group in self._groups
        ])  # fmt: skip

    def _send(self, beats: list[Heartbeat]) -> None:
        answers = self._coordinator.consumer_group_heartbeats(beats).raise_for_error()
        for beat, answer in zip(beats, answers, strict=True):
            key = beat.group_id, beat.member_id
            self._epochs[key] = answer.member_epoch
            if answer.assignment is not None:
                self._owned[key] = answer.assignment


def run(bench: Bench) -> Section:
    """Let both take turns."""
    groups, beats, rounds = (4, 2, 2) if bench.smoke else (200, 100, 12)
    at_once = kafka_config({"group.consumer.assignment.interval.ms": 0})
    config = Config(kafka=at_once)
    resting: dict[str, list[float]] = {"off": [], "on": []}
    moving: dict[str, list[float]] = {"off": [], "on": []}
    with collecting() as url, temporary_store() as one, temporary_store() as other:
        sends = replace(config, telemetry=TelemetryConfig(SEND, url))
        topics = {"t": 4 * MEMBERS}
        with (
            Coordinator.open(one, topics=topics, config=config) as off,
            Coordinator.open(other, topics=topics, config=sends) as on,
        ):
            lives = {"off": Life(off, groups), "on": Life(on, groups)}
            for turn in range(rounds):
                bench.say(f"telemetry: round {turn + 1} of {rounds}")
                for name in ("off", "on") if turn % 2 else ("on", "off"):
                    resting[name].append(_cpu_ms(lambda life=lives[name]: life.beat(beats)))
                    moving[name].append(_cpu_ms(lives[name].rebalance))
                    time.sleep(SENT_S)  # what is left of it is no heartbeat's
            lost = on.metrics.registry.get_sample_value("telemetry_lost_total", {"what": "traces"})
    assert not lost, lost
    sent = groups * MEMBERS * beats
    figures = [
        Figure.of(f"{sent:,} heartbeats at rest, off: CPU", resting["off"]),
        Figure.of(f"{sent:,} heartbeats at rest, on: CPU", resting["on"]),
        Figure.of("heartbeats at rest, on by off", [_ratio(resting)], "x", 1.1),
        Figure.of(f"{2 * groups:,} rebalances of {MEMBERS} members, off: CPU", moving["off"]),
        Figure.of(f"{2 * groups:,} rebalances of {MEMBERS} members, on: CPU", moving["on"]),
        Figure.of("rebalances, on by off", [_ratio(moving)], "x"),
    ]
    return Section(TITLE, TEXT, figures)


def _ratio(taken: dict[str, list[float]]) -> float:
    pairs = zip(taken["on"], taken["off"], strict=True)
    return statistics.median(on / off for on, off in pairs)


def _cpu_ms(work) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


@contextmanager
def collecting() -> Iterator[str]:
    """Run a collector that takes everything, and yield its URL."""
    command = [sys.executable, "-c", COLLECTOR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
