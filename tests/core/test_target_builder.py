"""Whole targets in columns, what wins over them, their digest, and their install record."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay, set_whole_target
from coordinator.core.state.state_records import records_of
from coordinator.core.state.target_assignment import NOT_READ, Targets, WholeTarget
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.target_digest import SEED, digest_rows, hash_texts
from tests.support.fingerprint import fingerprint

A, B = TopicKey("a", "id-a"), TopicKey("b", "id-b")


def rows_of(targets):
    flat = [(m, k.topic_id, k.name, f, e - f) for m, spans in targets.items() for k, f, e in spans]
    names = ("member_id", "topic_id", "topic", "first_partition", "partition_count")
    types = (pa.string(), pa.string(), pa.string(), pa.int32(), pa.int32())
    columns = list(zip(*flat, strict=True)) or [[]] * 5
    return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})


TARGETS = {
    "m1": ((A, 0, 3), (A, 5, 6), (B, 0, 2)),
    "m2": ((B, 2, 9),),
    "m30": ((A, 3, 5),),
}


@pytest.mark.parametrize("seed", range(4))
def test_each_member_gets_its_slice_however_the_rows_lie(seed):
    rows = rows_of(TARGETS)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    whole = WholeTarget.of(rows.take(order) if seed else rows)
    assert {m: whole.spans(m) for m in [*TARGETS, "nobody"]} == TARGETS | {"nobody": ()}
    assert len(whole) == 5


def test_what_came_after_a_whole_target_wins_over_it():
    targets = Targets(WholeTarget.of(rows_of(TARGETS)))
    targets["m2"] = ((A, 6, 7),)
    targets.end("m30")
    before = targets.copy()
    targets["m4"] = ()
    assert [targets.get(m) for m in ("m1", "m2", "m30", "m4", "m5")] == [
        TARGETS["m1"], ((A, 6, 7),), None, (), (),
    ]  # fmt: skip
    assert targets.get("m30", ()) == ()
    assert "m30" not in targets
    had = targets.ranges()
    names = [had.keys[at].name for at in had.topic.tolist()]
    found = zip(had.owners.to_pylist(), names, had.first.tolist(), had.end.tolist(), strict=True)
    assert sorted(found) == [
        ("m1", "a", 0, 3), ("m1", "a", 5, 6), ("m1", "b", 0, 2), ("m2", "a", 6, 7),
    ]  # fmt: skip
    assert before.get("m4") == ()  # the whole target says so of everybody
    assert len(list(before.own())) == 2


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_text_is_hashed_by_xxh64(text, known):
    (found,) = hash_texts(pa.array([text]), np.zeros(1, dtype=np.uint64))
    assert int(found) == known


OWN = st.tuples(st.sampled_from([A, B]), st.integers(0, 50), st.integers(51, 99))
ANY = st.dictionaries(st.text(max_size=40), st.tuples(OWN), min_size=1, max_size=12)


@given(ANY, st.randoms(use_true_random=False))
def test_the_digest_depends_on_the_rows_alone(targets, random_):
    rows = rows_of(targets)
    order = list(range(len(rows)))
    random_.shuffle(order)
    whole = digest_rows(rows)
    assert digest_rows(rows.take(order)) == whole
    assert digest_rows(rows.slice(1)) != whole
    assert digest_rows(pa.concat_tables([rows, rows.slice(0, 1)])) != whole


def test_members_that_swap_equal_ranges_change_the_digest():
    rows = rows_of({"m1": ((A, 0, 4),), "m2": ((A, 4, 8),)})
    swapped = rows_of({"m1": ((A, 4, 8),), "m2": ((A, 0, 4),)})
    assert digest_rows(rows) != digest_rows(swapped)
    assert SEED == 42


def state_of(records):
    state = State()
    for record in records:
        replay(state, record)
    return state


def members(*names):
    return [MemberMetadata("g", name, subscribed_topic_names=("a", "b")) for name in names]


def installed(targets, epoch=3, **fields):
    rows = rows_of(targets)
    return TargetMetadata(
        "g", epoch, 7, "uniform", 0, computation_id="c", targets_version=5, digest=digest_rows(rows),
        members=3, ranges=len(rows), whole=WholeTarget.of(rows), **fields,
    )  # fmt: skip


def written(records):
    """Return records as they come back from the log: without what is in memory only."""
    return decode_rows(encode_records(records, 1, 0, 1), ValueCache())


STORY = [
    *members("m1", "m2", "m30"),
    GroupMetadata("g", 3, 0),
    TargetMember("g", "m1", ((B, 5, 6),)),  # before: no longer means anything
    installed(TARGETS),
    TargetMember("g", "m2", ()),
    Tombstone(TargetMember.kind, "g", "m30"),
]


def test_a_whole_target_is_installed_by_one_record_and_read_later():
    live = state_of(STORY)
    assert live.groups["g"].targets.get("m1") == TARGETS["m1"]
    loaded = state_of(written(STORY))
    assert loaded.groups["g"].targets.whole is NOT_READ
    set_whole_target(loaded.groups["g"], WholeTarget.of(rows_of(TARGETS)))
    assert fingerprint(loaded) == fingerprint(live)


def test_a_snapshot_names_the_whole_target_and_has_what_wins_over_it():
    later = TargetMetadata("g", 4, 8, "sticky", 1)  # a small one on top of it
    live = state_of([*STORY, GroupMetadata("g", 4, 0), TargetMember("g", "m1", ()), later])
    records = list(records_of(live))
    assert sum(isinstance(record, TargetMember) for record in records) == 2
    loaded = state_of(written(records))
    group = loaded.groups["g"]
    assert (group.assignment_epoch, group.installed.targets_version) == (4, 5)
    set_whole_target(group, WholeTarget.of(rows_of(TARGETS)))
    assert fingerprint(loaded) == fingerprint(live)


def test_the_next_whole_target_replaces_everything_before():
    second = installed({"m30": ((A, 0, 9),)}, epoch=4)
    group = state_of([*STORY, second]).groups["g"]
    assert [group.targets.get(m) for m in ("m1", "m2", "m30")] == [(), (), ((A, 0, 9),)]
    ended = state_of([*STORY, Tombstone(TargetMetadata.kind, "g")]).groups["g"]
    assert (ended.targets.get("m1"), ended.installed) == (None, None)
