"""What a coordinator refuses is raised, so that no error is overlooked."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import Future

import pytest

from coordinator import (
    Coordinator,
    Fenced,
    GroupError,
    PartitionsRefusedError,
    UnavailableError,
)
from coordinator.core.events import Heartbeat
from coordinator.errors import ErrorCode

JOINING = {
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["clicks"],
    "topic_partitions": {},
}


@pytest.fixture(scope="module")
def coordinator():
    with Coordinator.open(None, topics={"clicks": 2}) as found:
        beat(found, 0, **JOINING)
        yield found


def beat(coordinator, epoch, **fields):
    return coordinator.consumer_group_heartbeat(
        group_id="g", member_id="m", member_epoch=epoch, **fields
    )


def test_answers_without_an_error_are_returned(coordinator):
    answer = beat(coordinator, 0, **JOINING)
    assert answer.raise_for_error() is answer
    beats = [Heartbeat("g", "m", 2)]
    for found in (
        coordinator.consumer_group_describe("g"),
        coordinator.consumer_group_heartbeats(beats),
        coordinator.steady_heartbeats("g", ["m"], [2]),
    ):
        assert found.raise_for_error() is found
        assert found[0].raise_for_error() is found[0]


def test_one_request_raises_what_it_is_refused_with(coordinator):
    with pytest.raises(Fenced, match="epoch") as fenced:
        beat(coordinator, 9)
    assert fenced.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    fields = {"group_id": "g", "member_id": "m"}
    later = coordinator.submit_heartbeat(**fields, member_epoch=9)
    with pytest.raises(Fenced):
        later.result()
    with pytest.raises(Fenced):
        asyncio.run(coordinator.aio.consumer_group_heartbeat(**fields, member_epoch=9))
    with pytest.raises(Fenced):
        coordinator.offset_commit(**fields, member_epoch=1, topics={"clicks": {0: 5}})
    with pytest.raises(GroupError) as unknown:
        coordinator.consumer_group_prepare_assignment("nobody")
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_of_many_requests_each_has_its_error(coordinator):
    beats = [Heartbeat("g", "m", 2), Heartbeat("g", "m", 9), Heartbeat("g", "m", 2)]
    answers = coordinator.consumer_group_heartbeats(beats)
    assert [answer.error for answer in answers] == ["NONE", "FENCED_MEMBER_EPOCH", "NONE"]
    with pytest.raises(Fenced):
        answers.raise_for_error()
    described = coordinator.consumer_group_describe(["g", "nobody"])
    assert [answer["error_code"] for answer in described] == [0, 69]
    with pytest.raises(GroupError, match="nobody"):
        described.raise_for_error()
    with pytest.raises(GroupError, match="not empty"):
        coordinator.delete_groups("g").raise_for_error()
    assert coordinator.delete_groups([]) == []


def test_what_is_refused_of_some_partitions_names_them(coordinator):
    with pytest.raises(PartitionsRefusedError, match="clicks-0 and 1 more: GROUP_SUB") as error:
        coordinator.offset_delete(group_id="g", topics={"clicks": [0, 1], "other": [0]})
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert error.value.partitions == {("clicks", 0): code, ("clicks", 1): code}
    copied = pickle.loads(pickle.dumps(error.value))
    assert (copied.code, copied.partitions) == (code, error.value.partitions)
    long = {0: (5, "x" * 5_000), 1: 6}
    with pytest.raises(PartitionsRefusedError) as error:
        coordinator.offset_commit(
            group_id="g", member_id="m", member_epoch=2, topics={"clicks": long}
        )
    assert list(error.value.partitions) == [("clicks", 0)]
    assert coordinator.offset_fetch(group_id="g")["topics"]["clicks"].keys() == {1}


def test_a_closed_coordinator_is_unavailable():
    with Coordinator.open(None) as closed:
        pass
    with pytest.raises(UnavailableError) as error:
        closed.list_groups()
    assert error.value.retriable
    with pytest.raises(UnavailableError):
        closed.steady_heartbeats("g", ["m"], [2]).raise_for_error()


def test_a_refusal_that_several_get_is_each_one_s_own(monkeypatch):
    """Raised again, one object would gather everybody's tracebacks, and tell them to everybody."""
    shared = GroupError(ErrorCode.INVALID_REQUEST, "no")
    answered = Future()
    answered.set_result([shared])
    seen = []
    with Coordinator.open(None, topics={"a": 1}) as coordinator:
        monkeypatch.setattr(coordinator._loop, "submit", lambda _events: answered)
        for _ in range(2):
            with pytest.raises(GroupError, match="no") as caught:
                coordinator.reject_plan("g", "p")
            seen.append(caught.value)
        monkeypatch.undo()
    assert len({id(one) for one in (*seen, shared)}) == 3
    assert shared.__traceback__ is None
