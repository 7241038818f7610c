"""Parked joins and syncs are answered later, each once, also when the coordinator fails."""

from __future__ import annotations

import pytest

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.classic_events import (
    ClassicHeartbeat,
    JoinGroup,
    JoinGroupResponse,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.events import ListGroups, Result
from coordinator.errors import ErrorCode, GroupError
from coordinator.wire.later_answer import LaterAnswer
from tests.support.members import processor_of

PATIENCE_S = 120
NOW = {"group.initial.rebalance.delay.ms": 0}
LATER = {"group.initial.rebalance.delay.ms": 3_600_000}


def opened(settings=NOW):
    return Coordinator.open(None, config=Config(kafka=kafka_config(settings)))


def join(member_id="", name="m", known=False):
    return JoinGroup(
        "g", member_id, "consumer", [Protocol("range", b"")], 6_000, 60_000,
        request_id=0, drawn_id=name, drawn_consumer_id="c", knows_member_id=known,
    )  # fmt: skip


def sync(member_id, generation, **assignments):
    return SyncGroup("g", member_id, generation, 0, assignments)


def ask(coordinator, *events):
    """Return what is answered at once; of what comes later, the future."""
    answers = coordinator.submit(list(events)).result(PATIENCE_S)
    return [
        one.response.future
        if isinstance(one, Result) and isinstance(one.response, LaterAnswer)
        else one
        for one in answers
    ]


def response_of(future):
    answer = future.result(PATIENCE_S)
    assert isinstance(answer, Result)
    return answer.response


def error_of(answer):
    assert isinstance(answer, GroupError)
    return answer.code


def two_members(coordinator):
    """Let m1 and m2 join generation 2; m1 leads."""
    (first,) = ask(coordinator, join(name="m1"))
    assert response_of(first).leader == "m1"
    second, again = ask(coordinator, join(name="m2"), join("m1"))
    assert isinstance(again, Result), "the last one to join need not wait"
    assert (response_of(second).generation, again.response.generation) == (2, 2)


def test_a_waiting_request_is_answered_later_and_holds_up_no_other():
    with opened(LATER) as coordinator:
        first, groups, second = ask(coordinator, join(name="m1"), ListGroups(), join(name="m2"))
        assert [group["group_id"] for group in groups.response] == ["g"]
        assert not first.done()
        assert not second.done()


def test_a_join_is_answered_when_its_timer_fires():
    with opened() as coordinator:
        (future,) = ask(coordinator, join())
        found = response_of(future)
        assert isinstance(found, JoinGroupResponse)
        assert (found.error_code, found.member_id, found.generation) == (ErrorCode.NONE, "m", 1)


def test_a_sync_is_answered_by_that_of_the_leader():
    with opened() as coordinator:
        two_members(coordinator)
        (waits,) = ask(coordinator, sync("m2", 2))
        assert not waits.done()
        (led,) = ask(coordinator, sync("m1", 2, m1=b"one", m2=b"two"))
        assert (led.response.assignment, response_of(waits).assignment) == (b"one", b"two")
        (beat,) = ask(coordinator, ClassicHeartbeat("g", "m2", 2))
        assert beat.response is ErrorCode.NONE


def test_who_waits_and_is_answered_in_the_same_batch():
    with opened() as coordinator:
        two_members(coordinator)
        waits, led = ask(coordinator, sync("m2", 2), sync("m1", 2, m2=b"two"))
        assert isinstance(led, Result)
        assert response_of(waits).assignment == b"two"


def test_a_request_that_was_repeated_is_asked_to_join():
    """If it waited, it would block the client's next requests on the same connection."""
    with opened() as coordinator:
        two_members(coordinator)
        (first,) = ask(coordinator, sync("m2", 2))
        (second,) = ask(coordinator, sync("m2", 2))
        assert error_of(first.result(PATIENCE_S)) is ErrorCode.REBALANCE_IN_PROGRESS
        ask(coordinator, sync("m1", 2, m2=b"two"))
        assert response_of(second).assignment == b"two"


def test_a_future_that_is_cancelled_disturbs_no_other():
    with opened() as coordinator:
        two_members(coordinator)
        (waits,) = ask(coordinator, sync("m2", 2))
        assert waits.cancel()
        assert not coordinator._inner._later._futures, "nothing of it is kept"
        (led,) = ask(coordinator, sync("m1", 2, m1=b"one"))
        assert led.response.assignment == b"one"
        assert coordinator.status == "active"


@pytest.mark.parametrize("end", ["fence", "close", "reload"])
def test_everyone_who_waits_is_refused_when_the_groups_go(end):
    with opened() as coordinator:
        two_members(coordinator)
        (synced,) = ask(coordinator, sync("m2", 2))
        (joined,) = ask(coordinator, join(name="m3"))
        found = response_of(synced)
        assert found == SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS), "m3 begins another"
        (other,) = ask(coordinator, join("m2"))
        processor = processor_of(coordinator)
        if end == "close":
            coordinator.close()
        else:
            work = {"fence": lambda: processor.fence("by a test"), "reload": processor.reload}[end]
            coordinator._loop.call(work).result(PATIENCE_S)
        codes = {response_of(one).error_code for one in (joined, other)}
        assert codes == {ErrorCode.NOT_COORDINATOR}


def test_no_request_waits_for_a_loop_that_died():
    with opened(LATER) as coordinator:
        (future,) = ask(coordinator, join())

        def die():
            raise SystemExit

        processor_of(coordinator).tick = die
        coordinator._inner._thread.join(PATIENCE_S)
        assert response_of(future).error_code is ErrorCode.NOT_COORDINATOR
