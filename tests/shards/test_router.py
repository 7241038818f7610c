"""Events go to the shard of their group; answers come back in order, and lists as one."""

from __future__ import annotations

from concurrent.futures import Future

from hypothesis import given
from hypothesis import strategies as st

from coordinator import Coordinator
from coordinator.core.events import (
    ConfigureGroup,
    DescribeConfig,
    Heartbeat,
    ListConfiguredGroups,
    ListGroupIds,
    ListGroups,
    OffsetFetch,
    RecordAudit,
    Result,
)
from coordinator.core.java_hash import place_of
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import Status, refusal
from coordinator.shards.router import Router
from tests.support.members import join

COUNT = 4
AWAY = GroupError(ErrorCode.NOT_COORDINATOR, "elsewhere")


class Fake:
    """Answers each event with its own name and the event."""

    def __init__(self, name):
        self.name, self.asked = name, []

    def submit(self, events):
        self.asked.append(list(events))
        found = Future()
        found.set_result([Result(response=(self.name, event)) for event in events])
        return found

    def is_large(self, _event):
        return self.name == 1


@given(st.lists(st.text(max_size=5)), st.sets(st.integers(0, COUNT - 1)))
def test_each_event_is_answered_by_the_shard_of_its_group(group_ids, here):
    shards = {number: Fake(number) for number in here}

    def find(group_id):
        return shards.get(place_of(group_id, COUNT), AWAY)

    router = Router(find, lambda: [shards[n] for n in sorted(shards)])
    events = [OffsetFetch(group_id, None) for group_id in group_ids]

    answers = router.submit(events).result(timeout=0)

    for event, answer in zip(events, answers, strict=True):
        shard = place_of(event.group_id, COUNT)
        assert answer == (Result(response=(shard, event)) if shard in here else AWAY)
        assert router.is_large(event) == (shard == 1 and 1 in here)
    for number, one in shards.items():
        assert len(one.asked) <= 1, "a batch stays one"
        assert all(place_of(e.group_id, COUNT) == number for batch in one.asked for e in batch)


def test_what_is_asked_about_all_groups_has_one_answer_in_order():
    group_ids = [f"g{n}" for n in range(9)]
    opened = [Coordinator.open(None, topics={"t": 2}) for _ in range(COUNT)]

    def find(group_id):
        return opened[place_of(group_id, COUNT)]

    router = Router(find, lambda: opened)
    try:
        for group_id in group_ids:
            join(find(group_id), "m", ("t",), group_id)
        router.submit(
            [ConfigureGroup(g, {"consumer.session.timeout.ms": "50000"}) for g in group_ids]
        ).result(10)
        asked = [ListGroupIds(), ListGroups(), ListGroups(group_ids=["g8", "g1", "no"]),
                 ListConfiguredGroups()]  # fmt: skip

        ids, every, some, configured = router.submit(asked).result(10)

        assert list(ids.response) == group_ids
        assert [row["group_id"] for row in every.response] == group_ids
        assert [row["group_id"] for row in some.response] == ["g1", "g8"]
        assert list(configured.response) == group_ids
    finally:
        for one in opened:
            one.close()


def test_without_a_shard_lists_are_empty_and_the_rest_is_refused():
    router = Router(lambda _: AWAY, list)
    listed, refused, audited = router.submit(
        [ListGroupIds(), Heartbeat("g", "m", 0), RecordAudit(())]
    ).result(0)
    assert listed == Result(response=[])
    assert refused == AWAY
    stands_by = refusal(Status.STANDS_BY)
    assert (audited.code, str(audited)) == (stands_by.code, str(stands_by))


def test_what_is_refused_comes_to_no_shard():
    """The rest of the batch does, in order, and audits, which are about no group."""
    shard, audit, asked = Fake(0), RecordAudit(()), []

    def refuse(event):
        asked.append(event)
        return AWAY if event.group_id == "stranger" else None

    router = Router(lambda _: shard, lambda: [shard], refuse)
    first, stranger, last = (Heartbeat(name, "m", 0) for name in ("a", "stranger", "b"))
    answers = router.submit([first, stranger, audit, last]).result(0)
    assert answers[1] == AWAY
    assert [answers[at].response for at in (0, 2, 3)] == [(0, first), (0, audit), (0, last)]
    assert shard.asked == [[first, audit, last]]
    assert asked == [first, stranger, last]


def test_an_error_of_a_shard_is_that_of_the_whole_list():
    def refuse(code):
        one = Fake(0)
        found = Future()
        found.set_result([GroupError(code, "why")])
        one.submit = lambda _events: found
        return one

    whole, gone, loading = (
        Coordinator.open(None), refuse(ErrorCode.NOT_COORDINATOR),
        refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    )  # fmt: skip
    with whole:
        (lacks,) = Router(lambda _: AWAY, lambda: [whole, gone]).submit([ListGroupIds()]).result(5)
        (fails,) = Router(lambda _: AWAY, lambda: [whole, loading]).submit([ListGroups()]).result(5)
    assert lacks == Result(response=[])
    assert fails.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_description_of_settings_is_asked_where_the_group_is():
    one, two = Fake(0), Fake(1)
    router = Router(lambda group_id: [one, two][place_of(group_id, 2)], lambda: [one, two])
    router.submit([DescribeConfig("a")]).result(0)
    assert [len(one.asked), len(two.asked)] == [0, 1]
