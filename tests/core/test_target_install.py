"""Targets computed outside a step: by an external computer, or by the coordinator's own engine."""

from __future__ import annotations

import pyarrow as pa
import pytest

from assignors import GroupSpec, get_assignor
from coordinator.config import Config, EngineConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import (
    ComputeTarget,
    ConfigureGroup,
    Heartbeat,
    InstallAssignment,
    PrepareAssignment,
    TargetFailed,
)
from coordinator.core.state import state_records
from coordinator.core.state.groups import GroupState, State
from coordinator.core.state.records import (
    ComputationPrepared,
    GroupMetadata,
    MembersAdvanced,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.engines.engine import compute_target
from coordinator.errors import GroupError
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.target_computations import restore_basis
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog, find_position
from tests.support.coordinator_core import STABLE, Code, lists

RANGES = ("member_id", "topic", "first_partition", "partition_count")
HOUR_MS = 3_600_000


def table(*rows):
    """Rows of (member, topic, first partition, count)."""
    columns = list(zip(*rows, strict=True)) or [()] * len(RANGES)
    types = (pa.string(), pa.string(), pa.int32(), pa.int32())
    return pa.table(
        {name: pa.array(c, t) for name, c, t in zip(RANGES, columns, types, strict=True)}
    )


def answer(prepared):
    """What a computer makes of the state that Prepare gave it."""
    spec = GroupSpec.from_arrow(prepared["members"], prepared["topics"], prepared["owned"])
    return get_assignor("uniform").assign(spec).to_arrow()


def install(core, prepared, ranges, *, epoch=None, computation=None):
    epoch = prepared["group_epoch"] if epoch is None else epoch
    return core.run(
        InstallAssignment("g", computation or prepared["computation_id"], epoch, ranges)
    )


@pytest.fixture
def outside(group):
    """m1 and m2 want topic a; the group's targets come from outside."""
    group.run(ConfigureGroup("g", {"consumer.assignor.engine": "external"}))
    group.join("m1", "a")
    group.join("m2", "a")
    return group


def prepare(core, computation="job-1"):
    return core.run(PrepareAssignment("g", computation)).response


@pytest.mark.behaviour("K-42", "K-16", "K-110", "K-111", "G-152", "G-159")
def test_preparing_returns_the_state_of_the_group(outside):
    assert outside.group.state is GroupState.ASSIGNING
    prepared = prepare(outside)
    assert prepared["group_epoch"] == outside.group.epoch
    assert prepared["assignment_epoch"] == outside.group.assignment_epoch < outside.group.epoch
    members = prepared["members"].to_pylist()
    assert [(m["member_id"], m["subscribed"]) for m in members] == [("m1", ["a"]), ("m2", ["a"])]
    assert [(t["topic"], t["partitions"]) for t in prepared["topics"].to_pylist()] == [("a", 6)]
    assert prepared["owned"].num_rows == 0


@pytest.mark.behaviour("K-48", "K-93", "K-50")
def test_installing_makes_the_target(outside):
    prepared = prepare(outside)
    outside.settle()
    assert outside.given == {"m1": {}, "m2": {}}
    response = install(outside, prepared, answer(prepared)).response
    assert response == {
        "group_epoch": prepared["group_epoch"], "assignment_epoch": prepared["group_epoch"],
        "moved": 0, "members_changed": 2,
    }  # fmt: skip
    outside.settle()
    assert outside.given == {"m1": {"a": [0, 1, 2]}, "m2": {"a": [3, 4, 5]}}
    assert prepare(outside, "job-2")["owned"].num_rows == 2  # K-114: the previous target


@pytest.mark.behaviour("K-38", "K-43")
def test_a_group_that_is_not_there(group):
    for event in (
        PrepareAssignment("none", "job-1"),
        InstallAssignment("none", "job-1", 2, table()),
    ):
        assert group.refused(event) is Code.GROUP_ID_NOT_FOUND


@pytest.mark.behaviour("K-39", "K-41", "K-44", "K-46", "S-31")
def test_only_the_computation_that_was_prepared_last_may_install(outside):
    first = prepare(outside, "job-1")
    second = prepare(outside, "job-2")
    epoch, ranges = first["group_epoch"], answer(first)
    for unknown in ("job-1", "job-9"):
        refused = outside.refused(InstallAssignment("g", unknown, epoch, ranges))
        assert refused is Code.UNKNOWN_MEMBER_ID
    install(outside, second, ranges)


@pytest.mark.behaviour("K-40", "K-45", "S-31")
def test_an_installation_names_the_epoch_it_was_prepared_for(outside):
    prepared = prepare(outside)
    epoch, ranges = prepared["group_epoch"], answer(prepared)
    for wrong in (epoch + 1, outside.group.assignment_epoch, 0):
        assert (
            outside.refused(InstallAssignment("g", "job-1", wrong, ranges))
            is Code.STALE_MEMBER_EPOCH
        )
    install(outside, prepared, ranges)
    # Twice does no harm: the group has a target for that epoch.
    assert (
        outside.refused(InstallAssignment("g", "job-1", epoch, ranges)) is Code.STALE_MEMBER_EPOCH
    )
    outside.settle()
    assert outside.group.state is GroupState.STABLE


@pytest.mark.behaviour("K-49", "K-50", "S-30")
def test_a_group_that_moved_on_installs_it_and_the_next_is_due_at_once(outside):
    outside.configure(**{"group.consumer.assignment.interval.ms": 15_000})
    prepared = prepare(outside)
    outside.join("m3", "a")  # and gets an empty target
    outside.beat("m2", -1)  # and its part has no owner
    install(outside, prepared, answer(prepared))
    assert outside.group.assignment_epoch == prepared["group_epoch"] < outside.group.epoch
    assert outside.target("m1") == {"a": [0, 1, 2]}
    assert outside.target("m3") == {}
    assert "m2" not in outside.group.targets
    outside.run(ConfigureGroup("g", {}))  # from now on the coordinator computes
    outside.settle()
    assert outside.group.assignment_epoch == outside.group.epoch
    assert outside.given["m1"] == {"a": [0, 1, 2]}
    assert outside.given["m3"] == {"a": [3, 4, 5]}


@pytest.mark.behaviour("G-48", "K-49", "S-25")
def test_a_static_member_that_came_back_meanwhile_inherits(group):
    group.join("s1", "a", instance_id="i1")
    group.run(ConfigureGroup("g", {"consumer.assignor.engine": "external"}))
    group.join("m2", "a")
    prepared = prepare(group)
    group.beat("s1", -2, instance_id="i1")
    group.join("s9", "a", instance_id="i1")
    response = install(group, prepared, answer(prepared)).response
    assert response["moved"] == 3
    assert (group.target("s9"), group.target("m2")) == ({"a": [0, 1, 2]}, {"a": [3, 4, 5]})


INVALID = {
    "partitions missing": [("m1", "a", 0, 5)],
    "given twice": [("m1", "a", 0, 4), ("m2", "a", 3, 3)],
    "an unknown member": [("m1", "a", 0, 3), ("m9", "a", 3, 3)],
    "an unknown topic": [("m1", "a", 0, 6), ("m1", "x", 0, 1)],
    "not subscribed": [("m1", "a", 0, 6), ("m2", "b", 0, 2)],
    "outside the topic": [("m1", "a", 0, 7)],
    "below 0": [("m1", "a", -1, 7)],
    "an empty range": [("m1", "a", 0, 6), ("m2", "a", 3, 0)],
    "nothing at all": [],
}


@pytest.mark.behaviour("K-47", "S-32")
@pytest.mark.parametrize("rows", INVALID.values(), ids=INVALID)
def test_an_invalid_assignment_is_refused_and_the_last_target_stays(outside, rows):
    prepared = prepare(outside)
    event = InstallAssignment("g", "job-1", prepared["group_epoch"], table(*rows))
    assert outside.refused(event) is Code.INVALID_ASSIGNMENT
    assert outside.group.assignment_epoch < prepared["group_epoch"]
    install(outside, prepared, answer(prepared))  # and may be mended


@pytest.mark.behaviour("K-47", "S-32")
@pytest.mark.parametrize(
    "ranges",
    [
        table(("m1", "a", 0, 6)).drop_columns("topic"),
        table(("m1", "a", 0, 6)).set_column(2, "first_partition", pa.array(["zero"])),
        table(("m1", "a", 0, 6)).set_column(0, "member_id", pa.array([None], pa.string())),
    ],
    ids=["a column missing", "of another type", "null"],
)
def test_what_is_no_table_of_ranges_is_refused(outside, ranges):
    prepared = prepare(outside)
    event = InstallAssignment("g", "job-1", prepared["group_epoch"], ranges)
    assert outside.refused(event) is Code.INVALID_ASSIGNMENT


@pytest.mark.behaviour("S-31", "K-49")
def test_a_computation_that_never_ends_holds_the_group_up_until_its_deadline(group):
    group.join("m1", "a")
    group.beat("m1", names=["a", "b"])
    group.run(PrepareAssignment("g", "job-1"))
    epoch = group.group.assignment_epoch
    group.topics(a=8)
    group.beat("m1")
    # That computation is for the target there is: it can not be installed, it is not awaited.
    assert group.group.assignment_epoch == group.group.epoch == epoch + 1
    group.run(ConfigureGroup("g", {"consumer.assignor.engine": "external"}))
    group.topics(a=9)
    group.beat("m1")
    group.run(PrepareAssignment("g", "job-2"))
    group.run(ConfigureGroup("g", {}))
    group.beat("m1")
    assert group.group.assignment_epoch < group.group.epoch
    group.now += group.config.engine.timeout_ms
    group.beat("m1")
    assert group.group.assignment_epoch == group.group.epoch


@pytest.mark.behaviour("S-31", "S-1")
@pytest.mark.parametrize("changed", [False, True])
def test_after_a_load_from_a_snapshot_it_is_installed_if_its_input_is_the_same(outside, changed):
    prepared = prepare(outside)
    if changed:
        outside.join("m3", "a")
    outside.state, outside.records = State(), list(state_records.records_of(outside.state))
    for record in outside.records:
        replay(outside.state, record)
    event = InstallAssignment("g", "job-1", prepared["group_epoch"], answer(prepared))
    if changed:
        assert outside.refused(event) is Code.UNKNOWN_MEMBER_ID
    else:
        assert outside.run(event).response["members_changed"] == 2


# The coordinator's own engine --------------------------------------------------------------------


class Engine:
    """An event processor that delegates every target, with tasks done by hand."""

    def __init__(self, log=None):
        self.now = 1_000_000
        kafka = kafka_config({"group.consumer.assignment.interval.ms": 0})
        self.config = Config(kafka=kafka, engine=EngineConfig(step_rows_max=0))
        self.catalog = DictCatalog({"a": 6})
        self.log = log or MemoryLog()
        self.log.claim("test", "", self.now)
        self.open()

    def open(self):
        self.processor = EventProcessor(self.log, self.config, lambda: self.now, self.catalog)
        self.processor.load()

    @property
    def group(self):
        return self.processor.state.groups["g"]

    def join(self, *members, **fields):
        """All of them in one batch."""
        fields = {
            "topic_partitions": {},
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": ["a"],
            **fields,
        }
        return self.processor.run([Heartbeat("g", member, 0, **fields) for member in members])

    def target(self, member):
        return lists(self.group.targets.get(member, ()))


@pytest.fixture
def engine():
    return Engine()


@pytest.mark.behaviour("G-159", "K-16")
def test_a_delegated_target_is_computed_once_and_off_the_heartbeat_path(engine):
    (joined,) = engine.join("m1")
    assert joined.response.assignment == ()
    (task,) = engine.processor.take_tasks()
    assert isinstance(task, ComputeTarget)
    engine.join("m1")  # heartbeats go on, with the last target; none is begun beside it
    assert engine.processor.take_tasks() == []
    engine.processor.run([compute_target(restore_basis(engine.processor, task))])
    assert engine.group.assignment_epoch == engine.group.epoch == task.group_epoch
    assert engine.target("m1") == {"a": [0, 1, 2, 3, 4, 5]}


def test_a_task_has_the_position_of_its_computation(engine):
    """Whatever is before and after it in its batch, and however few rows that is."""
    with_advances = [
        MembersAdvanced("g", 2, ("m1",)),
        MembersAdvanced("g", 2, ("m2",)),
        ComputationPrepared("g", "c", 3, 9),
        MembersAdvanced("g", 3, ("m1",)),
        MembersAdvanced("g", 3, ("m2",)),
    ]
    assert find_position(with_advances, 10, with_advances[2]) == 9
    engine.join("m1", "m2", "m3")
    (task,) = engine.processor.take_tasks()
    rows = {}
    for batch in engine.log.replay():
        first = batch.position - len(batch.records) + 1
        rows |= dict(enumerate(batch.records, start=first))
    assert rows[task.position].computation_id == task.computation_id
    assert task.position < engine.processor.position  # m2 and m3 came after it
    assert restore_basis(engine.processor, task).position == task.position


@pytest.mark.behaviour("G-159", "K-49", "S-30")
def test_who_joins_in_the_same_batch_is_assigned_by_the_next_one(engine):
    """The input is what it was when the computation was prepared, however late the job begins."""
    engine.join("m1", "m2")
    (task,) = engine.processor.take_tasks()
    (landed,) = engine.processor.run([compute_target(restore_basis(engine.processor, task))])
    assert landed.response["assignment_epoch"] == task.group_epoch < engine.group.epoch
    assert (engine.target("m1"), engine.target("m2")) == ({"a": [0, 1, 2, 3, 4, 5]}, {})
    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    engine.processor.run([compute_target(restore_basis(engine.processor, task))])
    assert engine.target("m2") == {"a": [3, 4, 5]}


@pytest.mark.behaviour("G-159", "S-31")
def test_a_late_target_is_refused(engine):
    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    late = compute_target(restore_basis(engine.processor, task))
    engine.now += engine.config.engine.timeout_ms
    engine.join("m1")
    (newer,) = engine.processor.take_tasks()
    assert restore_basis(engine.processor, task) is None
    assert engine.processor.run([late])[0].code is Code.UNKNOWN_MEMBER_ID
    assert restore_basis(engine.processor, newer) is not None


@pytest.mark.behaviour("G-39", "G-159")
def test_a_computation_that_failed_is_begun_again(engine):
    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    engine.processor.run([TargetFailed("g", task.computation_id, "no")])
    assert restore_basis(engine.processor, task) is None
    engine.join("m1")
    assert len(engine.processor.take_tasks()) == 1
    assert engine.processor.run([TargetFailed("g", "engine-other", "no")])[0].records == []


@pytest.mark.behaviour("K-16", "S-31", "S-8")
def test_a_successor_begins_the_computation_again(engine):
    engine.join("m1")
    engine.processor.take_tasks()
    engine.open()
    assert engine.group.computation is None
    engine.join("m1")
    assert len(engine.processor.take_tasks()) == 1


@pytest.mark.behaviour("G-36", "G-159")
def test_members_with_different_wishes_bump_no_epoch_while_a_target_is_made(engine):
    engine.join("m1", server_assignor="uniform")
    engine.join("m2", server_assignor="range")
    for _ in range(6):
        for task in engine.processor.take_tasks():
            engine.processor.run([compute_target(restore_basis(engine.processor, task))])
        engine.processor.run(
            [Heartbeat("g", m, engine.group.members[m].epoch) for m in ("m1", "m2")]
        )
    epoch = engine.group.epoch
    for _ in range(6):
        for task in engine.processor.take_tasks():
            engine.processor.run([compute_target(restore_basis(engine.processor, task))])
        engine.processor.run(
            [Heartbeat("g", m, engine.group.members[m].epoch) for m in ("m1", "m2")]
        )
    assert engine.group.epoch == epoch
    assert engine.group.epoch == engine.group.assignment_epoch


@pytest.mark.behaviour("K-47", "G-159")
def test_an_assignor_that_makes_no_assignment_fails_in_the_engine(engine, monkeypatch):
    from coordinator.core.targets import compute_here

    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    job = restore_basis(engine.processor, task)
    one_less = get_assignor("uniform").assign(
        GroupSpec.from_dict({"topics": {"a": 5}, "members": {"m1": {"subscribed": ["a"]}}})
    )
    monkeypatch.setattr(compute_here, "run_assignor", lambda *_: one_less)
    with pytest.raises(GroupError, match="returned an invalid assignment"):
        compute_target(job)


@pytest.mark.behaviour("S-23", "K-49")
def test_a_topic_that_went_during_the_computation_is_given_to_no_member(engine):
    engine.join("m1")
    (task,) = engine.processor.take_tasks()
    computed = compute_target(restore_basis(engine.processor, task))
    engine.catalog.delete("a")
    engine.processor.see_topics()
    engine.processor.run([computed])
    epoch = engine.group.members["m1"].epoch
    (answer,) = engine.processor.run([Heartbeat("g", "m1", epoch, topic_partitions={})])
    current = engine.group.members["m1"].current
    assert (current.state, current.assigned) == (STABLE, ())
    assert any(isinstance(record, GroupMetadata) for record in answer.records)


def test_facts_of_a_computation_are_in_its_records(engine):
    (joined,) = engine.join("m1")
    assert ComputationPrepared in map(type, joined.records)
    (task,) = engine.processor.take_tasks()
    (failed,) = engine.processor.run([TargetFailed("g", task.computation_id, "no")])
    assert failed.records == [Tombstone(ComputationPrepared.kind, "g", name=task.computation_id)]
    assert (
        engine.processor.run([TargetCandidate("g", 99, "uniform", computation_id="x")])[0].code
        is Code.UNKNOWN_MEMBER_ID
    )
