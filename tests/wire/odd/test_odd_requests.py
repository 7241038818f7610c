"""Requests that name what is empty, doubled, below 0 or not there, as Kafka 4.4.0 answers them."""

from __future__ import annotations

import pytest

from coordinator.errors import ErrorCode
from coordinator.wire.acls import parse_acls
from coordinator.wire.apis.group_apis import HANDLERS
from coordinator.wire.codec import Api
from tests.support.wire_client import Client, request_frame
from tests.support.wire_side import CLICKS, HEARTBEAT, NONE, UNKNOWN_TOPIC, Side, side
from tests.wire.test_server import served

__all__ = ["side"]

INVALID_TOPIC, INVALID_GROUP_ID, INVALID_REQUEST = 17, 24, 42


def commit_to(side, *topics, group_id="g", member_id="", epoch=-1, version=9):
    """Commit (offset, leader epoch, metadata) by topic; return the outcomes in order."""
    asked = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": leader_epoch,
                    "committed_metadata": metadata,
                }
                for number, (offset, leader_epoch, metadata) in offsets.items()
            ],
        }
        for name, offsets in topics
    ]
    answer = side.ask(
        Api.OFFSET_COMMIT, version, group_id=group_id, generation_id_or_member_epoch=epoch,
        member_id=member_id, topics=asked,
    )  # fmt: skip
    return outcomes(answer)


def outcomes(answer):
    return [
        (topic.name, one.partition_index, int(one.error_code))
        for topic in answer.topics
        for one in topic.partitions
    ]


def committed(side, *indexes, group_id="g", times=1):
    topics = [{"name": "clicks", "partition_indexes": [one]} for one in indexes] * times
    (group,) = side.ask(
        Api.OFFSET_FETCH, 9, groups=[{"group_id": group_id, "topics": topics}]
    ).groups
    assert int(group.error_code) == NONE
    return [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch)
        for topic in group.topics
        for one in topic.partitions
    ]


def test_offsets_of_what_does_not_exist_are_refused_by_themselves(side):
    some = (3, 1, "")
    asked = [("clicks", {-1: some, 0: some, 4: some}), ("nowhere", {0: some})]
    missing = [("clicks", 4, UNKNOWN_TOPIC), ("nowhere", 0, UNKNOWN_TOPIC)]
    assert commit_to(side, *asked) == [
        ("clicks", -1, UNKNOWN_TOPIC), ("clicks", 0, NONE), *missing,
    ]  # fmt: skip
    assert committed(side, -1, 0, 4) == [(-1, -1, -1), (0, 3, 1), (4, -1, -1)]
    unknown = [("nowhere", 0, UNKNOWN_TOPIC)]
    assert commit_to(side, ("nowhere", {0: some}), member_id="m1", epoch=5) == unknown


def test_offsets_are_taken_as_before_where_no_topic_is_known():
    side = Side()
    outcome = [("clicks", -1, UNKNOWN_TOPIC), ("clicks", 9, NONE)]
    assert commit_to(side, ("clicks", {-1: (3, 1, ""), 9: (3, 1, "")})) == outcome


def test_a_topic_that_is_named_twice_is_answered_twice(side):
    outcome = [("clicks", 0, NONE), ("clicks", 1, NONE)]
    assert commit_to(side, ("clicks", {0: (3, 1, "")}), ("clicks", {1: (4, 2, "")})) == outcome
    assert committed(side, 0, 1, times=2) == [(0, 3, 1), (1, 4, 2)] * 2


def test_offsets_and_leader_epochs_below_0_are_kept(side):
    outcome = [("clicks", 0, NONE), ("clicks", 1, NONE)]
    assert commit_to(side, ("clicks", {0: (-5, -2, ""), 1: (7, 0, "")})) == outcome
    assert committed(side, 0, 1) == [(0, -5, -2), (1, 7, 0)]


def test_metadata_is_measured_as_kafka_does(side):
    most = side.processor.config.kafka.offset_metadata_max_bytes
    texts = {0: "ü" * most, 1: "ü" * (most + 1), 2: "😀" * (most // 2), 3: "😀" * (most // 2 + 1)}
    found = commit_to(side, ("clicks", {p: (1, -1, text) for p, text in texts.items()}))
    large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert [code for _, _, code in found] == [NONE, large, NONE, large]


def test_what_is_deleted_must_exist(side):
    commit_to(side, ("clicks", {0: (3, 1, "")}))
    topics = [
        {"name": "clicks", "partitions": [{"partition_index": p} for p in (-1, 0, 99)]},
        {"name": "nowhere", "partitions": [{"partition_index": 0}]},
        {"name": "clicks", "partitions": [{"partition_index": 1}]},
    ]
    answer = side.ask(Api.OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert [code for *_, code in outcomes(answer)] == [
        UNKNOWN_TOPIC, NONE, UNKNOWN_TOPIC, UNKNOWN_TOPIC, NONE,
    ]  # fmt: skip
    assert committed(side, 0) == [(0, -1, -1)]


def test_a_partition_below_0_has_no_owner(side):
    side.join("m1", "clicks")
    assert int(side.beat("m1", 2, {CLICKS: [-1, 0, 1, 2, 3]}).error_code) == NONE


def test_the_group_without_a_name(side):
    outcome = [("clicks", 0, NONE)]
    assert commit_to(side, ("clicks", {0: (3, 1, "")}), group_id="") == outcome
    side.processor.load()
    assert committed(side, 0, group_id="") == [(0, 3, 1)]
    topics = [{"name": "clicks", "partitions": [{"partition_index": 0}]}]
    deleted = side.ask(Api.OFFSET_DELETE, 0, group_id="", topics=topics)
    assert (int(deleted.error_code), deleted.topics) == (INVALID_GROUP_ID, ())
    (described,) = side.ask(
        Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[""], include_authorized_operations=False
    ).groups
    assert int(described.error_code) == INVALID_GROUP_ID
    beaten = side.ask(HEARTBEAT, 1, group_id="", member_id="m", member_epoch=0, topic_partitions=[])
    assert int(beaten.error_code) == INVALID_REQUEST


@pytest.mark.parametrize("version", [8, 9, 10])
def test_no_groups_have_no_offsets(side, version):
    for side.acls in (None, parse_acls("", "acls.toml")):
        assert side.ask(Api.OFFSET_FETCH, version, groups=[]).groups == ()


def test_an_unanswerable_request_costs_one_client_only(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("of the server")

    monkeypatch.setitem(HANDLERS, Api.DELETE_GROUPS, fail)
    with served() as (_, address), Client(address) as other:
        with Client(address) as client:
            client.socket.sendall(request_frame(Api.DELETE_GROUPS, 2, 1, groups_names=["g"]))
            assert client.socket.recv(1) == b""
        assert other.ask(Api.LIST_GROUPS, 4, states_filter=[]).groups == ()
    assert "could not be answered" in caplog.text


def test_no_partitions_that_may_not_be_written_are_no_fault(side):
    side.acls = parse_acls("", "acls.toml")
    topics = [{"name": "clicks", "partition_data": []}]
    answer = side.ask(Api.PRODUCE, 9, transactional_id=None, acks=1, timeout=0, topic_data=topics)
    assert [topic.partition_responses for topic in answer.responses] == [()]


def test_what_is_asked_for_twice_is_answered_once(side):
    names = ["clicks", "clicks", "nowhere", "nowhere", "", "a b!", "x" * 250, ".."]
    found = side.ask(
        Api.METADATA, 7, allow_auto_topic_creation=False, topics=[{"name": name} for name in names]
    ).topics
    assert [int(topic.error_code) for topic in found] == [NONE, UNKNOWN_TOPIC, *[INVALID_TOPIC] * 4]
    commit_to(side, ("clicks", {0: (3, 1, "")}))
    results = side.ask(Api.DELETE_GROUPS, 2, groups_names=["g", "h", "g"]).results
    assert [(one.group_id, int(one.error_code)) for one in results] == [("g", NONE), ("h", 69)]


def test_an_offset_that_is_asked_for_twice_is_refused(side):
    partitions = [{"partition_index": p, "timestamp": -1} for p in (0, 0, 1)]
    topics = [{"name": "clicks", "partitions": partitions}]
    (topic,) = side.ask(
        Api.LIST_OFFSETS, 10, replica_id=-1, isolation_level=0, topics=topics, timeout=0
    ).topics
    found = {one.partition_index: int(one.error_code) for one in topic.partitions}
    assert found == {0: INVALID_REQUEST, 1: NONE}
