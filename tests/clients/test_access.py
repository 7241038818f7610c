"""librdkafka's consumer and admin client as users who may do different things."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.wire.test_server import served

ACLS = """
super_users = ["User:root"]

[[acls]]
principal = "User:alice"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "orders-"
pattern_type = "PREFIXED"

[[acls]]
principal = "User:alice"
operations = ["READ"]
resource_type = "TOPIC"
resource_name = "clicks"

[[acls]]
principal = "User:bob"
operations = ["DESCRIBE"]
resource_type = "GROUP"
resource_name = "*"

[[acls]]
principal = "User:bob"
operations = ["DESCRIBE"]
resource_type = "TOPIC"
resource_name = "*"
"""
GROUP_REFUSED = KafkaError.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def address(tmp_path):
    users, acls = tmp_path / "users.toml", tmp_path / "acls.toml"
    users.write_text("[users]\nalice = 'a'\nbob = 'b'\nroot = 'r'\n")
    acls.write_text(ACLS)
    login = {"sasl_mechanisms": ("SCRAM-SHA-256",), "sasl_users": str(users), "acls": str(acls)}
    with served({"clicks": 4, "secrets": 2}, **login) as (_, address):
        yield address


def login(address, user):
    return {
        "bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "log_level": 2,
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": user[0],
    }  # fmt: skip


def consume(address, user, group_id, topic, until):
    """Return how many partitions a user gets, and the errors that it gets, up to one of these."""
    words = {"group.id": group_id, "group.protocol": "consumer"}
    errors = set()

    def note(error):
        fatal = error.code() == KafkaError._FATAL and "Group authorization failed" in error.str()
        errors.add(GROUP_REFUSED if fatal else error.code())

    consumer = Consumer(login(address, user) | words, error_cb=note)
    consumer.subscribe([topic])
    end = time.monotonic() + 15
    while not consumer.assignment() and until not in errors and time.monotonic() < end:
        message = consumer.poll(0.05)
        if message is not None and message.error():
            note(message.error())
    found = len(consumer.assignment())
    consumer.close()
    return found, errors


def code_of(future):
    with pytest.raises(KafkaException) as refused:
        future.result(timeout=60)
    return refused.value.args[0].code()


def test_each_user_does_what_the_lists_allow(address):
    assert consume(address, "alice", "orders-1", "clicks", None) == (4, set())
    for user, group_id, topic, refused in (
        ("alice", "billing", "clicks", GROUP_REFUSED),
        ("bob", "orders-1", "clicks", GROUP_REFUSED),
        ("alice", "orders-1", "secrets", TOPIC_REFUSED),
    ):
        found, errors = consume(address, user, group_id, topic, refused)
        assert (found, refused in errors) == (0, True), (user, group_id, topic, errors)

    admins = {user: AdminClient(login(address, user)) for user in ("alice", "bob", "root")}
    for user, seen in (("alice", ["orders-1"]), ("bob", ["orders-1"]), ("root", ["orders-1"])):
        listed = admins[user].list_consumer_groups().result(timeout=60).valid
        assert [group.group_id for group in listed] == seen
    assert admins["bob"].describe_consumer_groups(["orders-1"])["orders-1"].result(60).members == []
    assert set(admins["alice"].list_topics(timeout=60).topics) == {"clicks"}
    assert set(admins["bob"].list_topics(timeout=60).topics) == {"clicks", "secrets"}
    for user in ("alice", "bob"):
        assert (
            code_of(admins[user].delete_consumer_groups(["orders-1"])["orders-1"]) == GROUP_REFUSED
        )
    group = ConsumerGroupTopicPartitions("orders-1")
    offsets = admins["bob"].list_consumer_group_offsets([group])["orders-1"].result(60)
    assert all(one.error is None for one in offsets.topic_partitions)
    admins["root"].delete_consumer_groups(["orders-1"])["orders-1"].result(timeout=60)
    assert admins["bob"].list_consumer_groups().result(timeout=60).valid == []
