"""A node answers what every broker is asked: producers, metadata, coordinators, records."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from coordinator.core.java_hash import place_of
from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.registration import TOPIC as TOPICS
from coordinator.kraft.replica_apis import FETCH_BYTES_MAX, WaitingFetch
from coordinator.wire.codec import Api
from coordinator.wire.listener import parse_address
from tests.kraft.test_leader import until
from tests.kraft.test_membership import NODE
from tests.support.wire_client import Client

from .fake_kafka import enveloped, opened
from .nodes import (
    CLUSTER,
    DENY,
    IDEMPOTENT_WRITE,
    LITERAL,
    NAMES,
    PLAINTEXT,
    PREFIXED,
    TOPIC,
    TRANSACTION,
    WRITE,
    Person,
    allow,
)

# Producers ---------------------------------------------------------------------------------------


def give_ids(kafka, size=2):
    starts = iter(range(1_000, 9_000, 1_000))
    kafka.answers[Api.ALLOCATE_PRODUCER_IDS] = lambda _: {
        "error_code": 0, "producer_id_start": next(starts), "producer_id_len": size,
    }  # fmt: skip


def init_producer(client, transactional_id=None):
    found = client.ask(
        Api.INIT_PRODUCER_ID, transactional_id=transactional_id, transaction_timeout=60_000,
        producer_id=-1, producer_epoch=-1,
    )  # fmt: skip
    return int(found.error_code), found.producer_id, found.producer_epoch


def test_producers_get_ids_of_blocks_that_are_the_nodes(secured, kafka):
    give_ids(kafka)
    with Person(secured, "admin") as admin:
        found = [init_producer(admin) for _ in range(3)]
        assert found == [(0, 1_000, 0), (0, 1_001, 0), (0, 2_000, 0)]
        assert init_producer(admin, "t") == (16, -1, -1), "a broker coordinates transactions"
    asked = kafka.of(Api.ALLOCATE_PRODUCER_IDS)
    assert [(one.broker_id, one.broker_epoch) for one in asked] == [(NODE, 7)] * 2


@pytest.mark.parametrize(
    ("kind", "name", "operation", "pattern"),
    [
        (CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE, LITERAL),
        (TOPIC, "some", WRITE, PREFIXED),
        (TOPIC, "one", WRITE, LITERAL),
    ],
)
def test_who_may_write_anything_gets_a_producer_id(secured, kafka, kind, name, operation, pattern):
    give_ids(kafka)
    with Person(secured, "ann") as ann:
        assert init_producer(ann) == (31, -1, -1)
        assert init_producer(ann, "t") == (53, -1, -1)
        allow(secured, "User:ann", kind, name, operation, pattern=pattern)
        assert init_producer(ann)[0] == 0
        allow(secured, "User:ann", TRANSACTION, "t", WRITE)
        assert init_producer(ann, "t") == (16, -1, -1)
        if kind == TOPIC:
            allow(secured, "User:ann", TOPIC, name[:2], WRITE, pattern=PREFIXED, permission=DENY)
            assert init_producer(ann) == (31, -1, -1)


def test_records_of_other_topics_are_refused_as_by_a_broker_that_does_not_lead(plain):
    with Client(plain.address) as one:
        found = one.ask(
            Api.PRODUCE, 11, transactional_id=None, acks=1, timeout=100,
            topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": b""}]}],
        )  # fmt: skip
        assert int(found.responses[0].partition_responses[0].error_code) == 6
        gone = one.ask(
            Api.DELETE_RECORDS, 2, timeout=100,
            topics=[{"name": "orders", "partitions": [{"partition_index": 0, "offset": 4}]}],
        )  # fmt: skip
        assert int(gone.topics[0].partitions[0].error_code) == 6


def test_its_folder_is_shown_with_the_sizes_of_its_logs(secured):
    with Person(secured, "ann") as ann, Person(secured, "admin") as admin:
        assert int(ann.ask(Api.DESCRIBE_LOG_DIRS, topics=None).error_code) == 31
        (folder,) = admin.ask(Api.DESCRIBE_LOG_DIRS, topics=None).results
        ((topic,),) = [folder.topics]
        assert (folder.log_dir, topic.name) == ("/logs", TOPICS)
        assert [(one.partition_index, one.partition_size) for one in topic.partitions] == [(0, 5)]
        asked = [{"topic": TOPICS, "partitions": [1, 2]}, {"topic": "orders", "partitions": [0]}]
        (folder,) = admin.ask(Api.DESCRIBE_LOG_DIRS, topics=asked).results
        assert not folder.topics


# Metadata ----------------------------------------------------------------------------------------


def test_features_and_versions_are_those_of_the_cluster(plain, kafka):
    plain.image.features["transaction.version"] = 2
    kafka.answers[Api.ENVELOPE] = lambda envelope: enveloped(
        opened(envelope), error_code=0, error_message=None, topics=()
    )
    with Client(plain.address) as one:
        asked = {"client_software_name": "t", "client_software_version": "1"}
        found = one.ask(Api.API_VERSIONS, 4, **asked)
        levels = {each.name: each.max_version_level for each in found.finalized_features}
        assert levels["transaction.version"] == 2
        assert found.finalized_features_epoch == 41
        versions = {each.api_key: each.max_version for each in found.api_keys}
        assert (versions[Api.FETCH], versions[Api.ALTER_PARTITION_REASSIGNMENTS]) == (18, 1)
        one.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, timeout=1_000, topics=None)
        later = {
            each.api_key: each.max_version
            for each in one.ask(Api.API_VERSIONS, 4, **asked).api_keys
        }
        assert later[Api.ALTER_PARTITION_REASSIGNMENTS] == 0, "the controller has no more"


def test_metadata_name_brokers_by_the_clients_listener(plain):
    image = plain.image
    image.brokers[2] = image.brokers[2]._replace(is_fenced=True)
    other = Endpoint("INSIDE", "hidden", 1, PLAINTEXT)
    image.brokers[3] = image.brokers[1]._replace(node_id=3, endpoints=(other,))
    orders = image.topic("orders").partitions
    for number, leader in ((0, 1), (1, 2), (2, 3), (3, -1)):
        orders[number] = orders[0]._replace(
            leader=leader, replicas=(1, 2, 3), isr=(1, 3), leader_epoch=6, directories=()
        )
    with Client(plain.address) as one:
        found = one.ask(Api.METADATA, 12, topics=[{"topic_id": None, "name": "orders"}], **NAMES)
        old = one.ask(Api.METADATA, 0, topics=[{"name": "orders"}])
        by_id = one.ask(
            Api.METADATA,
            12,
            topics=[{"topic_id": image.topic_ids["orders"], "name": None}],
            **NAMES,
        )
        nodes = one.ask(
            Api.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=True,
        )
        controllers = one.ask(
            Api.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=2,
            include_fenced_brokers=False,
        )
    here = parse_address(plain.address, "it")
    assert [(b.node_id, b.host, b.port) for b in found.brokers] == [
        (1, "kafka", 9101),
        (NODE, *here),
    ]
    assert found.controller_id in {1, NODE}
    parts = {p.partition_index: p for p in found.topics[0].partitions}
    assert {n: (int(p.error_code), p.leader_id) for n, p in parts.items() if n < 4} == {
        0: (0, 1), 1: (72, -1), 2: (72, -1), 3: (5, -1),
    }  # fmt: skip
    assert (parts[0].replica_nodes, parts[0].isr_nodes, parts[0].offline_replicas) == (
        (1, 2, 3),
        (1, 3),
        (2, 3),
    )
    assert parts[0].leader_epoch == 6
    assert by_id.topics[0].name == "orders"
    olds = {p.partition_index: p for p in old.topics[0].partitions}
    assert {n: (int(p.error_code), p.replica_nodes) for n, p in olds.items() if n < 4} == {
        0: (9, (1,)), 1: (5, (1,)), 2: (5, (1,)), 3: (5, (1,)),
    }  # fmt: skip
    assert [(b.broker_id, b.is_fenced) for b in nodes.brokers] == [
        (1, False),
        (2, True),
        (NODE, False),
    ]
    assert int(controllers.error_code) == 114


def test_coordinators_are_the_leaders_of_their_partitions(plain, kafka):
    kafka.answers[Api.FIND_COORDINATOR] = lambda _: {"coordinators": ()}
    image = plain.image
    groups = image.topic(TOPICS).partitions
    count = len(groups)
    names = {
        n: next(f"g{i}" for i in range(200) if place_of(f"g{i}", count) == n) for n in (0, 1, 2)
    }
    groups[1] = groups[1]._replace(leader=1)
    groups[2] = groups[2]._replace(leader=-1)
    with Client(plain.address) as one:
        found = one.ask(Api.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=list(names.values()))
        transactions = one.ask(Api.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["t"])
        shares = one.ask(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["t"])
        old = one.ask(Api.FIND_COORDINATOR, 0, key=names[1])
    assert [(int(c.error_code), c.node_id) for c in found.coordinators] == [
        (0, NODE),
        (0, 1),
        (15, -1),
    ]
    assert [int(c.error_code) for c in (*transactions.coordinators, *shares.coordinators)] == [
        15,
        42,
    ]
    assert (old.node_id, old.host, old.port) == (1, "kafka", 9101)
    until(lambda: kafka.of(Api.FIND_COORDINATOR))
    (asked,) = kafka.of(Api.FIND_COORDINATOR)  # by which a broker makes the topic of transactions
    assert (asked.key_type, asked.coordinator_keys) == (1, ("t",))


# Groups and records -----------------------------------------------------------------------------


def follow(client, node, offset, **given):
    topic_id = node.leader.leaders.topic_id
    part = {
        "partition": 0, "current_leader_epoch": 9, "fetch_offset": offset,
        "last_fetched_epoch": -1, "log_start_offset": 0, "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    found = client.ask(
        Api.FETCH, 18, replica_state={"replica_id": 1, "replica_epoch": 5}, max_wait=5_000,
        min_bytes=1, max_bytes=1 << 20, rack_id="", forgotten_topics_data=(),
        topics=[{"topic_id": topic_id, "partitions": [part | given]}],
    )  # fmt: skip
    return found.responses[0].partitions[0]


def test_a_follower_fetches_what_a_member_makes_happen(plain):
    with Client(plain.address) as follower, Client(plain.address) as member:
        found = []
        waits = threading.Thread(target=lambda: found.append(follow(follower, plain, 0)))
        waits.start()
        answer = member.ask(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id=plain.group(), member_id="m",
            member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout=60_000,
            subscribed_topic_names=["orders"], subscribed_topic_regex=None, server_assignor=None,
            topic_partitions=(),
        )  # fmt: skip
        assert (int(answer.error_code), answer.member_epoch > 0) == (0, True)
        waits.join()
        assert found[0].records == plain.replicas.held[0].file.read(0, 1 << 20)
        listed = member.ask(Api.LIST_GROUPS, 5, states_filter=(), types_filter=())
        assert [one.group_id for one in listed.groups] == [plain.group()]
        assert int(follow(follower, plain, 0, current_leader_epoch=8).error_code) == 74


def test_a_fetch_is_bounded_by_its_server_too(plain):
    """As by Kafka's `fetch.max.bytes`; one of nothing is answered at once."""
    with Client(plain.address) as client:
        began = time.monotonic()
        empty = client.ask(
            Api.FETCH, 18, replica_state={"replica_id": -1, "replica_epoch": -1}, max_wait=60_000,
            min_bytes=1, max_bytes=1, rack_id="", forgotten_topics_data=(), topics=(),
        )  # fmt: skip
        assert not empty.responses
        assert time.monotonic() - began < 30
    body = SimpleNamespace(
        topics=(), max_bytes=2**31 - 1, min_bytes=2**31 - 1, max_wait=timedelta(days=9), replica_id=-1,
    )  # fmt: skip
    asked = WaitingFetch(body, 12, lambda: None)
    assert (asked._bytes_max, asked._bytes_least) == (FETCH_BYTES_MAX, FETCH_BYTES_MAX)
