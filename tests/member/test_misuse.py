"""What users do by mistake, or in a hurry: refused with a word of help, and never a hang."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import threading

import pytest

from coordinator import AsyncMember, Coordinator, GroupError, Member
from coordinator.errors import ErrorCode
from coordinator.member.loop_thread import LoopThread
from tests.member.runs import PATIENCE_S, STEADY, until


@pytest.fixture
def coordinator():
    with Coordinator.open(None, config=STEADY, topics={"clicks": 2}) as found:
        yield found


def waits(_partition, stop):
    stop.wait()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"topics": ()}, "topics and pattern are empty"),
        ({"topics": [""]}, "topics is ''"),
        ({"topics": 5}, "topics is 5: give names"),
        ({"topics": b"clicks"}, "topics is b'clicks'"),
        ({"topics": "\ud800"}, "surrogates not allowed"),
        ({"pattern": 5}, "pattern is 5"),
        ({"group_id": ""}, "group_id is ''"),
        ({"group_id": "g" * 40_000}, "group_id has 40000 bytes: give at most 32767"),
        ({"instance_id": ""}, "instance_id is ''"),
        ({"client_id": None}, "client_id is None"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms is 0"),
        ({"rebalance_timeout_ms": 2**31}, "rebalance_timeout_ms is 2147483648"),
        ({"session_timeout_ms": "45s"}, "session_timeout_ms is '45s'"),
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms is 0"),
        ({"on_lost": 5}, "5 must be callable with a list of TopicPartition"),
        ({}, "None is not a coordinator: give a Coordinator, or host:port"),
        ({"coordinator": "localhost"}, "'localhost' is not an address: give host:port"),
        ({"coordinator": []}, "the address is missing"),
        (
            {"coordinator": "h:1", "login": ("MD5", "a", "b")},
            "unknown mechanism 'MD5': give one of",
        ),
        ({"coordinator": "h:1", "login": "PLAIN"}, r"login is not \(mechanism, user, password\)"),
        ({"coordinator": "h:1", "tls": True}, "tls is True: give a context"),
    ],
)
def test_what_can_be_no_member_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Member(**{"coordinator": None, "group_id": "g", "topics": "clicks"} | wrong)


@pytest.mark.parametrize(
    "offsets",
    [
        {"clicks": 1},
        {5: 1},
        {("clicks",): 1},
        {("clicks", "0"): 1},
        {("clicks", 0): -1},
        {("clicks", 0): True},
        {("clicks", 0): 2**63},
        {("clicks", 0): (1, None)},
        {("clicks", 0): (1, "\ud800")},
        [("clicks", 0)],
    ],
)
def test_what_can_be_no_offset_is_refused(coordinator, offsets):
    member = Member(coordinator, group_id="g", topics="clicks")
    for commit in (member.commit, member.commit_later):
        with member, pytest.raises(ValueError, match=r"give|surrogates"):
            commit(offsets)


@pytest.mark.parametrize("timeout", ["1", float("nan")])
def test_what_is_no_time_is_refused(coordinator, timeout):
    with Member(coordinator, group_id="g", topics="clicks") as member:
        for wait in (member.wait_for_change, lambda found: member.run(waits, found)):
            with pytest.raises(ValueError, match="give seconds, or None"):
                wait(timeout)


def test_what_can_be_no_work_is_refused(coordinator):
    async def work(partition, stop):
        raise AssertionError("it is not awaited")

    with Member(coordinator, group_id="g", topics="clicks") as member:
        with pytest.raises(TypeError, match="work is 'work': give a function"):
            member.run("work")
        assert member.wait_for_change(PATIENCE_S).owned
        with pytest.raises(TypeError, match="is a coroutine function: use AsyncMember"):
            member.run(work)

    async def run(work):
        async with AsyncMember(coordinator, group_id="g", topics="clicks") as member:
            await member.run(work)

    with pytest.raises(TypeError, match="is not a coroutine function: make it one, or use Member"):
        asyncio.run(run(lambda *_: None))


def test_a_member_that_is_not_open_says_so(coordinator):
    member = Member(coordinator, group_id="g", topics="clicks")
    with pytest.raises(RuntimeError, match="with"):
        member.wait_for_change()
    with member:
        member.leave()
        member.leave()
        with pytest.raises(RuntimeError, match="the member is not open"):
            member.commit({("clicks", 0): 1})
    with member:  # it joins again
        assert len(member.wait_for_change(PATIENCE_S).owned) == 2
        with pytest.raises(ValueError, match="interval_ms is 0: give milliseconds"):
            member.hasten(0)


def test_work_that_ends_the_program_ends_the_run_and_no_other_member(coordinator):
    with Member(coordinator, group_id="g", topics="clicks") as member:
        with pytest.raises(SystemExit) as ended:
            member.run(lambda *_: sys.exit(3))
        assert ended.value.code == 3
        with Member(coordinator, group_id="g", topics="clicks") as other:
            assert len(other.wait_for_change(PATIENCE_S).owned) == 2


@pytest.mark.parametrize("where", ["work", "callback"])
def test_work_and_callbacks_may_have_their_member_leave(coordinator, where):
    def leave(*_):
        member.leave()
        left.append(member.owned)

    left = []
    callback = leave if where == "callback" else None
    with Member(coordinator, group_id="g", topics="clicks", on_assigned=callback) as member:
        member.run(leave if where == "work" else waits, PATIENCE_S)
        assert left
        (group,) = coordinator.consumer_group_describe("g")
        assert group["members"] == []

    async def main():
        async def leave(*_):
            await member.leave()
            left.append(member.owned)

        async def wait(_partition, stop):
            await stop.wait()

        callback = leave if where == "callback" else None
        member = AsyncMember(coordinator, group_id="g", topics="clicks", on_assigned=callback)
        async with member:
            await member.run(leave if where == "work" else wait, PATIENCE_S)

    left.clear()
    asyncio.run(main())
    assert left


@pytest.fixture
def python_handles_ctrl_c():
    """Another test may have served in this process, which has a handler of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_ctrl_c_ends_the_work_and_the_member(coordinator):
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    ended = []
    with Member(coordinator, group_id="g", topics="clicks") as member:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            member.run(lambda partition, stop: stop.wait() and ended.append(partition))
        assert until(lambda: len(ended) == 2)
        assert len(member.owned) == 2
        member.run(waits, 0.1)  # it goes on, if the program does


def test_a_run_that_is_cancelled_ends_its_work(coordinator):
    async def main():
        async with AsyncMember(coordinator, group_id="g", topics="clicks") as member:
            begun, both, ended = [], asyncio.Event(), asyncio.Event()

            async def work(partition, stop):
                begun.append(partition)
                if len(begun) == 2:
                    both.set()
                await stop.wait()
                ended.set()

            running = asyncio.create_task(member.run(work))
            await asyncio.wait_for(both.wait(), PATIENCE_S)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            assert len(member.owned) == 2

    asyncio.run(main())


def test_one_run_at_a_time(coordinator):
    with Member(coordinator, group_id="g", topics="clicks") as member:
        thread = threading.Thread(target=member.run, args=(waits, 3))
        thread.start()
        assert until(lambda: member._driver._runs)
        with pytest.raises(RuntimeError, match="the member is already running work"):
            member.run(waits)
        thread.join()


def test_each_of_two_that_wait_gets_a_change_of_its_own(coordinator):
    async def main():
        async with AsyncMember(coordinator, group_id="g", topics="nothing") as member:
            waiting = [asyncio.create_task(member.wait_for_change(PATIENCE_S)) for _ in range(2)]
            await member.subscribe("clicks")
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.1)
            assert len(done) == len(left) == 1
            await member.subscribe("nothing")
            return [len((await one).owned) for one in (*done, *left)]

    assert asyncio.run(main()) == [2, 0]


def test_a_coordinator_that_is_closed_ends_its_members(coordinator):
    with Member(coordinator, group_id="g", topics="clicks") as member:
        assert member.wait_for_change(PATIENCE_S)
        coordinator.close()
        with pytest.raises(GroupError, match="shut down") as refused:
            member.commit({("clicks", 0): 1})
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not refused.value.retriable
        with pytest.raises(GroupError, match="shut down"):
            member.run(waits)
        assert member.owned == frozenset()
        with pytest.raises(GroupError, match="shut down"):
            member.commit({("clicks", 0): 1})  # not merely that it is no longer owned


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_no_member(coordinator):
    with Member(coordinator, group_id="g", topics="clicks") as member:
        assert member.wait_for_change(PATIENCE_S)
        child = os.fork()
        if child == 0:
            try:
                member.leave()  # which is the parent's
                assert member.owned == frozenset()
                with pytest.raises(RuntimeError, match="from which this one was forked: create"):
                    member.commit({("clicks", 0): 1})
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        member.commit({("clicks", 0): 1})


def test_a_connection_that_fails_says_where_and_how(coordinator, caplog):
    tls = ssl.create_default_context()
    with coordinator.serve("127.0.0.1:0") as serving:
        with Member(serving.address, group_id="g", topics="clicks", tls=tls) as member:
            assert until(lambda: "is not answered" in caplog.text)
            assert member.wait_for_change(0) is None
        assert f"{serving.address} over TLS: " in caplog.text


def test_two_threads_leave_at_once(coordinator):
    for _ in range(20):
        with Member(coordinator, group_id="g", topics="clicks") as member:
            both = threading.Barrier(2)

            def leave(member=member, both=both):
                both.wait(PATIENCE_S)
                member.leave()

            other = threading.Thread(target=leave, daemon=True)
            other.start()
            both.wait(PATIENCE_S)
            member.leave()
        other.join(PATIENCE_S)
        assert not other.is_alive()


def test_what_is_asked_while_the_last_member_leaves_is_answered():
    thread, busy, answers = LoopThread(), threading.Event(), []

    async def answer():
        await asyncio.sleep(0.01)
        return len(answers)

    thread.loop.call_soon_threadsafe(busy.wait)
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    asking = threading.Thread(target=lambda: answers.append(thread.ask(answer())), daemon=True)
    asking.start()
    until(lambda: len(thread.loop._ready) > 1)  # the question waits behind the end
    busy.set()
    asking.join(PATIENCE_S)
    assert answers == [0]
    thread._thread.join(PATIENCE_S)
    with pytest.raises(RuntimeError, match="its thread has ended"):
        thread.ask(answer())
