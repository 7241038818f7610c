"""The log keeps what it is given: every kind of record, in order, in memory and on Delta alike."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.config import LogConfig
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    KINDS,
    GroupMetadata,
    MembersAdvanced,
    OffsetCommitted,
    TargetMember,
    TopicChanged,
)
from coordinator.core.state.span_columns import SpanColumns, TopicKeys
from coordinator.storage.delta_log import DeltaLog, open_log_table, read_log
from coordinator.storage.few_rows import FEW, encode_few
from coordinator.storage.record_decoder import ValueCache, decode_batches, decode_rows
from coordinator.storage.record_encoder import encode_by_columns, encode_records
from coordinator.storage.record_log import (
    Batch,
    MemoryLog,
    MemoryRecords,
    NewerLog,
    NoLog,
    WriterFenced,
    merge_advances,
)
from coordinator.storage.record_schema import CODED, SCHEMA
from coordinator.storage.tables.table_io import read_delta
from tests.support.lives import life, replayed
from tests.support.log_records import RECORDS, anything
from tests.support.longer import EVERY


@pytest.fixture(params=["memory", "delta"])
def opened(request, tmp_path):
    """Return a function that opens one more coordinator's log of the same store."""
    if request.param == "delta":
        return lambda: DeltaLog.open(tmp_path / "store")
    storage = MemoryRecords()
    return lambda: MemoryLog(storage)


def test_of_two_claims_at_the_same_moment_in_memory_one_is_fenced():
    storage = MemoryRecords()
    faster = MemoryLog(storage)
    moments = [lambda: faster.claim("faster", "", 1)]
    slower = MemoryLog(storage, lambda when: moments.pop()() if when == "before" else None)
    with pytest.raises(WriterFenced, match="at the same time, with epoch 1"):
        slower.claim("slower", "", 1)
    assert [batch.epoch for batch in storage.batches] == [1]


def test_every_kind_has_a_strategy():
    assert set(RECORDS) == set(KINDS.values())


@given(anything)
@settings(max_examples=200 if EVERY else 60)
def test_records_round_trip_through_rows(records):
    rows = encode_records(records, 5, 77, 3)
    assert decode_rows(rows, ValueCache()) == records
    for field in rows.schema:
        kept = SCHEMA.field(field.name).type
        assert field.type == kept or (pa.types.is_dictionary(field.type) and kept == pa.string())


@given(anything, st.booleans())
@settings(max_examples=200 if EVERY else 60)
def test_rows_made_one_by_one_are_those_made_by_columns(records, each):
    """Also where each row has a time of its own."""
    at_ms = np.arange(77, 77 + len(records)) if each else 77
    few = encode_few(records, 5, at_ms, 3)
    whole = encode_by_columns(records, 5, at_ms, 3)
    assert few.to_pylist() == whole.to_pylist()
    assert few.schema == pa.schema([SCHEMA.field(name) for name in whole.column_names])


def test_many_rows_and_long_holdings_are_made_by_columns():
    offsets = [OffsetCommitted("g", "t", "id", 0, n, commit_timestamp=1) for n in range(FEW + 1)]
    assert encode_few(offsets, 1, 2, 3) is None
    assert len(encode_few(offsets[1:], 1, 2, 3)) == FEW
    keys = TopicKeys([TopicKey("t", "id")])
    columns = SpanColumns(keys, *(np.array([number], np.int32) for number in (0, 1, 2)))
    assert encode_few([TargetMember("g", "m", columns)], 1, 2, 3) is None
    assert decode_rows(encode_records([TargetMember("g", "m", columns)], 1, 2, 3), ValueCache())


@given(anything)
def test_records_are_the_same_from_texts_that_are_numbered(records):
    """As a snapshot's files have them; of some texts, none is there, or no row has one of them."""
    file = pa.BufferOutputStream()
    pq.write_table(encode_records(records, 5, 77, 3), file)
    footer = pq.read_metadata(pa.BufferReader(file.getvalue()))
    leaves = [footer.schema.column(at).path for at in range(footer.num_columns)]
    coded = [leaf for leaf in leaves if leaf in CODED]
    rows = pq.ParquetFile(pa.BufferReader(file.getvalue()), read_dictionary=coded).read()
    assert decode_rows(rows, ValueCache()) == records
    half = len(records) // 2
    assert decode_rows(rows.slice(half), ValueCache()) == records[half:]
    for long in (1, 100):
        found = decode_batches(rows, ValueCache(), long)
        assert [record for batch in found for record in batch.records] == records


def test_what_is_appended_is_replayed(opened):
    log = opened()
    assert (log.epoch, log.claim("me", "here:1", 10)) == (0, 1)
    assert log.append(life(1), 11) == 12
    assert log.append([], 12) == 12
    assert log.append(life(2), 13) == 23
    assert list(log.replay()) == [
        Batch(1, 10, 1, []),
        Batch(12, 11, 1, life(1)),
        Batch(23, 13, 1, life(2)),
    ]


def test_a_successor_replays_everything_and_fences(opened):
    one, two = opened(), opened()
    one.claim("one", "", 1)
    one.append(life(1), 2)
    assert two.claim("two", "", 3) == 2
    assert replayed(two) == life(1)
    for asked in (one.look, lambda: one.append(life(2), 4), lambda: list(one.replay())):
        for _ in range(2):  # it stays fenced, however often it tries
            with pytest.raises(WriterFenced, match=r"coordinator epoch 1 ended.* with epoch 2"):
                asked()
    two.look()
    two.append(life(3), 5)
    assert replayed(two) == life(1) + life(3)


def test_a_load_begins_with_the_newest_snapshot(opened):
    log = opened()
    log.claim("me", "", 1)
    position = log.append(life(1), 2)
    log.append(life(2), 3)
    log.snapshot(life(7), position, 4)
    assert replayed(log) == life(7) + life(2)
    assert next(log.replay()) == Batch(position, 4, 1, life(7))


def test_advances_side_by_side_are_one_row(opened):
    log = opened()
    log.claim("me", "", 1)
    written = [
        MembersAdvanced("g", 4, ("a",)),
        MembersAdvanced("g", 4, ("b", "c")),
        MembersAdvanced("g", 5, ("a",)),
        GroupMetadata("g", 6, 0),
        MembersAdvanced("g", 5, ("b",)),
    ]
    kept = [MembersAdvanced("g", 4, ("a", "b", "c")), *written[2:]]
    assert log.append(written, 2) == 5
    assert merge_advances(written) == replayed(log) == kept


def test_members_share_their_names_and_topics(tmp_path):
    """But for those of the last commits, which entries have as text until they are packed."""
    log = DeltaLog.open(tmp_path)
    log.claim("me", "", 1)
    log.append(life(1), 2)
    log.append(life(2), 3)
    log.maintain(pack=True)
    metas = [r for r in replayed(log) if hasattr(r, "subscribed_topic_names")]
    assert len(metas) == 6
    assert len({id(r.subscribed_topic_names) for r in metas}) == 1
    assert len({id(r.spans[0][0]) for r in replayed(log) if hasattr(r, "spans")}) == 1


def test_a_reader_needs_no_claim(tmp_path):
    with pytest.raises(NoLog, match=r"no coordinator's table found in .*/nowhere/log"):
        open_log_table(tmp_path / "nowhere")
    log = DeltaLog.open(tmp_path)
    log.claim("me", "", 1)
    for epoch in (1, 2, 3):
        log.append(life(epoch), epoch + 1)
    whole = list(read_log(tmp_path))
    assert [batch.position for batch in whole] == [1, 12, 23, 34]
    assert list(read_log(tmp_path, after=12)) == whole[2:]
    assert list(read_log(tmp_path, after=12, until=23)) == whole[2:3]
    (part,) = read_log(tmp_path, after=14, until=16)
    assert part == Batch(16, 3, 1, life(2)[2:4])
    assert list(read_log(tmp_path, after=34)) == []
    log.look()  # reading took nothing from the writer


def test_the_table_reads_well(tmp_path):
    log = DeltaLog.open(tmp_path)
    log.claim("me", "here:1", 1_700_000_000_123)
    log.append(life(3, members=1), 1_700_000_000_456)
    opened = open_log_table(tmp_path)
    assert (opened.protocol().min_reader_version, opened.protocol().min_writer_version) == (1, 2)
    rows = read_delta(opened).sort_by("position").to_pylist()
    claim, group, member, target, current, done = rows
    assert (claim["kind"], claim["owner"], claim["address"]) == ("claim", "me", "here:1")
    assert claim["coordinator_epoch"] == 1
    assert group["at"] == dt.datetime.fromtimestamp(1_700_000_000.456, dt.UTC)
    assert group["metadata_hash"] == 2**63 + 3 - 2**64
    assert (group["epoch"], group["reason"], group["member_id"]) == (3, "member joined", "m3")
    assert member["subscribed_topic_names"] == '["bar","foo"]'
    ranges = {"topic": "foo", "topic_id": "id-foo", "first_partition": 0, "partition_count": 3}
    assert target["target"] == [ranges]
    assert current["assigned"] == [ranges | {"assignment_epoch": 3}]
    assert (current["state"], current["pending"]) == ("STABLE", [])
    assert (done["assignor"], done["assignment_epoch"], done["target"]) == ("uniform", 3, None)


def test_an_unknown_kind_is_refused_by_name(tmp_path):
    rows = encode_records(life(1), 5, 1, 1)
    kinds = rows["kind"].to_pylist()
    kinds[2] = "share_group"
    rows = rows.set_column(rows.column_names.index("kind"), "kind", pa.array(kinds))
    with pytest.raises(NewerLog, match="position 7 of the log is a record of kind 'share_group'"):
        list(decode_batches(rows, ValueCache()))


def test_readers_skip_files_by_group_and_kind(tmp_path):
    """What the table says of a data file holds for every row of it; long ids are left out."""
    log = DeltaLog.open(tmp_path, LogConfig(fsync=False))
    log.claim("me", "", 1)
    log.append([GroupMetadata("b", 1, 0), GroupMetadata("ä", 1, 0), TopicChanged("t", "i", 1)], 2)
    log.append([GroupMetadata("long" * 100, 1, 0)], 3)
    said = pa.table(open_log_table(tmp_path).get_add_actions(flatten=True)).to_pylist()
    found = sorted(
        (one["min.position"], one["min.kind"], one["min.group_id"], one["max.group_id"])
        for one in said
    )
    assert found == [
        (1, "claim", None, None),
        (2, "group_metadata", "b", "ä"),
        (5, "group_metadata", None, None),
    ]
