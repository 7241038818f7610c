"""ConsumerGroupHeartbeat: what is refused, what moves the epochs, what is answered."""

from __future__ import annotations

import pytest

from coordinator.core.consumer.steady_heartbeat import (
    answer_steady_heartbeat,
    answer_steady_heartbeats,
)
from coordinator.core.events import HeartbeatResponse
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    TargetMember,
    Tombstone,
)
from coordinator.errors import GroupError
from tests.support.coordinator_core import (
    REBALANCE,
    SESSION,
    SESSION_MS,
    UNRELEASED,
    UNREVOKED,
    Code,
    kinds,
    lists,
)


def bumps(result):
    return [record.reason for record in result.records if isinstance(record, GroupMetadata)]


# Validation --------------------------------------------------------------------------------------

INVALID = {
    "no member id": {"member": ""},
    "no group id": {"group": ""},
    "empty instance id": {"instance_id": ""},
    "empty rack id": {"rack_id": ""},
    "joins without a rebalance timeout": {"rebalance_timeout_ms": -1},
    "joins without saying what it owns": {"owned": None},
    "joins and owns something": {"owned": {"a": [0]}},
    "joins without a subscription": {"names": None},
    "leaves for a while without an instance id": {"epoch": -2},
    "epoch below -2": {"epoch": -3},
}


@pytest.mark.behaviour("G-12", "G-13", "G-14", "G-15", "G-16", "G-17")
@pytest.mark.parametrize("wrong", INVALID.values(), ids=INVALID)
def test_an_invalid_request_is_refused(group, wrong):
    request = {"member": "m1", "epoch": 0, "owned": {}, "names": ["a"], "rebalance_timeout_ms": 1}
    assert group.refused(group.heartbeat(**request | wrong)) is Code.INVALID_REQUEST
    assert group.state.groups == {}


@pytest.mark.behaviour("G-16", "G-35")
def test_an_empty_list_is_a_subscription(group):
    result = group.run(group.joining("m1"))
    assert bumps(result) == []
    assert result.response.assignment == ()


@pytest.mark.behaviour("G-18", "K-37")
def test_an_unknown_assignor_is_refused_with_the_known_ones(group):
    with pytest.raises(GroupError, match="uniform, range, sticky") as refused:
        group.join("m1", "a", server_assignor="fair")
    assert refused.value.code is Code.UNSUPPORTED_ASSIGNOR


@pytest.mark.behaviour("G-13", "G-14", "G-18")
def test_checks_come_in_kafkas_order(group):
    """A request with every fault is refused for the first; each one mended shows the next."""
    faults = {
        "member": ("", "m1"),
        "instance_id": ("", None),
        "rack_id": ("", None),
        "rebalance_timeout_ms": (-1, 1),
        "owned": ({"a": [0]}, {}),
        "names": (None, ["a"]),
        "server_assignor": ("fair", None),
    }
    request = {field: wrong for field, (wrong, _) in faults.items()}
    messages = []
    for field, (_, right) in faults.items():
        with pytest.raises(GroupError) as refused:
            group.run(group.heartbeat(epoch=0, **request))
        messages.append(refused.value.message)
        request[field] = right
    wanted = (
        "MemberId",
        "InstanceId",
        "RackId",
        "RebalanceTimeoutMs",
        "TopicPartitions",
        "Subscribed",
        "fair",
    )
    assert [word in message for word, message in zip(wanted, messages, strict=True)] == [True] * 7
    assert group.run(group.heartbeat(epoch=0, **request)).response.member_epoch > 0


@pytest.mark.behaviour("G-19")
def test_only_the_coordinators_own_troubles_are_retriable():
    of_other_clusters = {"UNKNOWN_TOPIC_OR_PARTITION"}  # Kafka's, of a commit; no answer of ours
    assert {code.name for code in Code if code.retriable} - of_other_clusters == {
        "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    }  # fmt: skip


# Who may speak -----------------------------------------------------------------------------------


@pytest.mark.behaviour("G-21", "K-25", "K-26", "S-15")
@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_only_a_join_creates_a_group(group, epoch):
    event = group.heartbeat("m1", epoch, instance_id="i1" if epoch == -2 else None)
    assert group.refused(event) is Code.GROUP_ID_NOT_FOUND
    group.join("m1", "a")
    assert set(group.group.members) == {"m1"}


@pytest.mark.behaviour("G-22")
def test_a_group_that_only_has_offsets_can_be_joined(group):
    from coordinator.core.events import OffsetCommit

    group.run(OffsetCommit("g", "", -1, {"a": {0: (5, "")}}))
    assert group.join("m1", "a").member_epoch > 0
    assert group.state.offsets["g"]["a", 0].offset == 5


@pytest.mark.behaviour("G-23", "S-33")
def test_a_full_group_refuses_newcomers_only(group):
    group.join("m1", "a")
    group.join("s1", "a", instance_id="i1")
    group.configure(**{"group.consumer.max.size": 1})  # shrunk below what is there
    assert group.refused(group.joining("m3", "a")) is Code.GROUP_MAX_SIZE_REACHED
    assert group.refused(group.heartbeat("m3", 7)) is Code.GROUP_MAX_SIZE_REACHED
    group.settle()
    group.join("m1", "a")
    group.beat("s1", -2, instance_id="i1")
    group.join("s2", "a", instance_id="i1")
    assert set(group.group.members) == {"m1", "s2"}


@pytest.mark.behaviour("G-24", "K-27", "S-15")
def test_an_unknown_member_must_join(group):
    group.join("m1", "a")
    assert group.refused(group.heartbeat("m2", 3)) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("G-25", "S-16")
def test_a_known_member_joins_again_and_keeps_its_state(group):
    group.join("m1", "a")
    before = group.current("m1")
    result = group.run(group.joining("m1", "a"))
    assert bumps(result) == []
    assert group.current("m1") == before
    assert lists(result.response.assignment) == {"a": [0, 1, 2, 3, 4, 5]}
    changed = group.run(group.joining("m1", "a", "b"))
    assert bumps(changed) == ["subscription changed"]


@pytest.mark.behaviour("G-25", "G-53")
def test_joining_again_acknowledges_a_revocation(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1")
    assert group.join("m1", "a").member_epoch == group.group.epoch
    assert group.member("m1").stable
    assert len(group.acknowledge("m2").assignment) > 0


@pytest.mark.behaviour("G-30", "K-28", "S-13")
def test_an_epoch_from_the_future_is_fenced(group):
    epoch = group.join("m1", "a").member_epoch
    assert group.refused(group.heartbeat("m1", epoch + 1, owned={})) is Code.FENCED_MEMBER_EPOCH
    assert "m1" in group.group.members


LOST_ANSWERS = {
    "owns all it had": ({"a": [0, 1, 2, 3, 4, 5]}, True),
    "owns a part": ({"a": [3]}, True),
    "owns nothing": ({}, True),
    "does not say": (None, False),
    "owns what it was not given": ({"a": [0], "b": [0]}, False),
}


@pytest.mark.behaviour("G-31", "K-29", "K-30", "S-4")
@pytest.mark.parametrize(("owned", "taken"), LOST_ANSWERS.values(), ids=LOST_ANSWERS)
def test_the_epoch_before_is_taken_once_when_the_answer_was_lost(group, owned, taken):
    group.join("m1", "a")
    previous = group.member("m1").epoch
    group.topics(c=1)
    group.beat("m1", names=["a", "c"])  # the answer with the new epoch gets lost
    now = group.member("m1").epoch
    assert now > previous
    event = group.heartbeat("m1", previous, owned=owned)
    if taken:
        assert group.run(event).response.member_epoch == now
    else:
        assert group.refused(event) is Code.FENCED_MEMBER_EPOCH
    assert "m1" in group.group.members  # a fence removes no member; timers do


@pytest.mark.behaviour("G-31", "S-12")
def test_an_epoch_older_than_the_one_before_is_fenced(group):
    epochs = [group.join("m1", "a").member_epoch]
    for count in (7, 8):
        group.topics(a=count)
        epochs.append(group.beat("m1").member_epoch)
    assert group.refused(group.heartbeat("m1", epochs[0], owned={})) is Code.FENCED_MEMBER_EPOCH
    assert group.run(group.heartbeat("m1", epochs[1], owned={})).response.member_epoch == epochs[2]


# What a request changes --------------------------------------------------------------------------


@pytest.mark.behaviour(
    "G-32", "G-33", "K-4", "K-8", "K-17", "K-18", "K-19", "K-20", "K-21", "K-23", "K-24", "K-31"
)
def test_null_leaves_a_field_and_only_differences_are_written(group):
    given = {
        "rack_id": "r1", "rebalance_timeout_ms": 7, "server_assignor": "range",
        "client_id": "c", "client_host": "h",
    }  # fmt: skip
    group.join("m1", "b", "a", "a", **given)
    meta = group.member("m1").meta
    assert meta.subscribed_topic_names == ("a", "b")
    for field, value in given.items():
        assert getattr(meta, field) == value
    quiet = group.run(group.heartbeat("m1", client_id="c", client_host="h"))
    assert MemberMetadata not in kinds(quiet)
    assert group.member("m1").meta == meta
    moved = group.run(group.heartbeat("m1", client_id="c", client_host="h2", rack_id="r2"))
    assert kinds(moved) == [MemberMetadata]
    assert group.member("m1").meta.rack_id == "r2"
    assert group.member("m1").meta.client_host == "h2"


@pytest.mark.behaviour("K-7")
def test_a_member_keeps_the_id_that_it_came_with(group):
    response = group.join("Xq3-its-own-id", "a")
    assert response.member_id == "Xq3-its-own-id"
    assert group.beat("Xq3-its-own-id").member_id == "Xq3-its-own-id"


NO_NEW_EPOCH = {
    "rack": {"rack_id": "r9"},
    "rebalance timeout": {"rebalance_timeout_ms": 9},
    "client id": {"client_id": "c9"},
    "client host": {"client_host": "h9"},
    "the same names in another order": {"names": ["b", "a"]},
}
NEW_EPOCH = {
    "another subscription": ({"names": ["a"]}, "subscription changed"),
    "none at all": ({"names": []}, "subscription changed"),
    "another assignor": ({"server_assignor": "range"}, "assignor changed"),
}


@pytest.mark.behaviour("G-35", "K-31")
@pytest.mark.parametrize("fields", NO_NEW_EPOCH.values(), ids=NO_NEW_EPOCH)
def test_changes_that_do_not_bump_the_group_epoch(group, fields):
    group.join("m1", "a", "b")
    result = group.run(group.heartbeat("m1", **fields))
    assert bumps(result) == []
    kept = [record for record in result.records if isinstance(record, MemberMetadata)]
    for field, value in fields.items():
        if field != "names":
            assert [getattr(record, field) for record in kept] == [value]


@pytest.mark.behaviour("G-34", "K-2")
@pytest.mark.parametrize(("fields", "reason"), NEW_EPOCH.values(), ids=NEW_EPOCH)
def test_changes_that_bump_the_group_epoch(group, fields, reason):
    group.join("m1", "a", "b")
    before = group.group.epoch
    assert bumps(group.run(group.heartbeat("m1", **fields))) == [reason]
    assert group.group.epoch == before + 1


def test_a_member_that_joins_with_an_assignor_of_its_own_joined(group):
    group.join("m1", subscribed_topic_regex="nothing")
    joined = group.run(
        group.joining("m2", subscribed_topic_regex="nothing", server_assignor="range")
    )
    assert bumps(joined) == ["member joined"]


@pytest.mark.behaviour("G-34", "G-40", "G-70")
def test_a_member_that_joins_leaves_or_dies_moves_the_group_epoch(group):
    for member in ("m1", "m2", "m3"):
        assert bumps(group.run(group.joining(member, "a"))) == ["member joined"]
    assert bumps(group.run(group.heartbeat("m2", -1))) == ["member left"]
    group.beat("m1")
    fired = group.advance(SESSION_MS)
    reasons = [
        r.reason for records in fired.values() for r in records if isinstance(r, GroupMetadata)
    ]
    assert reasons == ["session timeout"] * 2


@pytest.mark.behaviour("G-36", "S-36")
def test_the_groups_assignor_is_the_one_most_members_ask_for(group):
    def assignor():
        return group.describe()["assignor_name"]

    group.join("m1", "a")
    assert assignor() == "uniform"  # no wish: the first configured
    group.join("m2", "a", server_assignor="range")
    assert assignor() == "range"
    group.join("m3", "a", server_assignor="sticky")
    assert assignor() == "range"  # one each: the first of them in configured order
    group.join("m4", "a", server_assignor="sticky")
    assert assignor() == "sticky"
    assert group.group.assignor == "sticky"  # and it made the target
    group.beat("m3", -1)
    group.beat("m4", -1)
    assert assignor() == "range"


@pytest.mark.behaviour("G-36")
@pytest.mark.parametrize("interval_ms", [0, 1_000])
@pytest.mark.parametrize("wishes", [("uniform", "range"), ("uniform", "range", "sticky")])
def test_members_with_different_wishes_do_not_take_turns_endlessly(group, interval_ms, wishes):
    group.configure(**{"group.consumer.assignment.interval.ms": interval_ms})
    for number, wish in enumerate(wishes):
        group.join(f"m{number}", "a", server_assignor=wish)
    epochs = []
    for _ in range(6):
        group.advance(1_000)
        group.settle()
        epochs.append(group.group.epoch)
    assert len(set(epochs[-3:])) == 1


@pytest.mark.behaviour("G-36")
def test_a_wish_for_what_is_configured_no_more_counts_for_nothing(group):
    group.join("m1", "a", server_assignor="range")
    group.configure(**{"group.consumer.assignors": "uniform,sticky"})
    group.topics(a=8)
    group.settle()
    assert group.group.assignor == "uniform"
    epoch = group.group.epoch
    group.settle()
    assert group.group.epoch == epoch


# The answer --------------------------------------------------------------------------------------


@pytest.mark.behaviour("G-20", "G-40", "K-18")
def test_a_leaving_member_goes_whatever_its_epoch_and_is_answered_its_own_words(group):
    group.join("m1", "a")
    group.join("m2", "a")
    result = group.run(group.heartbeat("m1", -1, names=["b"], owned={"a": [5]}))
    assert result.response == HeartbeatResponse("m1", -1, 0)
    assert [(r.of, r.member_id) for r in result.records if isinstance(r, Tombstone)] == [
        (CurrentMember.kind, "m1"), (TargetMember.kind, "m1"), (MemberMetadata.kind, "m1"),
    ]  # fmt: skip
    assert (group.runs(SESSION, "m1"), group.runs(REBALANCE, "m1")) == (None, None)
    assert group.refused(group.heartbeat("m1", -1)) is Code.UNKNOWN_MEMBER_ID
    group.settle()
    assert group.given["m2"] == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-41")
def test_every_answered_heartbeat_starts_the_session_timer_again(group):
    group.join("m1", "a")
    group.advance(40_000)
    group.beat("m1")
    assert group.runs(SESSION, "m1") == SESSION_MS
    group.advance(40_000)
    group.refused(group.heartbeat("m1", 99))
    assert group.runs(SESSION, "m1") == SESSION_MS - 40_000


FULL = {"rebalance_timeout_ms": 60_000, "names": ["a"], "owned": {"a": [0, 1, 2, 3, 4, 5]}}


@pytest.mark.behaviour("G-42", "K-34", "K-35")
@pytest.mark.parametrize("left_out", [None, "rebalance_timeout_ms", "names", "owned"])
def test_a_full_request_is_answered_in_full(group, left_out):
    group.join("m1", "a")
    request = {field: value for field, value in FULL.items() if field != left_out}
    response = group.beat("m1", **request)
    assert (response.assignment is not None) == (left_out is None)
    assert response.member_id == "m1"
    assert response.member_epoch == group.group.epoch
    assert response.heartbeat_interval_ms == 5_000


@pytest.mark.behaviour("G-42", "G-43", "K-36")
def test_an_answer_tells_a_changed_assignment_without_what_must_go(group):
    group.join("m1", "a")
    group.join("m2", "a")
    now = group.beat("m1").assignment
    assert lists(now) == {"a": [0, 1, 2]}
    assert group.beat("m1").assignment is None
    # No answer has what it may not use yet, but it is described (K-36 has a list of it; 4.4 has none).
    assert group.current("m1")[2:] == ({"a": [0, 1, 2]}, {"a": [3, 4, 5]})


@pytest.mark.behaviour("G-6", "G-51", "G-62")
def test_an_epoch_that_changes_nothing_for_a_member_is_reached_by_one_small_record(group):
    group.join("m1", "a")
    group.join("m2", "b")
    group.settle()
    group.join("m3", "b")
    result = group.run(group.heartbeat("m1"))
    assert result.records == [MembersAdvanced("g", group.group.epoch, ("m1",))]
    assert result.response.assignment is None
    assert group.member("m1").current.previous_member_epoch == group.group.epoch - 1


@pytest.mark.behaviour("G-45")
def test_all_records_of_a_heartbeat_stand_or_fall_together(group):
    """A refused heartbeat has no records at all: they come as one batch with its response."""
    group.join("m1", "a")
    count = len(group.records)
    assert group.refused(group.heartbeat("m1", names=["b"], subscribed_topic_regex="[")) is (
        Code.INVALID_REGULAR_EXPRESSION
    )
    assert len(group.records) == count
    assert group.member("m1").meta.subscribed_topic_names == ("a",)


def needs_a_step(core, *members):
    """Those of some members whose next heartbeat, of id and epoch alone, is not answered at once."""
    events = [core.heartbeat(member) for member in members]
    return [
        event.member_id
        for event in events
        if answer_steady_heartbeat(core.state, core.config, event) is None
    ]


def test_members_that_wait_look_for_partitions_only_after_something_changed(group):
    """However long m0, which had all of them, takes to confirm."""
    group.join("m0", "a")
    for waiting in ("m1", "m2", "m3"):
        group.join(waiting, "a")
    group.beat("m0")
    for _ in range(3):
        for waiting in ("m1", "m2", "m3"):
            group.beat(waiting)
    assert [group.current(f"m{n}")[1] for n in range(4)] == [UNREVOKED] + 3 * [UNRELEASED]
    epochs = [group.member(f"m{n}").epoch for n in (1, 2, 3)]

    assert needs_a_step(group, "m1", "m2", "m3") == []
    ended, *_, advanced = answer_steady_heartbeats(
        group.state, group.config, "g", ["m1", "m2", "m3"], epochs
    )
    assert (ended, advanced) == (3, ())
    group.acknowledge("m0")
    assert needs_a_step(group, "m1", "m2", "m3") == ["m1", "m2", "m3"], "partitions came free"
    group.settle()
    assert [len(group.given[f"m{n}"]["a"]) for n in range(4)] == [2, 2, 1, 1]


@pytest.mark.parametrize("change", ["join", "leave", "metadata", "topics", "assignor"])
def test_what_may_give_a_waiting_member_something_makes_it_look(group, change):
    group.join("m0", "a")
    group.join("m1", "a")
    group.beat("m0")
    for _ in range(3):
        group.beat("m1")
    assert needs_a_step(group, "m1") == []
    match change:
        case "join":
            group.join("m2", "a")
        case "leave":
            group.beat("m0", -1)
        case "metadata":
            group.beat("m0", names=("b",), owned=None)
        case "topics":
            group.topics(a=8)
        case "assignor":
            group.beat("m0", server_assignor="range")
    assert needs_a_step(group, "m1") == ["m1"]
