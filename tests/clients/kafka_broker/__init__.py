"""A real Kafka 4.4.0 for tests, from Maven's jars: a broker that is the controller, or two."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.jars import cache_folder

BROKER = str(Path(__file__).with_name("broker"))
SETTINGS = (
    "group.consumer.heartbeat.interval.ms=400",
    "group.consumer.min.heartbeat.interval.ms=50",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.assignment.interval.ms=100",
    "auto.create.topics.enable=false",
)
"""What the coordinators of these tests have, too."""


STOP_S = 60
PORTS = range(20_000, 30_000, 2)
"""Of no outgoing connection: those would take the second of two free ports."""


class KafkaMissingError(RuntimeError):
    """Kafka cannot be had; the message says what to do."""


class Kafka:
    """A broker while it is entered.

    Attributes
    ----------
    address
        Where it is.
    """

    def __init__(self, folder, topics, settings=()):
        self.folder, self.topics, self.settings = folder, topics, settings
        self.port = free_pair()
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self):
        if not (shutil.which("java") and shutil.which("mvn")):
            raise KafkaMissingError("Kafka needs Java 17 and Maven: sudo apt-get install maven")
        self.start()
        admin = AdminClient({"bootstrap.servers": self.address})
        made = admin.create_topics([NewTopic(name, count) for name, count in self.topics.items()])
        for future in made.values():
            future.result(30)
        return self

    def __exit__(self, *_error):
        self.stop()

    def start(self):
        """Start it, empty or with what it has on disk."""
        self._run("start", str(self.port), *SETTINGS, *self.settings)

    def stop(self):
        """End it, and keep what it has on disk; it takes its time."""
        self._run("stop")
        end = time.monotonic() + STOP_S
        while self._listens() and time.monotonic() < end:
            time.sleep(0.1)

    def kill(self):
        """kill -9."""
        os.kill(int((self.folder / "kafka" / "pid").read_text()), signal.SIGKILL)
        while self._listens():
            time.sleep(0.1)

    def log_of(self, partition):
        """The bytes of a partition's log."""
        segments = (self.folder / "kafka/data" / partition).glob("*.log")
        return b"".join(one.read_bytes() for one in sorted(segments))

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, command, *words):
        environment = {"KAFKA_LIB": str(cache_folder() / "kafka-4.4.0"), "JAVA_OPTS": "-Xmx512m"}
        done = subprocess.run(
            [BROKER, command, str(self.folder / "kafka"), *words],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | environment,
        )  # fmt: skip
        if done.returncode:
            raise KafkaMissingError(f"broker {command}: {done.stderr[-500:]}")


class SecondBroker(Kafka):
    """One more broker of another's cluster, while it is entered."""

    def __init__(self, folder, first):
        super().__init__(folder, {})
        self.first = first

    def __enter__(self):
        self.start()
        return self

    def start(self):
        self._run("join", str(self.port), str(self.first.folder / "kafka"), "2")


def free_pair():
    """Return a port that is free as the next is: a broker's, and its controller's."""
    for port in PORTS:
        try:
            with socket.create_server(("127.0.0.1", port)):
                socket.create_server(("127.0.0.1", port + 1)).close()
        except OSError:
            continue
        return port
    raise KafkaMissingError(f"no two ports of {PORTS} are free")
