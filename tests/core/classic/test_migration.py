"""Groups that change their protocol while they run, and classic members of a consumer group."""

from __future__ import annotations

import pytest

from coordinator.core.events import (
    HEARTBEAT,
    JOIN_PHASE,
    SESSION,
    SYNC_PHASE,
    DescribeGroup,
)
from coordinator.core.migration.mixed import FORGOTTEN_MS
from coordinator.core.state.embedded import Assignment, read_assignment, write_assignment
from coordinator.core.state.groups import GroupState
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    MemberMetadata,
    TargetMetadata,
    Tombstone,
)
from coordinator.errors import GroupError
from tests.support.classic_core import (
    MAX_SIZE,
    POLICY,
    SESSION_MS,
    Completing,
    Preparing,
    Stable,
    topics,
)
from tests.support.coordinator_core import INTERVAL, UNREVOKED, Code, kinds

EVERYTHING = {"protocols": [("range", topics("a"))]}
CONSUMER_MAX_SIZE = "group.consumer.max.size"


def given(**partitions):
    """The bytes of an assignment."""
    return write_assignment(Assignment(1, partitions))


def shared(core, *members, **fields):
    """A Stable classic group whose members share topic a in turn."""
    core.generation_of(*members, **EVERYTHING | fields)
    count = len(members)
    parts = {m: given(a=[p for p in range(6) if p % count == at]) for at, m in enumerate(members)}
    for member in reversed(members):
        core.sync(member, **(parts if member == core.g.leader else {}))
    assert core.g.state is Stable


def upgraded(core, *members, **fields):
    """A consumer group of classic members and the consumer-protocol member `new`."""
    shared(core, *members, **fields)
    return core.join_consumer("new", "a")


def round_of(core):
    """Let every classic member join and sync, and all others heartbeat, until all rest."""
    for _ in range(12):
        for member in list(core.group.members.values()):
            name = member.member_id
            if not member.is_classic:
                core.acknowledge(name)
            elif core.ping(name, member.epoch) is Code.REBALANCE_IN_PROGRESS:
                owned = core.current(name)[2]
                heard = core.join(
                    name, member_id=name, protocols=[("range", topics("a", owned=owned))]
                )
                core.sync(name, heard.generation)
        if core.group.state is GroupState.STABLE:
            return
    pytest.fail("the group does not come to rest")


def partitions_of(answer):
    return read_assignment(answer.assignment).partitions


# Up ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("M2-2", "M2-4", "M2-5", "G-91", "G-92", "S-35")
def test_a_heartbeat_that_joins_converts_the_group(core):
    shared(core, "c1", "c2", session_timeout_ms=20_000)
    core.configure(**{INTERVAL: 15_000})
    result = core.run(core.joining("new", "a"))
    assert result.records[0] == Tombstone(ClassicGroupWritten.kind, "g")
    first = next(one for one in result.records if isinstance(one, GroupMetadata))
    target = next(one for one in result.records if isinstance(one, TargetMetadata))
    assert (first.epoch, target.assignment_epoch, target.assignment_timestamp) == (1, 1, 0)
    assert core.current("c1")[2:] == ({"a": [0, 2, 4]}, {})
    assert (core.group.epoch, core.group.assignment_epoch) == (2, 2), "the joiner's, at once"
    assert (core.runs(SESSION, "c1"), core.runs(HEARTBEAT, "c1")) == (20_000, None)
    heard = core.member("c1").meta.classic_member_metadata
    assert (heard.session_timeout_ms, heard.supported_protocols[0].name) == (20_000, "range")


@pytest.mark.behaviour("M2-4", "G-92")
@pytest.mark.parametrize("phase", [Preparing, Completing])
def test_waiting_members_are_asked_to_rejoin(core, phase):
    shared(core, "c1", "c2")
    waits = core.join("c1")
    if phase is Completing:
        core.join("c2", **EVERYTHING)
        waits = core.sync("c2")
    assert core.g.state is phase
    assert core.join_consumer("new", "a").member_epoch > core.current("c1")[0]
    assert core.code(waits) is Code.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("M2-3", "G-91")
def test_a_group_that_stays_classic(core):
    def refused():
        return core.refused(core.joining("new", "a")) is Code.GROUP_ID_NOT_FOUND

    shared(core, "c1", "c2")
    for policy in ("downgrade", "disabled"):
        core.configure(**{POLICY: policy})
        assert refused()
    core.configure(**{POLICY: "bidirectional", CONSUMER_MAX_SIZE: 1})
    assert refused()
    core.configure(**{CONSUMER_MAX_SIZE: 9})
    core.join("c1", ("range", b"?"))
    assert refused(), "a subscription that is none"
    assert core.g.state is Preparing
    core.leave("c1", "c2")
    core.stable("c1", protocol_type="connect")
    assert refused()
    core.leave("c1")
    core.generation_of("c1", **EVERYTHING)
    core.sync("c1", c1=b"?")
    assert refused(), "an assignment that is none"


@pytest.mark.behaviour("M2-3")
def test_user_data_and_eager_members_are_no_obstacle(core):
    core.generation_of("c1", **EVERYTHING)
    core.sync("c1", c1=write_assignment(Assignment(1, {"a": [0]}, b"mine")))
    assert core.join_consumer("new", "a").member_epoch == 2
    assert core.current("c1")[2] == {"a": [0]}


# Inside a consumer group -------------------------------------------------------------------------


@pytest.mark.behaviour("M2-6", "G-94", "G-98", "M2-21")
def test_a_classic_join_that_a_consumer_group_refuses(core):
    upgraded(core, "c1", instances=["i1"])
    core.configure(**{POLICY: "disabled", CONSUMER_MAX_SIZE: 2})
    assert core.code(core.join("c2")) is Code.INCONSISTENT_GROUP_PROTOCOL, "the policy comes first"
    core.configure(**{POLICY: "upgrade"})
    assert core.code(core.join("c2", "other")) is Code.GROUP_MAX_SIZE_REACHED
    assert core.code(core.join("d1", instance="i1", **EVERYTHING)) is Code.NONE, "it is known"
    core.configure(**{CONSUMER_MAX_SIZE: 9})
    for fields in ({"protocol_type": "connect"}, {"protocols": []}, {"protocols": ["other"]}):
        assert core.code(core.join("c2", **fields)) is Code.INCONSISTENT_GROUP_PROTOCOL
    heard = core.join("c2", version=4, **EVERYTHING)
    assert (core.code(heard), heard.member_id) == (Code.MEMBER_ID_REQUIRED, "c2")
    assert "c2" not in core.group.members, "nothing is remembered"


@pytest.mark.behaviour("M2-7", "G-94", "M2-21")
def test_a_subscription_that_is_none_is_refused(core):
    upgraded(core, "c1")
    refused = core.join("c2", protocols=[("range", b"?")])
    assert core.code(refused) is Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.behaviour("M2-7", "M2-21")
def test_a_classic_successor_clears_the_regular_expression(core):
    core.join_consumer("m", "a", instance_id="i1", subscribed_topic_regex="b")
    core.join_consumer("n", "a")
    core.resolve()
    epoch = core.group.epoch
    core.join("d1", instance="i1", **EVERYTHING)
    assert core.member("d1").meta.subscribed_topic_regex in {"", None}
    assert core.group.epoch == epoch + 1


@pytest.mark.behaviour("G-84")
def test_a_classic_join_has_patterns_resolved_by_its_own_rights(core):
    core.join_consumer("m", subscribed_topic_regex="b")
    core.resolve()
    core.now += 600_001
    core.join("c1", **EVERYTHING, find_visible=list)
    assert [task.find_visible for task in core.tasks] == [list]


@pytest.mark.behaviour("M2-8", "G-93")
def test_what_a_classic_join_tells(core):
    upgraded(core, "c1")
    heard = topics("a", "b", version=3, owned={"a": [0]}, generation=99, rack="r1")
    core.join("c2", protocols=[("range", heard), ("sticky", topics("b"))])
    meta = core.member("c2").meta
    assert (meta.subscribed_topic_names, meta.rack_id) == (("a", "b"), "r1")
    assert core.member("c2").is_classic
    assert core.join("nobody-knew", member_id="own", **EVERYTHING).member_id == "own"


@pytest.mark.behaviour("M2-8")
def test_a_static_id_moves_between_the_protocols_at_once(core):
    upgraded(core, "c1", instances=["i1"])
    round_of(core)
    held = core.current("c1")[2]
    epoch = core.group.epoch
    taken = core.join_consumer("m1", "a", instance_id="i1")
    assert (core.current("m1")[2], taken.member_epoch, core.group.epoch) == (held, epoch, epoch)
    assert core.ping("c1", epoch, instance="i1") is Code.FENCED_INSTANCE_ID
    assert core.refused(core.joining("m2", "a", instance_id="i1")) is Code.UNRELEASED_INSTANCE_ID
    back = core.join("c2", instance="i1", **EVERYTHING)
    assert (back.generation, core.current("c2")[2]) == (epoch, held)


@pytest.mark.behaviour("M2-9", "M2-10")
def test_the_answer_to_a_classic_join(core):
    upgraded(core, "c1")
    heard = core.join(
        "c2",
        protocols=[("sticky", topics("a")), ("range", topics("a"))],
        rebalance_timeout_ms=9_000,
    )
    assert (heard.generation, heard.protocol_name, heard.protocol_type) == (3, "sticky", "consumer")
    assert (heard.leader, heard.members, heard.skip_assignment) == ("", (), False)
    assert (core.runs(SESSION, "c2"), core.runs(SYNC_PHASE, "c2")) == (SESSION_MS, 9_000)
    assert core.runs(JOIN_PHASE, "c2") is None


@pytest.mark.behaviour("M2-11", "G-96")
def test_a_sync_in_a_consumer_group(core):
    upgraded(core, "c1", "c2", instances=["i1"])
    assert core.code(core.sync("new", 2)) is Code.UNKNOWN_MEMBER_ID, "it is no classic member"
    assert core.code(core.sync("c9", 2)) is Code.UNKNOWN_MEMBER_ID
    assert core.code(core.sync("c2", 2, instance="i1")) is Code.FENCED_INSTANCE_ID
    assert core.code(core.sync("c1", 9)) is Code.ILLEGAL_GENERATION
    assert core.code(core.sync("c1", 1, name="other")) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert core.code(core.sync("c1", 1, kind="connect")) is Code.INCONSISTENT_GROUP_PROTOCOL
    again = core.sync("c1", 1)
    assert core.code(again) is Code.REBALANCE_IN_PROGRESS, "the assignment has moved on"
    assert core.runs(JOIN_PHASE, "c1") == 60_000
    core.join("c1", protocols=[("range", topics("a", owned={"a": [0, 2, 4]}))])
    assert core.member("c1").current.state is UNREVOKED
    heard = core.sync("c1", 1, c1=b"a leader's bytes", name="range", kind="consumer")
    assert partitions_of(heard) == core.current("c1")[2], "what it may keep, to revoke the rest"
    assert read_assignment(heard.assignment).version == 1, "in its own version"
    assert core.runs(SYNC_PHASE, "c1") is None


@pytest.mark.behaviour("M2-12", "M2-13", "G-95")
def test_a_heartbeat_in_a_consumer_group(core):
    upgraded(core, "c1", "c2", instances=["i1"])
    assert core.ping("new", 2) is Code.UNKNOWN_MEMBER_ID
    assert core.ping("c2", 1, instance="i1") is Code.FENCED_INSTANCE_ID
    assert core.ping("c1", 2) is Code.ILLEGAL_GENERATION
    core.advance(4_000)
    assert core.ping("c1", 1) is Code.REBALANCE_IN_PROGRESS, "behind the assignment epoch"
    assert (core.runs(SESSION, "c1"), core.runs(JOIN_PHASE, "c1")) == (SESSION_MS, 60_000)
    core.advance(4_000)
    assert core.ping("c1", 1) is Code.REBALANCE_IN_PROGRESS
    assert core.runs(JOIN_PHASE, "c1") == 56_000, "from when it was first asked to"
    round_of(core)
    epoch = core.group.epoch
    assert [core.ping(one, epoch) for one in ("c1", "c2")] == [Code.NONE] * 2


@pytest.mark.behaviour("M2-13", "M2-21")
def test_a_new_group_epoch_alone_asks_no_member_to_join(core):
    upgraded(core, "c1")
    round_of(core)
    core.configure(**{INTERVAL: 15_000})
    core.beat("new", names=["a", "b"])
    assert core.group.epoch > core.group.assignment_epoch
    assert core.ping("c1", core.member("c1").epoch) is Code.NONE


@pytest.mark.behaviour("M2-13", "G-95")
def test_a_member_that_waits_for_partitions_learns_when_they_are_free(core):
    upgraded(core, "c1")
    heard = core.join("c2", **EVERYTHING)
    assert partitions_of(core.sync("c2", heard.generation)) == {}
    assert core.ping("c2", heard.generation) is Code.NONE, "c1 has not let go yet"
    core.join("c1", protocols=[("range", topics("a", owned={"a": [*range(6)]}))])
    kept = core.current("c1")[2]
    assert core.ping("c2", heard.generation) is Code.NONE
    core.join("c1", protocols=[("range", topics("a", owned=kept))])
    assert core.ping("c2", heard.generation) is Code.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("M2-14", "G-72")
@pytest.mark.parametrize("late", ["join", "sync"])
def test_who_does_not_join_or_sync_in_time_is_fenced(core, late):
    upgraded(core, "c1", "c2", rebalance_timeout_ms=20_000)
    epoch = 1
    if late == "sync":
        heard = core.join("c1", protocols=[("range", topics("a"))], rebalance_timeout_ms=20_000)
        epoch = heard.generation
    core.ping("c1", epoch)
    for _ in range(3):
        core.advance(5_000)
        core.ping("c1", epoch)
    assert "c1" in core.group.members
    core.advance(5_000)
    assert "c1" not in core.group.members, "though it has heartbeaten"


@pytest.mark.behaviour("M2-15")
def test_several_leave_a_consumer_group_in_one_step(core):
    upgraded(core, "c1", "c2", "c3", instances=["i1"])
    epoch = core.group.epoch
    assert core.leave("c9", ("c2", "i1"), ("", "i9")) == [
        Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.UNKNOWN_MEMBER_ID,
    ]  # fmt: skip
    assert core.group.epoch == epoch, "none was valid"
    assert core.leave(("", "i1"), "c2", "c9") == [Code.NONE, Code.NONE, Code.UNKNOWN_MEMBER_ID]
    assert (sorted(core.group.members), core.group.epoch) == (["c3", "new"], epoch + 1)


@pytest.mark.behaviour("M2-16", "G-121", "G-122")
def test_a_classic_member_commits_by_its_generation(core):
    upgraded(core, "c1")
    round_of(core)
    epoch = core.member("c1").epoch
    mine = core.current("c1")[2]["a"][0]
    assert mine == 0
    assert core.commit("c1", epoch) is Code.NONE
    assert core.commit("c1", epoch + 1) is Code.ILLEGAL_GENERATION
    assert core.commit("c1", 1) is Code.NONE, "it was its then, too"
    assert core.commit("c1", epoch - 1, topic="b") is Code.ILLEGAL_GENERATION


# Down --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("M2-17", "M2-18", "M2-19", "G-97")
@pytest.mark.parametrize("goes", ["leaves", "expires"])
def test_the_group_is_classic_again_when_the_last_consumer_protocol_member_goes(core, goes):
    upgraded(core, "c1")
    round_of(core)
    epoch, targets = core.group.epoch, {one: core.target(one) for one in ("c1", "new")}
    written = len(core.records)
    if goes == "leaves":
        core.beat("new", -1)
    else:
        for _ in range(9):
            core.advance(5_000)
            core.ping("c1", epoch)
    assert (core.g.state, core.g.generation) == (Preparing, epoch)
    records = core.records[written:]
    assert isinstance(records[-1], ClassicGroupWritten)
    ended = {one.of for one in records[:-1]}
    assert {GroupMetadata.kind, MemberMetadata.kind, TargetMetadata.kind} <= ended
    assert read_assignment(core.g.members["c1"].assignment).partitions == targets["c1"]
    assert core.ping("c1", epoch) is Code.REBALANCE_IN_PROGRESS
    core.join("c1", **EVERYTHING)
    assert (core.g.state, core.g.generation) == (Completing, epoch + 1)


@pytest.mark.behaviour("M2-17", "G-97")
@pytest.mark.parametrize(
    "kafka", [{POLICY: "upgrade"}, {POLICY: "disabled"}, {MAX_SIZE: 1}], ids=str
)
def test_a_group_that_may_not_be_classic_stays_a_consumer_group(core, kafka):
    upgraded(core, "c1", "c2")
    core.configure(**kafka)
    core.beat("new", -1)
    assert sorted(core.group.members) == ["c1", "c2"]


@pytest.mark.behaviour("M2-18", "G-97")
def test_a_static_replacement_of_the_last_one_is_stable_at_once(core):
    core.join_consumer("m1", "a", instance_id="i1")
    core.join("c1", **EVERYTHING)
    round_of(core)
    epoch = core.group.epoch
    heard = core.join("c2", instance="i1", **EVERYTHING)
    assert (heard.generation, core.g.generation, core.g.state) == (epoch, epoch, Stable)
    assert core.ping("c1", epoch) is Code.NONE, "no member rebalances"


@pytest.mark.behaviour("M2-18", "G-97", "M2-21")
def test_a_static_replacement_that_changes_what_is_subscribed_rebalances(core):
    core.join_consumer("m1", "a", instance_id="i1")
    core.join("c1", **EVERYTHING)
    round_of(core)
    core.join("c2", instance="i1", protocols=[("range", topics("a", "b"))])
    assert core.g.state is Preparing
    assert core.ping("c1") is Code.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("M2-19")
def test_a_conversion_is_one_set_of_records(core):
    upgraded(core, "c1", "c2")
    round_of(core)
    result = core.run(core.heartbeat("new", -1))
    assert kinds(result)[-1] is ClassicGroupWritten
    assert set(kinds(result)[:-1]) == {Tombstone}
    core.fail_over()
    assert (core.g.state, sorted(core.g.members)) == (Stable, ["c1", "c2"])


@pytest.mark.behaviour("M2-20")
def test_after_a_fail_over_of_a_mixed_group(core):
    """As in Kafka: its time for a SyncGroup is not watched; a silent member expires."""
    upgraded(core, "c1")
    core.join("c1", **EVERYTHING)
    assert core.runs(SYNC_PHASE, "c1") is not None
    core.fail_over()
    assert core.runs(SYNC_PHASE, "c1") is None
    round_of(core)
    assert core.group.state is GroupState.STABLE


@pytest.mark.behaviour("G-93", "M2-9")
def test_a_mixed_group_shows_who_speaks_what(core):
    upgraded(core, "c1")
    found = core.run(DescribeGroup("g")).response.fields()
    assert [one["member_type"] for one in found["members"]] == [0, 1]


@pytest.mark.behaviour("M2-21")
def test_up_down_and_up_again(core):
    upgraded(core, "c1", "c2")
    round_of(core)
    core.beat("new", -1)
    core.join("c1", **EVERYTHING)
    core.join("c2", **EVERYTHING)
    core.sync("c2")
    core.sync(core.g.leader, c1=given(a=[0, 1, 2]), c2=given(a=[3, 4, 5]))
    assert (core.g.state, generation := core.g.generation) == (Stable, 3)
    assert core.join_consumer("newer", "a").member_epoch == generation + 1
    round_of(core)
    owned = [core.current(one)[2].get("a", []) for one in ("c1", "c2", "newer")]
    assert sorted(one for part in owned for one in part) == list(range(6))


@pytest.mark.behaviour("M2-13")
def test_classic_members_that_are_left_alone_get_what_has_no_owner(core):
    """In Kafka it has no owner until a member joins; and here for a minute."""

    def wait():
        epoch = core.member("c1").epoch
        for _ in range(FORGOTTEN_MS // SESSION_MS * 2):
            assert {core.ping(member, epoch) for member in ("c1", "c2")} == {Code.NONE}
            core.advance(SESSION_MS // 2)
        assert core.ping("c1", epoch) is Code.REBALANCE_IN_PROGRESS
        round_of(core)
        return sorted(p for member in ("c1", "c2") for p in core.current(member)[2]["a"])

    core.configure(**{POLICY: "upgrade", INTERVAL: 0})
    upgraded(core, "c1", "c2")
    round_of(core)
    core.beat("new", -1)
    assert wait() == [0, 1, 2, 3, 4, 5]
    core.topics(a=8, b=core.catalog["b"].partitions)
    assert wait() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_group_that_cannot_be_read_says_so(core):
    core.generation_of("c1", protocols=[("range", b"\0")])
    core.sync("c1", c1=given(a=[0]))
    with pytest.raises(
        GroupError, match=r"become one: what member c1 .* cannot be read"
    ) as refused:
        core.join_consumer("new", "a")
    assert refused.value.code is Code.GROUP_ID_NOT_FOUND
