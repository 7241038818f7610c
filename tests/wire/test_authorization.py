"""Access lists on the wire: the same answers as Kafka 4.4.0 gave to the same two users.

`golden/acls/kafka-4.4.0.jsonl` was recorded from a broker with StandardAuthorizer, where `GROUPS`
had been made by a super user; each line is the answer to one of `acl_cases.cases`.
"""

from __future__ import annotations

import json
import uuid

import pytest

from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.wire.acls import parse_acls
from coordinator.wire.apis.group_apis import HANDLERS
from coordinator.wire.authorization import RULES
from coordinator.wire.call import to_uuid
from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS, Api
from coordinator.wire.decoder import WireError
from tests.conftest import ROOT
from tests.support.acl_cases import ACLS, BEAT, GROUPS, TOPICS, cases, facts
from tests.support.wire_side import Side

GOLDEN = ROOT / "tests/golden/acls/kafka-4.4.0.jsonl"
IDS = {name: to_uuid(topic_id_of(name)) for name in TOPICS} | {"nowhere": uuid.UUID(int=99)}
NAMES = {topic_id: name for name, topic_id in IDS.items()}
NOT_ASKED = {
    "include_authorized_operations": False, "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False, "allow_auto_topic_creation": False,
}  # fmt: skip


def side_of(user, acls=ACLS):
    side = Side(**TOPICS)
    for group, topics in GROUPS.items():
        beat = BEAT | {"group_id": group, "member_id": f"m{group}"}
        side.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **beat, subscribed_topic_names=topics)
        offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        side.ask(
            Api.OFFSET_COMMIT, 9, group_id=group, generation_id_or_member_epoch=2,
            member_id=f"m{group}", topics=[{"name": t, "partitions": [offset]} for t in TOPICS],
        )  # fmt: skip
    side.acls = parse_acls(acls, "acls.toml")
    side.connection.session.principal = f"User:{user}"
    return side


@pytest.mark.parametrize("user", ["alice", "bob", "admin"])
def test_users_are_answered_as_by_kafka(user):
    side, different = side_of(user), []
    recorded = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    asked = list(cases(IDS))
    for line in (one for one in recorded if one["user"] == user):
        api, version, words = asked[line["case"]]
        assert (api.name, version) == (line["api"], line["version"])
        answer = facts(side.ask(api, version, **NOT_ASKED | words), NAMES)
        if answer != line["answer"]:
            different.append((line["case"], api.name, version, answer, line["answer"]))
    assert different == []


def test_every_api_that_is_served_has_a_rule():
    assert set(RULES) == set(VERSIONS | CLASSIC_VERSIONS) == set(HANDLERS)


def test_requests_of_the_cluster_need_the_cluster():
    for user, code in (("alice", 31), ("bob", 0), ("admin", 0)):
        answer = side_of(user).ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=())
        assert (user, int(answer.error_code)) == (user, code)


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (Api.LIST_PARTITION_REASSIGNMENTS, 0),
        (Api.DESCRIBE_LOG_DIRS, 1),
        (Api.DESCRIBE_LOG_DIRS, 5),
        (Api.DESCRIBE_QUORUM, 0),
        (Api.DESCRIBE_QUORUM, 2),
    ],
)
def test_admin_requests_need_the_cluster(api, version):
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    topics = quorum if api is Api.DESCRIBE_QUORUM else None
    refused, allowed = (side_of(who).ask(api, version, topics=topics) for who in ("alice", "bob"))
    listed = {"results", "topics"} & set(allowed.__slots__)
    assert [getattr(refused, name) for name in listed] == [()]
    assert int(getattr(refused, "error_code", 31)) == 31
    assert int(getattr(allowed, "error_code", 0)) == 0


def test_decisions_on_long_names_are_not_kept():
    """4,096 of a megabyte each would be four gigabytes, of every connection."""
    side = side_of("alice")
    names = [f"{number}{'x' * 10_000}" for number in range(50)]
    side.connection._request_bytes_max = 1 << 20
    answer = side.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=names)
    assert {int(one.error_code) for one in answer.coordinators} == {30}
    _, decided = side.connection.session._decided
    assert sum(len(of.name) for _, of in decided) < 10_000


def test_an_api_without_a_rule_is_not_served_under_access_lists(monkeypatch):
    monkeypatch.delitem(RULES, Api.LIST_GROUPS)
    with pytest.raises(WireError, match="LIST_GROUPS has no rule"):
        side_of("admin").ask(Api.LIST_GROUPS, 4)


def test_an_equal_heartbeat_is_authorized_by_the_current_lists():
    """The same bytes are not looked at twice, unless the lists have changed."""
    side = side_of("alice")
    beat = {"group_id": "mine", "member_id": "mmine", "member_epoch": 2, "topic_partitions": None,
            "rebalance_timeout": -1}  # fmt: skip

    def code():
        return int(side.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **beat).error_code)

    assert [code(), code()] == [0, 0]
    allowed, side.acls = side.acls, parse_acls("", "acls.toml")
    assert [code(), code()] == [30, 30]
    side.acls = allowed
    assert [code(), code()] == [0, 0]
    side.acls = parse_acls(ACLS, "acls.toml")
    assert [code(), code()] == [0, 0]
    asked = side.connection._last
    assert asked.conversation.is_allowed(asked.body, side.acls)


READERS = """
[[acls]]
principal = "User:*"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "*"
""" + "".join(
    f"""
[[acls]]
principal = "User:{user}"
operations = ["{operation}"]
resource_type = "TOPIC"
resource_name = "{name}"
pattern_type = "PREFIXED"
host = "{host}"
"""
    for user, operation, name, host in (
        ("alice", "DESCRIBE", "click", "*"), ("alice", "READ", "orders", "10.9.9.9"),
        ("bob", "READ", "order", "10.0.0.1"),
    )
)  # fmt: skip


class Pattern:
    """A group whose members subscribe to every topic, by a regular expression."""

    def __init__(self):
        self.side = Side(clicks=1, clicks2=1, orders=1, secrets=1)
        self.side.acls = parse_acls(READERS, "acls.toml")

    def asked_by(self, user, ask):
        """Return the topics found, once a request of the user has made the coordinator look."""
        self.side.now_ms += 600_001
        self.side.connection.session.principal = f"User:{user}"
        assert int(ask().error_code) == 0
        (task,) = self.side.processor.take_tasks()
        self.side.processor.run([prepare_resolution(self.side.processor, task)()])
        (found,) = self.side.processor.state.groups["g"].regexes.values()
        return found.topics


@pytest.mark.behaviour("G-84", "S-24")
def test_a_regular_expression_finds_what_the_asking_member_may_describe():
    """It is one list for the whole group, of who asked when it was resolved, as in Kafka."""
    group = Pattern()
    side = group.side
    join = {"subscribed_topic_regex": ".*"}
    assert group.asked_by("alice", lambda: side.join("m1", **join)) == ("clicks", "clicks2")
    assert group.asked_by("bob", lambda: side.join("m2", **join)) == ("orders",)
    assert group.asked_by("carol", lambda: side.join("m3")) == ()
    last = lambda: side.beat("m1", side.processor.state.groups["g"].members["m1"].epoch)  # noqa: E731
    side.acls = parse_acls(READERS.replace("click", "clicks2"), "acls.toml")
    assert group.asked_by("alice", last) == ("clicks2",)
    side.acls = None
    assert len(group.asked_by("alice", last)) == 4


@pytest.mark.behaviour("G-84")
def test_a_heartbeat_sent_again_finds_topics_by_the_lists_of_now():
    """What the same bytes mean is remembered, but not what they may see."""
    group = Pattern()
    side = group.side
    group.asked_by("alice", lambda: side.join("m1", subscribed_topic_regex=".*"))
    beat = {"group_id": "g", "member_id": "m1", "topic_partitions": None, "rebalance_timeout": -1}
    beat["member_epoch"] = side.beat("m1", 1).member_epoch
    side.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
    again = lambda: side.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, **beat)  # noqa: E731
    assert group.asked_by("alice", again) == ("clicks", "clicks2")
    side.acls = parse_acls(READERS.replace("click", "secret"), "acls.toml")
    assert group.asked_by("alice", again) == ("secrets",)
