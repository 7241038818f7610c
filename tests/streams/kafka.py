"""A real Kafka 4.4.0, its tools and records, for tests of Spark's streams: `make test-kafka`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tests.clients.java import tools
from tests.clients.test_tools import Tools
from tests.conftest import ROOT
from tests.support.spark.kafka_jars import kafka_source_jars

SUBMIT_S = 240
QUEUED = 50_000
"""Of records that wait for the broker: librdkafka refuses more than 100,000."""


def produce(address, topic, counts, first=0):
    """Add records to partitions: each has its partition and a number, from `first` on."""
    producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 50})
    for partition, count in counts.items():
        for at in range(first, first + count):
            producer.produce(topic, f"{partition}/{at}".encode(), partition=partition)
            if at % 1_000 == 0:
                producer.poll(0)
                while len(producer) > QUEUED:
                    producer.poll(0.1)
    assert producer.flush(60) == 0


def describe(address, group):
    """Return {topic-partition: (offset, lag)} as kafka-consumer-groups shows it."""
    run = Tools(tools(), address)
    rows = run.groups("--describe", "--group", group, "--offsets")
    heads = [row for row in rows if "CURRENT-OFFSET" in row]
    if not heads:
        return {}
    at, lag = heads[0].index("CURRENT-OFFSET"), heads[0].index("LAG")
    found = [row for row in rows if row[0] == group and row[at].isdecimal()]
    return {f"{row[1]}-{row[2]}": (int(row[at]), int(row[lag])) for row in found}


def describe_members(address, group):
    """Return how many partitions each member of a group of Kafka's owns, least first.

    Nobody is a member while the broker loads its first groups.
    """
    admin = AdminClient({"bootstrap.servers": address})
    try:
        found = admin.describe_consumer_groups([group])[group].result(30)
    except ck.KafkaException as error:
        if error.args[0].code() != ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return []
    return sorted(len(one.assignment.topic_partitions) for one in found.members)


def submit_command(script, *words, memory="512m"):
    """Return the command that submits a driver of two cores with Spark's Kafka source."""
    jars = ",".join(map(str, kafka_source_jars()))
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.driver.host": "127.0.0.1",
    }
    return [
        str(Path(sys.executable).with_name("spark-submit")),
        "--master", "local[2]", "--driver-memory", memory, "--jars", jars,
        *[word for one in settings.items() for word in ("--conf", "=".join(one))],
        str(script), *map(str, words),
    ]  # fmt: skip


def submit(script, *words):
    """Run a driver to its end and return what it printed."""
    done = subprocess.run(
        submit_command(script, *words), capture_output=True, text=True, timeout=SUBMIT_S,
        cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def environment():
    """Return the environment of a driver: this Python, and this clone."""
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
