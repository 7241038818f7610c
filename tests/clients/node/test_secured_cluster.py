"""A node of a real cluster with TLS, logins and access lists, also between brokers and controller.

`make test-cluster-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from contextlib import suppress

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coordinator.errors import GroupError
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.wire.codec import Api
from tests.clients.kafka_broker import Kafka, KafkaMissingError, SecondBroker
from tests.clients.test_cluster_kafka import NODE, TOPIC, NodeProcess
from tests.clients.world import free_port, until
from tests.support.processes import end
from tests.wire.test_access import certificates

__all__ = ["certificates"]

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-pw" user_admin="admin-pw";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SCRAM = "SCRAM-SHA-256"
ADMIN_LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-pw"}


class Certificates:
    """What brokers, clients and the node are given of TLS."""

    def __init__(self, folder):
        self.ca, self.pem, self.key = (
            folder / name for name in ("ca.pem", "server.pem", "server.key")
        )
        self.both = folder / "both.pem"
        key = subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", self.key],
            check=True, capture_output=True,
        ).stdout  # fmt: skip
        self.both.write_bytes(key + self.pem.read_bytes())

    def of_brokers(self):
        return (
            "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name=PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            "listener.name.controller.sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            "sasl.mechanism.controller.protocol=PLAIN",
            f"listener.name.plaintext.plain.sasl.jaas.config={PLAIN_LOGIN}",
            f"listener.name.plaintext.scram-sha-256.sasl.jaas.config={SCRAM_LOGIN}",
            f"listener.name.controller.plain.sasl.jaas.config={PLAIN_LOGIN}",
            "ssl.keystore.type=PEM", f"ssl.keystore.location={self.both}",
            "ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}",
            "ssl.endpoint.identification.algorithm=",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:admin",
            "offsets.topic.num.partitions=3", "broker.session.timeout.ms=6000",
        )  # fmt: skip

    def of_client(self, address, **login):
        return {
            "bootstrap.servers": address, "security.protocol": "SASL_SSL", "log_level": 0,
            "ssl.ca.location": str(self.ca), **{k.replace("_", "."): v for k, v in login.items()},
        }  # fmt: skip

    def admin(self, address):
        return AdminClient(self.of_client(address) | ADMIN_LOGIN)

    def user(self, address, name, **more):
        login = {"sasl.mechanism": SCRAM, "sasl.username": name, "sasl.password": f"{name}-pw"}
        return self.of_client(address) | login | more

    def of_node(self):
        words = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.ca), **ADMIN_LOGIN}
        inside = {"security.protocol": "SASL_PLAINTEXT", **ADMIN_LOGIN}
        return f"""
            [node]
            kafka = {table(words)}
            controllers_kafka = {table(inside)}
            super_users = ["User:admin"]
            [server]
            tls_certificate = "{self.pem}"
            tls_key = "{self.key}"
            sasl_mechanisms = ["PLAIN", "{SCRAM}"]
            sasl_users = "{self.ca.parent}/users.toml"
            [kafka]
            "group.consumer.session.timeout.ms" = 6000
            "group.consumer.min.session.timeout.ms" = 1000
            "group.consumer.heartbeat.interval.ms" = 400
            "group.consumer.min.heartbeat.interval.ms" = 50
        """


def table(words):
    return "{" + ", ".join(f'"{key}" = "{value}"' for key, value in words.items()) + "}"


class Secured(Kafka):
    """A broker with logins; it makes no topics itself."""

    def __enter__(self):
        self.start()
        return self


class SecondSecured(SecondBroker):
    """One more; its settings are those of the first."""


@pytest.fixture
def cluster(tmp_path, certificates):
    """Two brokers, users ann and bob, topics, and what ann may do."""
    safe = Certificates(certificates)
    (certificates / "users.toml").write_text('[users]\nadmin = "admin-pw"\n')
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    try:
        with Secured(first, {}, safe.of_brokers()) as one, SecondSecured(second, one) as two:
            admin = safe.admin(one.address)
            compact = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
            made = admin.create_topics(
                [NewTopic(TOPIC, 3, 2, config=compact), NewTopic("orders", 4, 2)]
            )
            for future in made.values():
                future.result(30)
            for name in ("ann", "bob"):
                add_user(admin, name)
            allow(admin, "ann", ResourceType.TOPIC, "orders", AclOperation.READ)
            allow(admin, "ann", ResourceType.TOPIC, "orders", AclOperation.WRITE)
            allow(admin, "ann", ResourceType.GROUP, "billing", AclOperation.READ)
            yield safe, one, two
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def add_user(admin, name):
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    new = UserScramCredentialUpsertion(name, credential, f"{name}-pw".encode())
    for future in admin.alter_user_scram_credentials([new]).values():
        future.result(30)


def allow(admin, user, kind, name, operation):
    one = AclBinding(
        kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in admin.create_acls([one]).values():
        future.result(30)


def produce(words, count, start=0):
    """Write records, as an idempotent producer does, which needs an id."""
    producer, failed = ck.Producer(words | {"enable.idempotence": True}), []
    for number in range(start, start + count):
        producer.produce("orders", str(number), on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None] * count


def consume(words, count):
    """Read records as a member, commit, and leave."""
    member = ck.Consumer(
        words
        | {"group.id": "billing", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )
    member.subscribe(["orders"])
    found, last = set(), time.monotonic() + 60
    while len(found) < count and time.monotonic() < last:
        message = member.poll(1.0)
        if message is not None and message.error() is None:
            found.add(int(message.value()))
    member.commit(asynchronous=False)
    member.close()
    return found


def ask(safe, port, login, api, version, **fields):
    """Ask the node itself, whatever a client would ask another broker."""
    tls = ssl.create_default_context(cafile=str(safe.ca))

    async def run():
        connection = await KafkaConnection.open(
            ("127.0.0.1", port), "test", tls, login, {
                Api.API_VERSIONS: (0, 0), Api.SASL_HANDSHAKE: (1, 1), Api.SASL_AUTHENTICATE: (0, 2),
                api: (version, version),
            },
        )  # fmt: skip
        try:
            return await connection.ask(api, **fields)
        finally:
            await connection.close()

    return asyncio.run(run())


ADMIN, ANN, BOB, EVE = (
    ("PLAIN", "admin", "admin-pw"),
    (SCRAM, "ann", "ann-pw"),
    (SCRAM, "bob", "bob-pw"),
    (SCRAM, "eve", "eve-pw"),
)


def new_topic(name):
    one = {
        "name": name, "num_partitions": 2, "replication_factor": 2, "assignments": (), "configs": (),
    }  # fmt: skip
    return {"topics": [one], "timeout": 20_000, "validate_only": False}


def test_a_node_serves_a_secured_cluster_as_its_brokers_do(tmp_path, cluster):
    safe, one, two = cluster
    config = tmp_path / "node.toml"
    config.write_text(safe.of_node())
    port = free_port()
    node = NodeProcess(tmp_path, (one, two))
    node.words += ["--config", str(config)]
    assert node.findings()["leading"]["level"] == "ok"
    node.start("--listen", f"127.0.0.1:{port}")
    try:
        serve_them(safe, one, two, node, port)
    finally:
        end(node.process)


def serve_them(safe, one, two, node, port):
    until(lambda: "alive in the cluster" in node.said(), node.said)
    joined = node.ask("join", "--partitions", "0-2", "--yes")
    assert joined.returncode == 0, joined.stderr + node.said()
    led = node.ask("lead", "--partitions", "0-2", "--yes")
    assert "leads 3" in led.stdout, led.stderr + node.said()
    here = f"127.0.0.1:{port}"
    # Clients that know the node alone at first.
    produce(safe.user(here, "ann"), 40)
    assert consume(safe.user(here, "ann"), 40) == set(range(40))
    # What it may not: by the lists, in the words of a broker.
    for login, code in ((BOB, 30), (ANN, 0)):
        keys = {"key_type": 0, "coordinator_keys": ["billing"]}
        (found,) = ask(safe, port, login, Api.FIND_COORDINATOR, 6, **keys).coordinators
        assert int(found.error_code) == code
        if not code:
            assert (found.node_id, found.port) == (NODE, port)
    assert (
        int(ask(safe, port, BOB, Api.CREATE_TOPICS, 7, **new_topic("mine")).topics[0].error_code)
        == 29
    )
    assert (
        int(ask(safe, port, ADMIN, Api.CREATE_TOPICS, 7, **new_topic("made")).topics[0].error_code)
        == 0
    )
    names = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }

    def topics(login):
        return {each.name for each in ask(safe, port, login, Api.METADATA, 12, **names).topics}

    until(lambda: topics(ADMIN) == {TOPIC, "orders", "made"}, node.said)
    assert topics(ANN) == {"orders"}
    with pytest.raises(GroupError, match="refused"):
        ask(safe, port, (SCRAM, "ann", "wrong"), Api.METADATA, 12, **names)
    with pytest.raises((GroupError, OSError)):
        ask(safe, port, None, Api.METADATA, 12, **names)
    assert found_by_pattern(safe, port, ANN) == 1
    # Administration by way of the node.
    admin = safe.admin(here)
    add_user(admin, "eve")
    until(lambda: logs_in(safe, port, EVE, names), node.said)
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert len(admin.describe_acls(every).result(30)) == 3
    (found,) = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "orders")]
    ).values()
    assert found.result(30)["cleanup.policy"].value == "delete"
    listed = admin.list_consumer_groups().result(30)
    assert [each.group_id for each in listed.valid] == ["billing"]
    # A list that is taken away counts at once; and brokers continue where the node is killed.
    mine = AclBindingFilter(
        ResourceType.GROUP, "billing", ResourcePatternType.LITERAL, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    for future in admin.delete_acls([mine]).values():
        future.result(30)
    keys = {"key_type": 0, "coordinator_keys": ["billing"]}

    def code():
        return int(ask(safe, port, ANN, Api.FIND_COORDINATOR, 6, **keys).coordinators[0].error_code)

    until(lambda: code() == 30, node.said)
    allow(admin, "ann", ResourceType.GROUP, "billing", AclOperation.READ)
    until(lambda: code() == 0, node.said)
    end(node.process)
    until(lambda: NODE not in leaders_of(safe, two), node.said, 60)
    produce(safe.user(one.address, "ann"), 5, start=40)
    assert consume(safe.user(one.address, "ann"), 5) == set(range(40, 45))


def found_by_pattern(safe, port, login):
    """How many topics a regular expression gives a member; it is resolved beside the answers."""
    beat = {
        "group_id": "billing", "member_id": "patterns", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 60_000, "subscribed_topic_names": None,
        "subscribed_topic_regex": ".*", "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    api = Api.CONSUMER_GROUP_HEARTBEAT
    beat["member_epoch"] = ask(safe, port, login, api, 1, **beat).member_epoch
    last, found = time.monotonic() + 30, 0
    while not found and time.monotonic() < last:
        time.sleep(0.3)
        answer = ask(safe, port, login, api, 1, **beat)
        assert not int(answer.error_code), answer
        beat |= {"member_epoch": answer.member_epoch, "topic_partitions": None}
        found = len(answer.assignment.topic_partitions) if answer.assignment else 0
    ask(safe, port, login, api, 1, **beat | {"member_epoch": -1})
    return found


def logs_in(safe, port, login, names):
    with suppress(GroupError, OSError):
        return ask(safe, port, login, Api.METADATA, 12, **names).topics == ()
    return False


def leaders_of(safe, broker):
    topic = safe.admin(broker.address).list_topics(TOPIC, 30).topics[TOPIC]
    return {each.leader for each in topic.partitions.values()}
