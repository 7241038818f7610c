"""Spans: set algebra on tuples gives what sets of single partitions give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state.groups import State
from coordinator.core.state.partition_owners import free_of
from coordinator.core.state.partition_spans import (
    TopicKey,
    add_epoch,
    count_partitions,
    do_overlap,
    drop_epochs,
    epoch_of,
    is_within,
    spans_of,
    spans_of_topics,
    split,
    subtract_spans,
    union,
)
from coordinator.core.state.records import CurrentMember, MemberMetadata
from coordinator.core.state.replay import replay
from tests.support.twins_coordinator import canonical, held, partitions

KEYS = [TopicKey("a", "1"), TopicKey("a", "2"), TopicKey("b", "3")]
partition_sets = st.sets(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)))


@st.composite
def holdings(draw, without=()):
    """A holding with several assignment epochs, of partitions that are not in `without`."""
    merged = ()
    taken = set(without)
    for epoch in draw(st.lists(st.integers(1, 4), max_size=3, unique=True)):
        new = draw(partition_sets) - taken
        taken |= new
        merged = union(merged, add_epoch(spans_of(new), epoch))
    return merged


@given(partition_sets)
def test_spans_of_single_partitions(found):
    spans = spans_of(found)
    assert partitions(spans) == found
    assert canonical(spans)
    lists = {key: [p for one, p in sorted(found, reverse=True) if one == key] for key in KEYS}
    assert spans_of_topics(lists.items()) == spans
    assert count_partitions(spans) == len(found)


@given(holdings(), partition_sets)
def test_split_is_what_is_in_and_what_is_out(holding, by):
    inside, outside = split(holding, spans_of(by))
    assert held(inside) == {p: e for p, e in held(holding).items() if p in by}
    assert held(outside) == {p: e for p, e in held(holding).items() if p not in by}
    assert list(inside) == sorted(inside)
    assert list(outside) == sorted(outside)


@given(holdings(), st.data())
def test_union_of_holdings_that_do_not_overlap(left, data):
    right = data.draw(holdings(without=held(left)))
    merged = union(left, right)
    assert held(merged) == held(left) | held(right)
    assert canonical(merged)


@given(holdings(), holdings(), partition_sets)
def test_comparisons(left, right, found):
    spans = spans_of(found)
    assert partitions(subtract_spans(spans, left)) == found - held(left).keys()
    assert canonical(subtract_spans(spans, left))
    assert do_overlap(left, right) == bool(held(left).keys() & held(right).keys())
    assert is_within(spans, left) == (found <= held(left).keys())
    assert drop_epochs(left) == spans_of(held(left))
    for key in KEYS:
        for number in range(11):
            assert epoch_of(left, key, number) == held(left).get((key, number))


@given(holdings(), st.data(), st.integers(0, 9), st.integers(1, 12))
def test_what_is_free_for_a_member(mine, data, first, count):
    others = data.draw(holdings(without=held(mine)))
    state = State()
    for member, holding in (("m1", mine), ("m2", others)):
        replay(state, MemberMetadata("g", member))
        replay(state, CurrentMember("g", member, assigned=holding))
    group = state.groups["g"]
    for key in KEYS:
        asked = ((key, first, first + count),)
        spans = free_of(group, asked, group.members["m1"].serial)
        wanted = {(key, p) for p in range(first, first + count)} - held(others).keys()
        assert partitions(spans) == wanted
        assert canonical(spans)
