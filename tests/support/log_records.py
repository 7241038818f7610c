"""Random records of every kind, for tests of the log; made by the types of their fields."""

from __future__ import annotations

from typing import get_args, get_origin

import msgspec
from hypothesis import strategies as st

from coordinator.core.state.partition_spans import Holding, Spans, TopicKey
from coordinator.core.state.record_fields import Mark, fields_of, take_apart
from coordinator.core.state.records import KINDS, PARTITION_METADATA, MemberState, Tombstone
from coordinator.storage.record_schema import NAME_COLUMN

texts = st.text(max_size=6)
maybe_text = st.none() | texts
ints = st.integers(-2, 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
partitions = st.integers(0, 2**30)
keys = st.builds(TopicKey, st.sampled_from(["a", "b", ""]), st.sampled_from(["id1", "id2"]))


def spans(*more):
    one = st.builds(
        lambda key, first, count, *rest: (key, first, first + count, *rest),
        keys,
        partitions,
        st.integers(1, 2**29),
        *more,
    )
    return st.lists(one, max_size=3).map(tuple)


OF_TYPE = {
    str: texts,
    bool: st.booleans(),
    bytes: st.binary(max_size=6),
    float: st.floats(allow_nan=False),
    MemberState: st.sampled_from(MemberState),
    Spans: spans(),
    Holding: spans(ints),
    dict[str, str]: st.dictionaries(texts, texts, max_size=3),
}
INTEGERS = {Mark.INT32: ints, Mark.INT64: longs, Mark.UINT64: st.integers(0, 2**64 - 1)}


def values_of(python_type, marks):
    if python_type is int:
        return next(INTEGERS[mark] for mark in marks if mark in INTEGERS)
    if python_type in OF_TYPE:
        return OF_TYPE[python_type]
    if get_origin(python_type) is tuple:
        element, _, said = take_apart(get_args(python_type)[0])
        return st.lists(values_of(element, said), max_size=3).map(tuple)
    return structs_of(python_type)


def structs_of(struct: type[msgspec.Struct]):
    fields = {}
    for field in fields_of(struct):
        values = values_of(field.type, field.marks)
        fields[field.name] = st.none() | values if field.optional else values
    return st.builds(struct, **fields)


def _tombstone(kind, group_id, member_id, name, partition):
    return Tombstone(kind, group_id, member_id, name if kind in NAME_COLUMN else None, partition)


RECORDS = {record: structs_of(record) for record in KINDS.values() if record is not Tombstone}
RECORDS[Tombstone] = st.builds(
    _tombstone,
    st.sampled_from(sorted({*KINDS, PARTITION_METADATA} - {Tombstone.kind})),
    texts,
    maybe_text,
    maybe_text,
    st.none() | partitions,
)
anything = st.lists(st.one_of(*RECORDS.values()), min_size=1, max_size=12)
