"""Bad input to the API, to the store and to the commands: refused clearly, and nothing written."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coordinator import Coordinator
from coordinator.config import ConfigError
from coordinator.core.events import CatalogTopic, Heartbeat, TopicsReported
from coordinator.core.state.records import (
    GroupMetadata,
    MemberMetadata,
    TargetMetadata,
    TopicChanged,
)
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.plan_tasks.weight_source import WeightTables
from coordinator.storage.record_log import Batch, CommitFailed, CorruptLog, NewerLog
from tests.conftest import ROOT
from tests.runtime.test_plans import running, weights
from tests.support.members import code_of, position_of, state_of
from tests.support.stories import stored

__all__ = ["running"]
JOINING = {
    "group_id": "g",
    "member_id": "m2",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["clicks"],
    "topic_partitions": {},
}
COMMIT = {"group_id": "g", "member_id": "m1", "member_epoch": 2, "topics": {"clicks": {0: 5}}}
RANGES = {"member_id": ["m1"], "topic": ["clicks"], "first_partition": [0], "partition_count": [4]}
LONG = "x" * (10 << 20)
NESTED = []
for _ in range(5_000):
    NESTED = [NESTED]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    with Coordinator.open(store, topics={"clicks": 4}) as opened:
        fields = JOINING | {"member_id": "m1"}
        assert opened.consumer_group_heartbeat(**fields).member_epoch == 2
        yield opened


@pytest.fixture
def unharmed(coordinator):
    """Nothing is written, nothing is reported as a bug of ours, and all others are served."""
    before = position_of(coordinator)
    yield
    assert position_of(coordinator) == before
    coordinator.consumer_group_heartbeat(group_id="g", member_id="m1", member_epoch=2)
    assert coordinator.status == "active"


def heartbeat(coordinator, **fields):
    return code_of(coordinator.consumer_group_heartbeat, **JOINING | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"member_epoch": "0"},
        {"member_epoch": 2**31},
        {"member_epoch": math.nan},
        {"member_epoch": None},
        {"member_id": None},
        {"member_id": b"m2"},
        {"member_id": LONG},
        {"member_id": "\ud800"},
        {"group_id": None},
        {"group_id": ["g"]},
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": 5},
        {"rebalance_timeout_ms": -5},
        {"rebalance_timeout_ms": 1.5},
        {"rebalance_timeout_ms": 10**400},
        {"subscribed_topic_names": "clicks"},
        {"subscribed_topic_names": [None]},
        {"subscribed_topic_names": NESTED},
        {"subscribed_topic_names": None},
        {"topic_partitions": {"clicks": [-1]}},
        {"topic_partitions": {"clicks": [2**31]}},
        {"topic_partitions": {"clicks": ["0"]}},
        {"topic_partitions": {1: [0]}},
        {"topic_partitions": range(3)},
        {"topic_partitions": pa.table({"clicks": [0]})},
    ],
    ids=lambda fields: next(iter(fields)),
)
@pytest.mark.usefixtures("unharmed")
def test_an_impossible_heartbeat_is_refused(coordinator, fields):
    refused = {"INVALID_REQUEST", "INVALID_GROUP_ID"}
    assert heartbeat(coordinator, **fields) in refused
    steady = {"group_id": "g", "member_id": "m1", "member_epoch": 2}
    if "topic_partitions" in fields:  # the fast path looks at them too
        assert code_of(coordinator.consumer_group_heartbeat, **steady | fields) in refused


@pytest.mark.usefixtures("unharmed")
def test_a_subscription_to_too_many_names(coordinator):
    """A million held everybody else's heartbeats for ten seconds; the wire has its own bound."""
    many = [f"t{number}" for number in range(100_001)]
    words = "100001 names, at most 100000 are allowed: subscribe by"
    with pytest.raises(GroupError, match=words) as refused:
        coordinator.consumer_group_heartbeat(**JOINING | {"subscribed_topic_names": many})
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_well_typed_requests_with_bad_values_are_refused(coordinator, unharmed):
    assert heartbeat(coordinator, subscribed_topic_regex="(") == "INVALID_REGULAR_EXPRESSION"
    assert heartbeat(coordinator, server_assignor="dice") == "UNSUPPORTED_ASSIGNOR"
    assert heartbeat(coordinator, member_epoch=7) == "UNKNOWN_MEMBER_ID"
    with pytest.raises(TypeError, match="member_age"):
        heartbeat(coordinator, member_age=3)


@pytest.mark.parametrize(
    "fields",
    [
        {"topics": {"clicks": {0: 2**63}}},
        {"topics": {"clicks": {0: math.nan}}},
        {"topics": {"clicks": {0: "5"}}},
        {"topics": {"clicks": {-1: 5}}},
        {"topics": {"clicks": {0: (5, None)}}},
        {"topics": {"clicks": {0: (5, "m", "n")}}},
        {"topics": {"clicks": [0]}},
        {"topics": None},
        {"topics": {None: {0: 5}}},
        {"member_epoch": "2"},
    ],
    ids=str,
)
@pytest.mark.usefixtures("unharmed")
def test_an_impossible_offset_commit_is_refused(coordinator, fields):
    assert code_of(coordinator.offset_commit, **COMMIT | fields) == "INVALID_REQUEST"


@pytest.mark.usefixtures("unharmed")
def test_other_impossible_requests_are_refused(coordinator):
    refused = "INVALID_REQUEST"
    asked = coordinator
    assert code_of(asked.offset_fetch, group_id="g", topics={"clicks": [-1]}) == refused
    assert code_of(asked.offset_delete, group_id="g", topics={"clicks": 0}) == refused
    assert code_of(asked.delete_groups([None]).raise_for_error) == refused
    assert code_of(asked.list_groups, states_filter=[5]) == refused
    assert code_of(asked.alter_group_config, "g", None) == refused
    assert code_of(asked.alter_group_config, "g", {"no.such": 1}) == "INVALID_CONFIG"
    wrong = {"consumer.session.timeout.ms": 10**400}
    assert code_of(asked.alter_group_config, "g", wrong) == "INVALID_CONFIG"
    install = {"group_id": "g", "computation_id": "none", "group_epoch": 3}
    for ranges in (None, pa.table({"member_id": ["m1"]}), pa.table(RANGES)):
        found = code_of(asked.consumer_group_install_assignment, **install, ranges=ranges)
        assert found in {refused, "UNKNOWN_MEMBER_ID"}


@pytest.mark.usefixtures("unharmed")
def test_a_batch_of_unknown_objects_is_refused(coordinator):
    good = Heartbeat("g", "m1", 2)
    answers = coordinator.consumer_group_heartbeats([good, "beat", None, good])
    assert [a.error for a in answers] == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST", "NONE"]
    assert coordinator.consumer_group_heartbeats([]) == []


def test_a_closed_coordinator_says_so():
    opened = Coordinator.open(None)
    opened.close()
    assert heartbeat(opened) == "COORDINATOR_NOT_AVAILABLE"
    with pytest.raises(GroupError) as error:
        opened.describe_group_config("g")
    assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_page_says_what_each_error_means():
    page = (ROOT / "docs/reference/errors.md").read_text()
    said = page.partition("## What to do about an error")[2]
    assert [code.name for code in ErrorCode if code and code.name not in said] == []


# The store ---------------------------------------------------------------------------------------


def lived_in(store):
    Coordinator.open(store, topics={"clicks": 4}).close()
    return store / "log"


def newer(store):
    log = DeltaTable(lived_in(store))
    log.alter.set_table_properties({"muster.format": "3"}, raise_if_not_exists=False)


def a_file_for_a_lease(store):
    lived_in(store)
    (store / "_lease.json").unlink(missing_ok=True)
    (store / "_lease.json").mkdir()


def a_file_for_a_log(store):
    store.mkdir()
    (store / "log").touch()


def foreign(folder):
    write_deltalake(folder, pa.table({"a": [1]}))


@pytest.mark.parametrize(
    ("make", "kind", "words", "code"),
    [
        (lambda s: s.touch(), ConfigError, "is a file: name a folder of its own", 2),
        (foreign, ConfigError, "is itself a Delta table", 2),
        (a_file_for_a_log, CommitFailed, "cannot be opened: .*File exists", 2),
        (lambda s: foreign(s / "log"), CorruptLog, "not of a coordinator", 2),
        (newer, NewerLog, "has format 3, this version of Muster knows", 2),
        (a_file_for_a_lease, CommitFailed, "cannot be opened: .*Is a directory", 0),
    ],
)
def test_an_unusable_store_is_refused(muster_here, tmp_path, make, kind, words, code):
    """The command that reads needs no lease; whatever it cannot read it says in one line."""
    store = tmp_path / "store"
    make(store)
    with pytest.raises(kind, match=words):
        Coordinator.open(store)
    done = muster_here("groups", "--store", store)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == (code > 0)


@pytest.mark.parametrize(
    "store",
    ["", "\0", 5, ["a"], b"store", "ftp://host/store", "s3://", "s3://me:secret@bucket/store"],
)
def test_a_store_path_that_is_no_path_is_refused(store):
    with pytest.raises(ConfigError, match=r"the store('s URL)? .*(name|give|it has)"):
        Coordinator.open(store)


def test_a_group_is_described_without_a_target_that_is_gone(muster_here, tmp_path):
    records = [
        TopicChanged("clicks", "c", 4),
        MemberMetadata("g", "m1", subscribed_topic_names=("clicks",)),
        GroupMetadata("g", 2, 0, "member joined", "m1"),
        TargetMetadata(
            "g", 2, 0, "uniform", 0, False,
            computation_id="run", targets_version=0, digest=1, members=1, ranges=1,
        ),
    ]  # fmt: skip
    stored([Batch(1, 0, 1, []), Batch(5, 0, 1, records)], tmp_path)
    done = muster_here("describe", "g", "--store", tmp_path)
    assert done.returncode == 0
    assert b"targets are not shown" in done.stderr
    (member,) = json.loads(done.stdout)["members"]
    assert member["targetAssignment"] == {"topicPartitions": []}


def test_tables_of_others_beside_the_log_are_passed_over(muster_here, tmp_path):
    """The log has everything."""
    lived_in(tmp_path)
    foreign(tmp_path / "snapshots")
    foreign(tmp_path / "targets")
    Coordinator.open(tmp_path).close()
    assert muster_here("groups", "--store", tmp_path).returncode == 0


def partitions(**columns):
    return WeightTables(pa.table({"topic": ["clicks"], "partition": [0], "weight": [1]} | columns))


def members(**columns):
    return WeightTables(members=pa.table({"name": ["m1", "m2"]} | columns))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (WeightTables(weights(-1.0)), "has weight -1.0: give a number from 0 on, below 2^62"),
        (WeightTables(weights(math.nan)), "partition 0 of topic 'clicks' has weight nan"),
        (WeightTables(weights(2.0**63)), "has weight 9.223372036854776e+18"),
        (WeightTables(weights("1")), "has weight '1'"),
        (WeightTables(weights(1.0).drop_columns("weight")), "column 'weight' is missing"),
        (WeightTables(weights(1.0).drop_columns("topic")), "column 'topic' is missing"),
        (partitions(wieght=[1.0]), "unknown column 'wieght': the columns are group_id, topic"),
        (partitions(topic=[b"clicks"]), "topic is b'clicks': give the name of a topic"),
        (partitions(partition=[0.0]), "topic 'clicks' has partition 0.0: give 0 or more"),
        (partitions(group_id=[7]), "group_id is 7: give the id of a group as text"),
        (
            WeightTables(pa.concat_tables([weights(1.0), weights(2.0)])),
            "partition 0 of topic 'clicks' appears twice",
        ),
        (WeightTables(partitions={"topic": ["clicks"]}), "the source gave dict"),
        (members(capacity=[0.0, 1.0]), "has capacity 0: give it the state standby"),
        (members(capacity=[5e-324] * 2), "has capacity 5e-324: give a number from 1e-18 on"),
        (members(capacity=[1e-9, 1e9]), "capacities may differ by a factor of 4096"),
        (members(state=["off", "active"]), "has state 'off'"),
        (WeightTables(members=pa.table({"capacity": [1.0]})), "column 'name' is missing"),
        (
            WeightTables(constraints=pa.table({"kind": ["pull"], "selector": ["m1"]})),
            "kind is 'pull'",
        ),
        (None, "the source gave NoneType: give WeightTables"),
    ],
)
def test_tables_that_cannot_be_used_change_nothing(running, tables, said, caplog):
    group = running()
    group.beat("m1", "m2")
    group.tables = tables
    before = group.coordinator.group_epochs("g")
    group.poll()
    assert group.coordinator.group_epochs("g") == before
    assert "stay as they were" in caplog.text
    assert said in caplog.text
    assert "g" not in state_of(group.coordinator).loads


def test_tables_without_rows_say_nothing(running, caplog):
    group = running()
    group.beat("m1", "m2")
    group.tables = members(capacity=[2.0, 1.0])
    group.poll()
    assert state_of(group.coordinator).loads["g"].capacities != ()
    none = pa.table({})
    group.tables = WeightTables(none, none, none)
    group.poll()
    assert caplog.text == ""
    assert state_of(group.coordinator).loads["g"].capacities == ()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"drain": "m1"}, "drain is 'm1': give a list of members' names"),
        ({"without": [1]}, r"without is \[1\]: give a list"),
        ({"drain": ["m1"], "undrain": ["m1"]}, "drain and undrain both name m1"),
        ({"drain": ["m1", "m2"]}, "cannot be on any member: drain"),
        ({"add": 2.5}, r"add is 2\.5: give a whole number"),
        ({"add": True}, "add is True"),
        ({"reason": 5}, "reason is 5: give text"),
        ({"owner": None}, "owner is None: give text"),
        ({"assignor": "best"}, "unknown assignor 'best'"),
        ({"engine": "abacus"}, "engine 'abacus': give one of local, spark"),
        ({"settings": {"consumer.assignor.rack": "x"}}, "give one of prefer, require, ignore"),
    ],
)
def test_plans_that_are_asked_for_wrongly_are_refused(running, asked, said):
    group = running()
    group.beat("m1", "m2")
    with pytest.raises(GroupError, match=said):
        group.coordinator.plan("g", **asked)


def test_what_is_no_plan_or_another_groups_is_not_applied(running):
    group, other = running(), running()
    group.beat("m1", "m2")
    other.beat("m2", "m1")
    shown = group.coordinator.plan("g", drain=["m1"])
    for act in (other.coordinator.apply_plan, other.coordinator.propose_plan):
        with pytest.raises(GroupError, match="dict is not a plan: give the result of plan"):
            act({"plan_id": shown.plan.plan_id})
    with pytest.raises(GroupError, match="is for another state of group g: target: changed"):
        other.coordinator.apply_plan(shown)
    assert other.counts() == {"m1": 3, "m2": 3}


def test_a_plan_for_a_topic_that_was_recreated_is_refused(running):
    group = running(topics={"clicks": CatalogTopic("first", 6)})
    group.beat("m1", "m2")
    shown = group.coordinator.plan("g", drain=["m1"])
    for topics, said in (
        ({"clicks": CatalogTopic("second", 6)}, "topics: changed, still clicks=6"),
        ({"clicks": CatalogTopic("second", 4)}, "topics: was clicks=6, is clicks=4"),
        ({}, "topics: was clicks=6, is none"),
    ):
        group.coordinator._loop.submit([TopicsReported(topics)]).result()
        with pytest.raises(GroupError, match=said):
            group.coordinator.apply_plan(shown)
