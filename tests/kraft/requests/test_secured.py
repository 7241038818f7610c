"""A node lets clients in as brokers do, and lets them do what the cluster's lists allow."""

from __future__ import annotations

import asyncio
import struct
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from uuid import UUID

import pytest

from coordinator.core.audit import DENIED, GROUP_DELETED, LOGIN_FAILED
from coordinator.core.events import Result
from coordinator.core.state.groups import State
from coordinator.errors import GroupError
from coordinator.kraft.metadata_image import ScramVerifier, Topic
from coordinator.kraft.registration import TOPIC as TOPICS
from coordinator.wire.codec import Api
from coordinator.wire.listener import parse_address
from coordinator.wire.sasl import Verifier
from tests.kraft.test_leader import until
from tests.kraft.test_membership import NODE
from tests.support.wire_client import Client

from .fake_kafka import enveloped, opened
from .nodes import (
    CLUSTER,
    CLUSTER_ACTION,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    NAMES,
    OF_BROKERS,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTION,
    WRITE,
    Person,
    allow,
    ask_metadata,
    codes,
)

# Logins ------------------------------------------------------------------------------------------


def test_the_verifiers_of_the_cluster_let_in_and_passwords_are_those_of_the_file(secured):
    """As with brokers: SCRAM knows no password of the file, and PLAIN none of the metadata."""
    for name, password, mechanism, code in (
        ("ann", "ann-pw", "SCRAM-SHA-256", None),
        ("ann", "plain-pw", "PLAIN", None),
        ("ann", "plain-pw", "SCRAM-SHA-256", "refused"),
        ("ann", "ann-pw", "PLAIN", "refused"),
        ("admin", "admin-pw", "PLAIN", "refused"),
        ("eve", "eve-pw", "SCRAM-SHA-256", "refused"),
        ("ann", "ann-pw", "SCRAM-SHA-512", "not served"),
    ):
        if code is None:
            with Person(secured, name, password, mechanism) as one:
                assert one.ask(Api.DESCRIBE_CLUSTER, **OF_BROKERS).cluster_id == "cluster-1"
        else:
            with pytest.raises(GroupError, match=code):
                Person(secured, name, password, mechanism)


def test_without_a_login_nothing_is_answered(secured, kafka):
    with Client(secured.address) as one, pytest.raises((OSError, struct.error)):
        one.ask(Api.METADATA, 12, topics=None, **NAMES)
    assert not kafka.asked


def test_a_user_that_the_cluster_makes_later_gets_in_and_one_it_removes_does_not(secured):
    new = Verifier.of("SCRAM-SHA-256", "bob-pw", b"salt" * 4, 4_096)
    with pytest.raises(GroupError, match="refused"):
        Person(secured, "bob")
    secured.image.verifiers["bob", 1] = ScramVerifier(
        new.salt, new.stored_key, new.server_key, new.iterations
    )
    del secured.image.verifiers["ann", 1]
    secured.image.access_changes += 1
    secured.access.update(secured.image)
    with Person(secured, "bob") as bob:
        assert bob.ask(Api.DESCRIBE_CLUSTER, **OF_BROKERS).error_code == 0
    with pytest.raises(GroupError, match="refused"):
        Person(secured, "ann")


# Access lists ------------------------------------------------------------------------------------


def test_the_lists_of_the_cluster_decide_on_topics_groups_and_coordinators(secured):
    group = secured.group()
    with Person(secured, "ann") as ann:
        assert codes(ask_metadata(ann, "orders")) == {"orders": 29}
        assert not ask_metadata(ann).topics
        named = {"key_type": 0, "coordinator_keys": [group]}
        assert [
            int(one.error_code) for one in ann.ask(Api.FIND_COORDINATOR, **named).coordinators
        ] == [30]
        allow(secured, "User:ann", TOPIC, "ord", DESCRIBE, pattern=PREFIXED)
        allow(secured, "User:ann", GROUP, group, READ)
        assert codes(ask_metadata(ann, "orders", TOPICS)) == {"orders": 0, TOPICS: 29}
        assert [one.name for one in ask_metadata(ann).topics] == ["orders"]
        (found,) = ann.ask(Api.FIND_COORDINATOR, **named).coordinators
        assert (int(found.error_code), found.node_id) == (0, NODE)
        assert (found.host, found.port) == parse_address(secured.address, "it")
        allow(secured, "User:*", TOPIC, "orders", DESCRIBE, permission=DENY)
        assert codes(ask_metadata(ann, "orders")) == {"orders": 29}
    with Person(secured, "admin") as admin:
        assert {"orders", TOPICS} <= codes(ask_metadata(admin)).keys()


def test_the_coordinator_of_a_transaction_is_named_to_who_may_describe_it(secured, kafka):
    """Else the topic of transactions, which the node has a broker make, would be made by anyone."""
    kafka.answers[Api.FIND_COORDINATOR] = lambda _: {"coordinators": ()}
    named = {"key_type": 1, "coordinator_keys": ["mine", "other"]}
    with Person(secured, "ann") as ann:
        assert [
            int(one.error_code) for one in ann.ask(Api.FIND_COORDINATOR, **named).coordinators
        ] == [53, 53]
        assert not kafka.of(Api.FIND_COORDINATOR)
        allow(secured, "User:ann", TRANSACTION, "mine", WRITE)
        found = {
            one.key: int(one.error_code)
            for one in ann.ask(Api.FIND_COORDINATOR, **named).coordinators
        }
        assert found == {"mine": 15, "other": 53}
        until(
            lambda: [one.coordinator_keys for one in kafka.of(Api.FIND_COORDINATOR)] == [("mine",)]
        )


def test_only_who_may_do_what_brokers_do_fetches_as_a_replica(secured):
    topic_id = secured.leader.leaders.topic_id
    part = {
        "partition": 0, "current_leader_epoch": 9, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": 0, "partition_max_bytes": 1 << 20,
    }  # fmt: skip

    def fetch(client, replica):
        state = (
            {"replica_id": replica, "replica_epoch": 5}
            if replica >= 0
            else {"replica_id": -1, "replica_epoch": -1}
        )
        found = client.ask(
            Api.FETCH, replica_state=state, max_wait=0, min_bytes=0, max_bytes=1 << 20, rack_id="",
            topics=[{"topic_id": topic_id, "partitions": [part]}], forgotten_topics_data=(),
        )  # fmt: skip
        return int(found.responses[0].partitions[0].error_code)

    with Person(secured, "ann") as ann, Person(secured, "admin") as admin:
        assert [fetch(ann, 1), fetch(ann, -1), fetch(admin, 1)] == [29, 29, 0]
        allow(secured, "User:ann", TOPIC, "*", READ)
        assert [fetch(ann, 1), fetch(ann, -1)] == [29, 0], "who reads is no replica"
        allow(secured, "User:ann", CLUSTER, "kafka-cluster", CLUSTER_ACTION)
        assert fetch(ann, 1) == 0
        ended = {
            "topics": [
                {
                    "topic": TOPICS,
                    "partitions": [{"partition": 0, "leader_epoch": 9, "current_leader_epoch": 9}],
                }
            ]
        }
        epochs = [
            one.ask(Api.OFFSET_FOR_LEADER_EPOCH, replica_id=1, **ended) for one in (ann, admin)
        ]
        assert [int(one.topics[0].partitions[0].error_code) for one in epochs] == [0, 0]


def test_transactions_are_ended_by_brokers_alone(secured):
    marker = {
        "producer_id": 5, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
        "topics": [{"name": TOPICS, "partition_indexes": [0]}],
    }  # fmt: skip
    with Person(secured, "ann") as ann, Person(secured, "admin") as admin:
        found = [one.ask(Api.WRITE_TXN_MARKERS, markers=[marker]) for one in (ann, admin)]
    assert [int(one.markers[0].topics[0].partitions[0].error_code) for one in found] == [31, 0]


# Sent on -----------------------------------------------------------------------------------------

NEW_TOPIC = {
    "name": "new", "num_partitions": 3, "replication_factor": 2, "assignments": (), "configs": (),
}  # fmt: skip


def test_what_changes_the_cluster_goes_to_the_controller_as_the_client(secured, kafka):
    """The controller hears who asks, and from where; its refusal is the client's answer."""

    def answer(envelope):
        topic = {
            "name": "new", "topic_id": None, "error_code": 29, "error_message": "no",
            "num_partitions": -1, "replication_factor": -1, "configs": (), "topic_config_error_code": 0,
        }  # fmt: skip
        return enveloped(opened(envelope), topics=[topic], throttle_time=3)

    kafka.answers[Api.ENVELOPE] = answer
    with Person(secured, "ann") as ann:
        found = ann.ask(Api.CREATE_TOPICS, topics=[NEW_TOPIC], timeout=9_000, validate_only=False)
    assert (int(found.topics[0].error_code), found.topics[0].error_message) == (29, "no")
    (envelope,) = kafka.of(Api.ENVELOPE)
    sent = opened(envelope)
    assert (sent.api, sent.version, sent.client_id) == (Api.CREATE_TOPICS, 7, "test")
    assert [(one.name, one.num_partitions) for one in sent.body.topics] == [("new", 3)]
    assert bytes(envelope.request_principal) == b"\0\0\x05User\x04ann\0\0"
    assert bytes(envelope.client_host_address) == bytes([127, 0, 0, 1])


def test_very_many_topics_are_made_in_one_envelope(secured, kafka):
    """As one admin asks for them, with their settings: half a megabyte, and as many answers."""
    settings = [{"name": f"segment.bytes.{n}", "value": "9" * 20} for n in range(5)]
    topics = [NEW_TOPIC | {"name": f"topic-{n}", "configs": settings} for n in range(2_000)]

    def answer(envelope):
        sent = opened(envelope)
        assert len(sent.body.topics) == 2_000
        assert len(envelope.request_data) > 400_000
        made = [
            {"name": one.name, "topic_id": UUID(int=7), "error_code": 0, "error_message": None,
             "topic_config_error_code": 0, "num_partitions": 3, "replication_factor": 2,
             "configs": []}
            for one in sent.body.topics
        ]  # fmt: skip
        return enveloped(sent, topics=made)

    kafka.answers[Api.ENVELOPE] = answer
    with Person(secured, "ann") as ann:
        found = ann.ask(Api.CREATE_TOPICS, topics=topics, timeout=9_000, validate_only=False)
    assert [one.name for one in found.topics] == [one["name"] for one in topics]


def test_another_controller_is_asked_once_the_first_is_none_any_longer(secured, kafka):
    answers = iter([{"error_code": 41, "response_data": None}, None])

    def answer(envelope):
        found = next(answers, "ended")
        if found != "ended":
            return found
        return enveloped(opened(envelope), error_code=0, error_message=None)

    kafka.answers[Api.ENVELOPE] = answer
    with Person(secured, "ann") as ann:
        assert int(ann.ask(Api.UNREGISTER_BROKER, broker_id=9).error_code) == 0
    assert len(kafka.of(Api.ENVELOPE)) == 3


def test_a_client_that_goes_breaks_off_nothing_of_others(secured, kafka):
    """All that is sent on shares a connection; what was done must not be asked twice."""
    goes, done = threading.Event(), threading.Event()

    def answer(envelope):
        sent = opened(envelope)
        if sent.body.broker_id == 9:
            goes.set()
            done.wait(20)
        return enveloped(sent, error_code=0, error_message=None)

    kafka.answers[Api.ENVELOPE] = answer
    with Person(secured, "ann") as other:
        with Person(secured, "ann") as one:
            asked = one.runner.get_loop().create_task(
                one.connection.ask(Api.UNREGISTER_BROKER, broker_id=9)
            )
            one.runner.run(asyncio.to_thread(goes.wait, 20))
            asked.cancel()
        later = threading.Timer(0.3, done.set)
        later.start()
        assert int(other.ask(Api.UNREGISTER_BROKER, broker_id=8).error_code) == 0
    later.join()
    assert [opened(one).body.broker_id for one in kafka.of(Api.ENVELOPE)] == [9, 8]


def test_a_client_without_a_name_gets_no_token(plain, kafka):
    with Person(plain, None) as one:
        found = one.ask(
            Api.CREATE_DELEGATION_TOKEN, owner_principal_type=None, owner_principal_name=None,
            renewers=(), max_lifetime=-1,
        )  # fmt: skip
    assert int(found.error_code) == 64
    assert not kafka.of(Api.ENVELOPE)


def test_brokers_are_asked_only_what_the_client_may(secured, kafka):
    """The node asks as itself, so it decides before: no one gets more than from a broker."""
    described = []

    def answer(body):
        described.append([one.resource_name for one in body.resources])
        return {
            "results": [
                {
                    "error_code": 0, "error_message": None, "resource_type": one.resource_type,
                    "resource_name": one.resource_name, "configs": (),
                }
                for one in body.resources
            ]
        }  # fmt: skip

    kafka.answers[Api.DESCRIBE_CONFIGS] = answer
    kafka.answers[Api.DESCRIBE_ACLS] = lambda _: {
        "error_code": 0,
        "error_message": None,
        "resources": (),
    }
    every = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    wanted = [
        {"resource_type": 2, "resource_name": "orders", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "secret", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
    ]
    with Person(secured, "ann") as ann, Person(secured, "admin") as admin:
        allow(secured, "User:ann", TOPIC, "orders", DESCRIBE_CONFIGS)
        found = ann.ask(Api.DESCRIBE_CONFIGS, resources=wanted)
        assert {one.resource_name: int(one.error_code) for one in found.results} == {
            "orders": 0, "secret": 29, "1": 31,
        }  # fmt: skip
        assert described == [["orders"]]
        assert int(ann.ask(Api.DESCRIBE_ACLS, **every).error_code) == 31
        assert not kafka.of(Api.DESCRIBE_ACLS)
        assert int(admin.ask(Api.DESCRIBE_ACLS, **every).error_code) == 0
    assert len(kafka.of(Api.DESCRIBE_ACLS)) == 1


def test_settings_of_very_many_topics_are_asked_for(secured, kafka):
    kafka.answers[Api.DESCRIBE_CONFIGS] = lambda body: {
        "results": [
            {
                "error_code": 0, "error_message": None, "resource_type": one.resource_type,
                "resource_name": one.resource_name, "configs": (),
            }
            for one in body.resources
        ]
    }  # fmt: skip
    wanted = [
        {"resource_type": 2, "resource_name": f"t{n}", "configuration_keys": None}
        for n in range(300)
    ]
    with Person(secured, "admin") as admin:
        assert len(admin.ask(Api.DESCRIBE_CONFIGS, resources=wanted).results) == 300


def test_a_topic_by_its_id_is_shown_once_its_name_is_known_to_the_rules(secured):
    """They decide by names; the metadata may have a topic a moment before."""
    topic_id = UUID(int=77)
    secured.image.topics[topic_id] = Topic(topic_id, "new", {})
    secured.image.topic_ids["new"] = topic_id
    asked = {"topics": [{"topic_id": topic_id, "name": None}], **NAMES}
    with Person(secured, "ann") as ann, Person(secured, "admin") as admin:
        for one in (ann, admin):
            (found,) = one.ask(Api.METADATA, **asked).topics
            assert (int(found.error_code), found.name) == (100, None)
        secured.see()
        (found,) = ann.ask(Api.METADATA, **asked).topics
        assert (int(found.error_code), found.name) == (29, None)
        assert admin.ask(Api.METADATA, **asked).topics[0].name == "new"


def test_its_own_settings_are_those_that_the_cluster_has_of_it(secured, kafka):
    until_ms = "muster.takes.replicas.until"
    known = {until_ms: "5", "ssl.keystore.password": "hunter2"}
    secured.image.settings[4, str(NODE)] = known
    of_it = {"resource_type": 4, "resource_name": str(NODE)}
    with Person(secured, "admin") as admin:
        some, every = (
            admin.ask(
                Api.DESCRIBE_CONFIGS, resources=[of_it | {"configuration_keys": keys}]
            ).results[0]
            for keys in ([until_ms], None)
        )
    assert [(one.name, one.value) for one in some.configs] == [(until_ms, "5")]
    assert {one.name: (one.value, one.is_sensitive) for one in every.configs} == {
        until_ms: ("5", False), "ssl.keystore.password": (None, True),
    }  # fmt: skip
    assert not kafka.of(Api.DESCRIBE_CONFIGS)


# Audit -------------------------------------------------------------------------------------------


def keep(secured):
    """Stand for the history that keeps records; return what is kept there."""
    kept = []

    def submit(events):
        kept.extend(record for event in events for record in event.records)
        done = Future()
        done.set_result([Result(response=set()) for _ in events])
        return done

    secured.leader.keeper.open(SimpleNamespace(submit=submit, look=lambda find: find(State())))
    return kept


def test_what_is_refused_is_in_the_audit_of_the_one_who_keeps_it(secured):
    """Kafka's topic has no record for it."""
    kept = keep(secured)
    with Person(secured, "ann") as ann:
        assert codes(ask_metadata(ann, "orders")) == {"orders": 29}
    with pytest.raises(GroupError, match="refused"):
        Person(secured, "ann", "wrong")
    until(lambda: {one.reason for one in kept} == {DENIED, LOGIN_FAILED})
    assert {one.owner for one in kept} == {"User:ann"}


def test_who_deletes_a_group_is_in_the_audit(secured):
    kept = keep(secured)
    place = {
        "partition_index": 0,
        "committed_offset": 4,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    group = secured.group()
    with Person(secured, "admin") as admin:
        topic = {
            "topic_id": secured.image.topic_ids["orders"],
            "name": "orders",
            "partitions": [place],
        }
        admin.ask(
            Api.OFFSET_COMMIT, group_id=group, generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[topic],
        )  # fmt: skip
        assert not kept
        done = admin.ask(Api.DELETE_GROUPS, groups_names=[group])
        assert [int(one.error_code) for one in done.results] == [0]
    until(lambda: kept)
    assert [(one.group_id, one.reason, one.owner) for one in kept] == [
        (group, GROUP_DELETED, "User:admin")
    ]
