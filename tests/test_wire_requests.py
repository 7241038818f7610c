"""What each request asks of the coordinator, and how its answers look on the wire."""

from __future__ import annotations

from uuid import UUID

import pytest
from wire_client import read_response, request_frame

from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.kafka_config import kafka_config
from coordinator.log import MemoryLog, Storage
from coordinator.runner import Runner
from coordinator.topics import DictCatalog, topic_id_of
from coordinator.wire.calls import Cluster, id_of, uuid_of
from coordinator.wire.codec import VERSIONS, Api
from coordinator.wire.connection import Connection
from coordinator.wire.reading import WireError
from coordinator.wire.requests import HANDLERS, call_of, frame_of

HEARTBEAT, DESCRIBE = Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE
NONE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, UNKNOWN_TOPIC_ID = 0, 3, 35, 100
CLICKS = uuid_of(topic_id_of("clicks"))
NO_INTERVAL = {"group.consumer.assignment.interval.ms": 0}


class Side:
    """A client that speaks with a coordinator in memory: the server without its sockets."""

    def __init__(self, **topics):
        self.now_ms = 1_000_000
        self.catalog = DictCatalog(topics)
        self.storage = Storage()
        log = MemoryLog(self.storage)
        log.claim("test", "", self.now_ms)
        config = Config(kafka=kafka_config(NO_INTERVAL))
        self.runner = Runner(log, config, lambda: self.now_ms, self.catalog)
        self.runner.load()
        self.cluster = Cluster(
            7, "here", 9092, "muster", lambda: self.runner.topics,
            lambda: self.runner.status == "active",
        )  # fmt: skip
        self.connection = Connection("/10.0.0.1", 1 << 20, 10)

    def ask(self, api, version, **fields):
        self.connection.receive(request_frame(api, version, 1, **fields))
        asked = self.connection.next_request()
        call = call_of(asked.request, self.cluster)
        asked.frame = frame_of(asked.request, call, self.runner.run(call.events))
        self.waited_ms = call.wait_ms
        return read_response(self.connection.answers(), api, version)[1]

    def beat(self, member_id, epoch, owned=None, version=1, **fields):
        if owned is not None:
            owned = [{"topic_id": t, "partitions": p} for t, p in owned.items()]
        return self.ask(
            HEARTBEAT, version, group_id="g", member_id=member_id, member_epoch=epoch,
            topic_partitions=owned, **fields,
        )  # fmt: skip

    def join(self, member_id, *topics, version=1, **fields):
        return self.beat(
            member_id, 0, {}, version, rebalance_timeout=60_000, subscribed_topic_names=topics,
            **fields,
        )  # fmt: skip

    def commit(self, version, offsets, member_id="", epoch=-1):
        partitions = [
            {"partition_index": p, "committed_offset": o, "committed_metadata": "why"}
            for p, o in offsets.items()
        ]
        topic = {"name": "clicks", "topic_id": CLICKS, "partitions": partitions}
        answer = self.ask(
            Api.OFFSET_COMMIT, version, group_id="g", generation_id_or_member_epoch=epoch,
            member_id=member_id, topics=[topic], retention_time=-1,
        )  # fmt: skip
        return {p.partition_index: int(p.error_code) for p in answer.topics[0].partitions}

    def fetch(self, version, partitions, member_id=None, epoch=-1):
        topics = None
        if partitions is not None:
            topics = [{"name": "clicks", "topic_id": CLICKS, "partition_indexes": partitions}]
        group = {"group_id": "g", "topics": topics, "member_id": member_id, "member_epoch": epoch}
        answer = self.ask(Api.OFFSET_FETCH, version, **group, groups=[group])
        return answer.groups[0] if version >= 8 else answer


@pytest.fixture
def side():
    return Side(clicks=4, orders=2)


def fetched(group):
    return {
        p.partition_index: (p.committed_offset, p.metadata, int(p.error_code))
        for topic in group.topics
        for p in topic.partitions
    }


def partitions_of(assignment):
    return {one.topic_id: list(one.partitions) for one in assignment.topic_partitions}


# The cluster -------------------------------------------------------------------------------------


def test_every_api_is_served_and_told(side):
    assert HANDLERS.keys() == VERSIONS.keys()
    for version in range(5):
        words = {"client_software_name": "test", "client_software_version": "1"}
        answer = side.ask(Api.API_VERSIONS, version, **words)
        told = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        sasl = {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
        assert told == {api: span for api, span in VERSIONS.items() if api not in sasl}


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
    side.runner.fence("a test")
    assert find() == {(-1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)}


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_node(side, version):
    words = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    answer = side.ask(Api.DESCRIBE_CLUSTER, version, **words)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(7, "here", 9092)]
    assert (answer.cluster_id, answer.controller_id) == ("muster", 7)
    if version:
        answer = side.ask(Api.DESCRIBE_CLUSTER, version, endpoint_type=2, **words)
        assert (int(answer.error_code), answer.brokers) == (115, ())


@pytest.mark.parametrize("version", range(7))
def test_no_group_is_a_classic_one(side, version):
    answer = side.ask(
        Api.DESCRIBE_GROUPS, version, groups=["g"], include_authorized_operations=False
    )
    (group,) = answer.groups
    assert (group.group_id, group.group_state, group.members) == ("g", "Dead", ())
    assert int(group.error_code) == (69 if version >= 6 else NONE)


@pytest.mark.parametrize("version", range(1, 11))
def test_every_partition_begins_and_ends_at_offset_0(side, version):
    partitions = [{"partition_index": p, "timestamp": -1} for p in (3, 4)]
    topics = [{"name": "clicks", "partitions": partitions}]
    words = {"replica_id": -1, "isolation_level": 0, "timeout": 0}
    (answer,) = side.ask(Api.LIST_OFFSETS, version, topics=topics, **words).topics
    found = [(p.partition_index, p.offset, int(p.error_code)) for p in answer.partitions]
    assert found == [(3, 0, NONE), (4, -1, UNKNOWN_TOPIC)]


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
def test_a_login_that_nobody_asked_for(side, api, words):
    assert int(side.ask(api, 1, **words).error_code) == 34


# Groups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_members_are_told_partitions_by_topic_id(side, version):
    first = side.join("m1", "clicks", "orders", version=version)
    assert (int(first.error_code), first.member_id, first.member_epoch) == (NONE, "m1", 2)
    assert first.heartbeat_interval.total_seconds() == 5
    owned = partitions_of(first.assignment)
    assert owned == {CLICKS: [0, 1, 2, 3], uuid_of(topic_id_of("orders")): [0, 1]}
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
    assert int(side.beat("m1", 5, {CLICKS: [-1]}).error_code) == ErrorCode.INVALID_REQUEST


def test_what_a_heartbeat_says_arrives(side):
    side.join(
        "m1", "clicks", instance_id="i1", rack_id="r1", server_assignor="range",
        subscribed_topic_regex="ord.*",
    )  # fmt: skip
    meta = side.runner.state.groups["g"].members["m1"].meta
    assert meta.subscribed_topic_names == ("clicks",)
    assert (meta.instance_id, meta.rack_id, meta.server_assignor) == ("i1", "r1", "range")
    assert (meta.subscribed_topic_regex, meta.rebalance_timeout_ms) == ("ord.*", 60_000)
    assert (meta.client_id, meta.client_host) == ("test", "/10.0.0.1")


def test_a_heartbeat_that_repeats_itself_is_decided_anew(side):
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


def test_who_reports_nothing_while_it_takes_what_it_was_given_has_not_let_go_of_it(side):
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


def test_who_lost_an_answer_with_its_connection_is_told_again(side):
    side.join("m1", "clicks")
    side.join("m2", "clicks")
    assert held(side.beat("m1", 2)) == (2, [0, 1])
    assert side.beat("m1", 2).assignment is None
    side.connection = Connection("/10.0.0.1", 1 << 20, 10)
    assert held(side.beat("m1", 2)) == (2, [0, 1])
    assert side.beat("m1", 2).assignment is None


def test_who_was_told_to_let_go_of_everything_and_reports_nothing_has(side):
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


def test_an_id_that_no_topic_has_is_told_apart(side):
    side.catalog.delete("clicks")
    side.runner.see_topics()
    assert side.commit(10, {0: 5}) == {0: UNKNOWN_TOPIC_ID}
    assert fetched(side.fetch(10, [0])) == {0: (-1, "", UNKNOWN_TOPIC_ID)}
    assert side.commit(9, {0: 5}) == {0: NONE}, "by name it may come again"
    assert side.fetch(10, None).topics == (), "it has no id to be told by"


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


# Settings of groups ------------------------------------------------------------------------------


def settings(side, version=4, names=None, kind=32):
    resource = {"resource_type": kind, "resource_name": "g", "configuration_keys": names}
    (found,) = side.ask(Api.DESCRIBE_CONFIGS, version, resources=[resource]).results
    return found


def alter(side, *changes, version=1, kind=32, validate_only=False):
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    resource = {"resource_type": kind, "resource_name": "g", "configs": configs}
    answer = side.ask(
        Api.INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], validate_only=validate_only
    )
    return int(answer.responses[0].error_code), answer.responses[0].error_message


TIMEOUT, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize("version", [0, 1])
def test_settings_are_set_one_by_one_and_go_back(side, version):
    assert alter(side, (TIMEOUT, 0, "50000"), version=version) == (NONE, None)
    assert alter(side, (INTERVAL, 0, "6000"), version=version) == (NONE, None)
    assert side.runner.state.settings["g"] == {TIMEOUT: "50000", INTERVAL: "6000"}
    assert alter(side, (TIMEOUT, 1, None), version=version) == (NONE, None)
    assert side.runner.state.settings["g"] == {INTERVAL: "6000"}


def test_what_cannot_be_set_is_said_and_nothing_is_set(side):
    code, message = alter(side, (TIMEOUT, 0, "1"))
    assert (code, message) == (ErrorCode.INVALID_CONFIG, f"{TIMEOUT} is '1': give 45000 to 60000")
    for changes in ([(TIMEOUT, 2, "50000")], [(TIMEOUT, 0, "50000"), (TIMEOUT, 1, None)]):
        code, message = alter(side, *changes)
        assert code == ErrorCode.INVALID_REQUEST
        assert TIMEOUT in message
    code, message = alter(side, ("retention.ms", 0, "1"), kind=2)
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Only groups have settings here (resource type 32).",
    )
    assert alter(side, (TIMEOUT, 0, "50000"), validate_only=True) == (NONE, None)
    assert side.runner.state.settings == {}


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_told_with_where_they_come_from(side, version):
    alter(side, (TIMEOUT, 0, "50000"))
    found = {c.name: (c.value, c.config_source) for c in settings(side, version).configs}
    assert found[TIMEOUT] == ("50000", 8)
    assert found[INTERVAL] == ("5000", 5)
    assert found["consumer.assignor.max.moves"] == (None, 5)
    (one,) = settings(side, version, names=[TIMEOUT]).configs
    assert one.name == TIMEOUT
    assert int(settings(side, version, kind=2).error_code) == ErrorCode.INVALID_REQUEST


# When the coordinator cannot answer --------------------------------------------------------------

REQUESTS = {
    HEARTBEAT: {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None},
    DESCRIBE: {"group_ids": ["g"], "include_authorized_operations": False},
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
    [(api, v) for api in REQUESTS for v in range(VERSIONS[api][0], VERSIONS[api][1] + 1)],
)
def test_a_fenced_coordinator_says_so_in_every_version(side, api, version):
    side.storage.epoch += 1
    side.now_ms += 1_000
    codes = codes_of(side.ask(api, version, **REQUESTS[api]))
    assert ErrorCode.NOT_COORDINATOR in codes
    assert set(codes) <= {NONE, ErrorCode.NOT_COORDINATOR}


def test_ids_go_over_the_wire_and_back():
    for topic_id in (topic_id_of("x"), "AAAAAAAAAAAAAAAAAAAAAA"):
        assert id_of(uuid_of(topic_id)) == topic_id
    assert id_of(None) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_of("no uuid") == uuid_of("no uuid") != uuid_of("another")


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
