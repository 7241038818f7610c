"""A block that holds partitions: they go when it has ended, as after the last call of work."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from coordinator import AsyncMember, Coordinator, Fenced, Member
from tests.member.runs import PATIENCE_S, QUICK, Cut, until

BOTH = {("clicks", 0), ("clicks", 1)}


@pytest.fixture
def coordinator():
    with Coordinator.open(None, config=QUICK, topics={"clicks": 2}) as found:
        yield found


def member_of(coordinator, **words):
    return Member(coordinator, group_id="g", topics="clicks", **words)


def test_a_partition_that_is_to_go_goes_when_the_block_ends(coordinator):
    with member_of(coordinator) as ann:
        assert until(lambda: ann.owned == BOTH)
        eve = member_of(coordinator)
        with ann.holding() as held:
            assert held.partitions == BOTH
            eve.open()
            assert until(lambda: ann._driver.membership.state.name == "RECONCILING")
            time.sleep(0.2)
            assert eve.owned == frozenset()
            ann.commit(dict.fromkeys(held.partitions, 7))
            with ann.holding() as less:  # what is to go is not held again
                assert len(less.partitions) == 1
                assert less.changes > held.changes
        assert until(lambda: len(eve.owned) == 1)
        assert eve.committed_offsets(BOTH) == dict.fromkeys(BOTH, 7)
        eve.leave()


def test_changes_tell_whether_partitions_were_held_all_the_time(coordinator):
    with member_of(coordinator) as ann:
        assert ann.wait_for_change(PATIENCE_S)
        with ann.holding() as first, ann.holding() as second:
            assert first.partitions == second.partitions == BOTH
            assert first.changes == second.changes
        with member_of(coordinator) as bob:
            assert bob.wait_for_change(PATIENCE_S)
        assert until(lambda: ann.owned == BOTH)
        with ann.holding() as third:
            assert third.changes > first.changes


def test_leaving_waits_for_the_end_of_the_block_and_in_it_begins(coordinator):
    with member_of(coordinator) as ann:
        assert ann.wait_for_change(PATIENCE_S)
        assert not ann.has_left
        with ann.holding() as held:
            leaving = threading.Thread(target=ann.leave)
            leaving.start()
            time.sleep(0.3)
            assert leaving.is_alive()
            ann.commit(dict.fromkeys(held.partitions, 3))
        leaving.join(PATIENCE_S)
        assert ann.has_left
    with member_of(coordinator) as ann:
        assert ann.wait_for_change(PATIENCE_S)
        assert ann.committed_offsets(BOTH) == dict.fromkeys(BOTH, 3)
        with ann.holding():
            ann.leave()
            assert not ann.has_left
        assert until(lambda: ann.has_left)
        with ann.holding() as held:
            assert held.partitions == frozenset()


def test_what_is_lost_in_the_block_can_not_be_committed_and_comes_back_after_it(coordinator):
    cut = Cut(coordinator)
    with member_of(cut) as ann:
        assert ann.wait_for_change(PATIENCE_S)
        with ann.holding() as held:
            cut.cut = True
            with member_of(coordinator) as bob:
                assert until(lambda: bob.owned == BOTH)
                bob.commit(dict.fromkeys(BOTH, 9))
            cut.cut = False
            with pytest.raises(Fenced):
                ann.commit(dict.fromkeys(held.partitions, 5))
            time.sleep(0.3)
            assert ann.owned == frozenset()  # nothing restarts beside the block
        assert until(lambda: ann.owned == BOTH)
        with ann.holding() as again:
            assert again.changes > held.changes
        assert ann.committed_offsets(BOTH) == dict.fromkeys(BOTH, 9)


def test_a_commit_takes_the_place_of_one_that_was_to_come(coordinator):
    """Else the older offset of `commit_later` would be committed seconds after the newer one."""
    with member_of(coordinator) as ann:
        assert ann.wait_for_change(PATIENCE_S)
        ann.commit_later({("clicks", 0): 3, ("clicks", 1): 4})
        ann.commit({("clicks", 0): 5})
    with member_of(coordinator) as bob:
        assert bob.committed_offsets(BOTH) == {("clicks", 0): 5, ("clicks", 1): 4}


def test_a_block_that_hangs_gives_up_its_partitions(coordinator):
    with (
        member_of(coordinator, max_poll_interval_ms=400) as ann,
        member_of(coordinator) as bob,
    ):
        assert until(lambda: len(ann.owned) == 1)
        assert until(lambda: len(bob.owned) == 1)
        with ann.holding():
            assert until(lambda: bob.owned == BOTH)
        assert until(lambda: len(ann.owned) == 1)


def test_in_asyncio(coordinator):
    async def main():
        async with AsyncMember(coordinator, group_id="a", topics="clicks") as ann:
            await ann.wait_for_change(PATIENCE_S)
            async with ann.holding() as held:
                assert held.partitions == BOTH
                await ann.leave()
                assert not ann.has_left
            for _ in range(1_000):
                if ann.has_left:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("it has not left")

    asyncio.run(main())
