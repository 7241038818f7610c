"""`muster watch` beside a real Kafka 4.4.0 that is not there yet, and one that is killed.

`make test-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

import json
import os
import signal
import subprocess
import sys

import confluent_kafka as ck
import pytest

from tests.clients import world
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.support.processes import run_as_text, running

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")


def members_of(store):
    """How many members each group has, as the store says."""
    lines = run_as_text("groups", "--store", store).stdout.splitlines()
    return {row["group_id"]: row["members"] for row in map(json.loads, lines)}


def test_a_watcher_outlives_the_absence_and_the_death_of_its_broker(tmp_path):
    store, log = tmp_path / "s", tmp_path / "log"
    kafka = Kafka(tmp_path, {"orders": 4})
    command = [sys.executable, "-m", "coordinator", "watch", f"kafka://{kafka.address}"]
    with (
        log.open("w") as errors,
        running([*command, "--store", store], stdout=subprocess.DEVNULL, stderr=errors) as watcher,
    ):
        world.until(lambda: "standing by" in log.read_text(), log.read_text, 60)
        try:
            kafka.__enter__()
        except KafkaMissingError as missing:
            pytest.fail(str(missing), pytrace=False)
        try:
            with member_of("before", kafka):
                world.until(lambda: members_of(store).get("before") == 1, log.read_text, 60)
            os.kill(int((tmp_path / "kafka" / "pid").read_text()), signal.SIGKILL)
            world.until(lambda: "does not answer, trying again" in log.read_text(), str, 60)
            kafka.start()
            with member_of("after", kafka):
                world.until(lambda: members_of(store).get("after") == 1, log.read_text, 60)
            assert watcher.poll() is None
            said = log.read_text()
            assert said.count("standing by") == said.count("does not answer, trying again") == 1
        finally:
            kafka.stop()
    assert run_as_text("verify", "--store", store).returncode == 0


class member_of:  # noqa: N801 - a `with` block reads better
    """A member of a group, while it is entered."""

    def __init__(self, group, kafka):
        settings = {"bootstrap.servers": kafka.address, "group.id": group}
        self.consumer = ck.Consumer(settings | {"group.protocol": "consumer"})

    def __enter__(self):
        self.consumer.subscribe(["orders"])
        world.until(lambda: self.consumer.poll(0.1) or self.consumer.assignment(), str, 60)

    def __exit__(self, *_error):
        self.consumer.close()
