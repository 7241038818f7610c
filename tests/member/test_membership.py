"""One member's side, event by event: what it asks for, and in which order."""

from __future__ import annotations

import pytest

from coordinator.errors import ErrorCode, IllegalStateError
from coordinator.member.events import (
    AssignPartitions,
    CommitOffsets,
    CoordinatorMoved,
    Hasten,
    HeartbeatUnanswered,
    Leave,
    LosePartitions,
    Resume,
    RevokePartitions,
    SendHeartbeat,
    Stall,
    StepDone,
    Subscribe,
    Wake,
)
from coordinator.member.membership import GOODBYE_MS
from coordinator.member.requests import LATE_MS
from coordinator.member.states import BEATING, MOVES, Cause, ClientState
from tests.member.side import INTERVAL_MS, Side, kinds, spans

State = ClientState


@pytest.fixture
def side():
    return Side()


@pytest.fixture
def stable():
    """It owns partitions 0 to 3 of a, at epoch 2."""
    side = Side()
    side.tell(Subscribe(("a",)))
    return side.settle(2, spans((0, 4)))


@pytest.mark.behaviour("M-20")
def test_who_subscribes_to_nothing_sends_nothing(side):
    assert side.tell(Wake(), 100_000) == []
    assert side.state is State.UNSUBSCRIBED


@pytest.mark.behaviour("M-11", "M-12", "M-21")
def test_a_join_has_epoch_0_and_says_everything(side):
    (beat,) = side.tell(Subscribe(("a",), "b.*", "sticky"))
    request = beat.request
    assert side.state is State.JOINING
    assert (request.member_epoch, request.topic_partitions) == (0, {})
    assert request.rebalance_timeout_ms == 60_000
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("a",), "b.*")
    assert request.server_assignor == "sticky"
    side.answer(2, ())
    assert side.state is State.STABLE


@pytest.mark.behaviour("M-13", "M-22")
def test_a_stable_member_sends_heartbeats_that_say_nothing_new(stable):
    assert stable.tell(Wake(), INTERVAL_MS - 1) == []
    (beat,) = stable.tell(Wake(), 1)
    request = beat.request
    assert request.member_epoch == 2
    assert (request.topic_partitions, request.subscribed_topic_names) == (None, None)
    assert stable.tell(Wake(), 1_000) == []  # one at a time
    assert stable.state is State.STABLE


@pytest.mark.parametrize(
    ("settings", "wanted_ms"),
    [
        ({}, INTERVAL_MS),
        ({"heartbeat_interval_ms": 1_000}, 1_000),
        ({"heartbeat_interval_ms": 60_000}, INTERVAL_MS),
        ({"session_timeout_ms": 6_000}, 2_000),
    ],
)
def test_heartbeats_come_as_often_as_anyone_wants_them(settings, wanted_ms):
    """The coordinator, the member, and a session that would be over at the next one."""
    side = Side(**settings)
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 4)))
    assert side.tell(Wake(), wanted_ms - 1) == []
    assert kinds(side.tell(Wake(), 1)) == [SendHeartbeat]


@pytest.mark.parametrize(
    ("settings", "wanted_ms"), [({}, 1_000), ({"heartbeat_interval_ms": 3_000}, 3_000)]
)
def test_heartbeats_are_hastened_where_nobody_says_how_often(settings, wanted_ms):
    side = Side(**settings)
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 4)))
    assert side.tell(Hasten(1_000)) == []
    assert side.tell(Wake(), wanted_ms - 1) == []
    assert kinds(side.tell(Wake(), 1)) == [SendHeartbeat]


@pytest.mark.behaviour("M-2", "M-10", "M-14", "M-16", "M-23", "M-24", "M-25", "M-17")
def test_it_commits_then_revokes_then_takes_then_says_so_at_once(stable):
    stable.tell(Wake(), INTERVAL_MS)
    (commit,) = stable.answer(3, spans((2, 6)))
    assert commit == CommitOffsets(commit.number, spans((0, 2)))
    assert stable.state is State.RECONCILING
    (revoke,) = stable.done()
    assert revoke == RevokePartitions(revoke.number, spans((0, 2)))
    assert stable.membership.owned == spans((0, 4))  # still its own
    assign, beat = stable.done()
    assert assign == AssignPartitions(assign.number, spans((4, 6)))
    assert sum(map(len, beat.request.topic_partitions.values())) == 4  # others wait for the two
    stable.answer(3)
    assert stable.state is State.RECONCILING
    (beat,) = stable.done()
    assert stable.state is State.STABLE
    assert list(beat.request.topic_partitions.values()) == [[2, 3, 4, 5]]
    stable.answer(3)
    assert stable.membership.has_settled
    assert stable.tell(Wake(), INTERVAL_MS - 1) == []  # the interval restarts
    assert stable.tell(Wake(), 1) != []


@pytest.mark.behaviour("M-4")
def test_nothing_to_revoke_is_no_step(stable):
    stable.tell(Wake(), INTERVAL_MS)
    assert kinds(stable.answer(3, spans((0, 6)))) == [AssignPartitions]


@pytest.mark.behaviour("M-16", "M-31")
def test_one_reconciliation_at_a_time_goes_on_with_the_newest_target(stable):
    stable.tell(Wake(), INTERVAL_MS)
    stable.answer(3, spans((2, 6)))
    stable.tell(Wake(), INTERVAL_MS)  # heartbeats go on
    assert stable.answer(4, spans((3, 5))) == []
    stable.done()
    assert kinds(stable.done())[0] is CommitOffsets  # 2 goes too before 4 is taken
    stable.done()
    assert stable.done()[0].partitions == spans((4, 5))
    assert stable.membership.owned == spans((3, 5))


@pytest.mark.behaviour("M-15", "M-19", "M-27", "S-15")
def test_a_fenced_member_loses_all_then_joins_with_epoch_0(stable):
    stable.tell(Wake(), INTERVAL_MS)
    (lose,) = stable.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert lose == LosePartitions(lose.number, spans((0, 4)))
    assert stable.state is State.FENCED
    assert stable.membership.owned == ()
    assert stable.tell(Wake(), INTERVAL_MS) == []  # not before the application let go
    (beat,) = stable.done()
    assert (stable.state, beat.request.member_epoch) == (State.JOINING, 0)
    assert beat.request.topic_partitions == {}


@pytest.mark.behaviour("M-27", "M-31", "S-38")
def test_fencing_cancels_a_reconciliation_and_names_nothing_twice(stable):
    stable.tell(Wake(), INTERVAL_MS)
    stable.answer(3, spans((2, 6)))
    stable.done()
    revoke = stable.steps[0]
    stable.tell(Wake(), INTERVAL_MS)
    (lose,) = stable.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert lose.partitions == spans((2, 4))  # 0 and 1 are being revoked
    assert stable.tell(StepDone(revoke.number)) == []
    assert stable.state is State.FENCED


@pytest.mark.behaviour("M-6", "M-18", "M-26", "S-38")
def test_leaving_cancels_commits_revokes_and_says_goodbye(stable):
    stable.tell(Wake(), INTERVAL_MS)
    (begun,) = stable.answer(3, spans((2, 6)))
    (commit,) = stable.tell(Leave())
    assert commit == CommitOffsets(commit.number, spans((0, 4)))
    assert stable.state is State.PREPARE_LEAVING
    assert stable.tell(StepDone(begun.number)) == []
    stable.steps = [commit]
    assert kinds(stable.done()) == [RevokePartitions]
    (beat,) = stable.done()
    assert (stable.state, beat.request.member_epoch) == (State.LEAVING, -1)
    stable.answer(-1)
    assert stable.state is State.UNSUBSCRIBED


def test_a_static_member_may_leave_for_a_while():
    side = Side(instance_id="i")
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 1)))
    side.tell(Leave(for_a_while=True))
    side.done()
    (beat,) = side.done()
    assert beat.request.member_epoch == -2


def test_who_has_nothing_leaves_with_its_next_heartbeat(side):
    """No callback could hold it up: a heartbeat with epoch 0 would join it meanwhile."""
    side.tell(Subscribe(("a",)))
    side.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    (goodbye,) = side.tell(Leave())
    assert goodbye.request.member_epoch == -1
    side.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert side.state is State.UNSUBSCRIBED


def test_a_heartbeat_of_before_it_joined_again_may_have_come_late(stable):
    """The coordinator said by it what must go, and says so once; the answer is no longer taken."""
    (late,) = stable.tell(Wake(), INTERVAL_MS)
    stable.tell(Wake(), stable.membership.uses_until_ms - stable.now)
    assert stable.state is State.FENCED
    stable.steps.clear()
    stable.tell(StepDone(stable.membership._step.number))
    stable.settle(5, spans((0, 4)))
    stable.tell(HeartbeatUnanswered(late.number))
    if stable.membership._in_flight is not None:
        stable.answer(5)
    (beat,) = stable.tell(Wake(), INTERVAL_MS)
    assert beat.request.subscribed_topic_names is not None, "it is answered with everything"


def test_a_heartbeat_without_an_answer_may_come_after_later_ones(stable):
    """What it changes is answered to no one: until then each heartbeat says everything."""
    stable.tell(Wake(), INTERVAL_MS)
    sent_at = stable.now
    stable.tell(HeartbeatUnanswered(stable.sent.number))
    said = []
    while stable.now < sent_at + LATE_MS + 2 * INTERVAL_MS:
        (beat,) = stable.tell(Wake(), INTERVAL_MS)
        said.append(
            (stable.now - sent_at < LATE_MS, beat.request.subscribed_topic_names is not None)
        )
        stable.answer(2, spans((0, 4)) if said[-1][1] else None)
    assert {early for early, _ in said} == {True, False}
    assert all(early == full for early, full in said)


@pytest.mark.parametrize("tell", ["refused", "not answered"])
def test_a_goodbye_that_no_coordinator_heard_is_repeated_for_a_while(stable, tell):
    """Its coordinator is replaced at that moment: its partitions need not wait for its session."""

    def fail():
        if tell == "refused":
            stable.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            stable.tell(HeartbeatUnanswered(stable.sent.number))

    stable.tell(Leave())
    stable.done()
    stable.done()
    began = stable.now
    fail()
    assert stable.state is State.LEAVING
    (beat,) = stable.tell(Wake(), stable.membership.wake_at_ms - stable.now)
    assert beat.request.member_epoch == -1
    fail()
    while stable.state is State.LEAVING:
        stable.tell(Wake(), stable.membership.wake_at_ms - stable.now)
        fail()
    assert GOODBYE_MS <= stable.now - began <= 2 * GOODBYE_MS


@pytest.mark.parametrize("has_sent", [True, False])
def test_a_coordinator_that_moved_is_sent_everything_at_once(stable, has_sent):
    if has_sent:
        stable.tell(Wake(), INTERVAL_MS)
    former = stable.sent
    (beat,) = stable.tell(CoordinatorMoved(), 100)
    assert (beat.number, beat.request.member_epoch) == (former.number + 1, 2)
    assert (beat.request.topic_partitions is not None) == has_sent, "an answer may be missing"
    assert stable.tell(HeartbeatUnanswered(former.number)) == []
    stable.answer(3, spans((0, 2)))
    assert stable.state is State.RECONCILING


def test_who_leaves_says_so_again_where_its_coordinator_moved(stable):
    stable.tell(Leave())
    stable.done()
    stable.done()
    (beat,) = stable.tell(CoordinatorMoved(), 100)
    assert beat.request.member_epoch == -1
    stable.answer(-1)
    assert stable.state is State.UNSUBSCRIBED
    assert stable.tell(CoordinatorMoved()) == [], "it does not join again"


def test_an_answer_that_was_under_way_does_not_end_the_leaving(stable):
    stable.tell(Wake(), INTERVAL_MS)
    stable.tell(Leave())
    stable.done()
    assert stable.done() == []  # its turn comes after the one that is under way
    (beat,) = stable.answer(2)
    assert (stable.state, beat.request.member_epoch) == (State.LEAVING, -1)


@pytest.mark.behaviour("M-28", "M-30")
def test_fatal_is_for_good(stable):
    stable.tell(Subscribe((), "["))
    (lose,) = stable.refuse(ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert (stable.state, lose.partitions) == (State.FATAL, spans((0, 4)))
    stable.done()
    for event in (Subscribe(("a",)), Leave(), Stall(), Resume(), Wake()):
        assert stable.tell(event, 100_000) == []
    assert stable.state is State.FATAL
    assert stable.membership.fatal.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.behaviour("M-29")
def test_a_changed_subscription_is_said_at_once(stable):
    (beat,) = stable.tell(Subscribe(("a", "b")))
    assert beat.request.subscribed_topic_names == ("a", "b")
    assert stable.tell(Subscribe(("b",))) == []  # one at a time
    (beat,) = stable.answer(2)
    assert beat.request.subscribed_topic_names == ("b",)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.UNRELEASED_INSTANCE_ID])
def test_what_may_be_served_later_is_asked_again_later_and_later(stable, code):
    stable.tell(Wake(), INTERVAL_MS)
    waits = []
    for _ in range(8):
        assert stable.refuse(code) == []
        waits.append(stable.membership.wake_at_ms - stable.now)
        (beat,) = stable.tell(Wake(), waits[-1])
        assert beat.request.topic_partitions is not None, "the next one says everything"
    assert waits == [100, 200, 400, 800, *[1_000] * 4], "as Kafka's clients do by default"
    stable.answer(2)
    assert stable.membership.wake_at_ms == stable.now + INTERVAL_MS


def test_jitter_spreads_what_is_asked_again(stable):
    stable.tell(Wake(), INTERVAL_MS)
    stable.tell(HeartbeatUnanswered(stable.sent.number, jitter=1.0))
    assert stable.membership.wake_at_ms - stable.now == 120


def test_silence_is_part_of_the_pause_before_it_is_asked_again(stable):
    """A coordinator that is stopped takes connections, and answers nothing until it is replaced."""
    stable.tell(Wake(), INTERVAL_MS)
    assert kinds(stable.tell(HeartbeatUnanswered(stable.sent.number), after_ms=2_000)) == [
        SendHeartbeat
    ]


def test_who_must_be_heard_of_often_looks_for_its_coordinator_often():
    side = Side(heartbeat_interval_ms=800)
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 4)))
    side.tell(Wake(), 800)
    waits = []
    for _ in range(4):
        side.refuse(ErrorCode.NOT_COORDINATOR)
        waits.append(side.membership.wake_at_ms - side.now)
        side.tell(Wake(), waits[-1])
    assert waits == [100, 200, 200, 200]


def test_what_is_fenced_in_another_way_is_kept_longer_than_a_session():
    side = Side(keeps_ms=90_000, rebalance_timeout_ms=600_000)
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 4)))
    sent_at = side.now
    side.tell(Wake(), INTERVAL_MS)
    side.tell(HeartbeatUnanswered(side.sent.number))
    assert side.membership.uses_until_ms == sent_at + 90_000
    side.now = sent_at + 90_000
    assert kinds(side.tell(Wake())) == [LosePartitions]


def test_it_stops_before_its_session_may_be_over(stable):
    """The coordinator counts 45 s from a heartbeat that it got after ours was sent."""
    sent_at = stable.now
    stable.tell(Wake(), INTERVAL_MS)
    stable.tell(HeartbeatUnanswered(stable.sent.number))
    assert stable.membership.uses_until_ms == sent_at + 36_000
    stable.now = sent_at + 36_000
    assert kinds(stable.tell(Wake())) == [LosePartitions]
    assert stable.state is State.FENCED


def test_an_answer_that_was_read_too_late_is_worth_nothing(stable):
    """A process that was stopped looks at the clock before it reads what came in meanwhile."""
    stable.tell(Wake(), INTERVAL_MS)
    assert kinds(stable.answer(3, spans((0, 6)), after_ms=40_000)) == [LosePartitions]
    assert stable.membership.target == ()


def test_it_stops_when_it_cannot_revoke_in_time():
    side = Side(rebalance_timeout_ms=10_000)
    side.tell(Subscribe(("a",)))
    side.settle(2, spans((0, 4)))
    side.tell(Wake(), INTERVAL_MS)
    sent_at = side.now
    side.answer(2, spans((0, 2)), after_ms=10)
    for at in (INTERVAL_MS, 7_900):
        side.now = sent_at + at
        side.tell(Wake())
        side.answer(2)
    side.now = sent_at + 8_000
    assert kinds(side.tell(Wake())) == [LosePartitions]


@pytest.mark.behaviour("G-172")
def test_work_without_life_leaves_and_comes_back(stable):
    lose, beat = stable.tell(Stall())
    assert (lose.partitions, beat.request.member_epoch) == (spans((0, 4)), -1)
    stable.answer(-1)
    assert stable.state is State.STALE
    assert stable.tell(Resume()) == []  # the application has not let go yet
    (beat,) = stable.done()
    assert (stable.state, beat.request.member_epoch) == (State.JOINING, 0)


@pytest.mark.behaviour("G-170")
def test_the_states_are_those_of_kafkas_client():
    assert " ".join(state.name for state in State) == (
        "UNSUBSCRIBED JOINING STABLE RECONCILING ACKNOWLEDGING FENCED PREPARE_LEAVING LEAVING "
        "STALE FATAL"
    )


@pytest.mark.behaviour("G-171")
def test_the_table_is_kafkas_but_for_what_it_says():
    """Ours: leaving while stale is over at once; no move where nothing changes."""
    into = {state: {here for here in State if state in MOVES[here].values()} for state in State}
    joined = {State.JOINING, State.STABLE, State.RECONCILING, State.ACKNOWLEDGING}
    assert into[State.STABLE] == {State.JOINING, State.ACKNOWLEDGING}
    assert into[State.RECONCILING] == {State.STABLE, State.JOINING, State.ACKNOWLEDGING}
    assert into[State.ACKNOWLEDGING] == {State.RECONCILING}
    assert into[State.FENCED] == joined
    assert into[State.JOINING] == {State.FENCED, State.UNSUBSCRIBED, State.STALE}
    assert into[State.PREPARE_LEAVING] == joined
    assert into[State.LEAVING] == {State.PREPARE_LEAVING}
    left = {State.PREPARE_LEAVING, State.LEAVING, State.FENCED}
    assert into[State.UNSUBSCRIBED] == left | {State.STALE}
    assert into[State.STALE] == {State.LEAVING}
    assert into[State.FATAL] == joined | {State.PREPARE_LEAVING}


def test_there_is_no_move_but_by_the_table(side):
    with pytest.raises(IllegalStateError, match="UNSUBSCRIBED: RECONCILED"):
        side.membership._move(Cause.RECONCILED)


def test_nothing_is_sent_in_the_other_states():
    assert set(State) - BEATING == {State.UNSUBSCRIBED, State.FENCED, State.STALE, State.FATAL}
