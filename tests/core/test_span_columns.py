"""Spans in columns are the same sequence as tuples, and their algebra gives the same spans."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.core.short_calls import AT_ONCE, apply, number
from coordinator.core.state import span_columns
from coordinator.core.state.groups import Group, Member, NameList
from coordinator.core.state.partition_owners import (
    change_holding,
    claim_partitions,
    free_of,
    release_partitions,
)
from coordinator.core.state.partition_spans import (
    MANY,
    TopicKey,
    add_epoch,
    count_partitions,
    do_overlap,
    drop_epochs,
    epoch_of,
    has_topics_once,
    is_within,
    spans_of,
    split,
    subtract_spans,
    union,
)
from coordinator.core.state.records import CurrentMember, MemberMetadata, TargetMember
from coordinator.core.state.span_columns import SpanColumns, TopicKeys
from coordinator.errors import IllegalStateError
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_encoder import copy_records, encode_records
from tests.core.test_partition_spans import KEYS, holdings, partition_sets
from tests.support.twins_coordinator import held as held_by

OTHERS = [TopicKey("a", "0"), TopicKey("aa", "1"), TopicKey("c", "4")]


@st.composite
def columns(draw, spans):
    """The same spans in columns, which may count more topics than they have."""
    found = SpanColumns.of(spans)
    more = draw(st.sets(st.sampled_from(OTHERS + KEYS)))
    return found.among(TopicKeys(sorted({*found.topics.keys, *more})))


@given(holdings(), st.data())
def test_columns_are_the_sequence_that_they_are_made_of(holding, data):
    assume(holding)
    some = data.draw(columns(holding))
    again = data.draw(columns(holding))
    assert list(some) == list(holding)
    assert [some[at] for at in range(-len(some), len(some))] == [*holding, *holding]
    assert tuple(some[1:3]) == holding[1:3]
    assert (some == holding, holding == some, some == again) == (True, True, True)
    assert hash(some) == hash(holding) == hash(again)
    assert repr(some) == repr(holding)
    assert (some != holding[1:], some == [*holding]) == (True, False)
    assert some != SpanColumns.of(add_epoch(drop_epochs(holding), 99))
    assert some != drop_epochs(holding)
    assert pickle.loads(pickle.dumps(some)) == some
    assert count_partitions(some) == count_partitions(holding)
    assert has_topics_once(some) == has_topics_once(holding)
    assert drop_epochs(some) == drop_epochs(holding)
    for key in KEYS:
        for partition in range(11):
            assert epoch_of(some, key, partition) == epoch_of(holding, key, partition)


@given(holdings(), holdings(), partition_sets, st.data())
def test_the_algebra_of_columns_is_that_of_tuples(left, right, found, data):
    spans = spans_of(found)
    assume(left and right and spans)
    mine, theirs = data.draw(columns(left)), data.draw(columns(right))
    asked = data.draw(columns(spans))
    assert tuple(map(tuple, span_columns.cut(mine, theirs))) == split(left, right)
    assert tuple(map(tuple, span_columns.cut(mine, asked))) == split(left, spans)
    assert tuple(span_columns.subtract(asked, mine)) == subtract_spans(spans, left)
    assert span_columns.have_common(mine, theirs) == do_overlap(left, right)
    assert tuple(asked.with_epoch(7)) == add_epoch(spans, 7)
    assert tuple(mine.without_epochs()) == drop_epochs(left)
    _, rest = split(right, left)
    if rest:
        assert tuple(span_columns.join(mine, data.draw(columns(rest)))) == union(left, rest)
    # What works on spans takes either, and both at once.
    assert split(mine, right) == split(left, theirs) == split(left, right)
    assert subtract_spans(asked, left) == subtract_spans(spans, mine)
    assert do_overlap(asked, left) == do_overlap(spans, mine)
    assert is_within(asked, left) == is_within(spans, mine)


def test_what_no_topic_has_is_looked_at_as_tuples():
    """A client may report any number; it is what it is."""
    key = TopicKey("t", "1")
    many = SpanColumns.of(tuple((TopicKey(f"t{n:04}", "1"), 0, 4, 1) for n in range(MANY)))
    for odd in (((key, -1, 0),), ((key, 2**40, 2**40 + 1),)):
        assert SpanColumns.of(odd) is None
        assert subtract_spans(odd, many) == odd
        assert not is_within(odd, many)
        assert not do_overlap(odd, many)
        assert split(many, odd) == ((), tuple(many))


def test_few_spans_are_tuples_again():
    many = SpanColumns.of(tuple((TopicKey(f"t{n:04}", "1"), 0, 4, 1) for n in range(MANY + 1)))
    last = (TopicKey(f"t{MANY:04}", "1"), 0, 4)
    few = tuple((key, 0, 4) for key in many.topics.keys[:2])
    inside, outside = split(many, (last,))
    assert (type(inside), type(outside)) == (tuple, SpanColumns)
    assert type(split(outside, few)[1]) is tuple


def member(serial):
    name = f"m{serial}"
    return Member(MemberMetadata("g", name), NameList(()), serial)


def owned(group):
    found = {key: np.trim_zeros(serials, "b").tolist() for key, serials in group.owners.items()}
    return {key: serials for key, serials in found.items() if serials}


def attempt(work, *args):
    try:
        return work(*args)
    except (IllegalStateError, KeyError):
        return "refused"


@pytest.mark.behaviour("G-7", "G-66")
@pytest.mark.parametrize("seed", range(60))
def test_partitions_change_hands_in_columns_as_in_tuples(seed):
    choice = random.Random(seed)
    keys = [TopicKey(f"t{n}", "1") for n in range(6)]
    one, other = Group("g"), Group("g")
    held = dict.fromkeys((1, 2, 3), ())
    for _ in range(25):
        who = member(choice.randint(1, 3))
        some = {
            (key, p) for key in keys for p in range(choice.randint(0, 9)) if choice.random() < 0.4
        }
        clash = choice.random() < 0.1
        taken = {p for serial in held if serial != who.serial for p in held_by(held[serial])}
        spans = spans_of(some if clash else some - taken)
        if spans:
            asked = spans_of(some)
            given_free = free_of(other, SpanColumns.of(asked), who.serial)
            assert tuple(given_free) == free_of(one, asked, who.serial)
        new = add_epoch(spans, choice.randint(1, 3))
        old = held[who.serial]
        found = []
        for group, shape in ((one, tuple), (other, _in_columns)):
            found.append(attempt(change_holding, group, who, shape(old), shape(new)))
        assert found[0] == found[1]
        if found[0] == "refused":
            return  # what failed halfway is dropped
        held[who.serial] = new
        assert owned(one) == owned(other)
    wrong = add_epoch(spans_of({(keys[0], 50)}), 1)
    assert attempt(release_partitions, other, member(1), _in_columns(wrong)) == "refused"
    for serial, holding in held.items():
        for group, shape in ((one, tuple), (other, _in_columns)):
            release_partitions(group, member(serial), shape(holding))
    assert owned(one) == owned(other) == {}


def _in_columns(spans):
    return SpanColumns.of(spans) if spans else ()


def test_a_refusal_names_the_span():
    group, spans = Group("g"), [(TopicKey(f"t{n}", "1"), n, n + 2, 1) for n in range(4)]
    claim_partitions(group, member(1), SpanColumns.of(spans[1:3]))
    with pytest.raises(IllegalStateError, match=r"m2 claims t1\[1\.\.2\] that another one holds"):
        claim_partitions(group, member(2), SpanColumns.of(spans))
    with pytest.raises(IllegalStateError, match=r"m1 releases t3\[3\.\.4\] that it does not hold"):
        release_partitions(group, member(1), SpanColumns.of(spans[2:]))
    twice = SpanColumns.of([(TopicKey("u", "1"), 0, 3, 1), (TopicKey("u", "1"), 2, 4, 1)])
    with pytest.raises(IllegalStateError, match=r"m1 claims u\[2\.\.3\] that another one holds"):
        claim_partitions(group, member(1), twice)


def test_columns_are_written_and_read_as_tuples_are():
    """Beside tuples, in one file; with topics that a column counts and does not have."""
    many = tuple(
        (TopicKey(f"t{n % MANY:04}", f"{n % 3}"), n, n + 2, n % 5) for n in range(2 * MANY)
    )
    many = tuple(sorted(many))
    few = many[:3]
    records = [
        CurrentMember("g", "m1", 1, 1, assigned=SpanColumns.of(many)[1:], pending=many[:1]),
        CurrentMember("g", "m2", 1, 1, assigned=few),
        CurrentMember("g", "m3", 1, 1, assigned=SpanColumns.of(many)[: MANY + 5]),
        CurrentMember("g", "m4", 1, 1),
        TargetMember("g", "m1", SpanColumns.of(drop_epochs(many))),
        TargetMember("g", "m2", drop_epochs(few)),
    ]
    plain = [CurrentMember("g", "m1", 1, 1, assigned=many[1:], pending=many[:1]), records[1]]
    plain.append(CurrentMember("g", "m3", 1, 1, assigned=many[: MANY + 5]))
    plain += [records[3], TargetMember("g", "m1", drop_epochs(many)), records[5]]
    table = encode_records(records, 1, 5, 1)
    assert table.equals(encode_records(plain, 1, 5, 1))
    found = decode_rows(table, ValueCache())
    assert found == records == plain
    kinds = [type(one.assigned) for one in found[:4]] + [type(one.spans) for one in found[4:]]
    assert kinds == [SpanColumns, tuple, SpanColumns, tuple, SpanColumns, tuple]
    assert found[0].assigned.topics is found[4].spans.topics, "what is made of them is made once"
    assert copy_records(records, 1, 5, 1) == ""


@pytest.mark.parametrize("count", [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE + 5])
def test_short_calls_find_what_one_call_finds(count):
    keys = [f"k{at}" for at in range(count)]
    assert list(number(keys).items()) == list(zip(keys, range(count), strict=True))
    assert list(number(keys, 7).values()) == list(range(7, 7 + count))
    assert apply(str.upper, keys) == [key.upper() for key in keys]
    assert apply(lambda key, at: (key, at), keys, range(count)) == list(number(keys).items())


def test_no_call_is_longer_than_it_may_be():
    lengths = []

    class Seen(list[int]):
        def __getitem__(self, rows):
            lengths.append(rows.stop - rows.start)
            return super().__getitem__(rows)

    apply(abs, Seen(range(2 * AT_ONCE)))
    number(Seen(range(2 * AT_ONCE)))
    assert lengths == [AT_ONCE] * 4
