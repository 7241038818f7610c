"""The event processor and requests that wait: commits that fail, and how many there may be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from coordinator.config import Config, LeaseConfig, QuotasConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.classic_events import (
    WAITING,
    JoinGroup,
    JoinGroupResponse,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.event_processor import EventProcessor
from coordinator.storage.record_log import LogError, MemoryLog, MemoryRecords

draw_request_id = itertools.count(1).__next__
DELAYED = Config(
    kafka=kafka_config({"group.initial.rebalance.delay.ms": 60_000}),
    lease=LeaseConfig(check_ms=0),
)
AT_ONCE = replace(DELAYED, kafka=kafka_config({"group.initial.rebalance.delay.ms": 0}))


def processor_of(config, log=None):
    log = log or MemoryLog()
    log.claim("test", "", 0)
    processor = EventProcessor(log, config, itertools.count(1_000_000).__next__)
    processor.load()
    return processor


def join(member_id="", **fields):
    number = draw_request_id()
    return JoinGroup(
        "g",
        member_id,
        "consumer",
        [Protocol("range", b"")],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        request_id=number,
        drawn_id=f"m{number}",
        drawn_consumer_id=f"c{number}",
        knows_member_id=False,
        **fields,
    )


def sync(member_id, assignments=None):
    return SyncGroup("g", member_id, 1, draw_request_id(), assignments or {})


def answers_of(processor):
    return dict(processor.parked.take_answered())


@pytest.mark.behaviour("H-28", "H-33", "G-109", "G-112", "P-31")
def test_a_commit_that_fails_releases_those_whom_it_would_have_answered():
    """The sync of the leader completes another one; its record does not become durable."""
    broken = []

    def fault(when):
        if broken and when == "before":
            raise LogError("disk full")

    processor = processor_of(AT_ONCE, MemoryLog(MemoryRecords(), fault))
    leader, follower = join(), join()
    processor.run([leader, follower])
    processor.tick()  # a member joined since the delay of 0 began: another one begins
    processor.tick()
    answers = answers_of(processor)
    assert {one.generation for one in answers.values()} == {1}
    waits = sync(answers[follower.request_id].member_id)
    (answer,) = processor.run([waits])
    assert answer.response is WAITING
    broken.append(True)
    (refused,) = processor.run([sync(answers[leader.request_id].member_id, {})])
    assert isinstance(refused, GroupError)
    assert answers_of(processor) == {waits.request_id: SyncGroupResponse(ErrorCode.NOT_COORDINATOR)}
    assert not processor.parked.waiting


@pytest.mark.behaviour("H-38", "G-151")
def test_who_loses_the_store_releases_everyone():
    processor = processor_of(DELAYED)
    waits = join()
    processor.run([waits])
    processor.fence("another one has it")
    released = JoinGroupResponse(waits.drawn_id, ErrorCode.NOT_COORDINATOR)
    assert answers_of(processor) == {waits.request_id: released}


def test_newcomers_are_refused_while_too_many_requests_wait_and_members_go_on():
    processor = processor_of(replace(DELAYED, quotas=QuotasConfig(parked_requests_max=2)))
    first, second, third = join(), join(), join()
    assert [one.response for one in processor.run([first, second])] == [WAITING] * 2
    (refused,) = processor.run([third])
    assert refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (again,) = processor.run([join(first.drawn_id)])
    assert again.response is WAITING
    assert answers_of(processor) == {first.request_id: None}


def test_answers_are_taken_in_pieces_and_those_left_are_refused_with_the_rest():
    processor = processor_of(AT_ONCE)
    joins = [join() for _ in range(5)]
    processor.run(joins)
    for _ in range(2):
        processor.tick()
    taken = dict(processor.parked.take_answered(2))
    assert list(taken) == [one.request_id for one in joins[:2]]
    assert processor.parked.has_answered
    processor.fence("another one has it")
    left = answers_of(processor)
    assert list(left) == [one.request_id for one in joins[2:]]
    assert {one.error_code for one in left.values()} == {ErrorCode.NOT_COORDINATOR}
    assert not processor.parked.has_answered
