"""What a coordinator answers can be raised, so that no error is overlooked (U4)."""

from __future__ import annotations

import pytest

from coordinator import Coordinator, Fenced, GroupError
from coordinator.errors import ErrorCode, UnavailableError

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


def test_an_answer_without_an_error_is_returned(coordinator):
    answer = beat(coordinator, 0, **JOINING)
    assert answer.raise_for_error() is answer
    for found in (
        coordinator.list_groups(),
        *coordinator.consumer_group_describe("g"),
        coordinator.offset_commit(group_id="g", member_id="m", member_epoch=2, topics={"clicks": {0: 5}}),
        coordinator.offset_fetch(group_id="g"),
    ):  # fmt: skip
        assert found.raise_for_error() is found


def test_an_error_is_raised_as_what_it_is(coordinator):
    stale = coordinator.offset_commit(
        group_id="g", member_id="m", member_epoch=1, topics={"clicks": {0: 5}}
    )
    for refused in (beat(coordinator, 9), stale):
        with pytest.raises(Fenced):
            refused.raise_for_error()
    (unknown,) = coordinator.consumer_group_describe("nobody")
    with pytest.raises(GroupError) as error:
        unknown.raise_for_error()
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    (full,) = coordinator.delete_groups("g")
    with pytest.raises(GroupError, match="not empty"):
        full.raise_for_error()


def test_the_error_of_one_partition_is_raised(coordinator):
    answer = coordinator.offset_delete(group_id="g", topics={"clicks": [0]})
    with pytest.raises(GroupError, match="clicks-0: GROUP_SUBSCRIBED_TO_TOPIC"):
        answer.raise_for_error()


def test_a_closed_coordinator_is_unavailable():
    with Coordinator.open(None) as closed:
        pass
    with pytest.raises(UnavailableError) as error:
        closed.list_groups().raise_for_error()
    assert error.value.retriable
