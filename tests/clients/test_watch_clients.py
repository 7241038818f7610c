"""`muster watch` on a real Kafka 4.4.0, beside Java, kafka-python and librdkafka.

At quiet moments the store says what Kafka's own tool prints, member by member. `make test-kafka` only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient

from spark_jobs.jars import JarsMissingError
from tests.clients.foreign import ClientMissingError, python_member
from tests.clients.java import JavaMissingError, compiled, tools
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.test_tools import Tools
from tests.clients.test_watch_kafka import (
    asked,
    read_store,
    stored,
    until,
)
from tests.clients.world import Group, free_port, partitions
from tests.support.processes import running

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
COUNT = 6


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        with Kafka(tmp_path_factory.mktemp("clients"), {"clicks": COUNT}) as found:
            yield found
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """Clients by the group that they form, with their settings."""
    try:
        java = {"command": compiled(tmp_path_factory.mktemp("java"))}
        python = {"command": python_member("kafka_python.py")}
    except (ClientMissingError, JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)
    return {
        "java-consumer": (java, {"group_protocol": "consumer"}),
        "java-classic": (java, {"group_protocol": "classic"}),
        "python-classic": (python, {}),
        "librdkafka-consumer": ({}, {"group_protocol": "consumer"}),
    }


def test_the_store_says_what_kafkas_tool_prints(kafka, members, tmp_path):
    store, http = tmp_path / "store", f"127.0.0.1:{free_port()}"
    admin = AdminClient({"bootstrap.servers": kafka.address})
    run = Tools(tools(), kafka.address)
    command = [sys.executable, "-m", "coordinator", "watch", f"kafka://{kafka.address}"]
    command += ["--store", str(store), "--http", http]
    log = tmp_path / "watch.log"
    with log.open("wb") as said, running(command, stdout=said, stderr=subprocess.STDOUT) as watcher:
        groups = {name: Group(tmp_path, name, [kafka.address]) for name in members}
        try:
            for name, (how, settings) in members.items():
                for number in range(2):
                    groups[name].join(f"{name}-{number}", ["clicks"], **how, **settings)
            for name, group in groups.items():
                group.settled(
                    [f"{name}-{number}" for number in range(2)], partitions("clicks", COUNT)
                )
                until_equal(store, admin, run, name)
            until(lambda: lag(http) == 0)
        finally:
            for group in groups.values():
                for one in group.members.values():
                    one.end()
        watcher.terminate()
        assert watcher.wait(60) == 0
    assert "Traceback" not in log.read_text()
    assert read_store(store, "verify")[0]["sound"] is True


def until_equal(store, admin, run, name):
    """Wait until the store has a group's members as Kafka describes them and as its tool prints them."""
    until(
        lambda: stored(store, name) == asked(admin, name) == printed(run, name) != {},
        lambda: (stored(store, name), asked(admin, name), printed(run, name)),
    )


def printed(run, group):
    """The members of a group, with what they have, as kafka-consumer-groups prints them."""
    head, *rows = run.groups("--describe", "--group", group, "--members", "--verbose")
    at = next(n for n, word in enumerate(head) if word in {"CURRENT-ASSIGNMENT", "ASSIGNMENT"})
    return {row[1]: sorted(parse(row[at])) for row in rows if row[0] == group}


def parse(text):
    """`clicks:0,1;orders:2`, or `clicks(0,1)`."""
    for topic, numbers in re.findall(r"([\w.]+)[:(]([\d,]+)", text):
        yield from ((topic, int(one)) for one in numbers.strip(",").split(","))


def lag(http):
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("watched_lag{"))


def test_the_demo_shows_a_group_that_comes_and_goes(muster, kafka, tmp_path):
    stored = muster("demo", "--kafka", f"kafka://{kafka.address}", cwd=tmp_path)
    assert stored.returncode == 0, stored.stderr
    for said in ("member joined", "member left", "coordinates these groups", "muster history"):
        assert said in stored.stdout.decode()
    admin = AdminClient({"bootstrap.servers": kafka.address})
    assert "clicks" in admin.list_topics(timeout=30).topics
    left = [*admin.list_topics(timeout=30).topics, *names(admin)]
    assert not [one for one in left if one.startswith("muster-demo")]


def names(admin):
    return [one.group_id for one in admin.list_consumer_groups().result(30).valid]
