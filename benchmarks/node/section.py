"""A node that leads: commits beside Kafka's own coordinator, hand-overs, a kill, a join."""

from __future__ import annotations

import itertools
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from coordinator.core.java_hash import place_of
from coordinator.wire.codec import Api
from tests.support.processes import end, run_as_text, start

if TYPE_CHECKING:
    from tests.support.wire_client import Client

TITLE = "A node of a Kafka cluster"
TEXT = """\
Two brokers of Kafka 4.4.0 and a node on this machine, elapsed time. Of the three partitions of
`__consumer_offsets` the node leads one, with both brokers in sync, while a broker leads another:
single commits to both take turns. *Longest wait* is between two answers to one member, of twelve
whose partition is handed over; each asks every 10 ms, and looks for the coordinator when it is
refused. A kill is counted from `broker.session.timeout.ms` on, 6 s here, until all groups are
answered by a broker. The join is of a partition that has the records of as many commits.
"""
TOPIC, ORDERS, NODE, SESSION_S = "__consumer_offsets", "orders", 1001, 6.0
LED, KAFKAS, MOVED = 0, 1, 2
"""Which partition is led by the node, by a broker, and is handed over."""
SETTINGS = ("offsets.topic.num.partitions=3", f"broker.session.timeout.ms={SESSION_S * 1000:.0f}")
PATIENCE_S, BEAT_S, MEMBERS = 60.0, 0.01, 12
FOUND = 0


def run(bench: Bench) -> Section:
    """Measure on brokers of this run's own; needs Java and Maven, as `make test-kafka`."""
    commits, moves, wide = (20, 1, 10) if bench.smoke else (1_000, 5, 1_000)
    figures: list[Figure] = []
    with _brokers(wide) as servers, _Node(servers) as node:
        bench.say("node: joins")
        node.does("join", LED, MOVED)
        node.does("lead", LED)
        bench.say("node: commits")
        figures += _commits(servers, commits)
        bench.say("node: hand-overs")
        figures += _hand_overs(servers, node, moves)
        bench.say(f"node: joins a partition of {wide * wide:,} records")
        _fill(servers, wide)
        began = time.monotonic()
        node.does("join", KAFKAS)
        took = time.monotonic() - began
        name = f"join of a partition of {wide * wide:,} records, until in sync"
        figures.append(Figure.of(name, [took], "s", 20.0))
        bench.say("node: a kill")
        figures.append(_kill(servers, node))
    return Section(TITLE, TEXT, figures)


@contextmanager
def _brokers(wide: int) -> Iterator[list[str]]:
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - for tests

    from tests.clients.kafka_broker import Kafka, SecondBroker  # noqa: PLC0415 - as above

    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            for _ in range(2)
        ]
        one = stack.enter_context(Kafka(folders[0], {ORDERS: wide}, SETTINGS))
        two = stack.enter_context(SecondBroker(folders[1], one))
        compact = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        admin = AdminClient({"bootstrap.servers": one.address})
        (made,) = admin.create_topics([NewTopic(TOPIC, 3, 2, config=compact)]).values()
        made.result(30)
        yield [one.address, two.address]


class _Node:
    """`muster node`, and the commands about it."""

    def __init__(self, servers: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as free:
            here = f"127.0.0.1:{free.getsockname()[1]}"
        cluster = f"kafka://{','.join(servers)}"
        self._words = ["--cluster", cluster, "--store", self._folder.name]
        self.process = start(
            [sys.executable, "-m", "coordinator", "node", "run", *self._words,
             "--node-id", NODE, "--listen", here],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "alive in the cluster" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def does(self, action: str, *partitions: int) -> None:
        """Run a command to its end."""
        numbers = ",".join(map(str, partitions))
        words = [action, *self._words, "--partitions", numbers, "--yes"]
        done = run_as_text("node", *words)
        if done.returncode:
            raise RuntimeError(f"muster node {action} {numbers}: {done.stderr}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        end(self.process)
        self._folder.cleanup()


class _Member:
    """The only member of a group, whose coordinator may change."""

    def __init__(self, servers: list[str], partition: int, number: int) -> None:
        names = (f"g{number}-{one}" for one in itertools.count())
        self.group = next(name for name in names if place_of(name, 3) == partition)
        self._servers, self.epoch, self.answered_s = servers, 0, 0.0
        self._client: Client | None = None

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """Ask the coordinator until it answers, and no longer says that it is another."""
        until, why = time.monotonic() + PATIENCE_S, "no coordinator is found"
        while time.monotonic() < until:
            try:
                client = self._client or self._find()
                if client is not None:
                    found = client.ask(api, version, group_id=self.group, **fields)
                    code = found.error_code if hasattr(found, "error_code") else _code_of(found)
                    if int(code) == FOUND:
                        return found
                    why = str(code)
            except (OSError, struct.error) as error:  # closed, or without an answer
                why = str(error)
            if self._client is not None:
                self._client.socket.close()
            self._client = None
            time.sleep(BEAT_S)
        raise TimeoutError(f"group {self.group} is not answered within {PATIENCE_S:g} s: {why}")

    def _find(self) -> Client | None:
        from tests.support.wire_client import Client  # noqa: PLC0415 - kio's own codec

        for server in self._servers:
            with suppress(OSError), Client(server) as asked:
                asked.socket.settimeout(1)
                fields = {"coordinator_keys": [self.group], "key_type": 0}
                (found,) = asked.ask(Api.FIND_COORDINATOR, 4, **fields).coordinators
                if not int(found.error_code):
                    self._client = Client(f"{found.host}:{found.port}")
                    self._client.socket.settimeout(1)
                    return self._client
        return None

    def commit(self, offset: int, partitions: int = 1) -> None:
        """Commit the same offset for some partitions, of no member."""
        topic = {
            "name": ORDERS,
            "partitions": [
                {"partition_index": one, "committed_offset": offset, "committed_metadata": ""}
                for one in range(partitions)
            ],
        }
        self.ask(
            Api.OFFSET_COMMIT, 8, generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[topic],
        )  # fmt: skip

    def beat(self) -> None:
        """Join, or send a heartbeat."""
        joins = {"rebalance_timeout": 60_000, "subscribed_topic_names": [ORDERS]}
        found = self.ask(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, member_id="m", member_epoch=self.epoch,
            **({"topic_partitions": None} if self.epoch else joins | {"topic_partitions": []}),
        )  # fmt: skip
        self.epoch, self.answered_s = found.member_epoch, time.monotonic()


def _code_of(answer: Any) -> int:
    return max(int(one.error_code) for topic in answer.topics for one in topic.partitions)


def _commits(servers: list[str], commits: int) -> Iterator[Figure]:
    """Single commits, in turns."""
    places = {
        "the node, two followers in sync": _Member(servers, LED, 0),
        "Kafka's own coordinator": _Member(servers, KAFKAS, 0),
    }
    took: dict[str, list[float]] = {name: [] for name in places}
    for number in range(commits + 5):
        for name, group in places.items():
            began = time.perf_counter()
            group.commit(number)
            took[name].append((time.perf_counter() - began) * 1000)
    medians = []
    for name, samples in took.items():
        figure = Figure.of(f"a commit, answered by {name}", samples[5:])
        medians.append(statistics.median(samples[5:]))
        yield figure
    yield Figure.of("a commit: ratio of the medians", [medians[0] / medians[1]], "x", 1.5)


class _Beats:
    """Members that send heartbeats all the time, each in a thread of its own."""

    def __init__(self, servers: list[str], partition: int) -> None:
        self.members = [_Member(servers, partition, number) for number in range(MEMBERS)]
        self.longest_s = 0.0
        self._over = threading.Event()
        for one in self.members:
            one.beat()
        self._threads = [threading.Thread(target=self._beat, args=(m,)) for m in self.members]

    def _beat(self, member: _Member) -> None:
        while not self._over.wait(BEAT_S):
            before = member.answered_s
            member.beat()
            self.longest_s = max(self.longest_s, member.answered_s - before)

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for one in self._threads:
            one.join()


def _hand_overs(servers: list[str], node: _Node, moves: int) -> Iterator[Figure]:
    took: dict[str, list[float]] = {"lead": [], "yield": []}
    with _Beats(servers, MOVED) as beats:
        time.sleep(1)
        for action in ("lead", "yield") * moves:
            beats.longest_s = 0.0
            node.does(action, MOVED)
            time.sleep(1)
            took[action].append(beats.longest_s)
    for action, names in (("lead", "to the node"), ("yield", "to a broker")):
        yield Figure.of(f"hand-over {names}: longest wait", took[action], "s", 0.5)


def _fill(servers: list[str], wide: int) -> None:
    group = _Member(servers, KAFKAS, 1)
    for number in range(wide):
        group.commit(number, wide)


def _kill(servers: list[str], node: _Node) -> Figure:
    with _Beats(servers, LED) as beats:
        time.sleep(1)
        end(node.process)
        killed = time.monotonic()
        _wait(lambda: all(one.answered_s > killed + 1 for one in beats.members))
        late = max(one.answered_s for one in beats.members)
    return Figure.of(
        "kill -9: until a broker has answered all groups, past the session",
        [beats.longest_s - SESSION_S if late else 0.0],
        "s",
    )


def _wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"not in {PATIENCE_S:g} s")
        time.sleep(BEAT_S)
