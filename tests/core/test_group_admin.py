"""Groups: described, listed, deleted, configured; and what their records hold."""

from __future__ import annotations

import pytest

from coordinator.config.kafka import KafkaConfig, group_value, kafka_config
from coordinator.core.events import (
    AlterConfig,
    ConfigureGroup,
    DeleteGroup,
    DescribeConfig,
    ListGroups,
    OffsetCommit,
)
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.errors import ConfigError
from tests.support.coordinator_core import Code

SESSION_NAME = "consumer.session.timeout.ms"
HEARTBEAT_NAME = "consumer.heartbeat.interval.ms"


# Describe ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("G-130", "K-1", "K-52")
def test_describing_a_group(group):
    group.join("m1", "a", client_id="c", client_host="h", rack_id="r", subscribed_topic_regex="b.*")
    group.join("m2", "a", instance_id="i2", server_assignor="range")
    group.beat("m1", client_id="c", client_host="h")
    found = group.describe()
    assert found["error_code"] == 0
    assert found["group_state"] == group.group.state.value == "Reconciling"
    assert (found["group_epoch"], found["assignment_epoch"]) == (
        group.group.epoch,
        group.group.assignment_epoch,
    )
    assert found["assignor_name"] == "range"
    one, two = found["members"]
    assert {field: one[field] for field in ("member_id", "client_id", "client_host", "rack_id")} == {
        "member_id": "m1", "client_id": "c", "client_host": "h", "rack_id": "r",
    }  # fmt: skip
    assert (one["subscribed_topic_names"], one["subscribed_topic_regex"]) == (["a"], "b.*")
    assert one["member_epoch"] == group.member("m1").epoch
    assert (two["instance_id"], two["member_type"]) == ("i2", 1)

    def partitions(assignment):
        return {t["topic_name"]: t["partitions"] for t in assignment["topic_partitions"]}

    # What m1 must still give up is shown as its own.
    assert partitions(one["assignment"]) == {"a": [0, 1, 2, 3, 4, 5]}
    assert partitions(one["target_assignment"]) == {"a": [3, 4, 5]}  # static members come first
    assert partitions(two["target_assignment"]) == {"a": [0, 1, 2]}
    ids = {t["topic_id"] for t in one["assignment"]["topic_partitions"]}
    assert ids == {group.state.topics["a"].key.topic_id}


@pytest.mark.behaviour("K-51", "G-131")
def test_describing_a_group_that_is_not_there(group):
    found = group.describe("none")
    assert (found["error_code"], found["members"]) == (int(Code.GROUP_ID_NOT_FOUND), [])


@pytest.mark.behaviour("G-130")
def test_describing_changes_nothing_and_shows_no_deleted_topic(group):
    group.join("m1", "a", "b")
    count = len(group.records)
    group.topics(delete=["b"])
    count = len(group.records)
    (member,) = group.describe()["members"]
    assert [t["topic_name"] for t in member["assignment"]["topic_partitions"]] == ["a"]
    assert len(group.records) == count


# List and delete ---------------------------------------------------------------------------------


@pytest.mark.behaviour("G-129", "G-5", "G-123")
@pytest.mark.parametrize(
    ("states", "types", "wanted"),
    [
        ([], [], ["empty", "g", "simple"]),
        (["sTaBle"], [], ["g"]),
        (["empty"], [], ["empty", "simple"]),
        (["empty", "stable"], ["CONSUMER"], ["empty", "g"]),
        ([], ["classic"], ["simple"]),
        (["dead"], [], []),
    ],
)
def test_listing_with_filters(group, states, types, wanted):
    group.join("m1", "a")
    group.join("m1", "a", group="empty")
    group.beat("m1", -1, group="empty")
    group.run(OffsetCommit("simple", "", -1, {"a": {0: (1, "")}}))
    rows = group.run(ListGroups(frozenset(states), frozenset(types))).response
    assert [row["group_id"] for row in rows] == wanted


@pytest.mark.behaviour("G-131", "S-34", "G-149")
def test_only_an_empty_group_is_deleted(group):
    assert group.refused(DeleteGroup("g")) is Code.GROUP_ID_NOT_FOUND
    group.join("m1", "a")
    assert group.refused(DeleteGroup("g")) is Code.NON_EMPTY_GROUP
    group.beat("m1", -1)
    records = group.run(DeleteGroup("g")).records
    assert [r.of for r in records] == [
        "target_assignment_metadata",
        "partition_metadata",
        "group_metadata",
    ]
    assert group.state.groups == {}
    assert group.join("m1", "a").member_epoch == 2  # a new group starts over


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("K-9", "K-10", "K-11", "K-12", "S-34")
def test_settings_live_apart_from_the_group(group):
    group.run(ConfigureGroup("g", {HEARTBEAT_NAME: 6_000}))
    assert group.state.groups == {}
    assert group.join("m1", "a").heartbeat_interval_ms == 6_000
    group.beat("m1", -1)
    group.run(DeleteGroup("g"))
    assert group.state.settings == {"g": {HEARTBEAT_NAME: "6000"}}
    assert group.join("m1", "a").heartbeat_interval_ms == 6_000
    group.run(ConfigureGroup("g", {}))
    assert group.beat("m1").heartbeat_interval_ms == 5_000


@pytest.mark.behaviour("G-143")
def test_settings_that_are_as_before_write_nothing(group):
    assert len(group.run(ConfigureGroup("g", {HEARTBEAT_NAME: 6_000})).records) == 1
    assert group.run(ConfigureGroup("g", {HEARTBEAT_NAME: "6000"})).records == []


WRONG_SETTINGS = {
    "unknown": {"consumer.colour": "red"},
    "below": {SESSION_NAME: 44_999},
    "above": {SESSION_NAME: 60_001},
    "no number": {SESSION_NAME: "long"},
    "a fraction": {SESSION_NAME: "45000.5"},
    "huge": {SESSION_NAME: "9" * 30},
    "imbalance": {"consumer.assignor.imbalance": "-1"},
    "imbalance share": {"consumer.assignor.imbalance": "5 %"},
    "moves": {"consumer.assignor.max.moves": -1},
    "engine": {"consumer.assignor.engine": "abacus"},
    "offload": {"consumer.assignor.offload.enable": "maybe"},
    "classic": {"consumer.assignor.classic": "abacus"},
}


@pytest.mark.behaviour("G-143", "G-144")
@pytest.mark.parametrize("wrong", WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
def test_wrong_settings_are_refused_whole(group, wrong):
    event = ConfigureGroup("g", {HEARTBEAT_NAME: 6_000, **wrong})
    assert group.refused(event) is Code.INVALID_CONFIG
    assert group.state.settings == {}


@pytest.mark.behaviour("G-143")
def test_every_setting_of_a_group(group):
    given = {
        SESSION_NAME: "50000", HEARTBEAT_NAME: "6000", "consumer.assignment.interval.ms": "0",
        "consumer.assignor.offload.enable": "true", "consumer.assignor.imbalance": "5%",
        "consumer.assignor.max.moves": "3", "consumer.assignor.engine": "local",
        "consumer.assignor.classic": "sticky",
    }  # fmt: skip
    group.run(ConfigureGroup("g", given))
    assert group.state.settings["g"] == given
    described = group.run(DescribeConfig("g")).response
    assert given.keys() <= described.keys()


@pytest.mark.behaviour("G-143")
def test_changing_one_setting_leaves_the_others(group):
    group.run(ConfigureGroup("g", {HEARTBEAT_NAME: "6000", SESSION_NAME: "50000"}))
    group.run(AlterConfig("g", {HEARTBEAT_NAME: None}))
    assert group.state.settings["g"] == {SESSION_NAME: "50000"}


@pytest.mark.behaviour("G-144")
def test_a_heartbeat_interval_is_shorter_than_the_session():
    bounds = {
        "group.consumer.min.session.timeout.ms": 5_000,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.heartbeat.interval.ms": 5_999,
    }
    assert kafka_config(bounds).heartbeat_interval_ms == 5_999
    with pytest.raises(ConfigError, match="less than the session timeout"):
        kafka_config(bounds | {"group.consumer.heartbeat.interval.ms": 6_000})


@pytest.mark.behaviour("G-144")
def test_a_stored_value_outside_todays_bounds_is_clamped(group):
    group.run(ConfigureGroup("g", {HEARTBEAT_NAME: "15000"}))
    group.configure(**{"group.consumer.max.heartbeat.interval.ms": 10_000})
    assert group.join("m1", "a").heartbeat_interval_ms == 10_000
    assert group_value(group.config.kafka, {HEARTBEAT_NAME: "1"}, HEARTBEAT_NAME) == 5_000


DEFAULTS = {
    "group.consumer.session.timeout.ms": (45_000, 45_000, 60_000),
    "group.consumer.heartbeat.interval.ms": (5_000, 5_000, 15_000),
    "group.consumer.assignment.interval.ms": (1_000, 0, 15_000),
}


@pytest.mark.behaviour("G-140", "G-142", "G-144", "G-141")
@pytest.mark.parametrize(("name", "values"), DEFAULTS.items(), ids=DEFAULTS)
def test_defaults_and_bounds_are_kafkas(name, values):
    default, low, high = values
    field = name.removeprefix("group.consumer.").replace(".", "_")
    assert getattr(KafkaConfig(), field) == default
    for inside in (low, high):
        assert getattr(kafka_config({name: inside}), field) == inside
    for outside in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=name):
            kafka_config({name: outside})


@pytest.mark.behaviour("G-140", "G-142")
def test_other_defaults_are_kafkas():
    found = KafkaConfig()
    assert (found.max_size, found.regex_refresh_interval_ms) == (2**31 - 1, 600_000)
    assert (found.offset_metadata_max_bytes, found.offsets_retention_minutes) == (4_096, 10_080)
    assert found.assignors[:2] == ("uniform", "range")
    for wrong in (
        {"group.consumer.regex.refresh.interval.ms": 9_999},
        {"group.consumer.assignors": "range,range"},
    ):
        with pytest.raises(ConfigError):
            kafka_config(wrong)


# Sticky's options --------------------------------------------------------------------------------


@pytest.mark.behaviour("G-143", "K-110")
def test_a_target_cut_short_by_max_moves_is_finished_step_by_step(group):
    group.run(ConfigureGroup("g", {"consumer.assignor.max.moves": "1"}))
    group.join("m1", "a", server_assignor="sticky")
    group.join("m2", "a", server_assignor="sticky")
    assert group.group.partial
    assert len(group.target("m2")["a"]) == 1
    group.settle()
    assert not group.group.partial
    assert len(group.given["m1"]["a"]) == len(group.given["m2"]["a"]) == 3
    reasons = [r.reason for r in group.records if isinstance(r, GroupMetadata)]
    assert reasons == ["member joined"] * 2 + ["finishing moves"] * 2


@pytest.mark.behaviour("G-143")
def test_finishing_moves_wait_for_all_and_for_the_interval(group):
    group.configure(**{"group.consumer.assignment.interval.ms": 1_000})
    group.run(ConfigureGroup("g", {"consumer.assignor.max.moves": "1"}))
    group.join("m1", "a", server_assignor="sticky")
    group.advance(1_000)
    group.join("m2", "a", server_assignor="sticky")
    epoch = group.group.epoch
    group.beat("m1")
    group.advance(1_000)
    group.beat("m2")
    assert group.group.epoch == epoch  # m1 has not acknowledged
    group.settle()
    assert group.group.epoch == epoch + 1


@pytest.mark.behaviour("G-143")
def test_with_no_moves_allowed_a_group_comes_to_rest(group):
    group.run(ConfigureGroup("g", {"consumer.assignor.max.moves": "0"}))
    group.join("m1", "a", server_assignor="sticky")
    group.join("m2", "a", server_assignor="sticky")
    group.settle()
    assert group.given == {"m1": {"a": [0, 1, 2, 3, 4, 5]}, "m2": {}}
    assert group.group.partial


@pytest.mark.behaviour("G-143")
def test_imbalance_saves_moves(group):
    group.run(ConfigureGroup("g", {"consumer.assignor.imbalance": "2"}))
    group.join("m1", "a", server_assignor="sticky")
    group.join("m2", "a", server_assignor="sticky")
    group.settle()
    assert [len(group.given[member]["a"]) for member in ("m1", "m2")] == [5, 1]


# Records -----------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "G-147", "K-91", "K-93", "K-94", "K-95", "K-96", "K-98", "K-99", "K-100", "K-3"
)
def test_what_a_join_writes(group):
    records = group.run(
        group.joining("m1", "a", instance_id="i1", rack_id="r", client_id="c", client_host="h")
    ).records
    meta, epoch, target, made, current = records
    assert meta == MemberMetadata("g", "m1", "i1", "r", "c", "h", ("a",), "", 60_000)
    assert (type(epoch), epoch.epoch, epoch.metadata_hash) == (
        GroupMetadata,
        2,
        group.group.topics_hash,
    )
    key = TopicKey("a", group.state.topics["a"].key.topic_id)
    assert target == TargetMember("g", "m1", ((key, 0, 6),))
    assert made == TargetMetadata("g", 2, group.now, "uniform")
    assert current == CurrentMember("g", "m1", 2, 0, assigned=((key, 0, 6, 2),))


@pytest.mark.behaviour("G-149", "S-40")
def test_tombstones_of_unknown_things_are_ignored(group):
    from coordinator.core.state.records import KINDS
    from coordinator.core.state.replay import replay

    for kind in KINDS:
        replay(group.state, Tombstone(kind, "none", "m", "x", 0))
    replay(group.state, Tombstone("a kind of an older version", "none"))
    replay(group.state, TargetMember("none", "m"))
    replay(group.state, CurrentMember("none", "m"))
    assert group.state.groups == {}
