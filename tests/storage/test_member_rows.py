"""Records of very many members stay columns: to a reader they are the records, and cost little."""

from __future__ import annotations

import tracemalloc

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from coordinator.config import Config, LogConfig
from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeats
from coordinator.core.state.groups import State
from coordinator.core.state.member_rows import CurrentRows, MemberRows, RecordRows, TargetRows
from coordinator.core.state.partition_spans import MANY, TopicKey
from coordinator.core.state.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay_all
from coordinator.core.state.rows.member_table import copy_members
from coordinator.core.state.state_records import StateRecords, records_of
from coordinator.errors import IllegalStateError
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_decoder import ValueCache, decode_batches, decode_rows
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_schema import FIELDS
from coordinator.storage.state_loader import load_state
from tests.support.fingerprint import fingerprint
from tests.support.invariants import check

A, B = TopicKey("a", "a-id"), TopicKey("b", "b-id")
NAMES = (("a", "b"), ("b",), ())
CLASSIC = ClassicMemberMetadata(9_000, (ClassicProtocol("range", b"1"), ClassicProtocol("sticky")))
CONFIG = Config()
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
    return [member(number, group) for number in numbers]


def member(number, group="g"):
    """One as Kafka's clients are; of some fields many have the same, of some each its own."""
    plain = MemberMetadata(group, f"m{number}", subscribed_topic_names=NAMES[number % 3])
    if number % 4 < 2:
        return plain
    return msgspec.structs.replace(
        plain,
        instance_id=f"i{number}" if number % 4 == 2 else None,
        rack_id="rack",
        client_id="client",
        client_host=f"/10.0.0.{number}",
        subscribed_topic_regex="a.*",
        rebalance_timeout_ms=60_000,
        server_assignor="uniform" if number % 8 == 3 else None,
        classic_member_metadata=CLASSIC if number % 8 == 7 else None,
        client_software="client 1.0",
    )


def batches(records, long=1):
    return list(decode_batches(encode_records(records, 1, 7, 2), ValueCache(), long))


def loaded(*parts, long=1):
    state = State()
    for records in filter(None, parts):
        for batch in batches(records, long):
            replay_all(state, batch.records)
    return state


@pytest.mark.parametrize(
    ("make", "kind"), [(member, MemberRows), (target, TargetRows), (current, CurrentRows)]
)
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
    assert kinds == [MemberRows, TargetRows, CurrentRows, list]
    assert [batch.position for batch in found] == [8, 16, 22, 25]


@pytest.mark.parametrize(
    "records",
    [
        [target(1), target(2, "h")],
        [Tombstone(TargetMember.kind, "g", "m1"), Tombstone(TargetMember.kind, "g", "m2")],
        [TargetMember("g", "m", tuple((A, 2 * n, 2 * n + 1) for n in range(MANY)))] * 2,
        [RegexResolved("g", "a.*", ("a",), number, 7) for number in range(3)],
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


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("order", SERIALS.values(), ids=SERIALS)
def test_a_snapshot_is_written_from_rows(tmp_path, order, after):
    """Those of members that changed are records; files of rows and of records make one snapshot."""
    epochs = [GroupMetadata("g", 9, 0), TargetMetadata("g", 9)]
    found = loaded(members(range(12)), epochs, [*map(target, order)], [*map(current, order)], after)
    rows = [run for run in StateRecords(found).runs() if isinstance(run, RecordRows)]
    assert {type(run) for run in rows} == {MemberRows, TargetRows, CurrentRows}
    for run in rows:
        records = list(run)
        assert decode_rows(encode_records(run, 1, 7, 2), ValueCache()) == records
        for some in (slice(0, 3), slice(2, 5), slice(2, 100)):
            written = encode_records(run.part(some), 1, 7, 2)
            assert decode_rows(written, ValueCache()) == records[some]
    log = DeltaLog.open(tmp_path, LogConfig())
    log.claim("me", "", 1)
    log.append(list(records_of(found)), 2)
    log.snapshot(StateRecords(found), log.position, 3, part_rows=5)
    state, began, _ = load_state(log)
    log.close()
    assert began == log.position
    assert fingerprint(state) == fingerprint(found)
    assert list(state.groups["g"].members) == list(found.groups["g"].members)


def test_a_copy_stays_as_it_is_while_members_advance():
    """Of a group of very many members it is described, elsewhere and later."""
    found = loaded(members(range(6)), [*map(target, range(6))], [*map(current, range(6))])
    before = copy_members(found.groups["g"].members)
    was = [(member.meta, member.current) for member in before.values()]
    replay_all(found, [MembersAdvanced("g", 8, ("m1", "m4")), CurrentMember("g", "m2", 9)])
    assert [(member.meta, member.current) for member in before.values()] == was
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


EPOCHS = st.sampled_from([0, 3, 4, 5, 8, 9, 2**40])
BEATS = st.lists(st.tuples(st.sampled_from([f"m{n}" for n in range(14)]), EPOCHS), max_size=30)
CHANGED = st.lists(
    st.one_of(
        st.builds(current, st.integers(0, 11)),
        st.builds(target, st.integers(0, 11)),
        st.sampled_from([record for records in AFTER.values() for record in records]),
    ),
    max_size=6,
)


@given(beats=BEATS, changed=CHANGED, silent=st.booleans())
def test_many_steady_heartbeats_are_answered_as_those_of_members_without_rows(
    beats, changed, silent
):
    metas = [MemberMetadata("g", f"m{number}") for number in range(12)]
    who = metas if silent else members(range(12))
    held = [current(n) if n % 5 else CurrentMember("g", f"m{n}", 5) for n in range(12)]
    parts = [who, [GroupMetadata("g", 9, 0), TargetMetadata("g", 9)]]
    parts += [[*map(target, range(10))], held, changed]
    ids, epochs = [member_id for member_id, _ in beats], [epoch for _, epoch in beats]
    try:
        plain = loaded(*parts, long=1_000)
    except IllegalStateError:
        reject()
    rows, at = loaded(*parts), 0
    while at < len(ids):
        found = [
            answer_steady_heartbeats(one, CONFIG, "g", ids, epochs, at) for one in (plain, rows)
        ]
        assert found[1] == found[0]
        end, epoch, _, advanced = found[0]
        for state in (plain, rows):
            replay_all(state, [MembersAdvanced("g", epoch, advanced)])
        at = max(end, at + 1)
    assert fingerprint(rows) == fingerprint(plain)
    check(rows)


def test_very_many_steady_heartbeats_are_answered_at_once_between_those_that_are_not():
    count = 1_000
    held = [CurrentMember("g", f"m{n}", 3) for n in range(count)]
    epochs = [GroupMetadata("g", 3, 0), TargetMetadata("g", 3)]
    found = loaded([MemberMetadata("g", f"m{n}") for n in range(count)], epochs, held)
    changed = range(0, count, 7)
    replay_all(found, [CurrentMember("g", f"m{n}", 3) for n in changed])
    ids, sent = [f"m{n}" for n in range(count)], [3] * count
    assert answer_steady_heartbeats(found, CONFIG, "g", ids, sent)[0] == count
    sent[500] = 2
    assert answer_steady_heartbeats(found, CONFIG, "g", ids, sent)[0] == 500
    assert answer_steady_heartbeats(found, CONFIG, "g", ids, sent, 501)[0] == count
