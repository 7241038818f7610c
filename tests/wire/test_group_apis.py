"""What each request of a group asks of the coordinator, and how its answers look on the wire."""

from __future__ import annotations

import pytest

from coordinator.errors import ErrorCode
from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.wire.call import from_uuid, to_uuid
from coordinator.wire.codec import VERSIONS, Api
from coordinator.wire.connection import Connection
from coordinator.wire.conversation import Conversation
from tests.support.wire_side import (
    CLICKS,
    HEARTBEAT,
    NONE,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    UNSUPPORTED_VERSION,
    side,
)

__all__ = ["side"]

DESCRIBE = Api.CONSUMER_GROUP_DESCRIBE


def fetched(group):
    return {
        p.partition_index: (p.committed_offset, p.metadata, int(p.error_code))
        for topic in group.topics
        for p in topic.partitions
    }


def partitions_of(assignment):
    return {one.topic_id: list(one.partitions) for one in assignment.topic_partitions}


# Groups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_members_get_partitions_by_topic_id(side, version):
    first = side.join("m1", "clicks", "orders", version=version)
    assert (int(first.error_code), first.member_id, first.member_epoch) == (NONE, "m1", 2)
    assert first.heartbeat_interval.total_seconds() == 5
    owned = partitions_of(first.assignment)
    assert owned == {CLICKS: [0, 1, 2, 3], to_uuid(topic_id_of("orders")): [0, 1]}
    second = side.join("m2", "clicks", "orders", version=version)
    assert partitions_of(second.assignment) == {}
    less = side.beat("m1", 2, owned, version)
    assert sum(map(len, partitions_of(less.assignment).values())) == 3
    kept = partitions_of(less.assignment)
    assert side.beat("m1", 2, owned, version).member_epoch == 2, "it still owns what it gives up"
    assert side.beat("m1", 2, kept, version).member_epoch == 3
    rest = partitions_of(side.beat("m2", 3, {}, version).assignment)
    assert sum(map(len, rest.values())) == 3
    assert side.beat("m1", 3, version=version).assignment is None, "nothing new"
    left = side.beat("m1", -1, version=version)
    assert (int(left.error_code), left.member_epoch) == (NONE, -1)


def test_only_version_0_gives_members_their_ids(side):
    ids = {side.join("", "clicks", version=0).member_id for _ in range(2)}
    assert len(ids) == 2
    assert "" not in ids
    refused = side.join("", "clicks")
    assert int(refused.error_code) == ErrorCode.INVALID_REQUEST


def test_an_error_carries_its_code_and_its_sentence(side):
    answer = side.beat("m1", 5)
    assert int(answer.error_code) == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == "Consumer group g not found."
    assert (answer.member_epoch, answer.member_id, answer.assignment) == (0, None, None)
    refused = side.beat("m1", 5, {CLICKS: [-1]})
    assert int(refused.error_code) == ErrorCode.GROUP_ID_NOT_FOUND, "no partition is below 0"


def test_every_heartbeat_field_reaches_the_coordinator(side):
    side.join(
        "m1", "clicks", instance_id="i1", rack_id="r1", server_assignor="range",
        subscribed_topic_regex="ord.*",
    )  # fmt: skip
    meta = side.processor.state.groups["g"].members["m1"].meta
    assert meta.subscribed_topic_names == ("clicks",)
    assert (meta.instance_id, meta.rack_id, meta.server_assignor) == ("i1", "r1", "range")
    assert (meta.subscribed_topic_regex, meta.rebalance_timeout_ms) == ("ord.*", 60_000)
    assert (meta.client_id, meta.client_host) == ("test", "/10.0.0.1")


def test_an_equal_heartbeat_is_decided_again(side):
    """Equal bytes are read once; what they mean now is the coordinator's to say."""
    side.join("m1", "clicks")
    assert int(side.beat("m1", 2).error_code) == NONE
    side.beat("m1", -1)
    assert int(side.beat("m1", 2).error_code) == ErrorCode.UNKNOWN_MEMBER_ID
    side.join("m1", "clicks")
    assert side.beat("m1", 2).member_epoch != side.beat("m1", 4).member_epoch


def held(answer):
    found = partitions_of(answer.assignment) if answer.assignment else {}
    return answer.member_epoch, found.get(CLICKS, [])


def test_empty_owned_report_after_an_assignment_does_not_revoke(side):
    """As librdkafka's second heartbeat does, in full."""
    assert held(side.join("m1", "clicks")) == (2, [0, 1, 2, 3])
    assert held(side.join("m2", "clicks")) == (3, [])
    words = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["clicks"]}
    assert held(side.beat("m1", 2, {}, **words)) == (2, [0, 1])
    assert held(side.beat("m2", 3)) == (3, [])
    assert held(side.beat("m1", 2, {CLICKS: [0, 1, 2, 3]})) == (2, [])
    assert held(side.beat("m2", 3)) == (3, [])
    assert side.beat("m1", 2, {CLICKS: [0, 1]}).member_epoch == 3
    assert held(side.beat("m2", 3)) == (3, [2, 3])


def test_a_new_connection_gets_the_assignment_again(side):
    side.join("m1", "clicks")
    side.join("m2", "clicks")
    assert held(side.beat("m1", 2)) == (2, [0, 1])
    assert side.beat("m1", 2).assignment is None
    side.connection = Connection("/10.0.0.1", 1 << 20, 10)
    assert held(side.beat("m1", 2)) == (2, [0, 1])
    assert side.beat("m1", 2).assignment is None


def test_a_connection_remembers_a_bounded_number_of_members(side):
    """Those that ended without a word are not known to have ended."""
    side.connection._conversation = Conversation(members_max=3)
    epochs = {f"m{n}": side.join(f"m{n}", "elsewhere").member_epoch for n in range(10)}
    assert len(side.connection._conversation) == 3
    assert side.beat("m0", epochs["m0"]).assignment is not None
    assert side.beat("m9", epochs["m9"]).assignment is None


def test_empty_owned_report_after_a_full_revocation_revokes(side):
    side.join("m1", "clicks")
    assert held(side.beat("m1", 2, {CLICKS: [0, 1, 2, 3]}, subscribed_topic_names=[])) == (2, [])
    side.join("m2", "clicks")
    assert side.beat("m1", 2, {}).member_epoch > 2
    assert held(side.beat("m2", 4, {}))[1] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described(side, version):
    side.join("m1", "clicks", instance_id="i1")
    answer = side.ask(DESCRIBE, version, group_ids=["g", "h"], include_authorized_operations=False)
    known, unknown = answer.groups
    assert (known.group_id, known.group_state, known.group_epoch) == ("g", "Stable", 2)
    assert (known.assignment_epoch, known.assignor_name) == (2, "uniform")
    (member,) = known.members
    assert (member.member_id, member.instance_id, member.member_epoch) == ("m1", "i1", 2)
    assert (member.client_id, member.client_host) == ("test", "/10.0.0.1")
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name) == (CLICKS, "clicks")
        assert topic.partitions == (0, 1, 2, 3)
    assert int(unknown.error_code) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(7))
def test_offsets_without_members_are_a_classic_group(side, version):
    """B2: of one such group, kafka-consumer-groups --describe --all-groups showed none at all."""

    def described():
        words = {"groups": ["g", "h"], "include_authorized_operations": False}
        found = side.ask(Api.DESCRIBE_GROUPS, version, **words).groups
        return [(one.group_id, one.group_state, int(one.error_code), one.members) for one in found]

    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE
    dead = [("g", "Dead", missing, ()), ("h", "Dead", missing, ())]
    assert described() == dead
    side.commit(8, {0: 5})
    assert described() == [("g", "Empty", NONE, ()), dead[1]]
    side.join("m1", "clicks")
    assert described() == dead


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(side, version):
    side.join("m1", "clicks")

    def listed(**words):
        answer = side.ask(Api.LIST_GROUPS, version, **words)
        assert int(answer.error_code) == NONE
        return [(one.group_id, one.protocol_type) for one in answer.groups]

    assert listed() == [("g", "consumer")]
    if version >= 5:
        assert listed(states_filter=["stable"], types_filter=["Consumer"]) == [("g", "consumer")]
        assert listed(states_filter=["Empty"]) == []
        assert listed(types_filter=["classic"]) == []


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_when_they_are_empty(side, version):
    def delete():
        answer = side.ask(Api.DELETE_GROUPS, version, groups_names=["g", "h"])
        return {one.group_id: int(one.error_code) for one in answer.results}

    side.join("m1", "clicks")
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert delete() == {"g": ErrorCode.NON_EMPTY_GROUP, "h": missing}
    side.beat("m1", -1)
    assert delete() == {"g": NONE, "h": missing}
    assert delete() == {"g": missing, "h": missing}


# Offsets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(side, version):
    assert side.commit(version, {0: 5, 1: 7}) == {0: NONE, 1: NONE}
    assert fetched(side.fetch(8, [0, 1, 2])) == {0: (5, "why", 0), 1: (7, "why", 0), 2: (-1, "", 0)}


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(side, version):
    side.commit(8, {0: 5})
    assert fetched(side.fetch(version, [0, 1])) == {0: (5, "why", 0), 1: (-1, "", 0)}
    if version >= 2:
        every = side.fetch(version, None)
        assert fetched(every) == {0: (5, "why", 0)}
        (topic,) = every.topics
        assert (topic.topic_id == CLICKS) if version >= 10 else (topic.name == "clicks")


def test_members_commit_and_fetch_with_their_epoch(side):
    side.join("m1", "clicks")
    assert side.commit(9, {0: 5}, "m1", 2) == {0: NONE}
    assert side.commit(9, {0: 6}, "m1", 3) == {0: ErrorCode.STALE_MEMBER_EPOCH}
    assert side.commit(9, {0: 6, 1: 6}, "m2", 2) == dict.fromkeys(
        (0, 1), ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert side.commit(8, {0: 6}, "m1", 2) == {0: UNSUPPORTED_VERSION}
    assert fetched(side.fetch(9, [0], "m1", 2)) == {0: (5, "why", 0)}
    stale = side.fetch(9, [0], "m1", 1)
    assert int(stale.error_code) == ErrorCode.STALE_MEMBER_EPOCH


def test_an_unknown_topic_id_has_an_error_of_its_own(side):
    side.catalog.delete("clicks")
    side.processor.see_topics()
    assert side.commit(10, {0: 5}) == {0: UNKNOWN_TOPIC_ID}
    assert fetched(side.fetch(10, [0])) == {0: (-1, "", UNKNOWN_TOPIC_ID)}
    assert side.commit(9, {0: 5}) == {0: UNKNOWN_TOPIC}
    assert side.fetch(10, None).topics == (), "it has no id to name it by"


def test_several_groups_are_fetched_at_once(side):
    side.commit(8, {0: 5})
    side.join("m", "clicks")
    topic = {"name": "clicks", "partition_indexes": [0]}
    groups = [
        {"group_id": "h", "topics": [topic]},
        {"group_id": "g", "topics": [topic]},
        {"group_id": "g", "topics": None, "member_id": "m", "member_epoch": 4},
    ]
    found = side.ask(Api.OFFSET_FETCH, 9, groups=groups).groups
    assert [one.group_id for one in found] == ["h", "g", "g"]
    assert [fetched(one)[0][0] for one in found[:2]] == [-1, 5]
    assert [int(one.error_code) for one in found] == [NONE, NONE, ErrorCode.STALE_MEMBER_EPOCH]


def test_offsets_are_deleted_unless_the_group_subscribes(side):
    side.commit(8, {0: 5, 1: 6})

    def delete():
        partitions = [{"partition_index": 0}]
        topics = [{"name": "clicks", "partitions": partitions}]
        answer = side.ask(Api.OFFSET_DELETE, 0, group_id="g", topics=topics)
        codes = [int(p.error_code) for topic in answer.topics for p in topic.partitions]
        return int(answer.error_code), codes

    side.join("m1", "clicks")
    assert delete() == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    side.beat("m1", -1)
    assert delete() == (NONE, [NONE])
    assert fetched(side.fetch(8, None)) == {1: (6, "why", 0)}
    side.ask(Api.DELETE_GROUPS, 2, groups_names=["g"])
    assert delete() == (ErrorCode.GROUP_ID_NOT_FOUND, [])


# When the coordinator cannot answer --------------------------------------------------------------

REQUESTS = {
    HEARTBEAT: {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None},
    DESCRIBE: {"group_ids": ["g"], "include_authorized_operations": False},
    Api.DESCRIBE_GROUPS: {"groups": ["g"], "include_authorized_operations": False},
    Api.LIST_GROUPS: {},
    Api.DELETE_GROUPS: {"groups_names": ["g"]},
    Api.OFFSET_COMMIT: {
        "group_id": "g", "member_id": "", "retention_time": -1,
        "topics": [{"name": "clicks", "topic_id": CLICKS, "partitions": [
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": None},
        ]}],
    },
    Api.OFFSET_DELETE: {
        "group_id": "g", "topics": [{"name": "clicks", "partitions": [{"partition_index": 0}]}],
    },
    Api.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 32, "resource_name": "g"}]},
    Api.ALTER_CONFIGS: {
        "resources": [{"resource_type": 32, "resource_name": "g", "configs": ()}],
        "validate_only": False,
    },
    Api.LIST_CONFIG_RESOURCES: {"resource_types": [32]},
    Api.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{"resource_type": 32, "resource_name": "g", "configs": ()}],
        "validate_only": False,
    },
}  # fmt: skip
TOPIC = {"name": "clicks", "topic_id": CLICKS, "partition_indexes": [0]}
GROUP = {"group_id": "g", "topics": [TOPIC]}
REQUESTS[Api.OFFSET_FETCH] = GROUP | {"groups": [GROUP]}


def codes_of(message):
    """Return every error code in a message."""
    found = []
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            found.append(int(value))
        for part in value if isinstance(value, tuple) else ():
            found += codes_of(part) if hasattr(part, "__slots__") else []
    return found


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (api, v)
        for api in REQUESTS
        for v in range(VERSIONS[api][0], VERSIONS[api][1] + 1)
        if (api, v) != (Api.LIST_CONFIG_RESOURCES, 0)  # it asks nothing of groups
    ],
)
def test_a_fenced_coordinator_says_so_in_every_version(side, api, version):
    side.storage.epoch += 1
    side.now_ms += 1_000
    codes = codes_of(side.ask(api, version, **REQUESTS[api]))
    assert ErrorCode.NOT_COORDINATOR in codes
    assert set(codes) <= {NONE, ErrorCode.NOT_COORDINATOR}


def test_topic_ids_round_trip():
    for topic_id in (topic_id_of("x"), "AAAAAAAAAAAAAAAAAAAAAA"):
        assert from_uuid(to_uuid(topic_id)) == topic_id
    assert from_uuid(None) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert to_uuid("no uuid") == to_uuid("no uuid") != to_uuid("another")
