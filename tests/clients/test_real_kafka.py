"""Topics of a real Kafka 4.4.0: Kafka's tools get its offsets, and consumers stay quiet.

`make test-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import os
import time
import urllib.request
from datetime import UTC, datetime

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from coordinator.wire.codec import Api
from spark_jobs.jars import JarsMissingError
from tests.clients.java import JavaMissingError, compiled, tools
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.test_tools import Tools
from tests.clients.world import Coordinators, Group, free_port, partitions, until
from tests.support.wire_client import Client

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
COUNTS = {"clicks/0": 10, "clicks/1": 20, "clicks/2": 30, "clicks/3": 0}
FIRST_MS = (int(time.time()) - 3_600) * 1_000
"""Records of a partition are a second apart, and not so old that the cluster would drop them."""
MEMBER_METADATA_MAX = 40
"""Requests of Metadata in the few seconds of a member's life; one that is stuck asks ten a second."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """A Kafka with records, and Muster beside it."""
    folder, pages = tmp_path_factory.mktemp("real"), f"127.0.0.1:{free_port()}"
    try:
        with Kafka(folder, {"clicks": 4}) as kafka:
            producer = ck.Producer({"bootstrap.servers": kafka.address})
            for place, count in COUNTS.items():
                for at in range(count):
                    producer.produce(
                        "clicks", b"x", partition=int(place[-1]), timestamp=FIRST_MS + at * 1_000
                    )
            assert producer.flush(60) == 0
            words = ("--topics", f"kafka://{kafka.address}", "--http", pages)
            with Coordinators(folder, {}, words=words) as muster:
                yield kafka, muster
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module")
def run(servers):
    try:
        return Tools(tools(), servers[1].address)
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)


def count_metadata(muster):
    """Return how often Metadata was asked for."""
    with urllib.request.urlopen(f"http://{muster.words[-1]}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    asked = [line for line in lines if line.startswith('wire_requests_total{api="METADATA"}')]
    return sum(float(line.split()[-1]) for line in asked)


def warned(muster, group):
    """Whether the log says that a group's consumers fetch in vain."""
    return f"group '{group}' fetches records" in muster.servers[0].errors.read_text()


def test_offsets_are_reset_to_what_the_cluster_says(run):
    every = "--topic", "clicks"
    ends = dict(COUNTS)
    at = datetime.fromtimestamp(FIRST_MS // 1_000 + 5, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    for ways, offsets in (
        (["--to-latest"], ends),
        (["--shift-by", "-5"], {one: max(end - 5, 0) for one, end in ends.items()}),
        (["--to-offset", "7"], {one: min(7, end) for one, end in ends.items()}),
        (["--to-datetime", at], {one: min(5, end) for one, end in ends.items()}),
        (["--to-earliest"], dict.fromkeys(ends, 0)),
    ):
        assert run.reset(*every, *ways, "--execute") == offsets
        assert run.committed("reset") == offsets
    assert run.lag("reset") == ends


def test_offsets_are_listed_as_the_cluster_has_them(run):
    assert run.offsets("--time", "latest") == [
        f"clicks:{n}:{COUNTS[f'clicks/{n}']}" for n in range(4)
    ]
    assert run.offsets("--time", "max-timestamp") == ["clicks:0:9", "clicks:1:19", "clicks:2:29"]
    assert run.offsets("--time", str(FIRST_MS + 15_000)) == ["clicks:1:15", "clicks:2:15"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("kind", ["java", "librdkafka"])
def test_a_consumer_that_begins_at_the_latest_offset_stays_quiet(
    servers, tmp_path, tmp_path_factory, kind, protocol
):
    """It owns and reads nothing, and is warned of; Metadata is not asked for again and again."""
    _, muster = servers
    words = {"command": compiled(tmp_path_factory.mktemp("java"))} if kind == "java" else {}
    words |= {"group_protocol": protocol, "auto_offset_reset": "latest"}
    name = f"{kind}-{protocol}"
    with Group(tmp_path, name, [muster.address]) as group:
        group.join(f"m-{name}", ["clicks"], **words)
        group.settled([f"m-{name}"], partitions("clicks", 4))
        group.works([f"m-{name}"])
        before = count_metadata(muster)
        time.sleep(5)
        assert count_metadata(muster) - before < MEMBER_METADATA_MAX
        until(
            lambda: f"group '{name}' fetches records" in muster.servers[0].errors.read_text(), str
        )
        group.members[f"m-{name}"].leave()


def test_offsets_that_were_committed_with_a_later_leader_epoch_disturb_no_client(
    servers, tmp_path, tmp_path_factory
):
    """Java takes Metadata with an earlier epoch for old, and waits for another endlessly."""
    _, muster = servers
    words = {"committed_offset": 2, "committed_leader_epoch": 9, "committed_metadata": ""}
    offsets = [{"partition_index": number} | words for number in range(4)]
    with Client(muster.address) as client:
        client.ask(
            Api.OFFSET_COMMIT, 9, group_id="late", generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "clicks", "partitions": offsets}],
        )  # fmt: skip
    with Group(tmp_path, "late", [muster.address]) as group:
        group.begins = dict.fromkeys(partitions("clicks", 4), 2)
        group.join("m-late", ["clicks"], command=compiled(tmp_path_factory.mktemp("java")))
        until(lambda: warned(muster, "late"), str)
        group.members["m-late"].leave()


def test_a_cluster_that_is_gone_is_an_error_and_never_0(servers, run):
    kafka, muster = servers
    run.reset("--topic", "clicks", "--to-offset", "3", "--execute")
    kept = run.committed("reset")
    kafka.stop()
    admin = AdminClient({"bootstrap.servers": muster.address})
    place = ck.TopicPartition("clicks", 1)
    future = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=15)[place]
    with pytest.raises(ck.KafkaException):
        future.result()
    assert "so clients must ask again" in muster.servers[0].errors.read_text()
    kafka.start()
    until(lambda: run.committed("reset") == kept, str)
