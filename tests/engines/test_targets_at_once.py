"""Targets that take no time: computed within the batch that asks for them, in one commit with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.state.records import TargetMetadata
from coordinator.engines.engine import compute_target
from coordinator.errors import GroupError
from coordinator.runtime.target_computations import restore_basis
from coordinator.storage.record_log import CommitFailed, MemoryLog
from tests.core.test_target_install import Engine
from tests.support.fingerprint import fingerprint


@pytest.fixture
def engine():
    return Engine()


def compute_at_once(engine):
    engine.processor.decider.compute_now = lambda task: compute_target(
        restore_basis(engine.processor, task)
    )


def test_a_target_that_takes_no_time_is_installed_in_the_batch_that_asks_for_it(engine):
    asked = []

    def compute_now(task):
        asked.append(task)
        return compute_target(restore_basis(engine.processor, task))

    engine.processor.decider.compute_now = compute_now
    before = len(engine.log.storage.batches)
    (joined,) = engine.join("m1")
    assert joined.response.assignment == ()
    assert (engine.processor.take_tasks(), len(asked)) == ([], 1)
    assert engine.group.assignment_epoch == engine.group.epoch == asked[0].group_epoch
    assert engine.target("m1") == {"a": [0, 1, 2, 3, 4, 5]}
    (batch,) = engine.log.storage.batches[before:]
    assert any(isinstance(record, TargetMetadata) for record in batch.records)
    state = fingerprint(engine.processor.state)
    engine.open()
    assert fingerprint(engine.processor.state) == state


def test_a_batch_computes_one_target_at_once(engine):
    compute_at_once(engine)
    engine.join("m1", "m2", "m3")
    assert engine.group.assignment_epoch < engine.group.epoch
    (task,) = engine.processor.take_tasks()
    engine.processor.run([compute_target(restore_basis(engine.processor, task))])
    assert engine.target("m2") == {"a": [3, 4, 5]}


def test_a_target_that_is_refused_is_computed_beside_the_loop(engine):
    def compute_now(task):
        found = compute_target(restore_basis(engine.processor, task))
        return replace(found, computation_id="another")

    engine.processor.decider.compute_now = compute_now
    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    assert engine.group.assignment_epoch < engine.group.epoch
    engine.processor.run([compute_target(restore_basis(engine.processor, task))])
    assert engine.target("m1") == {"a": [0, 1, 2, 3, 4, 5]}


def test_nothing_of_a_batch_is_kept_whose_commit_fails_with_its_target():
    faults = []

    def fail(when):
        if faults and when == "before":
            raise faults.pop()

    engine = Engine(MemoryLog(fault=fail))
    compute_at_once(engine)
    engine.join("m1")
    state = fingerprint(engine.processor.state)
    faults.append(CommitFailed("no"))
    (refused,) = engine.join("m2")
    assert isinstance(refused, GroupError)
    assert fingerprint(engine.processor.state) == state
    engine.join("m2")
    assert engine.target("m2") == {"a": [3, 4, 5]}
