"""The group epoch, the target that follows it, and the state that both give a group."""

from __future__ import annotations

import copy
from dataclasses import replace

import pyarrow as pa
import pytest

from assignors import PartitionRanges, SpecError, get_assignor
from coordinator.core.events import ConfigureGroup, TimerFired
from coordinator.core.state.groups import GroupState
from coordinator.core.state.records import CurrentMember, TargetMember, TargetMetadata
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import step
from coordinator.core.targets import compute_here
from coordinator.errors import GroupError
from tests.support.coordinator_core import SESSION, STABLE, Code, kinds, lists

# The target, when it is due ----------------------------------------------------------------------


@pytest.fixture
def slow_group(group):
    """Assignments are a second apart."""
    group.configure(**{"group.consumer.assignment.interval.ms": 1_000})
    return group


@pytest.mark.behaviour("G-38", "G-2", "K-93")
def test_targets_are_an_assignment_interval_apart(slow_group):
    group = slow_group
    first = group.join("m1", "a").member_epoch  # none before: computed at once
    assert group.group.assignment_epoch == first
    joined = group.join("m2", "a")
    assert (group.group.epoch, group.group.assignment_epoch) == (first + 1, first)
    assert (joined.member_epoch, joined.assignment) == (first, ())
    assert group.group.state is GroupState.ASSIGNING
    group.advance(999)
    group.beat("m1")
    assert group.group.assignment_epoch == first
    group.advance(1)
    group.settle()
    assert group.group.assignment_epoch == group.group.epoch
    assert len(group.given["m1"]["a"]) == len(group.given["m2"]["a"]) == 3


@pytest.mark.behaviour("G-38", "G-143")
def test_a_group_has_its_own_assignment_interval(slow_group):
    group = slow_group
    group.run(ConfigureGroup("g", {"consumer.assignment.interval.ms": "0"}))
    group.join("m1", "a")
    group.join("m2", "a")
    assert group.group.assignment_epoch == group.group.epoch


@pytest.mark.behaviour("G-44", "S-34")
def test_an_emptied_group_is_empty_and_its_next_member_assigned_at_once(slow_group):
    group = slow_group
    group.join("m1", "a")
    last = group.run(group.heartbeat("m1", -1))
    assert isinstance(last.records[-1], TargetMetadata)
    assert (last.records[-1].assignment_epoch, last.records[-1].assignment_timestamp) == (
        group.group.epoch,
        0,
    )
    assert group.group.state is GroupState.EMPTY
    assert lists(group.join("m2", "a").assignment) == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-39", "K-113", "S-8")
def test_when_the_assignor_fails_nothing_is_written_and_the_next_heartbeat_tries_again(
    group, monkeypatch
):
    group.join("m1", "a")
    epochs = group.group.epoch, group.group.assignment_epoch

    def fails(*_):
        raise SpecError("no")

    with monkeypatch.context() as patch:
        patch.setattr(compute_here, "run_assignor", fails)
        assert group.refused(group.joining("m2", "a")) is Code.UNKNOWN_SERVER_ERROR
    assert (group.group.epoch, group.group.assignment_epoch) == epochs
    assert set(group.group.members) == {"m1"}
    group.join("m2", "a")
    assert group.group.assignment_epoch == epochs[0] + 1


def lacking_one(spec, _options):
    rows = uniform(spec).to_arrow()
    return PartitionRanges.from_arrow(spec.member_ids, spec.topics, rows.slice(1))


def beyond_the_members(spec, _options):
    ranges = uniform(spec)
    return replace(ranges, member=ranges.member + spec.member_count)


def of_others(spec, _options):
    return replace(uniform(spec), member_ids=pa.array([f"other{n}" for n in range(2)]))


def no_ranges(*_):
    return []


def uniform(spec):
    return get_assignor("uniform").assign(spec)


@pytest.mark.behaviour("K-47", "K-113")
@pytest.mark.parametrize("wrong", [lacking_one, beyond_the_members, of_others, no_ranges])
def test_what_is_no_assignment_is_refused_in_the_step_as_by_an_engine(group, monkeypatch, wrong):
    group.join("m1", "a")
    epochs = group.group.epoch, group.group.assignment_epoch
    with monkeypatch.context() as patch:
        patch.setattr(compute_here, "run_assignor", wrong)
        with pytest.raises(GroupError, match=r"returned an invalid assignment: .*; correct") as no:
            group.run(group.joining("m2", "a"))
    assert no.value.code is Code.UNKNOWN_SERVER_ERROR
    assert (group.group.epoch, group.group.assignment_epoch) == epochs
    group.join("m2", "a")
    assert group.group.assignment_epoch == epochs[0] + 1


@pytest.mark.behaviour("G-153", "K-94", "K-99", "K-114")
def test_only_members_whose_target_changed_get_a_record(group):
    for member in ("m1", "m2", "m3"):
        group.join(member, "a")
    group.settle()
    result = group.run(group.joining("m4", "b"))
    targets = [r.member_id for r in result.records if isinstance(r, TargetMember)]
    assert targets == ["m4"]  # the others keep a; K-114: sticky against the previous target
    assert kinds(result)[-2:] == [TargetMetadata, CurrentMember]


# States ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("G-1", "G-2", "G-6", "K-1")
def test_the_states_of_a_group_follow_from_its_members_and_epochs(slow_group):
    group = slow_group
    seen = []

    def look():
        seen.append(group.group.state.value)

    group.join("m1", "a")
    look()
    group.join("m2", "a")
    look()
    group.advance(1_000)
    group.beat("m1")
    look()
    group.settle()
    look()
    for member in ("m1", "m2"):
        group.beat(member, -1)
    look()
    assert seen == ["Stable", "Assigning", "Reconciling", "Stable", "Empty"]
    assert {state.value for state in GroupState} == {*seen, "Dead"}


@pytest.mark.behaviour("G-6")
def test_a_new_group_begins_at_epoch_1_and_its_first_member_gets_2(group):
    assert group.join("m1", "a").member_epoch == 2
    assert group.group.epoch == group.group.assignment_epoch == 2
    assert group.member("m1").current.state is STABLE


# What an event of one member costs ----------------------------------------------------------------


class NeverWalked(dict):
    """Members that may be looked up and changed, but never all looked at."""

    def _walk(self, *_):
        pytest.fail("an event of one member looked at all members of its group")

    __iter__ = keys = values = items = _walk


EVENTS_OF_ONE = {
    "joins": lambda group: group.joining("m4", "a"),
    "joins with another list": lambda group: group.joining("m4", "a", "b"),
    "replaces a static member": lambda group: group.joining("m4", "a", instance_id="i"),
    "beats": lambda group: group.heartbeat("m1", owned={}),
    "leaves": lambda group: group.heartbeat("m1", -1),
    "leaves for a while": lambda group: group.heartbeat("m3", -2, instance_id="i"),
    "no longer beats": lambda _: TimerFired(SESSION, "g", "m1", 0),
}


@pytest.mark.parametrize("event", EVENTS_OF_ONE.values(), ids=EVENTS_OF_ONE)
def test_an_event_of_one_member_costs_the_same_in_a_group_of_a_million(slow_group, event):
    group = slow_group
    for member in ("m1", "m2"):
        group.join(member, "a")
    group.join("m3", "a", instance_id="i")
    group.beat("m3", -2, instance_id="i")
    state = copy.deepcopy(group.state)
    looked_up = state.groups["g"]
    looked_up.members, looked_up.metas = map(NeverWalked, (looked_up.members, looked_up.metas))
    for record in step(state, group.config, event(group), group.now).records:
        replay(state, record)
