"""A real Kafka 4.4.0 for tests, from Maven's jars: a broker that is the controller, or two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from coordinator.errors import GroupError
from coordinator.kraft.links import Links
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import Api
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
    version
        Of Kafka.
    """

    version = "4.4.0"

    def __init__(self, folder, topics, settings=()):
        self.folder, self.topics, self.settings = folder, topics, settings
        self.port, self.environment = free_pair(), {}
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
        while self.listens() and time.monotonic() < end:
            time.sleep(0.1)

    def kill(self):
        """kill -9."""
        os.kill(int((self.folder / "kafka" / "pid").read_text()), signal.SIGKILL)
        while self.listens():
            time.sleep(0.1)

    def log_of(self, partition):
        """The bytes of a partition's log."""
        segments = (self.folder / "kafka/data" / partition).glob("*.log")
        return b"".join(one.read_bytes() for one in sorted(segments))

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, command, *words):
        environment = {
            "KAFKA_VERSION": self.version,
            "KAFKA_LIB": str(cache_folder() / f"kafka-{self.version}"),
            "JAVA_OPTS": "-Xmx512m",
        }
        done = subprocess.run(
            [BROKER, command, str(self.folder / "kafka"), *words],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | environment | self.environment,
        )  # fmt: skip
        if done.returncode:
            raise KafkaMissingError(f"broker {command}: {done.stderr[-500:]}")


class SecondBroker(Kafka):
    """One more broker of another's cluster, while it is entered."""

    def __init__(self, folder, first):
        super().__init__(folder, {})
        self.first, self.version = first, first.version

    def __enter__(self):
        self.start()
        return self

    def start(self):
        self._run("join", str(self.port), str(self.first.folder / "kafka"), "2")


class Quorum:
    """Three brokers, each a controller too, while it is entered.

    Attributes
    ----------
    brokers
        By the number of each; the active controller is one of them.
    """

    def __init__(self, folder, settings=()):
        self.brokers = {}
        for number in (1, 2, 3):
            (folder / str(number)).mkdir()
            one = Kafka(folder / str(number), {}, settings)
            self.brokers[number] = one
            one.held = [socket.create_server(("127.0.0.1", one.port + more)) for more in (0, 1)]
        voters = ",".join(f"{n}@127.0.0.1:{one.port + 1}" for n, one in self.brokers.items())
        for number, one in self.brokers.items():
            for held in one.held:
                held.close()
            one.settings = (f"node.id={number}", f"controller.quorum.voters={voters}", *settings)
            one.environment["CLUSTER_ID"] = CLUSTER_ID

    def __enter__(self):
        with ThreadPoolExecutor() as pool:  # none is ready before another one is
            for done in [pool.submit(one.start) for one in self.brokers.values()]:
                done.result()
        return self

    def __exit__(self, *_error):
        for one in self.brokers.values():
            with contextlib.suppress(OSError):
                one.kill()  # in turn, the last would wait for a majority

    def active(self):
        """Return the number of the broker that is the active controller; None while none is."""
        asked = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}

        async def ask(port):
            links = Links(ClientSettings([("127.0.0.1", port)], None, None, "test"), 2)
            try:
                return await links.ask_any(Api.DESCRIBE_QUORUM, topics=[asked])
            finally:
                await links.close()

        for number, one in self.brokers.items():
            with contextlib.suppress(OSError, GroupError):  # as a controller, of itself alone
                found = asyncio.run(ask(one.port + 1))
                if not int(found.error_code) and found.topics[0].partitions[0].leader_id == number:
                    return number
        return None


CLUSTER_ID = "Mk9wZXJhdG9yQ2x1c3RlcQ"


def free_pair():
    """Return a port that is free as the next is: a broker's, and its controller's.

    Another one each time: clients of the last cluster, which may still ask, would begin in this one.
    """
    for port in random.sample(PORTS, len(PORTS)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                socket.create_server(("127.0.0.1", port + 1)).close()
        except OSError:
            continue
        return port
    raise KafkaMissingError(f"no two ports of {PORTS} are free")
