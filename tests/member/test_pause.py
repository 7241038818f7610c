"""Paused partitions stay their member's, and no work is done on them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from coordinator import AsyncMember, Coordinator, Fenced, Member
from tests.member.runs import PATIENCE_S, STEADY, Cut, Diary, Running, until

ONE, TWO = ("clicks", 0), ("clicks", 1)


@pytest.fixture
def coordinator():
    with Coordinator.open(None, config=STEADY, topics={"clicks": 2}) as found:
        yield found


def working(diary, name="ann"):
    """The partitions that are worked on by now."""
    begun = [words[1] for words in diary.of(name) if words[0] == "begins"]
    ended = [words[1] for words in diary.of(name) if words[0] == "ends"]
    return sorted(
        partition for partition in set(begun) if begun.count(partition) > ended.count(partition)
    )


def test_work_on_a_paused_partition_stops_and_restarts(coordinator):
    diary, line = Diary(), Cut(coordinator)
    ann = Member(line, group_id="g", topics="clicks", **diary.callbacks("ann"))
    with Running(ann, diary.work("ann")):
        assert until(lambda: working(diary) == ["clicks-0", "clicks-1"])
        ann.pause(ONE)
        assert until(lambda: working(diary) == ["clicks-1"])
        assert ann.paused == {ONE}
        asked = line.asked
        assert until(lambda: line.asked > asked + 20), "heartbeats go on"
        assert ann.owned == {ONE, TWO}
        ann.commit({ONE: 5})
        ann.resume()
        assert until(lambda: working(diary) == ["clicks-0", "clicks-1"])
        assert ann.paused == frozenset()
    assert [words[0] for words in diary.of("ann")].count("assigned") == 1


def test_work_that_is_slow_to_stop_is_not_done_twice_at_once(coordinator):
    calls, at_once = [], []

    def work(partition, stop):
        calls.append(partition)
        at_once.append(len(calls))
        stop.wait()
        time.sleep(0.2)
        calls.remove(partition)

    member = Member(coordinator, group_id="g", topics="clicks")
    with Running(member, work):
        assert until(lambda: len(calls) == 2)
        for _ in range(3):
            member.pause()
            member.resume(ONE)
            member.resume(TWO)
        assert until(lambda: len(at_once) == 4)
        assert until(lambda: len(calls) == 2)
    assert max(at_once) == 2


def test_a_pause_ends_when_the_partition_moves(coordinator):
    diary = Diary()
    ann = Member(coordinator, group_id="g", topics="clicks")
    with Running(ann, diary.work("ann")):
        assert until(lambda: len(working(diary)) == 2)
        ann.pause(ONE, TWO)
        assert until(lambda: working(diary) == [])
        with Member(coordinator, group_id="g", topics="clicks") as bob:
            (moved,) = bob.wait_for_change(PATIENCE_S).added
            with pytest.raises(Fenced, match="not, or no longer, owned by this member"):
                ann.pause(moved)
            ann.resume(moved)  # passed over
        assert until(lambda: working(diary) == [str(moved)])
        assert ann.paused == {ONE, TWO} - {moved}


def test_a_partition_may_be_paused_as_it_is_assigned_and_by_its_own_work(coordinator):
    diary, member = Diary(), None

    def work(partition, stop):
        diary.note("ann", "begins", str(partition))
        member.pause(partition)
        assert stop.is_set()
        diary.note("ann", "ends", str(partition))

    member = Member(coordinator, group_id="g", topics="clicks")
    with Running(member, work):
        assert until(lambda: member.paused == {ONE, TWO})
        assert until(lambda: working(diary) == [])
        member.resume(ONE)
        assert until(lambda: diary.of("ann").count(("ends", "clicks-0")) == 2)
    assert diary.of("ann").count(("begins", "clicks-1")) == 1


def test_an_async_member_pauses_too(coordinator):
    calls = []

    async def work(partition, stop):
        calls.append(partition)
        await stop.wait()
        calls.remove(partition)

    async def is_soon(condition):
        end = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < end:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        assert condition()

    async def main():
        async with AsyncMember(coordinator, group_id="g", topics="clicks") as member:
            running = asyncio.create_task(member.run(work))
            await is_soon(lambda: len(calls) == 2)
            await member.pause(TWO)
            await is_soon(lambda: calls == [ONE])
            assert member.paused == {TWO}
            await member.resume(TWO)
            await is_soon(lambda: len(calls) == 2)
            await member.leave()
            await running

    asyncio.run(main())


def test_a_second_run_works_on_what_is_there(coordinator):
    begun = threading.Event()
    with Member(coordinator, group_id="g", topics="clicks") as member:
        member.wait_for_change(PATIENCE_S)
        member.run(lambda _partition, stop: stop.wait(), timeout=0.2)
        member.pause(ONE)
        work = lambda partition, _stop: partition == TWO and begun.set()  # noqa: E731
        assert until(lambda: member.run(work, timeout=0.2) or begun.is_set())
        assert member.owned == {ONE, TWO}
