"""Groups made from those of earlier computations: the same as ones that are converted whole."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from assignors import get_assignor
from coordinator.core.state.groups import CHANGES_LEAST, State
from coordinator.core.state.partition_spans import TopicKey, count_partitions, subtract_spans
from coordinator.core.state.records import (
    ComputationPrepared,
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.row_dict import RowDict
from coordinator.core.targets.compute_here import diff_targets, keep_topics
from coordinator.core.targets.rebase import restore_input
from coordinator.engines import group_columns
from coordinator.engines.group_columns import GroupColumns
from tests.support.invariants import replay_as_rows

NAMES = [*(f"m{number}" for number in range(10)), "zoë"]
LISTS = [("a",), ("a", "b"), ("b", "nowhere")]
MEMBER = st.tuples(st.sampled_from(NAMES), st.sampled_from([*LISTS, None]), st.booleans())
"""A name; what it subscribes to, or None when it leaves; whether it is static."""
STEPS = st.lists(
    st.tuples(st.lists(MEMBER, max_size=3), st.lists(MEMBER, max_size=1), st.integers(0, 9)),
    min_size=3,
    max_size=6,
)
"""Changes before a computation is prepared, changes before it begins, and new partitions of a."""


def new_group(partitions=20):
    state = State()
    replay(state, TopicChanged("a", "id-a", partitions))
    replay(state, TopicChanged("b", "id-b", 5))
    replay(state, GroupMetadata("g", 2, 0))
    return state, state.groups["g"]


def change(state, member):
    name, topics, static = member
    if topics is not None:
        instance = f"i{name}" if static else None
        meta = MemberMetadata("g", name, instance_id=instance, subscribed_topic_names=topics)
        replay(state, meta)
    else:
        for kind in (TargetMember.kind, MemberMetadata.kind):
            replay(state, Tombstone(kind, "g", name))


def prepare(state, number=0):
    replay(state, ComputationPrepared("g", f"c{number}", 2, 0))


def columns_of(spec):
    """Every field in plain values."""
    plain = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        plain[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
    released = plain.pop("released")
    assert len(released.topic) == 0
    return {n: v.to_pylist() if isinstance(v, pa.Array) else v for n, v in plain.items()}


def count_moved(found, changed):
    """Of each member, what it had of topics that are there, and has no longer."""
    had = (
        keep_topics(found.targets.get(one.member_id) or (), found.listed.keys) for one in changed
    )
    gone = (subtract_spans(spans, one.spans) for spans, one in zip(had, changed, strict=True))
    return sum(map(count_partitions, gone))


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.lists(st.tuples(st.sampled_from(["a", "b", "gone"]), st.integers(0, 30)), max_size=8),
    ),
    st.sampled_from(["uniform", "range"]),
)
def test_moves_are_counted_as_member_by_member(targets, assignor):
    """Targets with gaps, beyond the ends of topics, of topics that are gone, of several members."""
    state, group = new_group()
    for at, name in enumerate(NAMES):
        change(state, (name, LISTS[at % 3], False))
    for name, places in targets.items():
        spans = tuple((TopicKey(t, f"id-{t}"), at, at + 1) for t, at in sorted({*places}))
        replay(state, TargetMember("g", name, spans))
    prepare(state)
    found = restore_input(group, group.computation)
    changed, moved = diff_targets("g", found, get_assignor(assignor).assign(found.spec()))
    assert moved == count_moved(found, changed)


@given(STEPS)
def test_a_group_made_from_an_earlier_one_is_the_same(steps):
    """Members come, go, subscribe otherwise, also meanwhile; a topic grows; targets follow."""
    state, group = new_group()
    for name in NAMES[:8]:
        change(state, (name, LISTS[1], False))
    before, size = None, 20
    for number, (changes, late, grown) in enumerate(steps):
        for member in changes:
            change(state, member)
        if grown > 8:
            replay(state, TopicChanged("a", "id-a", size := size + grown))
        prepare(state, number)
        for member in late:
            change(state, member)
        found = restore_input(group, group.computation)
        columns = GroupColumns.of(found, "uniform", before)
        whole = found.spec()
        if len(whole.released.topic) == 0:
            assert columns_of(columns.spec) == columns_of(whole)
        ranges = get_assignor("uniform").assign(whole)
        changed, moved = said = diff_targets("g", found, ranges)
        assert moved == count_moved(found, changed)
        owned = None if columns.mark is None else columns.spec
        assert diff_targets("g", found, ranges, owned) == said
        for record in changed:
            replay(state, record)
        before = columns


@given(
    st.lists(MEMBER, max_size=4),
    st.lists(MEMBER, max_size=3),
    st.lists(st.sampled_from(NAMES), max_size=2),
)
def test_a_loaded_group_is_the_same_without_an_object_of_each_member(changes, late, given_more):
    """Members of rows come, go, return and subscribe otherwise, before and after a computation."""
    state, group = new_group()
    for at, name in enumerate(NAMES[:8]):
        change(state, (name, LISTS[at % 3], at % 2 == 0))
    prepare(state)
    found = restore_input(group, group.computation)
    targets, _ = diff_targets("g", found, get_assignor("uniform").assign(found.spec()))
    rows, twin = new_group()[0], new_group()[0]
    metas = list(group.metas.values())
    for records in (metas, targets):
        replay_as_rows(rows, records)
        for record in records:
            replay(twin, record)
    assert isinstance(rows.groups["g"].metas, RowDict)
    specs = []
    for one in (rows, twin):
        for member in changes:
            change(one, member)
        for name in given_more:
            replay(one, TargetMember("g", name, ((TopicKey("a", "id-a"), 19, 20),)))
        prepare(one)
        for member in late:
            change(one, member)
        theirs = one.groups["g"]
        specs.append(restore_input(theirs, theirs.computation).spec("uniform"))
    found, expected = (vars_of(spec) for spec in specs)
    assert found == expected


def vars_of(spec):
    """Every field, with what cannot be kept: the claims of who left, by place and name."""
    released = spec.released
    rows = zip(
        released.owner.to_pylist(),
        *(getattr(released, name).tolist() for name in ("topic", "first", "count", "cause")),
        strict=True,
    )
    nothing = replace(released, topic=released.topic[:0])
    return columns_of(replace(spec, released=nothing)) | {"released": sorted(rows)}


def test_only_who_changed_is_converted(monkeypatch):
    sizes = []
    splice = group_columns._join
    monkeypatch.setattr(
        group_columns,
        "_join",
        lambda one, stays, other: sizes.append(other.member_count) or splice(one, stays, other),
    )
    state, group = new_group()
    for name in NAMES[:8]:
        change(state, (name, LISTS[0], False))
    prepare(state)
    first = GroupColumns.of(restore_input(group, group.computation), "uniform")
    change(state, (NAMES[8], LISTS[1], False))  # b had no subscriber: the topics are others
    prepare(state)
    second = GroupColumns.of(restore_input(group, group.computation), "uniform", first)
    assert sizes == []
    change(state, (NAMES[9], LISTS[1], True))
    change(state, (NAMES[1], None, False))
    prepare(state)
    GroupColumns.of(restore_input(group, group.computation), "uniform", second)
    assert sizes == [1]


def test_a_group_keeps_some_changes_only():
    state, group = new_group()
    change(state, ("m0", LISTS[0], False))
    assert group.mark() is None  # no computation asks
    prepare(state)
    mark = group.computation.mark
    change(state, ("m1", LISTS[0], False))
    assert mark.until(group.mark()) == ["m1"]
    for _ in range(CHANGES_LEAST + 1):
        change(state, ("m1", LISTS[0], False))
    assert mark.until(group.mark()) == ["m1"] * (CHANGES_LEAST + 2)
    later = group.mark()
    change(state, ("m2", LISTS[0], False))
    assert later.until(group.mark()) == ["m2"]
    for _ in range(CHANGES_LEAST + 1):
        change(state, ("m1", LISTS[0], False))
    assert mark.until(group.mark()) is None
    assert later.until(group.mark()) is not None


def test_changes_before_a_whole_target_are_not_looked_at():
    state, group = new_group()
    change(state, ("m0", LISTS[0], False))
    prepare(state)
    mark = group.computation.mark
    replay(state, Tombstone(TargetMetadata.kind, "g"))
    assert mark.until(group.mark()) is None
    prepare(state)
    assert mark.until(group.mark()) is None


def test_a_target_that_reaches_beyond_its_topic_is_not_started_from():
    state, group = new_group(partitions=4)
    for name in NAMES[:3]:
        change(state, (name, LISTS[0], False))
    key = state.topics["a"].key
    replay(state, TargetMember("g", "m1", ((key, 2, 9),)))
    prepare(state)
    assert GroupColumns.of(restore_input(group, group.computation), "uniform").mark is None
