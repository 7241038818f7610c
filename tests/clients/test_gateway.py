"""A gateway before a real Kafka 4.4.0: clients of all families, with data, groups and Kafka's tools.

`make test-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from spark_jobs.jars import JarsMissingError
from tests.clients.foreign import LOCK, python_packages
from tests.clients.java import JavaMissingError, compiled, tools
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.test_tools import TOOL, Tools
from tests.clients.world import SETTINGS, Coordinators, Group, partitions, until

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
TOPICS = dict.fromkeys(("clicks", "java", "java-classic", "rd", "rd-classic", "py", "aio"), 4)
TOPICS |= {"moved": 1}
COUNT = 200
KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = KafkaProducer(bootstrap_servers=address)
for number in range(count):
    producer.send(topic, str(number).encode())
producer.flush(30)
consumer = KafkaConsumer(topic, bootstrap_servers=address, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=20000)
for number, record in zip(range(count), consumer):
    print(record.value.decode())
consumer.commit()
consumer.close()
"""
AIOKAFKA = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
async def main():
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, str(number).encode())
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=topic, auto_offset_reset="earliest")
    async with consumer:
        for _ in range(count):
            print((await asyncio.wait_for(consumer.getone(), 20)).value.decode())
        await consumer.commit()
asyncio.run(main())
"""
USERS = """org.apache.kafka.common.security.plain.PlainLoginModule required
 user_gateway="secret" user_ann="secret";""".replace("\n", "")


def free_ports(count, among=range(30_000, 32_000)):
    """Return a port that is free as the next are; of no outgoing connection."""
    for port in among:
        try:
            for one in range(port, port + count):
                socket.create_server(("127.0.0.1", one)).close()
        except OSError:
            continue
        return port
    pytest.fail(f"no {count} ports of {among} are free")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    """A cluster that has a listener with logins, too."""
    cluster = Kafka(tmp_path_factory.mktemp("cluster"), TOPICS)
    cluster.logins = f"127.0.0.1:{free_ports(1)}"
    listeners = f"CONTROLLER://127.0.0.1:{cluster.port + 1},PLAINTEXT://{cluster.address}"
    listeners += f",SASL://{cluster.logins}"
    cluster.settings = (
        f"listeners={listeners}",
        f"advertised.listeners={listeners}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={USERS}",
        "listener.name.sasl.plain.connections.max.reauth.ms=4000",
    )
    try:
        with cluster:
            yield cluster
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module")
def gateways(kafka, tmp_path_factory):
    served = Coordinators(tmp_path_factory.mktemp("gateway"), {}, kafka=kafka.address)
    served.address = f"127.0.0.1:{free_ports(3)}"
    with served:
        yield served


@pytest.fixture
def gateway(gateways):
    """One that serves: what a test started ends with the test."""
    if gateways.servers[-1].process.poll() is not None:
        gateways.serve()
        gateways.await_served()
    return gateways


@pytest.fixture(scope="module")
def run(gateways):
    try:
        return Tools(tools(), gateways.address)
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)


def produce(address, topic, **words):
    producer = ck.Producer({"bootstrap.servers": address} | words)
    for number in range(COUNT):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0


def consume(address, topic, **words):
    consumer = ck.Consumer(
        {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"} | words
    )
    consumer.subscribe([topic])
    found = []
    until(lambda: found.extend(consumer.consume(COUNT, 0.2)) or len(found) >= COUNT, lambda: found)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [int(one.value()) for one in found]


def of_python(gateway, topic, script):
    """Run a script on another maker's client, which prints what it reads."""
    command = [sys.executable, "-c", script, gateway.address, topic, str(COUNT)]
    path = {"PYTHONPATH": python_packages("py", LOCK)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, env=os.environ | path
    )
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


def of_java(gateway, topic, protocol):
    """Write with Kafka's producer for tests, and read with its console consumer."""
    words = ("--bootstrap-server", gateway.address, "--topic", topic)
    asked = {"capture_output": True, "text": True, "timeout": 120}
    producer = (f"{TOOL}VerifiableProducer", "--max-messages", str(COUNT))
    subprocess.run([*tools(), *producer, *words], check=True, **asked)
    words += ("--group", topic, "--from-beginning", "--max-messages", str(COUNT))
    words += ("--consumer-property", f"group.protocol={protocol}", "--timeout-ms", "60000")
    consumer = f"{TOOL}consumer.ConsoleConsumer"
    done = subprocess.run([*tools(), consumer, *words], check=True, **asked)
    return [int(line) for line in done.stdout.split() if line.isdecimal()]


def of_librdkafka(gateway, topic, protocol):
    produce(gateway.address, topic, **{"enable.idempotence": True})
    return consume(gateway.address, topic, **{"group.protocol": protocol})


@pytest.mark.parametrize(
    ("topic", "flow"),
    [
        ("java", lambda *words: of_java(*words, "consumer")),
        ("java-classic", lambda *words: of_java(*words, "classic")),
        ("rd", lambda *words: of_librdkafka(*words, "consumer")),
        ("rd-classic", lambda *words: of_librdkafka(*words, "classic")),
        ("py", lambda *words: of_python(*words, KAFKA_PYTHON)),
        ("aio", lambda *words: of_python(*words, AIOKAFKA)),
    ],
)
def test_clients_of_all_families_write_and_read_with_groups(gateway, kafka, run, topic, flow):
    """The group is Muster's: Kafka does not have it, and Kafka's tools see it, at the gateway."""
    assert sorted(flow(gateway, topic)) == list(range(COUNT))
    assert sum(run.committed(topic).values()) == COUNT
    assert set(run.lag(topic).values()) == {0}
    directly = AdminClient({"bootstrap.servers": kafka.address})
    assert topic not in {one.group_id for one in directly.list_consumer_groups().result().valid}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_go_on_when_the_gateway_or_the_broker_is_killed(
    gateway, kafka, tmp_path, tmp_path_factory, protocol
):
    """Java and librdkafka in one group; no partition has two owners, and no offset is lost."""
    if protocol == "consumer":
        produce(gateway.address, "clicks")
    name = f"lives-{protocol}"
    words = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
    with Group(tmp_path, name, [gateway.address]) as group:
        group.join("m-rd", ["clicks"], **words)
        group.join("m-java", ["clicks"], command=compiled(tmp_path_factory.mktemp("java")), **words)
        both = ["m-rd", "m-java"]
        group.settled(both, partitions("clicks", 4))
        group.works(both)
        gateway.servers[-1].kill()
        gateway.serve()
        group.works(both)
        kafka.kill()
        group.works(both)  # groups need no broker
        kafka.start()
        group.works(both)
        group.settled(both, partitions("clicks", 4))
        group.members["m-rd"].leave()
        group.settled(["m-java"], partitions("clicks", 4))
        group.members["m-java"].leave()


def test_tools_manage_topics_and_groups(gateway, run):
    run.topics("--create", "--topic", "made", "--partitions", "3")
    described = [row for row in run.topics("--describe", "--topic", "made") if row[0] == "Topic:"]
    assert len(described) == 4
    produce(gateway.address, "made")
    ends = {}
    for line in run.offsets("--topic", "made", "--time", "latest"):
        topic, number, offset = line.split(":")
        ends[f"{topic}/{number}"] = int(offset)
    assert sum(ends.values()) == COUNT
    until(lambda: run.reset("--topic", "made", "--to-latest", "--execute") == ends, str)
    assert ["reset"] in run.groups("--list")
    assert run.committed("reset") == ends
    run.groups("--delete", "--group", "reset")
    assert ["reset"] not in run.groups("--list")
    run.topics("--delete", "--topic", "made")
    setting = ("--entity-type", "groups", "--entity-name", "rd")
    run.configs("--alter", *setting, "--add-config", "consumer.session.timeout.ms=7000")
    assert any("7000" in word for row in run.configs("--describe", *setting) for word in row)
    settings = run.configs(
        "--describe", "--entity-type", "topics", "--entity-name", "clicks", "--all"
    )
    assert any("retention.ms=604800000" in word for row in settings for word in row)


def test_transactions_work_but_with_offsets_of_a_group(gateway, kafka):
    producer = ck.Producer({"bootstrap.servers": gateway.address, "transactional.id": "t"})
    producer.init_transactions(30)
    for abort in (True, False):
        producer.begin_transaction()
        for number in range(COUNT):
            producer.produce("moved", f"{abort}{number}".encode())
        (producer.abort_transaction if abort else producer.commit_transaction)(30)
    consumer = ck.Consumer({"bootstrap.servers": gateway.address, "group.id": "read"})
    consumer.assign([ck.TopicPartition("moved", 0, 0)])
    found = []
    until(lambda: found.extend(consumer.consume(COUNT, 0.2)) or len(found) >= COUNT, lambda: found)
    assert [one.value() for one in found] == [f"False{number}".encode() for number in range(COUNT)]
    producer.begin_transaction()
    with pytest.raises(ck.KafkaException) as refused:
        producer.send_offsets_to_transaction(
            [ck.TopicPartition("moved", 0, 1)], consumer.consumer_group_metadata(), 30
        )
    assert refused.value.args[0].code() == ck.KafkaError._UNSUPPORTED_FEATURE
    consumer.close()


def test_logins_are_passed_on_to_the_broker(kafka, tmp_path):
    """Sessions last 4 s there: the client logs in again on the same connection."""
    (tmp_path / "acls.toml").write_text("allow_everyone_if_no_acl_found = true\n")
    settings = (
        SETTINGS
        + f'[server]\nacls = "{tmp_path}/acls.toml"'
        + """
[gateway]
login = "kafka"
kafka = { "security.protocol" = "SASL_PLAINTEXT", "sasl.mechanism" = "PLAIN", "sasl.username" = "gateway", "sasl.password" = "secret" }
"""
    )
    served = Coordinators(tmp_path, {}, settings, kafka=kafka.logins)
    served.address = f"127.0.0.1:{free_ports(3)}"
    words = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
    }
    with served:
        right = words | {"sasl.password": "secret"}
        produce(served.address, "clicks", **right)
        consumer = ck.Consumer(right | {"bootstrap.servers": served.address, "group.id": "ann"})
        consumer.subscribe(["clicks"])
        end, errors = time.monotonic() + 10, []
        while time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is not None and message.error():
                errors.append(message.error())
        assert errors == []
        assert len(consumer.assignment()) == 4
        consumer.close()
        admin = AdminClient(words | {"sasl.password": "wrong", "bootstrap.servers": served.address})
        with pytest.raises(ck.KafkaException):
            admin.list_topics(timeout=5)
