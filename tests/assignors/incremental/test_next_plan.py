"""The next plan from the last one: the rows that the plan from nothing gives, whatever changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor
from assignors.incremental.changes import GroupChanges, SubscribedMembers, change_group
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.incremental.planned_group import PlannedGroup
from tests.assignors.incremental.changing_groups import ChangingGroup
from tests.support.longer import EVERY

SEEDS = st.integers(0, 2**32)
NOT_LONG = {"long_ranges": 0}
"""Of small groups ranges are kept long, and plans then look at all members."""
CONTINUED = [
    ("uniform", NOT_LONG),
    ("sticky", NOT_LONG),
    ("sticky", {"imbalance": 2, **NOT_LONG}),
    ("sticky", {"imbalance": "30%", **NOT_LONG}),
]
LIMITED = [
    ("sticky", {"max_moves": most, "imbalance": imbalance, **NOT_LONG})
    for most, imbalance in [(0, 0), (3, 0), (3, 1), (20, 0), (20, "30%"), (10**6, 0)]
]
FULL = [
    *CONTINUED,
    *LIMITED[:3],
    ("uniform", {}),
    ("sticky", {"imbalance": 1, "long_ranges": 20 * 128}),  # up to 20 members
    ("range", {}),
    ("sticky", {"max_moves": 3}),
    ("weighted", {}),
]


@pytest.mark.parametrize(("name", "options"), CONTINUED, ids=str)
@given(seed=SEEDS, lists=st.integers(1, 4))
@settings(max_examples=1000 if EVERY else 8)
def test_members_come_and_go_and_topics_grow(name, options, seed, lists):
    """All subscribe alike, or to lists that have no topic in common."""
    group = ChangingGroup(seed, name, options, lists=lists)
    for _ in range(8):
        planned = group.follow(group.draw_growth())
        assert planned.full is None


@pytest.mark.parametrize(("name", "options"), CONTINUED, ids=str)
@given(seed=SEEDS, lists=st.integers(1, 4))
@settings(max_examples=1000 if EVERY else 8)
def test_topics_come_and_go_and_lists_change(name, options, seed, lists):
    """No two lists have a topic in common, before or after."""
    group = ChangingGroup(seed, name, options, lists=lists)
    for _ in range(8):
        planned = group.follow(group.draw_topics())
        assert planned.full is None


@pytest.mark.parametrize(("name", "options"), CONTINUED, ids=str)
@given(seed=SEEDS, lists=st.integers(2, 6), members=st.sampled_from([6, 20, 60]))
@settings(max_examples=1000 if EVERY else 6)
def test_classes_that_share_topics(name, options, seed, lists, members):
    group = ChangingGroup(seed, name, options, lists=lists, shared=True, members=members)
    for _ in range(8):
        planned = group.follow(group.draw_growth(calm=group.draw.random() < 0.5))
        assert planned.full is None


@pytest.mark.parametrize(("name", "options"), CONTINUED, ids=str)
@given(seed=SEEDS, lists=st.integers(1, 6), members=st.sampled_from([4, 20, 60]))
@settings(max_examples=1000 if EVERY else 12)
def test_lists_that_share_topics_change(name, options, seed, lists, members):
    """Members change to lists that are there or not, classes end; topics come, go and shrink."""
    shared = lists > 1 or seed % 2 == 0
    group = ChangingGroup(seed, name, options, lists=lists, shared=shared, members=members)
    for _ in range(8):
        planned = group.follow(group.draw_lists())
        assert planned.full in {None, FullPlan.SUBSCRIPTIONS}


@pytest.mark.parametrize("name", ["uniform", "sticky"])
def test_very_many_classes_that_share_topics(name):
    """Each of 1,000 subscribes to a topic of its own, and each two to one in common."""
    topics = {f"own{at}": 7 for at in range(1000)} | {f"two{at}": 4 for at in range(500)}
    members = {
        f"m{at:04d}": {"subscribed": [f"own{at // 2}", f"two{at // 4}"]} for at in range(2000)
    }
    assignor = get_assignor(name, **NOT_LONG)
    planned = PlannedGroup.plan(
        GroupSpec.from_dict({"topics": topics, "members": members}), assignor, block=8
    )
    changes = [
        GroupChanges(joined=[SubscribedMembers.of("m0400x", subscribed=["own200", "two100"])]),
        GroupChanges(left=["m1001"], topics={"two0": 9}),
        GroupChanges(resubscribed=[other("m0004", "own9", "two4")]),
    ]
    for change in changes:
        expected = assignor.assign(change_group(planned.group(), planned.assignment(), change))
        planned = planned.after(change).planned
        assert planned.full is None
        assert planned.assignment() == expected


@pytest.mark.parametrize(("name", "options"), LIMITED, ids=str)
@given(seed=SEEDS, lists=st.integers(1, 5), shared=st.booleans())
@settings(max_examples=400 if EVERY else 6)
def test_what_needs_no_more_moves_than_allowed_goes_on(name, options, seed, lists, shared):
    """What needs more is partial, and planned from nothing, as is the next plan after it."""
    group = ChangingGroup(seed, name, options, lists=lists, shared=shared, members=30)
    for _ in range(8):
        planned = group.follow(group.draw_growth(calm=shared))
        assert planned.full in {None, FullPlan.MOVES}
        if planned.full is None:
            assert not planned.verdict.partial
            assert planned.verdict.moved_minimum <= options["max_moves"]


@pytest.mark.parametrize(("name", "options"), FULL, ids=str)
@given(seed=SEEDS, lists=st.integers(1, 3))
@settings(max_examples=200 if EVERY else 3)
def test_any_change_gives_the_rows_of_the_plan_from_nothing(name, options, seed, lists):
    group = ChangingGroup(seed, name, options, lists=lists)
    for _ in range(6):
        group.follow(group.draw_any())


def other(name, *listed):
    return SubscribedMembers.of(name, subscribed=listed)


WHY = {
    "no member is left": GroupChanges(left=["a", "b"]),
    "a limit of moves": GroupChanges(joined=[other("c", "x", "y")]),
    "another assignor": GroupChanges(left=["a"]),
    "a small group": GroupChanges(left=["a"]),
}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("no member is left", FullPlan.NOTHING),
        ("a limit of moves", FullPlan.MOVES),
        ("another assignor", FullPlan.ASSIGNOR),
        ("a small group", FullPlan.LONG),
    ],
)
def test_a_plan_from_nothing_says_why(case, why):
    options = {"a limit of moves": {"max_moves": 1}, "a small group": {"long_ranges": 256}}
    name = "range" if case == "another assignor" else "sticky"
    options = {} if name == "range" else NOT_LONG | options.get(case, {})
    planned = PlannedGroup.plan(two_members(), get_assignor(name, **options))
    assert planned.full is FullPlan.FIRST
    done = planned.after(WHY[case]).planned
    assert done.full is why
    if why is FullPlan.MOVES:
        assert done.verdict.partial
        assert done.find_obstacle(GroupChanges()) is why
        assert done.after(GroupChanges()).planned.after(GroupChanges()).planned.full is None
    if why not in {FullPlan.ASSIGNOR, FullPlan.LONG}:
        assert planned.after(GroupChanges(left=["a"])).planned.full is None


def test_a_plan_after_which_two_lists_are_the_same_is_made_from_nothing():
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG))
    planned = planned.after(GroupChanges(resubscribed=[other("a", "x")])).planned
    assert planned.full is None
    done = planned.after(GroupChanges(removed_topics=["y"])).planned
    assert done.full is FullPlan.SUBSCRIPTIONS
    assert done.assignment().loads().tolist() == [2, 1]


CONTINUES = {
    "one of two subscribes to less": GroupChanges(resubscribed=[other("a", "x")]),
    "a second class": GroupChanges(joined=[other("z", "x")]),
    "a class in two": GroupChanges(resubscribed=[other("a", "x"), other("b", "y")]),
    "a new topic": GroupChanges(topics={"z": 1}),
    "a smaller topic": GroupChanges(topics={"x": 1}),
    "an empty topic": GroupChanges(topics={"x": 0, "y": 0}),
    "a topic is gone": GroupChanges(removed_topics=["x"]),
    "all topics are gone": GroupChanges(removed_topics=["x", "y"]),
    "a topic for all": GroupChanges(topics={"z": 1}, lists=[(["x", "y"], ["x", "y", "z"])]),
    "no member lists it": GroupChanges(lists=[(["x"], ["y"])]),
    "all subscribe to less": GroupChanges(resubscribed=[other("a", "x"), other("b", "x")]),
    "one leaves, one has less": GroupChanges(left=["b"], resubscribed=[other("a", "x")]),
    "all subscribe to another": GroupChanges(
        left=["b"], topics={"z": 2}, lists=[(["x", "y"], ["z"])]
    ),
    "others come": GroupChanges(
        left=["a", "b"], joined=[SubscribedMembers.of("c", "a", subscribed=["x"])]
    ),
    "a member without topics": GroupChanges(joined=[SubscribedMembers.of("c", subscribed=[])]),
}


@pytest.mark.parametrize("case", CONTINUES)
def test_a_plan_continues_when_topics_and_lists_change(case):
    assignor = get_assignor("uniform", **NOT_LONG)
    planned = PlannedGroup.plan(two_members(), assignor)
    changes = CONTINUES[case]
    done = planned.after(changes)
    assert done.planned.full is None
    expected = assignor.assign(change_group(planned.group(), planned.assignment(), changes))
    assert done.planned.assignment() == expected


def test_after_very_many_topics_have_come_and_gone_a_plan_is_made_from_nothing():
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG))
    found = []
    for at in range(600):
        name, gone = f"t{at}", [f"t{at - 1}"] if at else []
        planned = planned.after(GroupChanges(topics={name: 1}, removed_topics=gone)).planned
        found.append(planned.full)
    assert found.count(FullPlan.TOPICS) == 1
    assert found.count(None) == 599


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (GroupChanges(left=["c"]), "member 'c' has left or changed, but is not in the group"),
        (
            GroupChanges(joined=[SubscribedMembers.of("b", subscribed=["x", "y"])]),
            "member 'b' has joined, but is in the group",
        ),
        (
            GroupChanges(joined=[SubscribedMembers.of("c", "c", subscribed=["x", "y"])]),
            "member 'c' appears twice",
        ),
        (GroupChanges(removed_topics=["z"]), "topic 'z' is removed, but is not in the group"),
        (GroupChanges(topics={"x": 2**30}), "the group subscribes to 1073741827 partitions"),
        (GroupChanges(topics={"x": -1}), "topic 'x' has partition count -1"),
    ],
    ids=["unknown", "known", "twice", "no topic", "too many", "too few"],
)
def test_changes_that_cannot_be_are_refused(changes, message):
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG))
    before = planned.assignment()
    with pytest.raises(SpecError, match=message):
        planned.after(changes)
    assert planned.assignment() == before


def test_a_new_list_cuts_topics_that_were_alike():
    """The example of docs/design/algorithm.md: only who owns of the part cut off is counted again."""
    topics = {"a": 4, "b": 4}
    members = {name: {"subscribed": ["a", "b"]} for name in ("m1", "m2")}
    group = GroupSpec.from_dict({"topics": topics, "members": members})
    planned = PlannedGroup.plan(group, get_assignor("uniform", **NOT_LONG))
    planned = planned.after(GroupChanges(joined=[other("m3", "b")])).planned
    owned = {
        "m1": {"a": [[0, 3]]},
        "m2": {"a": [[3, 1]], "b": [[0, 2]]},
        "m3": {"b": [[2, 2]]},
    }
    assert planned.assignment().to_dict(lists=False) == owned
    assert planned.verdict.moved_minimum == 3
    change = planned.after(GroupChanges(resubscribed=[other("m3", "a", "b")]))
    assert change.planned.full is None
    assert change.planned.assignment().to_dict(lists=False) == owned
    assert change.planned.verdict.moved_minimum == 0


def test_topics_that_are_alike_again_need_no_count():
    kinds = OwnedKinds.of(np.array([0, 0, 0, 1, -1]))
    kinds, cut = kinds.recut(np.array([0, 2, 2, 1, 1, 1]))
    assert kinds.topic_class[1:4].tolist() == [0, 0, 1]
    assert kinds.topic_class[0] > 1
    assert cut.tolist() == [True, False, False, False, False, False], "most of them keep the number"
    assert kinds.topic_class[4] == kinds.topic_class[5] > 1, "no one owned these: a new number"
    assert len(np.unique(kinds.topic_class)) == 4
    again, cut = kinds.recut(np.array([0, 0, 0, 0, -1, 0]))
    assert not cut.any()
    assert again.topic_class.tolist() == [*kinds.topic_class[:4], -1, kinds.topic_class[5]]
    assert again.covers(7).tolist() == [True, True, True, True, False, True, False]


def test_a_changed_list_looks_at_few_members():
    """Where the list is there already: who moves, who gives and who gets; no other class."""
    lists = [[f"t{at}", f"t{at + 1}"] for at in range(50)]
    members = {f"m{at:04d}": {"subscribed": lists[at // 40]} for at in range(2000)}
    topics = {f"t{at}": 400 for at in range(51)}
    group = GroupSpec.from_dict({"topics": topics, "members": members})
    planned = PlannedGroup.plan(group, get_assignor("uniform", **NOT_LONG))
    for names, most in ((lists[3], 25), (["t1"], 25), (lists[2], 60)):
        change = planned.after(GroupChanges(resubscribed=[other("m0085", *names)]))
        assert change.planned.full is None
        assert len(change.changed.member_ids) < most
        before, after = planned._held.classes, change.planned._held.classes
        same = sum(before[at].ranges is after[at].ranges for at in before)
        assert same >= 40, "classes that nothing touches are shared"


def test_two_plans_can_follow_the_same_one():
    """A plan may be refused: the next one then follows the plan before it."""
    group = ChangingGroup(3, options=NOT_LONG, members=200)
    first = group.planned
    for at in range(30):
        changes = GroupChanges(joined=[SubscribedMembers.of(f"z{at}", subscribed=group.lists[0])])
        refused = first.after(changes).planned
        assert refused.assignment() == first.after(changes).planned.assignment()
    group.follow(group.draw_growth())


def test_no_change_moves_nothing():
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG))
    nothing = GroupChanges(joined=[SubscribedMembers.of(subscribed=["x", "y"])], topics={"x": 3})
    change = planned.after(nothing)
    assert change.planned.full is None
    assert len(change.changed.member_ids) == 0
    assert change.planned.assignment() == planned.assignment()


def test_a_static_member_leaves_and_comes_back():
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG))
    static = SubscribedMembers(pa.array(["c"]), ["x", "y"], pa.array(["i"]))
    for _ in range(2):
        planned = planned.after(GroupChanges(joined=[static])).planned
        assert planned.full is None
        assert names_of(planned) == ["c", "a", "b"]
        planned = planned.after(GroupChanges(left=["c"])).planned
        assert planned.full is None


def test_a_change_looks_at_few_members():
    """Layers and blocks that hold other members are shared, not copied."""
    count = 20_000
    names = pa.array([f"m{at:06d}" for at in range(count)])
    members = pa.table({"member_id": names, "subscribed": [["x"]] * count})
    topics = pa.table({"topic": ["x"], "partitions": pa.array([10 * count], pa.int32())})
    planned = PlannedGroup.plan(
        GroupSpec.from_arrow(members, topics), get_assignor("uniform", **NOT_LONG)
    )
    changes = GroupChanges(joined=[SubscribedMembers.of("m01x", subscribed=["x"])])
    change = planned.after(changes)
    before, after = planned._held.classes[0], change.planned._held.classes[0]
    shared = sum(
        a is b for a, b in zip(before.order.keys.blocks, after.order.keys.blocks, strict=True)
    )
    assert shared == len(before.order.keys.blocks) - 1
    assert after.ranges.layers[0] is before.ranges.layers[0]
    assert len(change.changed.member_ids) == 10, "the member, and the nine that give to it"
    assert len(after.ranges) - len(before.ranges) < 100


def test_what_is_no_longer_used_is_dropped():
    """Plans that touch every member leave no more rows behind than members need."""
    planned = PlannedGroup.plan(many_members(300), get_assignor("uniform", **NOT_LONG), block=8)
    for at in range(40):
        planned = planned.after(GroupChanges(topics={"x": 3 + 300 * at})).planned
        held = planned._held.classes[0]
        assert len(held.versions) <= 3 * len(held.order) + 512
        assert len(held.ranges.layers) < 6


def test_names_of_members_who_never_had_anything_are_dropped():
    planned = PlannedGroup.plan(many_members(6), get_assignor("uniform", **NOT_LONG), block=8)
    for at in range(400):
        new = SubscribedMembers.of(f"n{at}", f"o{at}", subscribed=["x", "y"])
        left = [f"n{at - 1}", f"o{at - 1}"] if at else []
        done = planned.after(GroupChanges(joined=[new], left=left))
        assert done.planned.full is None
        planned = done.planned
    assert len(planned._held.classes[0].order.names) <= 3 * 8 + 512


def test_blocks_have_their_size_as_members_come_and_go():
    planned = PlannedGroup.plan(two_members(), get_assignor("uniform", **NOT_LONG), block=8)
    new = SubscribedMembers.of(*[f"m{at}" for at in range(300)], subscribed=["x", "y"])
    planned = planned.after(GroupChanges(joined=[new])).planned
    assert max(len(keys) for keys in planned._held.classes[0].order.keys.blocks) <= 8
    left = [name for at, name in enumerate(names_of(planned)) if at % 8]
    planned = planned.after(GroupChanges(left=left)).planned
    order = planned._held.classes[0].order
    assert len(order.keys.blocks) == len(order) // 8 + 1


def names_of(planned):
    return planned.assignment().member_ids.to_pylist()


def two_members():
    return many_members(2, "ab")


def many_members(count, names=None):
    names = names or [f"m{at:03d}" for at in range(count)]
    members = {name: {"subscribed": ["x", "y"]} for name in names}
    return GroupSpec.from_dict({"topics": {"x": 3, "y": 3}, "members": members})
