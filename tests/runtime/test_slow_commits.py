"""A member joins while the leader's assignment is being written: a commit takes its time.

The sync makes the group Stable in memory; its answers leave when the record is durable. What comes
meanwhile waits in the queue, or was in the same batch, and is decided on the group as it is then.
"""

from __future__ import annotations

import threading
import time

import pytest

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribeClassicGroup,
    SyncGroupResponse,
)
from coordinator.core.events import CommittedOffset, OffsetCommit, OffsetFetch, Result
from coordinator.core.state.classic_group import ClassicState
from coordinator.errors import ErrorCode
from coordinator.runtime.event_loop import EventLoop
from coordinator.storage.record_log import LogError, MemoryLog
from tests.runtime.test_parked_requests import (
    PATIENCE_S,
    ask,
    error_of,
    join,
    opened,
    response_of,
    sync,
    two_members,
)
from tests.support.members import log_of, processor_of, state_of

GENERATION = 3
NONE, AGAIN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
ELSEWHERE, TRY_AGAIN = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE


class SlowLog:
    """The log of a coordinator in memory, whose next commit waits until a test says how it ends."""

    def __init__(self, coordinator):
        self._log = log_of(coordinator)
        self._log._fault = self._fault
        self._begun, self._go = threading.Event(), threading.Event()
        self._error, self._when = None, "never"

    def wait(self):
        """Wait until the commit has begun."""
        assert self._begun.wait(PATIENCE_S)

    def end(self, how):
        """Let it end: it lands, fails before or after that, or another coordinator has the log."""
        if how == "another has the log":
            MemoryLog(self._log.storage).claim("another", "", 0)
        elif how != "lands":
            self._error, self._when = LogError("simulated"), how.removeprefix("fails ")
        self._go.set()

    def _fault(self, when):
        if self._begun.is_set() and self._go.is_set() and self._when == "never":
            return
        if when == "before":
            self._begun.set()
            assert self._go.wait(PATIENCE_S)
        if when == self._when:
            self._when = "never"
            raise self._error


@pytest.fixture
def coordinator():
    """A coordinator whose group g has m1, the leader, and m2 in generation 3; m2's sync waits."""
    with opened() as found:
        two_members(found)
        waits, _ = ask(found, sync("m2", 2), sync("m1", 2, m1=b"old", m2=b"old"))
        response_of(waits)
        again, _ = ask(found, join("m1"), join("m2"))
        assert response_of(again).generation == GENERATION
        yield found


def submit(coordinator, log, *events, together):
    """Ask while the commit of the first event is under way; return the future of each answer.

    In one batch all are decided before the commit; else the others come while it is under way.
    """
    if together:
        whole = coordinator.submit(list(events))
        log.wait()
        return [lambda at=at: whole.result(PATIENCE_S)[at] for at in range(len(events))]
    first = coordinator.submit(list(events[:1]))
    log.wait()
    rest = [coordinator.submit([one]) for one in events[1:]]
    assert not any(one.done() for one in [first, *rest]), "nothing leaves before"
    return [lambda one=one: one.result(PATIENCE_S)[0] for one in [first, *rest]]


def group_state(coordinator):
    """The group's state and generation, once the loop has done what it was asked."""
    group = coordinator._loop.call(lambda: state_of(coordinator).classic["g"])
    found = group.result(PATIENCE_S)
    return found.state, found.generation


TOGETHER = pytest.mark.parametrize("together", [True, False], ids=["in one batch", "behind it"])


@pytest.mark.behaviour("H-27", "S-5", "P-26")
@TOGETHER
def test_a_join_while_the_assignment_is_written(coordinator, together):
    """All who waited get what was written; then a rebalance begins, of which heartbeats tell."""
    (follower,) = ask(coordinator, sync("m2", GENERATION))
    log = SlowLog(coordinator)
    leads = sync("m1", GENERATION, m1=b"one", m2=b"two")
    led, joined = submit(coordinator, log, leads, join(name="m3"), together=together)
    assert not follower.done()
    log.end("lands")
    assert led().response.assignment == b"one"
    assert response_of(follower) == SyncGroupResponse(NONE, "consumer", "range", b"two")
    waits = joined().response.future
    assert group_state(coordinator) == (ClassicState.PREPARING, GENERATION)
    beats = ask(coordinator, *(ClassicHeartbeat("g", one, GENERATION) for one in ("m1", "m2")))
    assert [one.response for one in beats] == [AGAIN] * 2
    first, last = ask(coordinator, join("m1"), join("m2"))
    responses = [response_of(waits), response_of(first), last.response]
    assert {one.generation for one in responses} == {GENERATION + 1}


@pytest.mark.behaviour("H-28", "H-33", "G-109", "G-112", "P-27", "P-28", "W-97", "W-98")
@pytest.mark.parametrize("how", ["fails before", "fails after"])
def test_a_join_while_the_assignment_is_not_written(coordinator, how):
    """Memory is what the log says: waiting members look again, and new requests are decided on it."""
    (follower,) = ask(coordinator, sync("m2", GENERATION))
    log = SlowLog(coordinator)
    leads = sync("m1", GENERATION, m1=b"one", m2=b"two")
    led, joined = submit(coordinator, log, leads, join(name="m3"), together=False)
    log.end(how)
    assert error_of(led()) is TRY_AGAIN
    assert response_of(follower) == SyncGroupResponse(ELSEWHERE)
    waits = joined().response.future
    generation = GENERATION if how == "fails after" else GENERATION - 1
    assert group_state(coordinator) == (ClassicState.PREPARING, generation)
    (beat,) = ask(coordinator, ClassicHeartbeat("g", "m2", GENERATION))
    if how == "fails after":
        assert beat.response is AGAIN, "the generation that was written is theirs"
    else:
        assert error_of(beat) is ErrorCode.ILLEGAL_GENERATION
    first, last = ask(coordinator, join("m1"), join("m2"))
    responses = [response_of(waits), response_of(first), last.response]
    assert {one.generation for one in responses} == {generation + 1}


@pytest.mark.behaviour("H-28", "H-33")
def test_nothing_is_kept_of_a_batch_that_is_not_written(coordinator):
    """The join was decided behind the sync; no member waits for a rebalance that never was."""
    (follower,) = ask(coordinator, sync("m2", GENERATION))
    log = SlowLog(coordinator)
    events = sync("m1", GENERATION), join(name="m3"), ClassicHeartbeat("g", "m2", GENERATION)
    answers = submit(coordinator, log, *events, together=True)
    log.end("fails before")
    assert [error_of(one()) for one in answers] == [TRY_AGAIN] * 3
    assert response_of(follower) == SyncGroupResponse(ELSEWHERE)
    assert group_state(coordinator) == (ClassicState.STABLE, GENERATION - 1)
    assert not processor_of(coordinator).parked.waiting


@pytest.mark.behaviour("H-28", "P-28")
def test_what_was_written_unheard_is_there_for_who_syncs_again(coordinator):
    (follower,) = ask(coordinator, sync("m2", GENERATION))
    log = SlowLog(coordinator)
    leads = sync("m1", GENERATION, m1=b"one", m2=b"two")
    (led,) = submit(coordinator, log, leads, together=True)
    log.end("fails after")
    assert error_of(led()) is TRY_AGAIN
    assert response_of(follower).error_code is ELSEWHERE
    both = ask(coordinator, sync("m2", GENERATION), sync("m1", GENERATION, m2=b"other"))
    assert [one.response.assignment for one in both] == [b"two", b"one"]


@pytest.mark.behaviour("H-28", "H-38", "W-67")
@TOGETHER
def test_a_join_while_another_coordinator_takes_the_log(coordinator, together):
    """Everyone is sent away: who waited, who was to be answered, and the newcomer."""
    (follower,) = ask(coordinator, sync("m2", GENERATION))
    log = SlowLog(coordinator)
    answers = submit(
        coordinator, log, sync("m1", GENERATION, m2=b"two"), join(name="m3"), together=together
    )
    log.end("another has the log")
    assert [error_of(one()) for one in answers] == [ELSEWHERE] * 2
    assert response_of(follower) == SyncGroupResponse(ELSEWHERE)
    assert coordinator.status == "fenced"


def test_who_makes_way_where_commits_are_slow_leaves_time_for_a_claim():
    """A claim asks a store more often than a commit does: it would never fall between two."""
    took_s, began = 0.05, []

    def fault(when):
        if when == "before":
            began.append(time.monotonic())
            time.sleep(took_s)

    with opened() as coordinator:
        log_of(coordinator)._fault = fault
        coordinator.make_way(on=True)
        for offset in range(6):
            coordinator.offset_commit(group_id="o", topics={"t": {0: offset}})
    assert began[-1] - began[-2] >= took_s + 5 * took_s


def test_what_changes_nothing_is_answered_while_commits_wait(monkeypatch):
    """A move of a shard keeps members waiting that commit, and no others."""
    with opened() as coordinator:
        two_members(coordinator)
        ask(coordinator, sync("m1", 2, m1=b"one", m2=b"two"))
        coordinator.offset_commit(group_id="o", topics={"t": {0: 1}})
        monkeypatch.setattr(EventLoop, "_way_ms", lambda _: 1_000 * PATIENCE_S)
        writes = coordinator.submit([OffsetCommit("o", "", -1, {"t": {0: CommittedOffset(2)}})])
        behind = coordinator.submit([OffsetFetch("o", {"t": [0]})])
        beat, described, all_of = ask(coordinator, ClassicHeartbeat("g", "m2", 2)) + ask(
            coordinator, DescribeClassicGroup("g"), OffsetFetch("p")
        )
        assert beat.response is NONE
        assert [one.member_id for one in described.response.members] == ["m1", "m2"]
        assert all_of.response == {}
        assert not writes.done()
        assert not behind.done(), "its group is about to change"
    assert isinstance(writes.result(PATIENCE_S)[0], Result)
    assert behind.result(PATIENCE_S)[0].response["t"][0].offset == 2
