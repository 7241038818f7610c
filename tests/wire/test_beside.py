"""While a large request is decided, heartbeats of other groups that change nothing are answered."""

from __future__ import annotations

import time

import pytest

from coordinator import Coordinator
from coordinator.core.classic_events import ClassicHeartbeat
from coordinator.core.events import CommittedOffset, Heartbeat, OffsetCommit
from coordinator.core.large_requests import LARGE as MANY
from coordinator.errors import ErrorCode, GroupError
from tests.runtime.test_cut_batches import held
from tests.runtime.test_parked_requests import PATIENCE_S, ask, opened, two_members
from tests.runtime.test_slow_commits import SlowLog
from tests.support.members import processor_of, state_of

LARGE = OffsetCommit(
    "large", "", -1, {"t": {number: CommittedOffset(number) for number in range(2_000)}}
)


def join(coordinator, group):
    (answer,) = coordinator.submit([joins("m", group)]).result(PATIENCE_S)
    return answer.response.member_epoch


def joins(member_id, group="crowd"):
    return Heartbeat(
        group, member_id, 0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=("a",), topic_partitions={},
    )  # fmt: skip


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 2}) as found:
        yield found


def begin(coordinator, *asked):
    """Have the commit of a large request wait; return the log, and the request's future."""
    let, log = held(coordinator), SlowLog(coordinator)
    *_, large = [coordinator.submit(events) for events in asked or [[LARGE]]]
    let.set()
    log.wait()
    return log, large


def test_a_steady_heartbeat_is_answered_and_its_session_goes_on(coordinator):
    epoch = join(coordinator, "g")
    processor = processor_of(coordinator)
    log, large = begin(coordinator)
    extended = []
    processor.timers.extend_session = lambda _, group, member, __: extended.append((group, member))
    (answer,) = coordinator.submit([Heartbeat("g", "m", epoch)]).result(PATIENCE_S)
    assert (answer.response.member_epoch, answer.records) == (epoch, [])
    assert not large.done()
    assert not extended, "timers are the loop's"
    log.end("lands")
    assert large.result(PATIENCE_S)[0].response["t"][0] is ErrorCode.NONE
    coordinator._loop.call(lambda: None).result(PATIENCE_S)
    assert extended == [("g", "m")]


def test_what_changes_something_waits(coordinator):
    epoch = join(coordinator, "g")
    log, large = begin(coordinator)
    waits = [
        [Heartbeat("large", "m", epoch)],
        [Heartbeat("g", "m", epoch, topic_partitions={"a": [0, 1]})],
        [Heartbeat("g", "m", epoch, subscribed_topic_names=["b"])],
        [Heartbeat("g", "m", epoch), OffsetCommit("g", "m", epoch, {"a": {0: (1, "")}})],
        [Heartbeat("g", "n", 0, rebalance_timeout_ms=1, subscribed_topic_names=["a"])],
        [Heartbeat("g", ["m"], epoch)],
    ]
    futures = [coordinator.submit(events) for events in waits]
    coordinator.submit([Heartbeat("g", "m", epoch)]).result(PATIENCE_S)
    assert not any(future.done() for future in [large, *futures])
    log.end("lands")
    for future in futures:
        assert future.result(PATIENCE_S)


def test_a_steady_member_of_a_classic_group_is_answered():
    with opened() as coordinator:
        two_members(coordinator)
        generation = state_of(coordinator).classic["g"].generation
        log, large = begin(coordinator)
        steady = coordinator.submit([ClassicHeartbeat("g", "m1", generation)])
        unknown = coordinator.submit([ClassicHeartbeat("g", "m9", generation)])
        found = steady.result(PATIENCE_S)[0]
        assert not unknown.done()
        log.end("lands")
        (expected,) = ask(coordinator, ClassicHeartbeat("g", "m1", generation))
        assert getattr(found, "response", found) == getattr(expected, "response", expected)
        assert isinstance(unknown.result(PATIENCE_S)[0], GroupError)
        large.result(PATIENCE_S)


def test_no_request_is_answered_on_a_log_that_was_not_seen_to_be_ours(coordinator):
    epoch = join(coordinator, "g")
    processor, steady = processor_of(coordinator), Heartbeat("g", "m", epoch)
    assert processor.answer_beside([steady], ()) is not None
    assert processor.answer_beside([steady], {"g"}) is None
    processor._writer.forget_look()
    assert processor.answer_beside([steady], ()) is None


CROWD = [joins(f"m{number}") for number in range(MANY + 1)]


@pytest.mark.parametrize("asked", [[CROWD], [[one] for one in CROWD]], ids=["in one", "apart"])
def test_very_many_small_requests_are_as_a_large_one(coordinator, asked):
    """And it is written early for those who are not answered beside it."""
    epoch = join(coordinator, "g")
    log, last = begin(coordinator, *asked)
    loop, steady = coordinator._loop, [Heartbeat("g", "m", epoch)]
    assert not loop._others_wait()
    (answer,) = coordinator.submit(steady).result(PATIENCE_S)
    assert answer.response.member_epoch == epoch
    assert not last.done()
    assert not loop._others_wait()
    same = coordinator.submit([Heartbeat("crowd", "elsewhere", 1)])
    coordinator.submit(steady).result(PATIENCE_S)
    assert loop._others_wait()
    assert not same.done()
    log.end("lands")
    assert last.result(PATIENCE_S)[-1].response.member_id == CROWD[-1].member_id
    assert same.result(PATIENCE_S)


def test_very_many_requests_of_wrong_types_are_refused(coordinator):
    epoch = join(coordinator, "g")
    wrong = [Heartbeat(group, "m", 0) for group in (["g"], None, 7)]
    answers = coordinator.submit([*CROWD, *wrong]).result(PATIENCE_S)
    assert all(isinstance(answer, GroupError) for answer in answers[-3:])
    assert coordinator.submit([Heartbeat("g", "m", epoch)]).result(PATIENCE_S)


def join_while_large_is_decided(coordinator):
    """Have a member join once `LARGE` is taken; return the list that gets its future then."""
    processor, run, came = processor_of(coordinator), processor_of(coordinator).run, []

    def run_and_come(events, turn=None):
        if LARGE in events:
            came.append(coordinator.submit([joins("n", "g")]))
        return run(events, turn)

    processor.run = run_and_come
    return came


def test_who_comes_while_a_batch_is_decided_shares_its_commit(coordinator):
    """And of their groups nothing is answered beside it."""
    epoch = join(coordinator, "g")
    came = join_while_large_is_decided(coordinator)
    log, large = begin(coordinator)
    steady = coordinator.submit([Heartbeat("g", "m", epoch)])
    time.sleep(0.05)  # for longer than the thread takes to look
    assert not any(future.done() for future in [large, came[0], steady])
    batches = processor_of(coordinator).log.storage.batches
    before = len(batches)
    log.end("lands")
    assert came[0].result(PATIENCE_S)[0].response.member_id == "n"
    assert large.result(PATIENCE_S)[0].response["t"][0] is ErrorCode.NONE
    assert len(batches) <= before + 1
    assert isinstance(steady.result(PATIENCE_S)[0].response.member_epoch, int)


@pytest.mark.parametrize("how", ["fails before", "fails after", "another has the log"])
def test_who_shares_a_commit_shares_its_end(coordinator, how):
    came = join_while_large_is_decided(coordinator)
    log, large = begin(coordinator)
    log.end(how)
    answers = [*large.result(PATIENCE_S), *came[0].result(PATIENCE_S)]
    assert all(isinstance(answer, GroupError) for answer in answers)


def test_of_very_many_that_wait_each_is_answered_once(coordinator):
    """Those that change something between those that do not, with one that was cancelled."""
    epoch = join(coordinator, "g")
    log, large = begin(coordinator)
    steady, busy = [Heartbeat("g", "m", epoch)], [Heartbeat("large", "m", epoch)]
    waits, answered = [], []
    for number in range(3 * MANY):
        waits.append(coordinator.submit(busy))
        answered.append(coordinator.submit(steady * (1 + number % 3)))
    gone = [future for future in answered if future.cancel()]
    assert [len(one.result(PATIENCE_S)) for one in answered if one not in gone]
    assert not any(future.done() for future in [large, *waits])
    log.end("lands")
    assert all(len(future.result(PATIENCE_S)) == 1 for future in waits)


@pytest.mark.parametrize("how", ["fails before", "fails after", "another has the log"])
def test_however_the_large_request_ends_others_go_on(coordinator, how):
    epoch = join(coordinator, "g")
    log, large = begin(coordinator)
    assert coordinator.submit([Heartbeat("g", "m", epoch)]).result(PATIENCE_S)
    log.end(how)
    assert isinstance(large.result(PATIENCE_S)[0], GroupError)
    (answer,) = coordinator.submit([Heartbeat("g", "m", epoch)]).result(PATIENCE_S)
    assert isinstance(answer, GroupError) == (how == "another has the log")


def test_the_thread_ends_with_the_loop():
    with Coordinator.open(None, topics={"a": 2}) as coordinator:
        thread = coordinator._loop._beside._thread
        assert thread.is_alive()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
