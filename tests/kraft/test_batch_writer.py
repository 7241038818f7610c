"""Batches that a leader writes: as Kafka wrote them, byte for byte, and as the reader reads them."""

import itertools

import pytest

from coordinator.kraft.batch_writer import (
    BatchTooLargeError,
    Change,
    KeyValue,
    write_batch,
    write_batches,
)
from coordinator.kraft.partition_log import PartitionLog
from coordinator.watcher.record_batches import KafkaRecord, read_batches

from .recorded import OFFSETS, split


def test_batches_are_kafkas_byte_for_byte():
    compared = 0
    for _, _, raw in split(OFFSETS):
        (said,) = read_batches(raw)
        if said.producer_id >= 0 or said.last_offset - said.base_offset + 1 != len(said.records):
            continue  # of a transaction, or cleaned
        changes = [Change([KeyValue(one.key, one.value)], one.timestamp_ms) for one in said.records]
        assert write_batch(changes, said.base_offset, said.leader_epoch) == raw
        compared += 1
    assert compared > 300


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 127, 128, 8_191, 8_192, 1 << 20])
def test_what_is_written_is_read(size):
    records = [
        KeyValue(b"k" * size, None),
        KeyValue(b"k", b"v" * size),
        KeyValue(b"", b""),
        KeyValue(b"k", b"v", b"o" * size),
    ]
    changes = [Change(records, 1_000), Change(records, 999), Change(records, 70_000)]
    raw = write_batch(changes, 5, 7)
    (found,) = read_batches(raw)
    assert (found.base_offset, found.last_offset, found.leader_epoch) == (5, 16, 7)
    assert (found.producer_id, found.producer_epoch, found.is_transactional) == (-1, -1, False)
    rows = [(change.at_ms, *one) for change in changes for one in records]
    assert found.records == [KafkaRecord(5 + at, *row) for at, row in enumerate(rows)]


def test_changes_share_batches_and_stay_whole():
    changes = [Change([KeyValue(b"k%d" % n, b"v" * 100)] * (n % 3), n) for n in range(40)]
    batches = list(write_batches(changes, 100, 3, bytes_max=600))
    log = PartitionLog(100)
    log.append(log.check(b"".join(batches), 3))
    assert log.end == 100 + sum(len(change.records) for change in changes)
    held = [next(read_batches(raw)).records for raw in batches]
    assert all(len(raw) <= 600 for raw in batches)
    keys = [{one.key for one in records} for records in held]
    assert not any(first & second for first, second in itertools.pairwise(keys))
    assert len(batches) < sum(bool(change.records) for change in changes)
    written = [(c.at_ms, *one) for c in changes for one in c.records]
    assert [one[1:] for records in held for one in records] == written


def test_a_change_that_no_batch_can_hold_is_refused_by_name():
    fits = Change([KeyValue(b"a", b"1")], 0)
    wide = Change([KeyValue(b"\0\5group", b"x" * 900), KeyValue(b"b", b"y" * 100)], 0)
    size = len(write_batch([wide], 0, 0))
    assert len(list(write_batches([fits, wide], 0, 0, bytes_max=size))) == 2
    said = r"2 records needs a batch of 1,0.. bytes.*group.*max\.message\.bytes"
    with pytest.raises(BatchTooLargeError, match=said):
        list(write_batches([fits, wide], 0, 0, bytes_max=size - 1))
