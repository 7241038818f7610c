"""What clients ask besides their group: about this node and its topics, and for records."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.errors import ErrorCode
from coordinator.wire.apis.group_apis import HANDLERS
from coordinator.wire.call import ClusterNode
from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS, Api
from coordinator.wire.decoder import WireError
from tests.support.wire_side import (
    CLICKS,
    NONE,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    Side,
    side,
)

__all__ = ["side"]


def test_every_served_api_is_advertised(side):
    assert HANDLERS.keys() == (VERSIONS | CLASSIC_VERSIONS).keys()
    for version in range(5):
        words = {"client_software_name": "test", "client_software_version": "1"}
        answer = side.ask(Api.API_VERSIONS, version, **words)
        versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        sasl = {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
        assert versions == {api: span for api, span in VERSIONS.items() if api not in sasl}


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_this_node_and_topics_with_their_ids(side, version):
    asked = [{"name": "clicks", "topic_id": None}, {"name": "nowhere", "topic_id": None}]
    words = {
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    answer = side.ask(Api.METADATA, version, topics=asked, allow_auto_topic_creation=True, **words)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(7, "here", 9092)]
    known, unknown = answer.topics
    assert (known.name, int(known.error_code), len(known.partitions)) == ("clicks", NONE, 4)
    assert all(p.leader_id == 7 and p.isr_nodes == (7,) for p in known.partitions)
    # a client that has heard of a later epoch, by an offset that was committed with it, would wait endlessly
    assert version < 7 or {p.leader_epoch for p in known.partitions} == {-1}
    assert (unknown.name, int(unknown.error_code)) == ("nowhere", UNKNOWN_TOPIC)
    if version >= 10:
        assert known.topic_id == CLICKS
    every = side.ask(Api.METADATA, version, topics=None if version else [], **words)
    assert [topic.name for topic in every.topics] == ["clicks", "orders"]


@pytest.mark.parametrize("name", [None, ""], ids=["no name", "as the Java client asks"])
def test_metadata_by_id(side, name):
    asked = [{"name": name, "topic_id": CLICKS}, {"name": name, "topic_id": UUID(int=9)}]
    answer = side.ask(Api.METADATA, 12, topics=asked, include_topic_authorized_operations=False)
    found = [(topic.name, topic.topic_id, int(topic.error_code)) for topic in answer.topics]
    assert found == [("clicks", CLICKS, NONE), (None, UUID(int=9), UNKNOWN_TOPIC_ID)]


@pytest.mark.behaviour("W-2", "W-5", "W-51", "W-52")
@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_every_group(side, version):
    def find(**more):
        words = {"key": "g", "coordinator_keys": ["g", "h"], **more}
        answer = side.ask(Api.FIND_COORDINATOR, version, **words)
        found = answer.coordinators if version >= 4 else [answer]
        assert version < 4 or [one.key for one in found] == ["g", "h"]
        return {(one.node_id, one.host, one.port, int(one.error_code)) for one in found}

    assert find() == {(7, "here", 9092, NONE)}
    if version:
        assert find(key_type=1) == {(-1, "", -1, ErrorCode.INVALID_REQUEST)}
    side.processor.fence("a test")
    assert find() == {(-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)}


@pytest.mark.parametrize(("version", "groups"), [(3, ["k"]), (4, ["g", "h"])])
def test_the_coordinators_of_the_groups_that_are_asked_for_are_found_and_of_no_other(
    side, version, groups
):
    """A node loads the shard of a group that it was asked for before others."""
    found = []
    side.cluster = side.cluster_with(coordinator_of=found.append)
    side.ask(Api.FIND_COORDINATOR, version, key="k", key_type=0, coordinator_keys=["g", "h"])
    assert found == groups


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_node(side, version):
    words = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    answer = side.ask(Api.DESCRIBE_CLUSTER, version, **words)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(7, "here", 9092)]
    assert (answer.cluster_id, answer.controller_id) == ("muster", 7)
    if version:
        answer = side.ask(Api.DESCRIBE_CLUSTER, version, endpoint_type=2, **words)
        assert (int(answer.error_code), answer.brokers) == (115, ())


@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_waits_and_brings_nothing_and_no_offset_is_out_of_range(side, version):
    one = {"partition": 2, "fetch_offset": 500, "partition_max_bytes": 1}
    topic = {"topic": "clicks", "topic_id": CLICKS, "partitions": [one]}
    words = {"max_wait": 400, "min_bytes": 1, "forgotten_topics_data": ()}
    answer = side.ask(Api.FETCH, version, topics=[topic], **words)
    (partition,) = answer.responses[0].partitions
    assert (int(partition.error_code), partition.high_watermark, partition.records) == (0, 500, b"")
    assert side.waited_ms == 400


@pytest.mark.parametrize(("api", "words"), [
    (Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"}), (Api.SASL_AUTHENTICATE, {"auth_bytes": b""}),
])  # fmt: skip
def test_an_unexpected_login_is_refused(side, api, words):
    assert int(side.ask(api, 1, **words).error_code) == 34


@pytest.mark.parametrize("version", [3, 9, 12])
def test_records_are_refused(version):
    """Produce is served at all because librdkafka keeps a core busy with a node without it."""
    side = Side(clicks=1)
    data = [{"name": "clicks", "partition_data": [{"index": 0, "records": b"x"}]}]
    fields = {"transactional_id": None, "timeout": 0, "topic_data": data}
    answer = side.ask(Api.PRODUCE, version, acks=-1, **fields)
    ((topic,),) = (answer.responses,)
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code.name) == (
        "clicks",
        0,
        "policy_violation",
    )
    with pytest.raises(WireError, match="keeps no records"):
        side.ask(Api.PRODUCE, version, acks=0, **fields)


def test_other_servers_are_named_and_the_one_that_coordinates_leads(side):
    there = ClusterNode(8, "there", 9093)
    side.cluster = side.cluster_with(other_nodes=lambda: (there,))
    words = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": False}
    answer = side.ask(Api.METADATA, 12, topics=None, **words)
    assert [one.node_id for one in answer.brokers] == [7, 8]
    assert answer.controller_id == answer.topics[0].partitions[0].leader_id == 7
    side.cluster = side.cluster_with(serves=lambda: False, other_coordinator=lambda: there)
    answer = side.ask(Api.METADATA, 12, topics=None, **words)
    assert answer.controller_id == answer.topics[0].partitions[0].leader_id == 8
    (found,) = side.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators
    assert (found.node_id, found.host, found.port, int(found.error_code)) == (*there, NONE)


def test_no_partition_is_moved(side):
    """kafka-topics --describe asks for it."""
    answer = side.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert (int(answer.error_code), answer.topics) == (NONE, ())


@pytest.mark.parametrize("version", range(1, 6))
def test_no_folder_holds_records(side, version):
    answer = side.ask(Api.DESCRIBE_LOG_DIRS, version, topics=None)
    (folder,) = answer.results  # of none, the Java client says that it has no right to see any
    assert (folder.log_dir, folder.topics, int(folder.error_code)) == ("none", (), NONE)
    assert int(getattr(answer, "error_code", NONE)) == NONE


@pytest.mark.parametrize("version", range(3))
def test_no_transaction_is_there(side, version):
    answer = side.ask(Api.LIST_TRANSACTIONS, version, state_filters=["Ongoing", "Odd"])
    assert (int(answer.error_code), answer.transaction_states) == (NONE, ())
    assert answer.unknown_state_filters == ("Odd",)
    wrong = side.ask(Api.LIST_TRANSACTIONS, version, state_filters=[], transactional_id_pattern="(")
    code = ErrorCode.INVALID_REGULAR_EXPRESSION if version >= 2 else NONE
    assert int(wrong.error_code) == code


@pytest.mark.parametrize("version", range(3))
def test_this_node_is_the_quorum(side, version):
    def asked(*places):
        topics = [{"topic_name": n, "partitions": [{"partition_index": p}]} for n, p in places]
        answer = side.ask(Api.DESCRIBE_QUORUM, version, topics=topics)
        assert int(answer.error_code) == NONE
        return answer, [one for topic in answer.topics for one in topic.partitions]

    answer, (known,) = asked(("__cluster_metadata", 0))
    assert (int(known.error_code), known.leader_id) == (NONE, 7)
    assert [one.replica_id for one in known.current_voters] == [7]
    if version >= 2:
        ((listener,),) = [node.listeners for node in answer.nodes]
        assert (listener.host, listener.port) == ("here", 9092)
    for more in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("clicks", 0)):
        answer, both = asked(("__cluster_metadata", 0), more)
        assert [(int(one.error_code), one.leader_id) for one in both] == [(UNKNOWN_TOPIC, 0)] * 2
        assert version < 2 or answer.nodes == ()
