"""Coordinators and members as processes, what they say, and when they are settled."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

from coordinator.errors import ErrorCode
from coordinator.wire.codec import Api
from tests.clients import checker
from tests.support import processes
from tests.support.wire_client import Client

HERE = Path(__file__).parent
MEMBER = (sys.executable, str(HERE / "members" / "librdkafka.py"))
PATIENCE_S = 60.0
LOOK_S = 0.1
SETTINGS = """
[lease]
ttl_ms = 2000
renew_ms = 400
check_ms = 100

[topics]
poll_ms = 200

[kafka]
"group.initial.rebalance.delay.ms" = 0
"group.consumer.session.timeout.ms" = 6000
"group.consumer.min.session.timeout.ms" = 1000
"group.consumer.heartbeat.interval.ms" = 400
"group.consumer.min.heartbeat.interval.ms" = 50
"group.consumer.assignment.interval.ms" = 100
"""
"""A session ends in six seconds: short, but long enough for a busy machine."""

PLAIN = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def until(condition, what, patience_s=PATIENCE_S):
    """Wait for something to become true."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"not in {patience_s} s: {what()}"
        time.sleep(LOOK_S)


class Process:
    """A process whose standard output is a file of JSON lines."""

    def __init__(self, command, folder, name):
        self.name = name
        self.out = folder / f"{name}.out"
        self.errors = folder / f"{name}.err"
        with self.out.open("wb") as out, self.errors.open("wb") as errors:
            self.process = processes.start(command, stdout=out, stderr=errors)
        self.own = []
        """What was done to it, as lines among its own."""

    def lines(self):
        text = self.out.read_text()
        said = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return sorted(said + self.own, key=lambda line: line["at"])

    def did(self, what):
        return any(line["what"] == what for line in self.lines())

    def complaint(self):
        return self.name, self.errors.read_text()[-300:]

    def kill(self):
        """kill -9; its holds end now."""
        self.process.kill()
        self.process.wait()
        self.own.append({"at": time.monotonic(), "what": "killed"})

    def stop(self):
        """Freeze it."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def leave(self):
        """Ask it to end, and wait until it has."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.errors.read_text()

    def end(self):
        """Leave nothing behind, whatever state it is in."""
        processes.end(self.process)


class Coordinators:
    """One store, and the coordinators that serve it on one address, one after the other.

    Attributes
    ----------
    topics
        The file that they take their topics from.
    words
        More options of `muster serve`; they count where one is given twice.
    kafka
        The address of a cluster before which they are gateways; None: they have topics alone.
    program
        The command that those are which start next.
    """

    program: tuple[object, ...] = (sys.executable, "-m", "coordinator")

    def __init__(self, folder, topics, settings=SETTINGS, words=(), kafka=None):
        self.folder, self.words, self.kafka = folder, words, kafka
        self.store = folder / "store"
        self.topics = folder / "topics.json"
        self.settings = folder / "muster.toml"
        self.settings.write_text(settings)
        self.write_topics(topics)
        self.address = f"127.0.0.1:{free_port()}"
        self.servers = []

    def __enter__(self):
        self.serve()
        self.await_served()
        return self

    def __exit__(self, *_error):
        for one in self.servers:
            one.end()

    def write_topics(self, topics):
        fresh = self.topics.with_suffix(".new")
        fresh.write_text(json.dumps(topics))
        fresh.replace(self.topics)

    def serve(self, listen=None, *words):
        """Start a coordinator; it stands by while another has the store."""
        what = ["serve", "--topics", str(self.topics)]
        if self.kafka is not None:
            what = ["gateway", "--kafka", self.kafka]
        command = [*self.program, *what, "--config", str(self.settings)]
        command += ["--store", str(self.store)]
        command += ["--listen", listen or self.address, *self.words, *words]
        self.servers.append(Process(command, self.folder, f"server-{len(self.servers)}"))
        return self.servers[-1]

    def await_served(self, address=None):
        """Wait until a server is at the address."""
        host, port = (address or self.address).split(":")

        def served():
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return True
            return False

        until(served, lambda: [one.errors.read_text() for one in self.servers])


def await_named(address, count):
    """Wait until a server tells clients of so many."""

    def named():
        with contextlib.suppress(OSError, struct.error), Client(address) as client:
            return len(client.ask(Api.METADATA, 12, topics=(), **PLAIN).brokers) == count
        return False

    until(named, lambda: f"{address} does not name {count} nodes")


class Group:
    """The members of one group, and a watcher that describes it again and again.

    Leaving it checks everything that was written down.

    Attributes
    ----------
    seen
        Every description of the group that the watcher got, in order, from any server.
    begins
        Offsets that were committed before there were members, by partition.
    """

    def __init__(self, folder, name, addresses):
        self.folder, self.name, self.addresses = folder, name, addresses
        self.members = {}
        self.seen = []
        self.begins = {}
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def __enter__(self):
        self._watcher.start()
        return self

    def __exit__(self, kind, *_error):
        self._over.set()
        self._watcher.join()
        for one in self.members.values():
            one.end()
        if kind is None:
            checker.check(self.logs(), self.seen, self.begins)

    def join(self, name, subscribe=("clicks",), *, command=MEMBER, **config):
        """Start a member."""
        client_config = {"bootstrap.servers": ",".join(self.addresses), "group.id": self.name}
        client_config |= {"client.id": name} | {
            key.replace("_", "."): v for key, v in config.items()
        }
        words = json.dumps({"subscribe": subscribe, "config": client_config})
        self.members[name] = Process([*command, words], self.folder, name)
        return self.members[name]

    def logs(self):
        return {name: member.lines() for name, member in self.members.items()}

    def held(self):
        """Return who holds what now."""
        return {name: checker.held_now(lines) for name, lines in self.logs().items()}

    def changes(self):
        """Return how often each member was given something, or had to let go of it."""
        kinds = {"assign", "revoke", "lost"}
        return {
            name: sum(line["what"] in kinds and bool(line["partitions"]) for line in lines)
            for name, lines in self.logs().items()
        }

    def settled(self, names, partitions):
        """Wait until just these members hold these partitions, as evenly as can be."""
        wanted = sorted(partitions)

        def fair():
            held = self.held()
            sizes = [len(held[name]) for name in names]
            return (
                max(sizes) - min(sizes) <= 1
                and sorted(one for name in names for one in held[name]) == wanted
                and not any(of_one for name, of_one in held.items() if name not in names)
            )

        until(fair, lambda: (self.held(), [one.complaint() for one in self.members.values()]))

    def works(self, names):
        """Wait until each of these members has had a commit acknowledged from now on."""
        now = time.monotonic()

        def committed(name):
            lines = self.members[name].lines()
            return any(line["what"] == "commit" and line["began"] > now for line in lines)

        until(lambda: all(map(committed, names)), lambda: f"no commits of {names}")

    # The watcher ---------------------------------------------------------------------------------

    def _watch(self):
        while not self._over.wait(LOOK_S):
            for address in self.addresses:
                with contextlib.suppress(OSError), Client(address) as client:
                    client.socket.settimeout(PATIENCE_S)
                    while not self._over.wait(LOOK_S) and self._describe(client):
                        pass

    def _describe(self, client):
        """Note what the group is like; False where another server coordinates it, or this one has gone."""
        words = {"group_ids": [self.name], "include_authorized_operations": False}
        try:
            answer = client.ask(Api.CONSUMER_GROUP_DESCRIBE, 1, **words)
        except (OSError, struct.error):  # closed, in the middle of an answer too
            return False
        (group,) = answer.groups
        if int(group.error_code) == ErrorCode.NOT_COORDINATOR:
            return False
        if int(group.error_code) == ErrorCode.NONE:
            members = {one.member_id: one.member_epoch for one in group.members}
            epochs = group.group_epoch, group.assignment_epoch
            self.seen.append(checker.Seen(*epochs, members))
        return True


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def partitions(topic, count):
    return [f"{topic}/{number}" for number in range(count)]
