"""Groups of a billion partitions: what is counted, added and multiplied fits its numbers.

A group with F times as many partitions in each topic, and with ranges F times as long, has F times
the loads and F times the moves: the small group, which other tests compare with obvious twins, is
the twin of the large one. Every level is a whole number if counts are multiples of 60.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor, quality
from assignors.arrays import PARTITIONS_MAX
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.planned_group import PlannedGroup
from assignors.parse_tables import get_strings, parse_owned_table, parse_tables
from assignors.partition_ranges import take_names
from tests.support import twins
from tests.support.longer import EVERY

WHOLE = 60
"""A multiple of each number of members that may share something: of 1 to 6."""


@st.composite
def groups(draw):
    """Topics, and the subscriptions of members."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    topics = {f"t{at}": WHOLE * count for at, count in enumerate(counts)}
    some = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True)
    lists = draw(st.lists(some, min_size=2, max_size=5))
    return topics, {f"m{at}": {"subscribed": listed} for at, listed in enumerate(lists)}


def owned_by(ranges, factor=1):
    given = ranges.to_dict(lists=False)
    return {
        member: {
            topic: [[first * factor, count * factor] for first, count in pairs]
            for topic, pairs in theirs.items()
        }
        for member, theirs in given.items()
    }


def group_of(topics, members, owned, factor=1):
    return GroupSpec.from_dict(
        {
            "topics": {name: count * factor for name, count in topics.items()},
            "members": {
                name: {**one, "owned": owned.get(name, {})} for name, one in members.items()
            },
        }
    )


def judge(group, name, options):
    """Return the loads, and the moves, which are as few as must be."""
    ranges = get_assignor(name, long_ranges=0, **options).assign(group)
    found = quality.report(group, ranges)
    assert found.problems == ()
    assert found.exact
    assert found.moved == found.moved_minimum
    return found.members["load"].to_pylist(), found.moved


@given(groups(), st.sampled_from(["uniform", "sticky", "sticky, 7 apart"]))
@settings(max_examples=500 if EVERY else 40)
def test_a_group_near_the_limit_is_a_small_one_times_its_factor(drawn, case):
    topics, members = drawn
    name, _, apart = case.partition(", ")
    factor = PARTITIONS_MAX // sum(topics.values())
    assert sum(topics.values()) * factor > PARTITIONS_MAX - factor
    before = get_assignor("uniform", long_ranges=0).assign(group_of(topics, members, {}))
    after = dict(list(members.items())[1:]) | {"n": members["m0"], "o": members["m1"]}
    for now, owned in ((members, None), (after, before)):
        moved = []
        for times in (1, factor):
            given = {} if owned is None else owned_by(owned, times)
            group = group_of(topics, now, given, times)
            options = {"imbalance": 7 * times} if apart else {}
            loads, moves = judge(group, name, options)
            moved.append(moves)
            if not apart:
                fair = twins.levels({"topics": topics, "members": now})
                assert loads == [fair[member] * times for member in group.member_ids.to_pylist()]
        assert moved[1] == moved[0] * factor


@pytest.mark.parametrize("members", [2, 3, 1_000])
def test_a_plan_of_as_many_partitions_as_there_may_be_is_continued(members):
    """One topic of all of them; each plan is that from nothing."""
    ids = [f"m{at:04}" for at in range(members)]
    topics = {"t": PARTITIONS_MAX}
    group = group_of(topics, {name: {"subscribed": ["t"]} for name in ids}, {})
    assignor = get_assignor("uniform", long_ranges=0)
    planned = PlannedGroup.plan(group, assignor)
    had, total = planned.assignment(), np.full(1, PARTITIONS_MAX)
    for change in (
        GroupChanges(left=ids[:1]),
        GroupChanges(joined=[SubscribedMembers.of("n", "o", subscribed=["t"])]),
    ):
        done = planned.after(change)
        assert done.planned.full is None
        loads = done.planned.assignment().loads()
        assert (loads.sum(), np.ptp(loads)) == (total, int(PARTITIONS_MAX % len(loads) > 0))
        planned = done.planned
    ends = had.first.astype(np.int64) + had.count
    assert sorted([*had.first[1:], PARTITIONS_MAX]) == sorted(ends)


def test_topics_to_which_no_one_subscribes_may_be_larger_still():
    """A line of all topics is longer than an int32 counts; those that are assigned are at its end."""
    topics = {f"a{at}": PARTITIONS_MAX for at in range(20)} | {"z": 10}
    spec = {"topics": topics, "members": {name: {"subscribed": ["z"]} for name in "mn"}}
    spec["members"]["m"]["owned"] = {"z": [[0, 10]]}
    group = GroupSpec.from_dict(spec)
    for name in ("uniform", "sticky", "range"):
        ranges = get_assignor(name).assign(group)
        found = quality.report(group, ranges)
        assert (found.problems, found.moved) == ((), 5)
        assert ranges.to_dict(lists=False) == {"m": {"z": [[0, 5]]}, "n": {"z": [[5, 5]]}}


@pytest.mark.parametrize("most", [1, 5, 6, 7, 1_000])
def test_names_of_very_many_ranges_are_in_chunks(most):
    names = pa.array(["", "b", "ccc"])
    at = np.array([2, 2, 0, 1, 2, 0], dtype=np.int32)
    taken = take_names(names, at, most)
    assert taken.to_pylist() == ["ccc", "ccc", "", "b", "ccc", ""]
    assert all(chunk.nbytes - 4 * (len(chunk) + 1) <= max(most, 3) for chunk in taken.chunks)
    assert take_names(names, at[:0], most).to_pylist() == []
    assert take_names(names[:0], at[:0], most).to_pylist() == []


OWNED = pa.table(
    {
        "member_id": ["m", "gone", "n", "m"],
        "topic": ["a", "a", "b", "b"],
        "first_partition": [0, 3, 0, 2],
        "partition_count": [3, 2, 2, 1],
    }
)


def test_owners_with_more_text_than_strings_hold_are_large_strings():
    """From where they are read to what is released, the group is the same."""
    small, names, _, _ = parse_owned_table(OWNED, "owned")
    large, *_ = parse_owned_table(OWNED, "owned", text_bytes_max=10)
    assert (small.type, large.type) == (pa.string(), pa.large_string())
    assert large.to_pylist() == small.to_pylist()
    assert names.type == pa.string()
    members = pa.table({"member_id": ["m", "n"], "subscribed": [["a"], ["a", "b"]]})
    topics = pa.table({"topic": ["a", "b"], "partitions": [5, 3]})
    columns = parse_tables(members, topics, OWNED)
    one = GroupSpec.from_columns(**columns)
    other = GroupSpec.from_columns(**columns | {"owner": columns["owner"].cast(pa.large_string())})
    assert one.owned() == other.owned()
    assert one.released.owner.type == other.released.owner.type == pa.string()
    assert one.released.owner.to_pylist() == other.released.owner.to_pylist() == ["gone", "m"]
    for group in (one, other):
        changes = quality.report(group, get_assignor("uniform").assign(group)).changes
        assert "gone" in changes["from_member_id"].to_pylist()


def test_members_with_more_text_than_strings_hold_are_refused():
    with pytest.raises(
        SpecError, match=r"member_id' has .* bytes of text, above the limit of 10: use"
    ):
        get_strings(OWNED, "members", "member_id", most=10)
