"""Records of batches, whatever their numbers' lengths; and bytes that end too soon."""

import struct
from itertools import product

import pytest
from crc32c import crc32c

from coordinator.watcher.record_batches import HEAD, BatchError, KafkaRecord, read_batches

from .fake_cluster import _varint

BASE, FIRST_MS = 7_000, 1_700_000_000_000
NUMBERS = (0, 1, 63, 64, 127, 128, 8_191, 8_192, 1 << 20)
LENGTHS = (None, 0, 63, 64, 8_192)


def test_numbers_of_all_lengths_are_read():
    deltas = [(time, offset) for time in (-65, -1, *NUMBERS) for offset in NUMBERS]
    rows = [(*delta, b"k", b"v") for delta in deltas]
    rows += [
        (1, 2, *(None if size is None else b"x" * size for size in sizes))
        for sizes in product(LENGTHS, LENGTHS)
    ]
    (found,) = read_batches(batch(rows))
    assert found.records == [KafkaRecord(BASE + o, FIRST_MS + t, k, v) for t, o, k, v in rows]
    assert type(found.records[0]) is KafkaRecord


@pytest.mark.parametrize("cut", range(1, 9))
def test_records_that_end_too_soon_are_damage(cut):
    whole = record(1, 2, b"key", b"v")
    with pytest.raises(BatchError, match="cut short"):
        list(read_batches(framed(whole[:-cut], 1)))


OWN, OTHERS = (b"muster", b'{"reason": "x"}'), (b"traceparent", b"00-1")


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ([OWN], OWN[1]),
        ([OTHERS], b""),
        ([OTHERS, OWN, (b"", None)], OWN[1]),
        ([(b"muster", None)], b""),
        ([(b"muster", b"x" * 9_000)], b"x" * 9_000),
        ([OTHERS] * 200 + [OWN], OWN[1]),
    ],
)
def test_of_all_headers_the_one_that_is_ours_is_read(headers, own):
    rows = record(1, 2, b"key", None, headers) + record(1, 3, b"key", b"v")
    (found,) = read_batches(framed(rows, 2))
    assert [one.own for one in found.records] == [own, b""]
    assert found.records[1][2:4] == (b"key", b"v")


@pytest.mark.parametrize("count", [2, 3, 1 << 31, 1 << 62])
def test_headers_that_are_not_there_are_damage(count):
    whole = record(1, 2, b"key", b"v", [OWN], count)
    with pytest.raises(BatchError, match="cut short"):
        list(read_batches(framed(whole, 1)))
    with pytest.raises(BatchError, match="cut short"):  # those of the next record are not its
        list(read_batches(framed(whole + record(1, 3, b"\0" * 90, b"v"), 2)))


def batch(rows):
    """The bytes of a batch of (time delta, offset delta, key, value)."""
    return framed(b"".join(record(*one) for one in rows), len(rows))


def record(time_delta, offset_delta, key, value, headers=(), count=None):
    body = b"\0" + _varint(time_delta) + _varint(offset_delta)
    for part in (key, value):
        body += _varint(-1) if part is None else _varint(len(part)) + part
    body += _varint(len(headers) if count is None else count)
    for part in (part for header in headers for part in header):
        body += _varint(-1) if part is None else _varint(len(part)) + part
    return _varint(len(body)) + body


def framed(rows, count):
    """The bytes of a batch that says how many records it has."""
    fields = (0, 2, 0, 0, 1 << 20, FIRST_MS, FIRST_MS, -1, -1, -1, count)
    checked = HEAD.pack(BASE, 0, *fields)[21:] + rows
    sum_ = struct.pack(">I", crc32c(checked))
    return HEAD.pack(BASE, len(checked) + 9, *fields)[:17] + sum_ + checked
