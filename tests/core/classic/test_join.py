"""JoinGroup to a classic group: who comes in, under which id, and what a rejoin does."""

from __future__ import annotations

import pytest

from coordinator.core.classic.protocol_vote import list_as_hash_map
from coordinator.core.classic_events import Protocol
from coordinator.core.events import HEARTBEAT, JOIN_PHASE
from coordinator.core.state.records import ClassicGroupWritten, GroupMetadata
from tests.support.classic_core import (
    DELAY,
    MAX_SIZE,
    POLICY,
    Completing,
    Empty,
    Preparing,
    Stable,
    topics,
)
from tests.support.coordinator_core import Code


@pytest.mark.behaviour("H-6", "G-103", "W-29")
def test_only_a_newcomer_creates_a_group(core):
    assert core.code(core.join("m1", member_id="m1")) is Code.UNKNOWN_MEMBER_ID
    assert "g" not in core.state.classic
    assert core.code(core.join("m1", version=9)) is Code.MEMBER_ID_REQUIRED
    assert core.records[-1] == ClassicGroupWritten("g", state_timestamp=core.now)
    core.fail_over()
    assert core.g.state is Empty


@pytest.mark.behaviour("H-5", "G-101", "W-58")
def test_a_join_by_itself(core):
    timeouts = (5_999, 6_000, 1_800_000, 1_800_001, -1)
    codes = [core.code(core.join("m1", session_timeout_ms=one, member_id="m")) for one in timeouts]
    outside = Code.INVALID_SESSION_TIMEOUT
    known = Code.UNKNOWN_MEMBER_ID
    assert codes == [outside, known, known, outside, outside]
    assert core.code(core.join("m1", group_id="", session_timeout_ms=1)) is Code.INVALID_GROUP_ID
    assert not core.state.classic


@pytest.mark.behaviour("H-6")
@pytest.mark.parametrize("protocols", [[], [Protocol("range", b"")]])
def test_a_group_is_there_though_its_first_join_is_refused(core, protocols):
    kind = "" if protocols else "consumer"
    refused = core.join("m1", protocols=protocols, protocol_type=kind)
    assert core.code(refused) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert [type(one) for one in core.records[-1:]] == [ClassicGroupWritten]


@pytest.mark.behaviour("H-7", "M2-1", "G-90")
@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_a_consumer_group_without_members_gives_way(core, policy):
    core.configure(**{POLICY: policy})
    core.join_consumer("m", "a")
    core.beat("m", -1)
    assert "g" in core.state.groups
    core.join("m1")
    core.advance(0)
    assert core.g.state is Completing
    assert "g" not in core.state.groups
    assert GroupMetadata.kind in {getattr(one, "of", "") for one in core.records}
    assert core.leave("m1") == [Code.NONE]
    core.join_consumer("m", "a")
    assert "g" not in core.state.classic, "and back"


@pytest.mark.behaviour("H-8")
def test_a_full_group_lets_only_its_members_rejoin(core):
    core.stable("m1", "m2")
    core.configure(**{MAX_SIZE: 2})
    full = core.join("m3")
    assert (core.code(full), full.member_id) == (Code.GROUP_MAX_SIZE_REACHED, "")
    assert core.g.state is Stable
    assert core.code(core.join("m2")) is Code.NONE
    core.join("m1")  # the leader: all join again
    core.join("m3")
    assert list(core.g.members) == ["m1", "m2", "m3"], "who waits is counted, not who is there"
    assert type(core.join("m1")) is int, "who waits already has room"
    late = core.join("m2")
    assert (core.code(late), late.member_id) == (Code.GROUP_MAX_SIZE_REACHED, "")
    assert list(core.g.members) == ["m1", "m3"], "the last to join again is left out"


@pytest.mark.behaviour("H-9", "G-104", "W-30", "P-7", "P-22")
def test_a_newcomer_must_fit(core):
    core.stable("m1", "m2", protocols=["range", "sticky"])
    assert core.code(core.join("m3", "other")) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert core.code(core.join("m3", protocol_type="connect")) is Code.INCONSISTENT_GROUP_PROTOCOL
    assert core.g.state is Stable
    core.join("m3", "sticky", "other")
    assert core.g.state is Preparing
    assert core.code(core.join("m4", "range")) is Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.behaviour("H-9", "G-104")
def test_the_first_member_of_a_group_names_a_type_and_a_protocol(core):
    for fields in ({"protocol_type": ""}, {"protocols": []}):
        assert core.code(core.join("m1", **fields)) is Code.INCONSISTENT_GROUP_PROTOCOL
    core.stable("m1", protocol_type="connect", protocols=["default"])
    core.leave("m1")
    core.stable("m2")
    assert core.g.protocol_type == "consumer", "an Empty group takes another type"


@pytest.mark.behaviour("H-11", "G-102", "W-41", "W-47")
def test_a_newcomer_comes_back_with_its_id(core):
    answer = core.join("m1", version=4)
    assert (core.code(answer), answer.member_id) == (Code.MEMBER_ID_REQUIRED, "m1")
    assert (list(core.g.pending_joins), core.g.state) == (["m1"], Empty)
    assert core.runs(HEARTBEAT, "m1") == 10_000
    core.join("m1", version=4)
    assert (list(core.g.members), list(core.g.pending_joins)) == (["m1"], [])


@pytest.mark.behaviour("H-11")
def test_an_id_that_is_out_holds_a_rebalance_up_until_it_expires(core):
    core.stable("m1")
    core.join("m2", version=4)
    leader = core.join("m1")
    assert (core.g.state, leader in core.heard) == (Preparing, False)
    core.advance(10_000)
    assert core.g.state is Completing
    assert core.code(core.join("m2", member_id="m2")) is Code.UNKNOWN_MEMBER_ID
    assert (core.heard[leader].generation, list(core.g.members)) == (2, ["m1"])


@pytest.mark.behaviour("H-11")
def test_an_id_that_leaves_before_it_joined_holds_no_member_up(core):
    core.stable("m1")
    core.join("m2", version=4)
    core.join("m1")
    assert core.leave("m2") == [Code.NONE]
    assert core.g.state is Completing


@pytest.mark.behaviour("H-12")
def test_an_id_that_was_handed_out_has_no_instance_id(core):
    core.join("m1", version=4)
    assert core.join("m1", version=5, instance="i1") is Code.UNKNOWN_SERVER_ERROR
    assert not core.g.members


@pytest.mark.behaviour("H-13", "G-111", "W-42", "W-48")
def test_in_which_order_a_member_is_looked_at(core):
    core.stable("m1", "m2", instances=["i1"])
    for ask in (core.join, core.sync, core.ping):
        assert core.code(ask("m1", instance="i9")) is Code.UNKNOWN_MEMBER_ID
        assert core.code(ask("m2", instance="i1")) is Code.FENCED_INSTANCE_ID
    for ask in (core.sync, core.ping):
        assert core.code(ask("nobody", instance="i9")) is Code.UNKNOWN_MEMBER_ID
        assert core.code(ask("nobody", instance="i1")) is Code.FENCED_INSTANCE_ID
        assert core.code(ask("nobody", 99)) is Code.UNKNOWN_MEMBER_ID, "before the generation"
    assert core.code(core.join("nobody", member_id="nobody")) is Code.UNKNOWN_MEMBER_ID
    assert core.g.state is Stable


# Rejoining ---------------------------------------------------------------------------------------


@pytest.mark.behaviour("H-14", "G-106", "W-116", "W-3", "W-70", "W-112", "W-118", "P-34")
def test_a_rejoin_in_a_stable_group(core):
    core.stable("m1", "m2")
    same = core.join("m2")
    assert (same.generation, same.leader, same.members) == (1, "m1", ())
    assert core.g.state is Stable
    core.join("m2", ("range", topics("b")))
    assert core.g.state is Preparing, "what it tells has changed"
    core.join("m1")
    core.assign()
    core.join("m1")
    assert core.g.state is Preparing, "the leader wants to assign again"


@pytest.mark.behaviour("H-14", "G-106")
def test_a_rejoin_while_the_leader_assigns(core):
    core.generation_of("m1", "m2")
    assert [len(core.join(one).members) for one in ("m1", "m2")] == [2, 0]
    assert (core.g.state, core.g.generation) == (Completing, 1)
    core.join("m1", "range", "sticky")
    assert core.g.state is Preparing


@pytest.mark.behaviour("H-14", "G-106")
def test_a_rejoin_while_members_join(core):
    core.stable("m1", "m2")
    core.join("m1")
    last = core.join("m2", ("range", topics("b")))
    assert (last.generation, core.g.state) == (2, Completing)


@pytest.mark.behaviour("H-14")
def test_no_member_rejoins_an_empty_group(core):
    core.stable("m1")
    core.leave("m1")
    assert core.code(core.join("m1", member_id="m1")) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("H-15")
def test_a_change_is_one_of_names_bytes_or_order(core):
    a, b = ("range", topics("a")), ("sticky", topics("a"))
    for changed in ([b, a], [a], [a, ("sticky", topics("b"))], [a, b, ("x", b"")]):
        core.state.classic.clear()
        core.stable("m1", "m2", protocols=[a, b])
        core.join("m2", protocols=[a, b], session_timeout_ms=6_000, rebalance_timeout_ms=1)
        assert core.g.state is Stable, "timeouts are no change"
        core.join("m2", protocols=changed)
        assert core.g.state is Preparing


@pytest.mark.behaviour("H-16", "G-74", "W-81")
def test_a_member_that_waits_does_not_expire_but_a_newcomer_is_given_up(core):
    core.configure(**{DELAY: 1_800_000})
    newcomer = core.join("m1", rebalance_timeout_ms=1_800_000)
    assert core.runs(HEARTBEAT, "m1") == 300_000, "not its session"
    core.advance(299_999)
    assert newcomer not in core.heard
    core.advance(1)
    assert core.code(newcomer) is Code.UNKNOWN_MEMBER_ID
    assert not core.g.members


@pytest.mark.behaviour("H-16", "W-81", "W-82", "W-85", "S-21")
def test_failure_detection_rests_while_a_join_or_a_sync_waits(core):
    core.stable("m1", "m2")
    core.join("m1")
    core.advance(9_000)
    core.ping("m2")
    core.advance(9_000)
    assert "m1" in core.g.members, "its join waits: it need not heartbeat"
    core.join("m2")
    assert core.runs(HEARTBEAT, "m1") == 10_000, "its session begins with the answer"
    core.sync("m2")
    core.advance(9_000)
    core.ping("m1")
    core.advance(9_000)
    assert "m2" in core.g.members, "its sync waits"
    core.advance(1_001)
    assert list(core.g.members) == ["m2"], "m1 had its answer, and was silent for its session"


@pytest.mark.behaviour("H-16", "G-102")
def test_of_two_joins_of_one_member_the_later_is_answered(core):
    core.stable("m1", "m2")
    first, again = core.join("m1"), core.join("m1")
    core.join("m2")
    assert core.heard[first] is None
    assert core.heard[again].generation == 2


# Leader and protocol -----------------------------------------------------------------------------


@pytest.mark.behaviour("H-17", "P-3", "P-13", "P-17")
def test_the_first_member_leads_and_alone_hears_of_all(core):
    first, second = core.generation_of("m1", "m2", protocols=[("range", topics("a", "b"))])
    leads, follows = core.heard[first], core.heard[second]
    assert [leads.leader, follows.leader] == ["m1", "m1"]
    assert [(one.member_id, one.metadata) for one in leads.members] == [
        ("m1", topics("a", "b")), ("m2", topics("a", "b")),
    ]  # fmt: skip
    assert follows.members == ()
    core.assign()
    core.leave("m1")
    assert core.g.leader == "m2"


@pytest.mark.behaviour("H-18", "G-105", "P-6", "P-21", "P-22", "P-23", "S-36")
def test_most_votes_among_the_protocols_that_all_know(core):
    core.generation_of("m1", "m2", protocols=["cooperative", "range"])
    assert core.g.protocol == "cooperative", "each votes for its first"
    core.assign()
    core.join("m3", "range")
    core.join("m1", "cooperative", "range")
    core.join("m2", "cooperative", "range")
    assert core.g.protocol == "range", "while one knows only the old one"
    core.assign()
    core.join("m3", "range", "cooperative")
    core.join("m1", "cooperative", "range")
    core.join("m2", "cooperative", "range")
    assert core.g.protocol == "cooperative", "two votes against one"


@pytest.mark.behaviour("H-18")
def test_a_tie_is_decided_as_in_kafka(core):
    core.join("m1", "cooperative-sticky", "range")
    core.join("m2", "range", "cooperative-sticky")
    core.advance(0)
    assert core.g.protocol == "range"
    names = ["roundrobin", "cooperative-sticky", "range", "sticky"]
    assert list_as_hash_map(names) == list_as_hash_map(names[::-1])
    assert JOIN_PHASE not in {kind for kind, *_ in core.timers}
