"""Changes of any kind, possible or not: the plan from the last one does as that from nothing."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor
from assignors.incremental.changes import GroupChanges, SubscribedMembers, change_group
from assignors.incremental.planned_group import PlannedGroup
from tests.support.longer import EVERY

NAMES = ["a", "b", "c", "d", "e", "\0", "ä"]
TOPICS = ["x", "y", "z", "w"]
STARTS = {
    "alike": [["x", "y"]] * 4,
    "apart": [["x"], ["x"], ["y", "z"], ["y", "z"]],
    "some without topics": [["x"], [], [], ["x"]],
    "shared": [["x"], ["x", "y"], ["y", "z"], ["x", "y"]],
}


def draw_changes(draw):
    """Draw changes, of which some name what is not there, or the same twice."""

    def some(of, most):
        return draw.choices(of, k=draw.randint(0, most))

    def members():
        ids = pa.array(some(NAMES, 3), pa.string())
        instances = pa.array([draw.choice([None, None, "i", "j"]) for _ in ids], pa.string())
        return SubscribedMembers(ids, some(TOPICS, 3), draw.choice([None, instances]))

    def rarely(value, nothing):
        return value if draw.random() < 0.4 else nothing

    return GroupChanges(
        left=rarely(some(NAMES, 5), ()),
        joined=rarely([members() for _ in range(draw.randint(0, 3))], ()),
        resubscribed=rarely([members() for _ in range(draw.randint(0, 2))], ()),
        topics=rarely({name: draw.randint(0, 9) for name in some(TOPICS, 3)}, {}),
        removed_topics=rarely(some(TOPICS, 2), ()),
        lists=rarely([(some(TOPICS, 2), some(TOPICS, 3)) for _ in range(draw.randint(0, 2))], ()),
        renamed=rarely(dict(zip(some(NAMES, 2), some(NAMES, 2), strict=False)), {}),
    )


@pytest.mark.parametrize("start", STARTS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=2000 if EVERY else 40)
def test_odd_changes_are_refused_or_planned_alike(start, seed):
    draw = random.Random(seed)
    assignor = get_assignor("uniform", long_ranges=0)
    members = {
        name: {"subscribed": names} for name, names in zip("abcd", STARTS[start], strict=True)
    }
    topics = {"x": 5, "y": 3, "z": 4}
    planned = PlannedGroup.plan(
        GroupSpec.from_dict({"topics": topics, "members": members}), assignor, block=2
    )
    for _ in range(4):
        changes = draw_changes(draw)
        before = planned.assignment()
        group, error = refused_or(change_group, planned.group(), before, changes)
        done, why = refused_or(planned.after, changes)
        assert why == error
        if error is not None:
            continue
        expected = assignor.assign(group)
        done = done.planned
        assert done.assignment() == expected
        assert done.verdict == expected.verdict
        assert planned.assignment() == before
        planned = done


def refused_or(make, *given):
    """Return what is made, and why it is refused."""
    try:
        return make(*given), None
    except SpecError as error:
        return None, str(error)


def test_a_topic_grows_where_shared_topics_had_no_partitions():
    members = {"a": {"subscribed": ["y"]}, "b": {"subscribed": ["y", "z"]}}
    group = GroupSpec.from_dict({"topics": {"y": 0, "z": 0}, "members": members})
    assignor = get_assignor("uniform", long_ranges=0)
    done = PlannedGroup.plan(group, assignor).after(GroupChanges(topics={"y": 3})).planned
    assert done.assignment() == assignor.assign(done.group())
    assert done.assignment().loads().tolist() == [2, 1]


def test_a_new_id_that_an_unknown_member_had_is_refused():
    members = {name: {"subscribed": ["y"]} for name in "abcd"}
    group = GroupSpec.from_dict({"topics": {"y": 5}, "members": members})
    planned = PlannedGroup.plan(group, get_assignor("uniform", long_ranges=0))
    with pytest.raises(SpecError, match="member 'e' has left or changed, but is not in the group"):
        planned.after(GroupChanges(left=["f"], renamed={"e": "f", "c": "e"}))


@pytest.mark.parametrize("left", [(), ["e"]], ids=["stays", "leaves"])
def test_an_id_that_two_members_get_is_refused(left):
    members = {name: {"subscribed": ["y"]} for name in "abcd"}
    group = GroupSpec.from_dict({"topics": {"y": 5}, "members": members})
    assignor = get_assignor("uniform", long_ranges=0)
    changes = GroupChanges(left=left, renamed={"a": "e", "b": "e"})
    why = "two members get the id 'e': give each an id of its own"
    with pytest.raises(SpecError, match=why):
        change_group(group, assignor.assign(group), changes)
    with pytest.raises(SpecError, match=why):
        PlannedGroup.plan(group, assignor).after(changes)
