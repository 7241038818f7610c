"""`Member` and `AsyncMember` against a coordinator in this process."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import pytest

from coordinator import AsyncMember, Coordinator, Fenced, GroupError, Member
from coordinator.errors import ErrorCode
from tests.member.runs import PATIENCE_S, QUICK, STEADY, Cut, Diary, Running, until


@pytest.fixture
def coordinator():
    with Coordinator.open(None, config=STEADY, topics={"clicks": 2}) as found:
        yield found


@pytest.fixture(params=["in this process", "over the wire"])
def place(request, coordinator):
    """What a member is given to reach the coordinator."""
    if request.param == "in this process":
        yield coordinator
    else:
        with coordinator.serve("127.0.0.1:0") as serving:
            yield serving.address


def test_work_moves_in_order_from_one_member_to_another(place, coordinator):
    diary = Diary()
    ann = Member(place, group_id="g", topics="clicks", **diary.callbacks("ann"))
    with Running(ann, diary.work("ann")):
        until(lambda: diary.when("ann", "begins", "clicks-1"))
        with Member(place, group_id="g", topics=["clicks"]) as bob:
            (moved,) = bob.wait_for_change(PATIENCE_S).added
        taken_at = time.monotonic()
        until(lambda: diary.of("ann").count(("begins", str(moved))) == 2)
    assert diary.of("ann")[:1] == [("assigned", "clicks-0", "clicks-1")]
    assert sorted(diary.of("ann")[1:3]) == [("begins", "clicks-0"), ("begins", "clicks-1")]
    assert diary.of("ann")[3:7] == [
        ("ends", str(moved)), ("revoked", str(moved)), ("assigned", str(moved)), ("begins", str(moved)),
    ]  # fmt: skip
    assert sorted(diary.of("ann")[7:9]) == [("ends", "clicks-0"), ("ends", "clicks-1")]
    assert diary.of("ann")[9:] == [("revoked", "clicks-0", "clicks-1")]
    assert diary.when("ann", "revoked", str(moved)) < taken_at
    (group,) = coordinator.consumer_group_describe("g")
    assert group["members"] == []


def test_a_fenced_worker_stops_before_another_one_begins():
    with Coordinator.open(None, config=QUICK, topics={"clicks": 2}) as coordinator:
        check_fenced_worker(coordinator, Cut(coordinator), Diary())


def check_fenced_worker(coordinator, line, diary):
    ann = Member(
        line, group_id="g", topics="clicks", rebalance_timeout_ms=1_000, **diary.callbacks("ann")
    )
    bob = Member(coordinator, group_id="g", topics="clicks", **diary.callbacks("bob"))
    with Running(ann, diary.work("ann")):
        until(lambda: diary.when("ann", "begins", "clicks-1"))
        line.cut = True
        with Running(bob, diary.work("bob")):
            for partition in ("clicks-0", "clicks-1"):
                until(lambda of=partition: diary.when("bob", "begins", of))
                ended = diary.when("ann", "ends", partition)
                assert ended < diary.when("bob", "begins", partition)
            assert ann.owned == frozenset()
            with pytest.raises(Fenced, match="clicks-0: not, or no longer, owned"):
                ann.commit({("clicks", 0): 1})
            assert diary.of("ann")[-1][0] == "lost"
        line.cut = False


def test_slow_work_does_not_fence_its_member(coordinator):
    done, line = threading.Event(), Cut(coordinator)

    def work(partition, stop):
        asked = line.asked
        until(lambda: line.asked > asked + 20)  # heartbeats go on
        done.set()

    member = Member(line, group_id="g", topics="clicks")
    with Running(member, work):
        first = member.wait_for_change(PATIENCE_S)
        assert done.wait(PATIENCE_S)
        assert member.wait_for_change(0) is None
        assert member.owned == first.owned


def test_work_without_a_sign_of_life_is_given_up_and_comes_back(coordinator, caplog):
    diary, hangs = Diary(), threading.Event()

    def work(partition, stop):
        diary.note("ann", "begins", str(partition))
        if not hangs.is_set():
            hangs.set()
            time.sleep(1)

    ann = Member(
        coordinator, group_id="g", topics="clicks", max_poll_interval_ms=200, **diary.callbacks("ann")
    )  # fmt: skip
    with Running(ann, work):
        assert until(lambda: len([w for w in diary.of("ann") if w[0] == "assigned"]) >= 2)
    assert ("lost", "clicks-0", "clicks-1") in diary.of("ann")
    assert "no sign of life" in caplog.text


def test_what_work_raises_ends_the_run_and_the_member(coordinator, caplog):
    def work(partition, stop):
        raise ZeroDivisionError(str(partition))

    with Running(Member(coordinator, group_id="g", topics="clicks"), work) as running:
        with pytest.raises(ZeroDivisionError, match="clicks-"):
            running.outcome.result(PATIENCE_S)
        (group,) = coordinator.consumer_group_describe("g")
        assert group["members"] == []
    assert "work on clicks-0 failed" in caplog.text


def test_a_refusal_for_good_is_raised(place, caplog):
    with Member(place, group_id="g", pattern="[") as member:
        with pytest.raises(GroupError, match="regular expression") as refused:
            member.run(lambda *_: None)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert not refused.value.retriable
        with pytest.raises(GroupError):
            member.subscribe("clicks")


def test_offsets_are_committed_and_found(place, coordinator):
    with Member(place, group_id="g", topics="clicks") as member:
        one, two = sorted(member.wait_for_change(PATIENCE_S).owned)
        assert member.committed(one) is None
        member.commit({one: 7})
        member.commit_later({("clicks", two.partition): (9, "note")})
        assert (member.committed(one), member.committed(two)) == (7, None)
        with pytest.raises(Fenced, match="clicks-5: not, or no longer, owned by this member"):
            member.commit({("clicks", 5): 1})
    topics = coordinator.offset_fetch(group_id="g")["topics"]["clicks"]
    assert topics[1] == {"committed_offset": 9, "metadata": "note"}


def test_a_changed_subscription_moves_what_is_owned(place):
    with Member(place, group_id="g", topics="nothing") as member:
        assert member.wait_for_change(0.2) is None
        member.subscribe(pattern="cl.*")
        assert len(member.wait_for_change(PATIENCE_S).added) == 2


def test_a_static_member_finds_its_partitions_again(place, coordinator):
    static = {"group_id": "g", "topics": "clicks", "instance_id": "i"}
    member = Member(place, **static).open()
    first = member.wait_for_change(PATIENCE_S)
    member.leave(for_a_while=True)
    epoch = coordinator.group_epochs("g")
    with Member(place, **static) as again:
        assert again.wait_for_change(PATIENCE_S).owned == first.owned
    assert coordinator.group_epochs("g")[0][0] == epoch[0][0] + 1  # by its last goodbye only


def test_the_thread_of_the_members_ends_with_the_last(coordinator):
    def there():
        return [t.name for t in threading.enumerate() if t.name == "muster members"]

    one, two = (Member(coordinator, group_id="g", topics="clicks") for _ in range(2))
    with one, two:
        assert len(there()) == 1
    assert there() == []


def test_an_async_member_does_the_same(coordinator):
    diary = Diary()

    async def opened(found):
        diary.note("ann", "assigned", *map(str, found))

    async def work(partition, stop):
        diary.note("ann", "begins", str(partition))
        await stop.wait()
        diary.note("ann", "ends", str(partition))

    async def main():
        async with AsyncMember(
            coordinator.aio, group_id="g", topics="clicks", on_assigned=opened
        ) as member:
            running = asyncio.create_task(member.run(work))
            async for change in member.changes():
                await member.commit(dict.fromkeys(change.added, 3))
                assert await member.committed(("clicks", 0)) == 3
                break
            await member.leave()
            await running

    asyncio.run(main())
    kinds = [words[0] for words in diary.of("ann")]
    assert kinds == ["assigned", "begins", "begins", "ends", "ends"]


def test_both_have_the_same_methods():
    for name, method in vars(Member).items():
        if not name.startswith("_") and inspect.isfunction(method):
            twin = getattr(AsyncMember, name)
            ours = [p.name for p in inspect.signature(method).parameters.values()]
            assert ours == [p.name for p in inspect.signature(twin).parameters.values()], name
