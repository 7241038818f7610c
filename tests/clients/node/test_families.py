"""Every family of clients, Kafka's tools and Spark by way of a node, in front of two real brokers.

`make test-cluster-kafka` only: it needs Java, Maven, Go, Node.js, and their registries once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import confluent_kafka as ck
import pytest

from spark_jobs.jars import JarsMissingError
from tests.clients.java import JavaMissingError, compiled, tools
from tests.clients.node.led import led_cluster
from tests.clients.test_classic_clients import CLIENTS, SOON, make_client
from tests.clients.test_cluster_kafka import NODE, TOPIC, leaders
from tests.clients.test_tools import Tools
from tests.clients.world import MEMBER, Group, partitions, until
from tests.support.spark.kafka_jars import kafka_source_jars

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
ORDERS = partitions("orders", 4)
RECORDS = 5_000
FAMILIES = {
    **CLIENTS,
    "librdkafka-consumer": ("", lambda _: MEMBER, {"group_protocol": "consumer"}),
    "java-consumer": ("", compiled, {"group_protocol": "consumer"}),
}


@pytest.fixture(scope="module")
def led(tmp_path_factory):
    """A cluster of two brokers whose topic of groups a node leads."""
    with led_cluster(tmp_path_factory.mktemp("led"), {"orders": 4}) as found:
        fill(found[1])
        yield found


def fill(broker):
    """Write records at every offset that members may commit: kafkajs falls back where none is."""
    producer = ck.Producer({"bootstrap.servers": broker.address})
    for number in range(4 * RECORDS):
        producer.produce("orders", b"", partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_members_share_come_and_go(tmp_path, led, family):
    """They know the node alone at first; a broker would serve them as well, so it must lead."""
    node, _, two = led
    (tmp_path / "classes").mkdir()
    words = make_client(FAMILIES[family], tmp_path / "classes")
    if words.get("group_protocol") != "consumer":
        words = SOON | words
    with Group(tmp_path, f"of-{family}", [node.address]) as group:
        for name in ("a", "b"):
            group.join(name, ["orders"], **words)
        group.settled(["a", "b"], ORDERS)
        group.works(["a", "b"])
        group.members["b"].leave()
        group.settled(["a"], ORDERS)
        group.works(["a"])
        assert leaders(two) == {NODE}


# Tools -------------------------------------------------------------------------------------------


def test_kafkas_tools_work_by_way_of_the_node(led):
    """What they ask of the cluster, and what they change; of groups, what the node leads."""
    node, _, _ = led
    try:
        run = Tools(tools(), node.address)
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)
    assert ["orders"] in run.topics("--list")
    run.topics("--create", "--topic", "made", "--partitions", "3", "--replication-factor", "2")
    run.topics("--alter", "--topic", "made", "--partitions", "5")
    described = run.topics("--describe", "--topic", "made")
    assert sum(row[:2] == ["Topic:", "made"] and "Leader:" in row for row in described) == 5
    run.configs(
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "made",
        "--add-config",
        "retention.ms=900000",
    )
    shown = " ".join(
        map(" ".join, run.configs("--describe", "--entity-type", "topics", "--entity-name", "made"))
    )
    assert "retention.ms=900000" in shown
    run.configs(
        "--alter",
        "--entity-type",
        "groups",
        "--entity-name",
        "tuned",
        "--add-config",
        "consumer.session.timeout.ms=50000",
    )
    shown = " ".join(
        map(
            " ".join, run.configs("--describe", "--entity-type", "groups", "--entity-name", "tuned")
        )
    )
    assert "consumer.session.timeout.ms=50000" in shown
    run.configs(
        "--alter",
        "--entity-type",
        "clients",
        "--entity-name",
        "c",
        "--add-config",
        "consumer_byte_rate=1000000",
    )
    shown = " ".join(
        map(" ".join, run.configs("--describe", "--entity-type", "clients", "--entity-name", "c"))
    )
    assert "consumer_byte_rate=1000000.0" in shown
    assert run.offsets("--topic", "orders") == [f"orders:{n}:{RECORDS}" for n in range(4)]
    run.groups(
        "--reset-offsets", "--group", "reset", "--topic", "orders", "--to-offset", "7", "--execute"
    )
    assert run.committed("reset") == {f"orders/{n}": 7 for n in range(4)}
    assert run.lag("reset") == {f"orders/{n}": RECORDS - 7 for n in range(4)}
    assert ["reset"] in run.groups("--list")
    run.groups("--delete", "--group", "reset")
    assert ["reset"] not in run.groups("--list")
    logs = run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--broker-list", str(NODE))
    (found,) = [json.loads(row[0]) for row in logs if row[0].startswith("{")]
    (broker,) = found["brokers"]
    assert {each["partition"] for folder in broker["logDirs"] for each in folder["partitions"]} == {
        f"{TOPIC}-{n}" for n in range(3)
    }
    run.topics("--delete", "--topic", "made")
    until(lambda: ["made"] not in run.topics("--list"), node.said)


SPARK = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.jars", sys.argv[2])
spark = spark.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
rows = rows.option("subscribe", "orders").option("startingOffsets", "earliest").load()
query = rows.groupBy().count().writeStream.format("memory").queryName("counted")
query.outputMode("complete").trigger(availableNow=True).start().awaitTermination()
print("COUNT", spark.sql("select max(count) from counted").first()[0])
"""


def test_spark_reads_the_clusters_records_by_way_of_the_node(tmp_path, led):
    node, _, _ = led
    script = tmp_path / "read.py"
    script.write_text(SPARK)
    jars = ",".join(map(str, kafka_source_jars()))
    done = subprocess.run(
        [sys.executable, script, node.address, jars],
        check=False, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert f"COUNT {4 * RECORDS}" in done.stdout, done.stderr[-2_000:]
