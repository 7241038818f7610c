"""A batch that takes long is cut: what was decided is written and answered, others come between."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from coordinator import Coordinator
from coordinator.core.events import LEAVE, Heartbeat, ListGroups
from coordinator.core.large_requests import LARGE
from coordinator.core.state.records import MemberMetadata
from coordinator.runtime.event_decider import Turn
from coordinator.storage.record_log import MemoryLog
from tests.support.members import processor_of

MANY = 40
AT_ONCE = Turn(0.0, 0.0, lambda: False)


def join(member_id, group_id="g"):
    return Heartbeat(
        group_id, member_id, 0, rebalance_timeout_ms=1000,
        subscribed_topic_names=("a",), topic_partitions={},
    )  # fmt: skip


@pytest.fixture
def coordinator():
    with Coordinator.open(None, topics={"a": 1}) as found:
        yield found


@pytest.fixture
def cut(coordinator):
    """A coordinator whose batches are cut behind each event, as where each takes very long."""
    processor, run = processor_of(coordinator), processor_of(coordinator).run
    coordinator.batches = []

    def run_cut(events, turn=None):
        answers = run(events, None if turn is None else AT_ONCE)
        coordinator.batches.append((len(events), len(answers)))
        return answers

    processor.run = run_cut
    return coordinator


def held(coordinator):
    let, holds = threading.Event(), threading.Event()
    coordinator._loop.call(lambda: holds.set() or let.wait(30))
    assert holds.wait(30)
    return let


def test_what_there_was_no_time_for_is_neither_decided_nor_written(coordinator):
    processor = processor_of(coordinator)
    done = coordinator._loop.call(lambda: processor.run([join("m1"), join("m2")], AT_ONCE))
    (answer,) = done.result(30)
    assert answer.response.member_id == "m1"
    assert [*processor.state.groups["g"].members] == ["m1"]
    log = processor.log
    assert isinstance(log, MemoryLog)
    records = [record for batch in log.storage.batches for record in batch.records]
    assert [one.member_id for one in records if isinstance(one, MemberMetadata)] == ["m1"]


def test_a_batch_that_takes_no_time_is_not_cut(coordinator):
    processor, beats = processor_of(coordinator), [join(f"m{n}") for n in range(MANY)]
    for turn in (None, Turn(60.0, 60.0, lambda: True), Turn(0.0, 60.0, lambda: False)):
        done = coordinator._loop.call(lambda turn=turn: processor.run(beats, turn))
        assert len(done.result(30)) == MANY


def test_each_is_answered_once_and_in_order(cut):
    """Requests of one event, of several, of none, and calls."""
    let, done = held(cut), []
    asked = [cut.submit([ListGroups()] * count) for count in (1, 1, 2)]
    asked += [cut._loop.call(lambda: [*done]), cut.submit([]), cut.submit([ListGroups()])]
    for future in asked:
        future.add_done_callback(done.append)
    let.set()
    answers = [future.result(30) for future in asked]
    assert [len(answers[at]) for at in (0, 1, 2, 4, 5)] == [1, 1, 2, 0, 1]
    assert {*asked[:2]} <= {*answers[3]}, "it was called once what came before it was answered"
    assert done.index(asked[0]) < done.index(asked[1]) < done.index(asked[5])
    assert {*done} == {*asked}
    assert len(cut.batches) >= 5


def test_members_that_join_one_by_one_join_in_order(cut):
    let = held(cut)
    asked = [cut.submit([join(f"m{n}")]) for n in range(5)]
    let.set()
    answers = [future.result(30)[0].response for future in asked]
    assert [answer.member_id for answer in answers] == [f"m{n}" for n in range(5)]
    epochs = [answer.member_epoch for answer in answers]
    assert epochs == sorted(epochs)


def test_a_heartbeat_comes_between_the_pieces_of_a_flood(cut):
    (joined,) = cut.submit([join("m", "other")]).result(30)
    let, done = held(cut), []
    flood = cut.submit([join(f"m{n}") for n in range(MANY)])
    beat = cut.submit([Heartbeat("other", "m", joined.response.member_epoch)])
    for future in (flood, beat):
        future.add_done_callback(done.append)
    let.set()
    answers = flood.result(30)
    assert [answer.response.member_id for answer in answers] == [f"m{n}" for n in range(MANY)]
    assert done == [beat, flood]
    left = cut.submit([Heartbeat("g", f"m{n}", LEAVE) for n in range(MANY)]).result(30)
    assert {answer.response.member_epoch for answer in left} == {LEAVE}


def test_who_comes_during_a_piece_is_the_next(cut):
    """Of the flood's own group, so that nothing is answered beside it."""
    processor, run = processor_of(cut), processor_of(cut).run
    came, pieces = [], []

    def run_and_come(events, turn=None):
        if not came:
            came.append(cut.submit([join("late")]))
        pieces.append([event.member_id for event in events])
        return run(events, turn)

    processor.run = run_and_come
    flood = [join(f"m{n}") for n in range(LARGE + 1)]
    answers = cut.submit(flood).result(30)
    assert [answer.response.member_id for answer in answers] == [one.member_id for one in flood]
    assert pieces[1] == ["late"]
    assert came[0].result(30)[0].response.member_id == "late"


def test_a_flood_is_cut_by_the_time_it_takes_not_by_what_it_is_about(coordinator):
    """Members that subscribe to many topics each: a piece of few would be mostly a commit."""
    processor, run = processor_of(coordinator), processor_of(coordinator).run
    pieces = []

    def run_whole(events, turn=None):
        pieces.append(len(events))
        return run(events)

    processor.run = run_whole
    names = [f"t{n}" for n in range(LARGE // 2)]
    flood = [
        msgspec.structs.replace(join(f"m{n}"), subscribed_topic_names=names) for n in range(MANY)
    ]
    assert len(answers := coordinator.submit(flood).result(30)) == MANY
    assert {answer.response.member_id for answer in answers} == {one.member_id for one in flood}
    assert MANY in pieces


def test_a_batch_is_cut_early_where_others_wait(coordinator):
    processor, beats = processor_of(coordinator), [join(f"m{n}") for n in range(MANY)]
    turn = Turn(0.0, 60.0, lambda: len(processor.state.groups) > 0)
    done = coordinator._loop.call(lambda: processor.run(beats, turn))
    assert len(done.result(30)) == 1


def test_what_is_refused_while_it_waits_for_its_piece_is_not_decided(cut):
    """A caller who was answered otherwise meanwhile, as where the store is late."""
    let = held(cut)
    asked = [cut.submit([join(f"m{n}")]) for n in range(3)]
    run, processor = processor_of(cut).run, processor_of(cut)

    def run_and_refuse(events, turn=None):
        answers = run(events, turn)
        if not asked[2].done():
            asked[2].set_result([])
        return answers

    processor.run = run_and_refuse
    let.set()
    assert [len(one.result(30)) for one in asked] == [1, 1, 0]
    assert len(cut.submit([ListGroups()]).result(30)) == 1


def beats_of(coordinator, count):
    """Have members join, and return a heartbeat of each that changes something."""
    joined = coordinator.submit([join(f"m{n}", f"g{n}") for n in range(count)]).result(30)
    return [
        Heartbeat(f"g{n}", f"m{n}", one.response.member_epoch, subscribed_topic_names=("b",))
        for n, one in enumerate(joined)
    ]


def test_members_do_not_wait_behind_those_that_join(cut):
    """Not even where what they send is recorded, and thousands start at once."""
    (beat,) = beats_of(cut, 1)
    let, done = held(cut), []
    flood = [cut.submit([join(f"m{n}", f"new{n}")]) for n in range(MANY)]
    asked = cut.submit([beat])
    for future in (*flood, asked):
        future.add_done_callback(done.append)
    let.set()
    assert len(flood[-1].result(30)) == 1
    assert done.index(asked) <= 1
    assert [one for one in done if one is not asked] == flood


def test_who_joins_does_not_wait_behind_all_that_members_send(cut):
    beats = beats_of(cut, MANY)
    let, done = held(cut), []
    flood = [cut.submit([beat]) for beat in beats]
    asked = cut.submit([join("m", "new")])
    for future in (*flood, asked):
        future.add_done_callback(done.append)
    let.set()
    assert len(flood[-1].result(30)) == 1
    assert done.index(asked) <= 2
    assert [one for one in done if one is not asked] == flood


def test_what_a_member_sends_behind_its_join_stays_behind_it(cut):
    """A client that starts and stops: its member must not outlive it."""
    let = held(cut)
    flood = [cut.submit([join(f"m{n}")]) for n in range(MANY)]
    left = [cut.submit([Heartbeat("g", f"m{n}", LEAVE)]) for n in range(0, MANY, 2)]
    let.set()
    assert all(one.result(30)[0].response.member_epoch > 0 for one in flood)
    assert {one.result(30)[0].response.member_epoch for one in left} == {LEAVE}
    members = processor_of(cut).state.groups["g"].members
    assert {*members} == {f"m{n}" for n in range(1, MANY, 2)}
    assert not cut._loop._queues._members, "it is forgotten who joined"


def test_no_more_is_taken_than_there_may_be_time_for(cut):
    """Each item that is taken and put back again costs time."""
    let = held(cut)
    asked = [cut.submit([Heartbeat("g", f"m{n}", 1)]) for n in range(1_000)]
    let.set()
    assert all(one.result(60) for one in asked)
    assert sum(taken for taken, _ in cut.batches) < 200_000  # else half a million


def test_a_batch_is_decided_for_longer_where_the_log_is_slow(coordinator):
    """Else the coordinator would do little but wait for it."""
    processor, run, turns = processor_of(coordinator), processor_of(coordinator).run, []

    def run_and_note(events, turn=None):
        turns.append((turn.least_s, turn.most_s))
        return run(events, turn)

    processor.run = run_and_note
    coordinator.submit([join("m0")]).result(30)
    log, append = processor.log, processor.log.append
    log.append = lambda *some: time.sleep(0.2) or append(*some)
    for n in range(1, 4):
        coordinator.submit([join(f"m{n}")]).result(30)
    log.append = append
    coordinator.submit([join("m4")]).result(30)
    coordinator.submit([join("m5")]).result(30)
    (least, most), (slow, slow_most) = turns[0], turns[3]
    assert least < most < 0.1 <= slow <= slow_most
    assert slow_most <= 0.25
