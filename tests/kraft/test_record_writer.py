"""Muster's records as Kafka's: what Kafka 4.4.0 wrote, decoded and written again, is the same."""

import json

import pyarrow as pa
import pytest
from msgspec.structs import replace

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    KINDS,
    PARTITION_METADATA,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.target_assignment import WholeTarget
from coordinator.core.state.transactions import OffsetPending
from coordinator.kraft.record_writer import LEFT_OUT, TYPES, RecordWriter, UnwritableError
from coordinator.watcher.kafka_records import Names, make_record, read_key
from coordinator.watcher.own_fields import read_own
from coordinator.watcher.record_batches import read_batches
from tests.watcher.recorded import FILES, batches_of, read_lines

from .recorded import OFFSETS

NAMES = Names(lambda topic_id: topic_id, lambda _: "")
TOPIC = TopicKey("t", "pegN0MVQQn6Rhs0mwSOTug")
IN_ANY_ORDER = {7, 8}
"""Types whose topics have no order in Kafka; of their bytes, order alone may differ."""
HELD = ((TOPIC, 0, 3, 4), (TOPIC, 5, 6, 7))


def kafkas(name):
    """The batches of a recorded topic, as lists of keys and values."""
    if name == "offsets-0":
        yield from ([(r.key, r.value) for r in b.records] for b in read_batches(OFFSETS))
        return
    for line in read_lines(name):
        if "records" in line:
            yield from ([(r.key, r.value) for r in batch] for batch in batches_of(line))


def decode(written):
    found = []
    for raw, value in written:
        key = read_key(raw)
        made = None if key is None else make_record(key, value, NAMES)
        if made is not None:
            found.append(made)
    return found


def own_hash(record):
    return record.metadata_hash


def write(writer, *records):
    written = writer.write(records, own_hash)
    writer.keep(written)
    return [(one.key, one.value) for one in written.records]


@pytest.mark.parametrize("name", ["offsets-0", *FILES])
def test_kafkas_records_are_written_as_kafka_wrote_them(name):
    writer = RecordWriter()
    for batch in kafkas(name):
        records = decode(batch)
        written = write(writer, *records)
        assert [key for key, _ in written] == [key for key, _ in batch]
        assert decode(written) == records
        for (key, ours), (_, theirs) in zip(written, batch, strict=True):
            if key[1] in IN_ANY_ORDER:
                assert sorted(ours or b"") == sorted(theirs or b"")
            else:
                assert ours == theirs


def test_every_kind_is_kafkas_or_left_out():
    kinds = KINDS.keys() - {MembersAdvanced.kind, Tombstone.kind}
    only_there = {PARTITION_METADATA, OffsetPending.kind}
    assert kinds == (TYPES.keys() - only_there) | LEFT_OUT
    assert not TYPES.keys() & LEFT_OUT
    gone = [Tombstone(kind, "g", name="n") for kind in LEFT_OUT]
    assert RecordWriter().write(gone, own_hash) == ([], {})


def test_members_that_reach_an_epoch_are_written_with_what_they_have():
    writer = RecordWriter()
    write(writer, CurrentMember("g", "a", 4, 3, MemberState.UNRELEASED_PARTITIONS, HELD))
    (first, second) = decode(write(writer, MembersAdvanced("g", 5, ("a", "b"))))
    held = tuple((TopicKey(TOPIC.topic_id, TOPIC.topic_id), *rest) for _, *rest in HELD)
    assert first == CurrentMember("g", "a", 5, 4, MemberState.STABLE, held)
    assert second == CurrentMember("g", "b", 5, 0)
    twice = [CurrentMember("g", "a", 6, 5), MembersAdvanced("g", 7, ("a",))]
    assert decode(write(writer, *twice))[1] == CurrentMember("g", "a", 7, 6)


def test_a_change_that_was_not_appended_did_not_happen():
    writer = RecordWriter()
    write(writer, CurrentMember("g", "a", 4, 3, MemberState.STABLE, HELD))
    writer.write([CurrentMember("g", "a", 5, 4)], own_hash)
    writer.write([Tombstone(MemberMetadata.kind, "g", "a")], own_hash)
    (found,) = decode(write(writer, MembersAdvanced("g", 5, ("a",))))
    assert found.previous_member_epoch == 4
    assert found.assigned


def test_an_assignor_that_the_cluster_lacks_is_its_first():
    asked = [MemberMetadata("g", "a", server_assignor=name) for name in ("weighted", "range", None)]
    found = decode(write(RecordWriter(), *asked))
    assert [one.server_assignor for one in found] == ["uniform", "range", None]
    found = decode(write(RecordWriter(["range"]), *asked))
    assert [one.server_assignor for one in found] == ["range", "range", None]


def test_a_target_that_replaces_another_does_not_end_the_group():
    end = Tombstone(TargetMetadata.kind, "g")
    new = TargetMetadata("g", 3, moved=None)
    assert decode(write(RecordWriter(), end, new, TargetMember("g", "a"))) == [
        new,
        TargetMember("g", "a"),
    ]
    others = TargetMetadata("h", 3, moved=None)
    assert decode(write(RecordWriter(), end, others)) == [end, others]


def test_what_is_ours_of_a_record_is_in_a_header():
    ours = GroupMetadata("g", 3, (1 << 64) - 5, "member joined", "a", owner_left=True)
    kept = replace(ours, reason="", member_id=None, owner_left=False)
    assert decode(write(RecordWriter(), ours)) == [kept]
    (written,) = RecordWriter().write([ours], own_hash).records
    assert json.loads(written.own) == {
        "reason": "member joined", "member_id": "a", "owner_left": True,
    }  # fmt: skip
    assert read_own(kept, written.own) == ours
    (bare,) = RecordWriter().write([kept], own_hash).records
    assert bare.own == b""


def test_a_target_in_the_table_of_targets_is_no_longer_so_in_kafkas():
    ours = TargetMetadata("g", 3, 5, "weighted", 7, partial=True, plan_id="p1", digest=4)
    (written,) = RecordWriter().write([ours], own_hash).records
    assert json.loads(written.own) == {
        "assignor": "weighted", "moved": 7, "partial": True, "plan_id": "p1"
    }  # fmt: skip


def test_the_assignor_that_a_member_asks_for_is_known_to_the_next_leader():
    asked = MemberMetadata("g", "a", server_assignor="weighted", client_software="librdkafka 2.3")
    (written,) = RecordWriter().write([asked], own_hash).records
    (kafkas,) = decode([(written.key, written.value)])
    assert kafkas.server_assignor == "uniform"
    assert read_own(kafkas, written.own) == asked


@pytest.mark.parametrize(
    "header",
    [
        b"{", b"\xff", b"[]", b"7", b"null", b'{"reason": 3}', b'{"member_id": ["a"]}',
        b'{"owner_left": 1}', b'"' + b"x" * 100_000 + b'"',
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_read_says_nothing(header):
    group = GroupMetadata("g", 3, 5)
    assert read_own(group, header) is group


@pytest.mark.parametrize("number", ["-1", "9223372036854775808", "1e3", "1.5", '"1"', "true"])
def test_a_number_that_the_log_cannot_have_says_nothing(number):
    target = TargetMetadata("g", 3, moved=None)
    assert read_own(target, b'{"assignor": "range", "moved": %s}' % number.encode()) is target


def test_what_a_later_version_adds_to_a_header_is_passed_over():
    header = b'{"reason": "member left", "mood": {"good": [1]}}'
    assert read_own(GroupMetadata("g", 3, 5), header) == GroupMetadata("g", 3, 5, "member left")
    assert read_own(CurrentMember("g", "a"), header) == CurrentMember("g", "a")


def test_a_whole_target_is_written_member_by_member():
    writer = RecordWriter()
    write(writer, MemberMetadata("g", "a"), MemberMetadata("g", "b"), MemberMetadata("h", "c"))
    write(writer, Tombstone(MemberMetadata.kind, "g", "b"), MemberMetadata("g", "d"))
    rows = pa.table(
        {
            "member_id": ["a", "b"],  # b has left since
            "topic": ["t", "t"],
            "topic_id": [TOPIC.topic_id] * 2,
            "first_partition": [0, 2],
            "partition_count": [2, 1],
        }
    )
    stored = TargetMetadata("g", 3, computation_id="c7", targets_version=1)
    with pytest.raises(UnwritableError, match=r"group 'g' is computation c7 .* read the target"):
        writer.write([stored], own_hash)
    found = decode(write(writer, replace(stored, whole=WholeTarget.of(rows))))
    spans = ((TopicKey(TOPIC.topic_id, TOPIC.topic_id), 0, 2),)
    assert found == [
        TargetMember("g", "a", spans),
        TargetMember("g", "d"),
        TargetMetadata("g", 3, moved=None),
    ]


def test_a_writer_begins_where_the_log_is():
    state, writer = State(), RecordWriter()
    replay(state, MemberMetadata("g", "a"))
    replay(state, CurrentMember("g", "a", 4, 3, MemberState.STABLE))
    writer.load(state)
    (found,) = decode(write(writer, MembersAdvanced("g", 5, ("a",))))
    assert (found.member_epoch, found.previous_member_epoch) == (5, 4)
