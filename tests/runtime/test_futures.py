"""A caller may cancel its future in any way; all other callers are still answered."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError

import msgspec
import pytest

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig, LogConfig
from coordinator.core.events import DescribeGroup, Heartbeat, ListGroups
from coordinator.runtime.event_loop import REQUESTS_A_ROUND
from tests.support.members import code_of, processor_of, wait_for


def held(coordinator):
    """Hold the loop up; returns what lets it go on."""
    let, holds = threading.Event(), threading.Event()
    coordinator._loop.call(lambda: holds.set() or let.wait(30))
    assert holds.wait(30)
    return let


@pytest.fixture
def coordinator(caplog):
    with Coordinator.open(None, topics={"a": 1}) as found:
        yield found
        assert found.status == "active"
    worst = max((record.levelno for record in caplog.records), default=0)
    assert worst < logging.WARNING, caplog.text


def test_a_cancelled_call_is_not_done_and_the_others_are(coordinator):
    let = held(coordinator)
    asked = [coordinator.submit([ListGroups()]) for _ in range(50)]
    beat = coordinator.submit_heartbeat(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["a"], topic_partitions={},
    )  # fmt: skip
    assert asked[0].cancel()
    assert beat.cancel()
    let.set()
    assert [len(future.result(30)) for future in asked[1:]] == [1] * 49
    assert coordinator.list_groups()["groups"] == []
    with pytest.raises(CancelledError):
        asked[0].result(0)


def test_a_heartbeat_does_not_wait_for_requests_about_groups_that_came_before_it(coordinator):
    """A client that asks about thousands of groups, or joins thousands, fences no member."""
    let = held(coordinator)
    done = []
    asked = [coordinator.submit([ListGroups()]) for _ in range(2_000)]
    split = coordinator.submit([ListGroups()] * 2_000)
    beat = coordinator.submit_heartbeat(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["a"], topic_partitions={},
    )  # fmt: skip
    for future in (*asked, split, beat):
        future.add_done_callback(done.append)
    let.set()
    assert len(split.result(30)) == 2_000
    assert done.index(beat) <= REQUESTS_A_ROUND
    assert [one for one in done if one is not beat] == [*asked, split], "in their order"


@pytest.mark.parametrize("ask", ["submit", "submit_heartbeat"])
def test_a_call_that_is_cancelled_while_it_is_decided_cannot_be(coordinator, ask):
    """Its records may be durable already, so the future must get its result."""
    started, let = threading.Event(), threading.Event()
    run = processor_of(coordinator).run

    def slow(events, turn):
        started.set()
        assert let.wait(30)
        return run(events, turn)

    processor_of(coordinator).run = slow
    join = Heartbeat(
        "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["a"], topic_partitions={}
    )
    if ask == "submit":
        future = coordinator.submit([join])
    else:
        future = coordinator.submit_heartbeat(**msgspec.structs.asdict(join))
    assert started.wait(30)
    assert future.running()
    assert not future.cancel()
    assert not future.cancelled()
    let.set()
    assert future.result(30)
    assert not future.running()
    assert not future.cancel()


def test_of_a_batch_that_is_cut_what_cannot_be_cancelled_is_done(coordinator):
    """Some of it is put back and has its turn later: cancelled means that it never is decided."""
    let = held(coordinator)
    asked = [
        coordinator.submit_heartbeat(
            group_id=f"g{number}", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
            subscribed_topic_names=["a"], topic_partitions={},
        )
        for number in range(1_000)
    ]  # fmt: skip
    let.set()
    first = coordinator.submit([ListGroups()])  # others wait, so batches are cut
    wait_for(asked[0].done)
    cancelled = {f"g{number}" for number, one in enumerate(asked) if one.cancel()}
    first.result(30)
    left = [one for one in asked if not one.cancelled()]
    assert all(one.result(30).member_epoch for one in left)
    known = {group["group_id"] for group in coordinator.list_groups()["groups"]}
    assert not known & cancelled
    assert len(known) == len(left)


def test_asyncio_may_stop_waiting(coordinator):
    async def ask():
        future = asyncio.wrap_future(coordinator.submit([DescribeGroup("g")]))
        beat = coordinator.aio.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
            subscribed_topic_names=["a"], topic_partitions={},
        )  # fmt: skip
        for one in (future, beat):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(one, 0.01)

    let = held(coordinator)
    asyncio.run(ask())
    let.set()
    assert coordinator.list_groups()["groups"] == []


def test_a_caller_that_sets_its_own_result_harms_no_other(coordinator):
    let = held(coordinator)
    future = coordinator.submit([ListGroups()])
    other = coordinator.submit([ListGroups()])
    future.set_result([])
    let.set()
    assert len(other.result(30)) == 1


def test_a_callback_that_ends_its_thread_does_not_end_ours():
    def leave(_found):
        raise SystemExit

    with Coordinator.open(None) as coordinator:
        let = held(coordinator)
        coordinator.submit([ListGroups()]).add_done_callback(leave)
        other = coordinator.submit([ListGroups()])
        let.set()
        assert len(other.result(30)) == 1


def test_when_the_loop_dies_all_get_an_error_and_a_stand_by_takes_over(tmp_path, caplog):
    config = Config(lease=LeaseConfig(renew_ms=50), log=LogConfig(fsync=False))
    with Coordinator.open(tmp_path, config=config) as first:
        let = held(first)
        asked = [first.submit([ListGroups()]) for _ in range(5)]
        processor_of(first).run = lambda *_events: 1 / 0  # what no test foresaw
        let.set()
        assert [future.result(30)[0].code.name for future in asked] == (
            ["COORDINATOR_NOT_AVAILABLE"] * 5
        )
        assert code_of(first.list_groups) == "COORDINATOR_NOT_AVAILABLE"
        assert first.status == "closed"
        assert "ZeroDivisionError" in caplog.text
        wait_for(lambda: not (tmp_path / "_lease.json").exists())
        with Coordinator.open(tmp_path, config=config, takeover="refuse") as second:
            second.list_groups()
