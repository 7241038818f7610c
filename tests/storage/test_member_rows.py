"""Records of very many members stay columns: to a reader they are the records, and cost little."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest

from coordinator.core.state.groups import State
from coordinator.core.state.held_rules import copy_members
from coordinator.core.state.member_rows import CurrentRows, TargetRows
from coordinator.core.state.partition_spans import MANY, TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay_all
from coordinator.core.state.state_records import records_of
from coordinator.errors import IllegalStateError
from coordinator.storage.record_decoder import ValueCache, decode_batches
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_schema import FIELDS
from tests.support.fingerprint import fingerprint
from tests.support.invariants import check

A, B = TopicKey("a", "a-id"), TopicKey("b", "b-id")
REVOKES, WAITS = MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def target(number, group="g"):
    first = 10 * number
    spans = ((A, first, first + 4), (A, first + 6, first + 9), (B, number, number + 1))
    return TargetMember(group, f"m{number}", spans[: number % 4])


def current(number, group="g"):
    held = tuple((*span, 3) for span in target(number).spans)
    name, epoch = f"m{number}", 3 + number % 2
    if number % 3 == 0:
        return CurrentMember(group, name, epoch, 3, REVOKES, held[1:], held[:1])
    return CurrentMember(group, name, epoch, 3, assigned=held)


def members(numbers, group="g"):
    return [MemberMetadata(group, f"m{number}") for number in numbers]


def batches(records, long=1):
    return list(decode_batches(encode_records(records, 1, 7, 2), ValueCache(), long))


def loaded(*parts, long=1):
    state = State()
    for records in filter(None, parts):
        for batch in batches(records, long):
            replay_all(state, batch.records)
    return state


@pytest.mark.parametrize(("make", "kind"), [(target, TargetRows), (current, CurrentRows)])
def test_rows_are_the_records_that_were_written(make, kind):
    records = [make(number) for number in range(20)]
    (batch,) = batches(records)
    assert isinstance(batch.records, kind)
    assert (list(batch.records), batch.records[2:9:3]) == (records, records[2:9:3])
    assert (batch.position, batch.at_ms, batch.epoch) == (20, 7, 2)
    (few,) = batches(records, long=21)
    assert few.records == records


def test_rows_have_every_field_of_their_records():
    """A field with a default would be lost in a large group, and in no other."""
    known = {
        TargetMember: {"group_id", "member_id", "spans"},
        CurrentMember: {
            *("group_id", "member_id", "member_epoch", "previous_member_epoch", "state"),
            *("assigned", "pending"),
        },
    }
    for record, names in known.items():
        fields = {field.name for field in FIELDS[record.kind]}
        assert fields == names, f"decode {fields - names} in member_rows.py and record_decoder.py"


def test_what_lies_between_rows_stays_in_its_place():
    records = [*members(range(8)), *map(target, range(8)), *map(current, range(6))]
    records.append(MembersAdvanced("g", 9, ("m1",)))
    records += map(current, range(6, 8))
    found = batches(records, long=5)
    assert [record for batch in found for record in batch.records] == records
    kinds = [type(batch.records) for batch in found]
    assert kinds == [list, TargetRows, CurrentRows, list]
    assert [batch.position for batch in found] == [8, 16, 22, 25]


@pytest.mark.parametrize(
    "records",
    [
        [target(1), target(2, "h")],
        [Tombstone(TargetMember.kind, "g", "m1"), Tombstone(TargetMember.kind, "g", "m2")],
        [TargetMember("g", "m", tuple((A, 2 * n, 2 * n + 1) for n in range(MANY)))] * 2,
        members(range(3)),
    ],
    ids=["of two groups", "tombstones", "very many ranges", "of another kind"],
)
def test_others_are_records(records):
    (batch,) = batches(records)
    assert batch.records == records


def test_rows_of_an_older_version_are_records():
    """One that wrote no column of what is pending, or not in each row."""
    records = [CurrentMember("g", f"m{number}", 3) for number in range(3)]
    rows = encode_records(records, 1, 7, 2)
    (without,) = decode_batches(rows.drop_columns("pending"), ValueCache(), 1)
    assert without.records == records
    at, kind = rows.column_names.index("pending"), rows.schema.field("pending").type
    (null,) = decode_batches(rows.set_column(at, "pending", pa.nulls(3, kind)), ValueCache(), 1)
    assert null.records == records


SERIALS = {
    "in order": [*range(12)],
    "in another order": [5, 3, 11, 0, *range(6, 11), 1, 2, 4],
    "of some": [1, 4, 5, 7],
}
AFTER = {
    "nothing": [],
    "an epoch that changes nothing": [MembersAdvanced("g", 8, ("m1", "m4", "m5"))],
    "another holding": [CurrentMember("g", "m4", 8, 4, WAITS), current(4)],
    "another target": [target(4), TargetMember("g", "m5", ((B, 77, 78),))],
    "no target": [Tombstone(TargetMember.kind, "g", "m4")],
    "another host": [MemberMetadata("g", "m4", client_host="there")],
    "a member less": [
        Tombstone(CurrentMember.kind, "g", "m4"),
        Tombstone(TargetMember.kind, "g", "m4"),
        Tombstone(MemberMetadata.kind, "g", "m4"),
    ],
    "rows again": [*map(target, [7, 4]), *map(current, [7, 4])],
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("order", SERIALS.values(), ids=SERIALS)
def test_a_group_of_rows_is_as_one_of_records(order, after):
    epochs = [GroupMetadata("g", 9, 0), TargetMetadata("g", 9)]
    parts = [members(range(12)), epochs, [*map(target, order)], [*map(current, order)], after]
    plain = loaded(*parts, long=1_000)
    found = loaded(*parts)
    check(found)
    assert fingerprint(found) == fingerprint(plain)
    assert found.groups["g"].targets.rows() == plain.groups["g"].targets.rows()
    copy = found.groups["g"].targets.copy()
    assert dict(copy) == dict(plain.groups["g"].targets)
    assert [copy.count_ranges(f"m{n}") for n in order] == [
        len(copy.get(f"m{n}", ())) for n in order
    ]
    assert fingerprint(loaded(list(records_of(found)))) == fingerprint(plain)


def test_a_copy_stays_as_it_is_while_members_advance():
    """Of a group of very many members it is described, elsewhere and later."""
    found = loaded(members(range(6)), [*map(target, range(6))], [*map(current, range(6))])
    before = copy_members(found.groups["g"].members.values())
    was = [(member.meta, member.current) for member in before]
    replay_all(found, [MembersAdvanced("g", 8, ("m1", "m4")), CurrentMember("g", "m2", 9)])
    assert [(member.meta, member.current) for member in before] == was
    now = [member.epoch for member in found.groups["g"].members.values()]
    assert now == [3, 8, 9, 4, 8, 4]


def test_a_second_owner_is_refused_in_rows_too():
    held = [CurrentMember("g", f"m{n}", 3, assigned=((A, 3 * n, 3 * n + 4, 3),)) for n in range(3)]
    with pytest.raises(IllegalStateError, match=r"m1 claims a\[3..6\] that another one holds"):
        loaded(members(range(3)), held)


def test_rows_of_members_that_are_gone_are_ignored():
    found = loaded(members([1]), [*map(target, range(3))], [*map(current, range(3))])
    assert fingerprint(found) == fingerprint(loaded(members([1]), [target(1)], [current(1)]))
    assert loaded([target(1)], [current(1)]).groups == {}


def test_a_member_at_rest_costs_a_fifth_of_its_records():
    count = 4_000
    spans = [((A, 100 * n, 100 * n + 100),) for n in range(count)]
    targets = [TargetMember("g", f"m{n}", spans[n]) for n in range(count)]
    held = [CurrentMember("g", f"m{n}", 3, assigned=((*spans[n][0], 3),)) for n in range(count)]
    parts = [encode_records(part, 1, 7, 2) for part in (targets, held)]
    taken = []
    for long in (1, count + 1):
        state, seen = State(), ValueCache()
        for batch in decode_batches(encode_records(members(range(count)), 1, 7, 2), seen):
            replay_all(state, batch.records)
        tracemalloc.start()
        for rows in parts:
            for batch in decode_batches(rows, seen, long):
                replay_all(state, batch.records)
        del batch
        taken.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert taken[0] < taken[1] / 5, f"{taken} bytes as rows, and as records"
