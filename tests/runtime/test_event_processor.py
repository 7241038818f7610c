"""The event processor: records are durable before an answer leaves, and nothing is half done."""

from __future__ import annotations

import pytest

from coordinator.core.events import Heartbeat, Result
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import CurrentMember, GroupMetadata
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.runtime import event_decider
from coordinator.storage.record_log import CommitFailed, MemoryLog
from tests.support.coordinator_core import Code, lists
from tests.support.coordinator_shell import Shell
from tests.support.fingerprint import fingerprint


def joining(member, *names):
    return Heartbeat(
        "g", member, 0, rebalance_timeout_ms=1, subscribed_topic_names=names, topic_partitions={}
    )


@pytest.fixture
def shell():
    """m1 has topic a."""
    found = Shell(a=6)
    found.join("m1", "a")
    return found


def refused(shell, event):
    with pytest.raises(GroupError) as error:
        shell.ask(event)
    return error.value.code


@pytest.mark.behaviour(
    "G-11",
    "G-150",
    "G-151",
    "S-11",
    "K-37",
    "W-35",
    "W-36",
    "W-37",
    "W-64",
    "W-66",
    "W-67",
    "W-115",
)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.LOADING, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Status.FAILED, Code.COORDINATOR_NOT_AVAILABLE),
        (Status.FENCED, Code.NOT_COORDINATOR),
        (Status.CLOSED, Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_inactive_coordinator_answers_nothing(shell, status, code):
    shell.processor.status = status
    assert refused(shell, joining("m2", "a")) is code
    assert code.retriable


@pytest.mark.behaviour("G-45", "S-10", "S-1", "G-37")
@pytest.mark.parametrize(
    "error", [CommitFailed("no"), OSError(28, "disk full")], ids=["log", "disk"]
)
def test_when_a_commit_fails_nothing_has_happened(shell, error):
    before = fingerprint(shell.processor.state)
    shell.fault = error
    assert refused(shell, joining("m2", "a")) is Code.COORDINATOR_NOT_AVAILABLE
    assert fingerprint(shell.processor.state) == before
    epoch = shell.member("m1").epoch
    shell.fault = None
    shell.catalog.set("a", 7)
    shell.processor.see_topics()
    shell.fault = error
    assert refused(shell, Heartbeat("g", "m1", epoch)) is Code.COORDINATOR_NOT_AVAILABLE
    shell.fault = None
    # What was to be done is found again: the topic has grown.
    assert shell.beat("m1", epoch).member_epoch == epoch + 1


@pytest.mark.behaviour("G-45", "S-4", "S-5", "G-31")
def test_a_commit_that_landed_though_it_seemed_to_fail_is_found_by_the_replay(shell):
    epoch = shell.member("m1").epoch

    def lost(when):
        if when == "after":
            shell.fault = None
            raise CommitFailed("the answer was lost")

    shell.fault = lost
    event = Heartbeat("g", "m1", epoch, subscribed_topic_names=["a", "b"])
    assert refused(shell, event) is Code.COORDINATOR_NOT_AVAILABLE
    now = shell.member("m1").epoch
    assert now == epoch + 1
    # The member asks again with the epoch it knows, which is the one before.
    assert (
        shell.beat("m1", epoch, {"a": [0]}, subscribed_topic_names=["a", "b"]).member_epoch == now
    )


@pytest.mark.behaviour("S-10")
def test_a_log_that_takes_no_records_is_not_replayed_endlessly(shell):
    attempts = []

    def full(when):
        attempts.append(when)
        raise CommitFailed("disk full")

    shell.fault = full
    shell.catalog.set("a", 7)  # the first thing a load wants to write
    shell.processor.reload()
    assert shell.processor.status is Status.FAILED
    assert len(attempts) == 1
    shell.fault = None
    shell.processor.reload()
    assert shell.processor.status is Status.ACTIVE
    assert shell.processor.state.topics["a"].partitions == 7


@pytest.mark.behaviour("G-45", "G-142")
def test_a_batch_is_one_commit_and_its_refusals_hurt_no_other(shell):
    before = len(shell.storage.batches)
    answers = shell.processor.run([joining("m2", "a"), joining("", "a"), joining("m3", "a")])
    assert [type(answer) for answer in answers] == [Result, GroupError, Result]
    assert len(shell.storage.batches) == before + 1


@pytest.mark.behaviour("G-149", "G-66")
def test_records_that_contradict_the_state_are_dropped_and_the_rest_of_the_batch_decided(
    shell, monkeypatch
):
    """An assertion of ours that fails costs the request that did it, not the group."""
    real = event_decider.step

    def faulty(state, config, event, now_ms):
        result = real(state, config, event, now_ms)
        if event.member_id == "m2":
            taken = CurrentMember(
                "g", "m2", 3, assigned=((TopicKey("a", shell_id(shell)), 0, 1, 3),)
            )
            result.records.append(taken)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(event_decider, "step", faulty)
        answers = shell.processor.run([joining("m3", "a"), joining("m2", "a"), joining("m4", "a")])
    assert [isinstance(answer, Result) for answer in answers] == [True, False, True]
    assert answers[1].code is Code.UNKNOWN_SERVER_ERROR
    assert set(shell.processor.state.groups["g"].members) == {"m1", "m3", "m4"}
    live = fingerprint(shell.processor.state)
    shell.reload()
    assert fingerprint(shell.processor.state) == live


def shell_id(shell):
    return shell.processor.state.topics["a"].key.topic_id


def test_a_step_that_fails_answers_an_error_and_writes_nothing(shell, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    before = fingerprint(shell.processor.state)
    with monkeypatch.context() as patch:
        patch.setattr(event_decider, "step", broken)
        assert refused(shell, joining("m2", "a")) is Code.UNKNOWN_SERVER_ERROR
    assert fingerprint(shell.processor.state) == before


@pytest.mark.behaviour("G-151", "S-11", "S-12")
def test_a_coordinator_that_was_replaced_notices_though_it_writes_nothing(shell):
    old, epoch = shell.processor, shell.member("m1").epoch
    steady = Heartbeat("g", "m1", epoch)
    assert isinstance(old.run([steady])[0], Result)
    shell.reload()
    shell.now += old.config.lease.check_ms + 1
    assert old.run([steady])[0].code is Code.NOT_COORDINATOR
    assert old.status is Status.FENCED
    assert isinstance(shell.processor.run([steady])[0], Result)


def test_a_coordinator_stopped_right_after_its_commit_looks_before_it_answers(shell):
    other = MemoryLog(shell.storage)

    def stopped(when):
        if when == "after" and other.epoch == 0:
            other.claim("successor", "", shell.now)
            shell.now += 60_000

    shell.fault = stopped
    processor = shell.processor
    steady = Heartbeat("g", "m1", shell.member("m1").epoch)
    answers = processor.run([joining("m2", "a"), steady])
    assert [answer.code for answer in answers] == [Code.NOT_COORDINATOR] * 2


# Fail-over ---------------------------------------------------------------------------------------


@pytest.mark.behaviour("K-14", "S-1")
def test_topics_that_changed_while_none_ran_are_found_after_a_load(shell):
    shell.catalog.set("a", 8)
    shell.reload()
    epoch = shell.member("m1").epoch
    assert lists(shell.beat("m1", epoch).assignment) == {"a": list(range(8))}


@pytest.mark.behaviour("S-2", "S-3", "S-9", "G-73")
def test_a_fail_over_in_the_middle_of_a_reconciliation_loses_nothing(shell):
    epoch = shell.member("m1").epoch
    shell.join("m2", "a")
    shell.beat("m1", epoch)  # it must give three up
    before = fingerprint(shell.processor.state)
    shell.reload()
    assert fingerprint(shell.processor.state) == before
    now = shell.beat("m1", epoch, {"a": [0, 1, 2]}).member_epoch
    assert now == epoch + 1
    assert lists(shell.beat("m2", now).assignment) == {"a": [3, 4, 5]}


@pytest.mark.behaviour("K-16", "S-8")
def test_a_target_that_was_due_before_a_fail_over_is_made_after_it():
    shell = Shell(interval_ms=1_000, a=6)
    first = shell.join("m1", "a").member_epoch
    shell.join("m2", "a")
    group = shell.processor.state.groups["g"]
    assert group.epoch > group.assignment_epoch
    shell.reload()
    shell.now += 1_000
    shell.beat("m1", first)
    group = shell.processor.state.groups["g"]
    assert group.epoch == group.assignment_epoch


@pytest.mark.behaviour("S-22", "G-37")
def test_a_catalog_out_of_reach_changes_nothing(shell, monkeypatch):
    def unreachable():
        raise OSError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(shell.catalog, "topics", unreachable)
        shell.processor.see_topics()
        shell.reload()
    assert shell.processor.state.topics["a"].partitions == 6
    reasons = [
        r.reason
        for batch in shell.storage.batches
        for r in batch.records
        if isinstance(r, GroupMetadata)
    ]
    assert reasons == ["member joined"]


# Metrics -----------------------------------------------------------------------------------------


def read(shell):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in shell.processor.metrics.registry.collect()
        for sample in family.samples
    }


@pytest.mark.behaviour(
    "K-121", "K-122", "K-123", "K-124", "K-125", "K-126", "K-127", "K-128", "G-145", "G-146"
)
def test_metrics_bear_kafkas_names(shell):
    shell.processor.metrics.watch(
        lambda: shell.processor.state, lambda: shell.processor.status.value
    )
    shell.join("m2", "a")
    found = read(shell)
    assert found["group_count", "consumer"] == 1
    assert found["num_partitions", "active"] == 1
    assert found["consumer_group_count", "reconciling"] == 1
    assert found["consumer_group_rebalance_total", "g", "member joined"] == 2
    names = {name for name, *_ in found}
    assert {
        "event_queue_size", "partition_load_time_max", "thread_idle_ratio_avg", "offset_count",
        "offset_commit_total", "offset_deletion_total", "batch_flush_time_ms_count",
        "event_processing_time_ms_count", "event_queue_time_ms_count", "batch_flush_total",
    } <= names  # fmt: skip
    states = {key[1] for key in found if key[0] == "consumer_group_count"}
    assert states == {"empty", "assigning", "reconciling", "stable", "dead"}


@pytest.mark.behaviour("G-146")
def test_metrics_skip_what_kafka_does_not_count(shell):
    shell.processor.metrics.watch(
        lambda: shell.processor.state, lambda: shell.processor.status.value
    )
    shell.join("m2", "a")
    refused(shell, Heartbeat("g", "m1", 99))
    found = read(shell)
    assert found["moved_partitions_total", "g"] == 3
    assert found["load_spread", "g"] == 6
    assert found["fences_total", "g", "FENCED_MEMBER_EPOCH"] == 1
    assert found["assignment_time_ms_count", "g"] == 2
