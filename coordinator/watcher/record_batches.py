"""Take batches of records apart: magic 2, which all of Kafka's topics have since 0.11 (KIP-98).

A batch is what Kafka wrote at once: its records become visible together or not at all. Those of a
transaction become visible with its marker, which is a batch of its own.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
from crc32c import crc32c

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last
timestamp, producer id, producer epoch, base sequence, and how many records."""
LENGTH = struct.Struct(">qi")
"""What stands before the bytes that the length counts."""
CHECKED_FROM = 21
"""The checksum is of all that stands after it."""
MAGIC = 2
COMPRESSION, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NO_COMPRESSION, GZIP, SNAPPY, LZ4, ZSTD = range(5)
XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEAD = 16
"""What Java's snappy writes before its blocks: a magic, and two versions."""
MARKER, END_MARKER = struct.Struct(">hh"), struct.Struct(">hi")
"""Key and value of what ends a transaction: a version, and ABORT or COMMIT; a version, and the
epoch of the transaction's coordinator."""
ABORT, COMMIT = 0, 1
OWN_HEADER = b"muster"
"""The key of the header in which Muster writes what Kafka's records have no field for."""
INFLATED_BYTES_MAX = 1 << 30
"""Of one batch: the broker takes none that is near (`message.max.bytes`)."""


class BatchError(Exception):
    """Bytes that are not a batch of records."""


LAST_BYTE = 0x80
"""A byte of a number is its last one if it is less than this."""


class KafkaRecord(NamedTuple):
    """One record of a batch.

    Attributes
    ----------
    own
        What Muster wrote beside key and value (`own_fields`); mostly empty.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    own: bytes = b""


def keep_last(kept: dict[bytes, KafkaRecord], records: Iterable[KafkaRecord]) -> None:
    """Keep the last record of each key, in Kafka's order, as a cleaned topic does in the end."""
    for record in records:
        if record.key is not None:
            kept.pop(record.key, None)
            kept[record.key] = record


class RawBatch(NamedTuple):
    """A batch as bytes, and what its head says."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    raw: bytes


class RecordBatch(NamedTuple):
    """A batch, with its records.

    Attributes
    ----------
    base_offset, last_offset
        Of its records; the cleaner may have taken some, or all, and leaves the last offset.
    producer_id
        Of a transaction, or of an idempotent producer; -1 without one.
    is_transactional
        Whether its records count once their transaction is committed.
    marker
        COMMIT or ABORT of a batch that ends a transaction; None of all others.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    marker: int | None
    records: list[KafkaRecord]


def split_batches(data: bytes) -> Iterator[RawBatch]:
    """Yield the whole batches of a file, or of a Fetch's answer; one that is cut at the end is not.

    Raises
    ------
    BatchError
        A batch is damaged, or is of a format before Kafka 0.11.
    """
    at = 0
    while len(data) - at >= HEAD.size:
        base, length, epoch, magic, checksum, _, last_delta = HEAD.unpack_from(data, at)[:7]
        end = at + LENGTH.size + length
        where = f"the batch at offset {base}"
        if length < HEAD.size - LENGTH.size or last_delta < 0 or base < 0:
            raise BatchError(f"{where} is damaged: so is its head")
        if end > len(data):
            return
        raw = data[at:end]
        if magic != MAGIC:
            raise BatchError(
                f"{where} has format {magic}: Muster reads {MAGIC}, of Kafka 0.11 or later"
            )
        if crc32c(raw[CHECKED_FROM:]) != checksum:
            raise BatchError(f"{where} is damaged: its checksum differs")
        yield RawBatch(base, base + last_delta, epoch, raw)
        at = end


def read_batches(data: bytes) -> Iterator[RecordBatch]:
    """Yield the whole batches, with their records; one that is cut at the end is not.

    Raises
    ------
    BatchError
        A batch is damaged, is of a format before Kafka 0.11, or is compressed by what is unknown.
    """
    return map(_read_records_of, split_batches(data))


def _read_records_of(batch: RawBatch) -> RecordBatch:
    base_offset, last_offset, leader_epoch, raw = batch
    head = HEAD.unpack_from(raw)
    attributes, _, first_ms, last_ms, producer_id, producer_epoch, _, count = head[5:]
    where = f"the batch at offset {base_offset}"
    body = inflate(raw[HEAD.size :], attributes & COMPRESSION, where)
    stamped = last_ms if attributes & LOG_APPEND_TIME else None
    try:
        records = _read_records(body, count, base_offset, first_ms, stamped)
    except IndexError:
        raise BatchError(f"{where} is damaged: its records are cut short") from None
    return RecordBatch(
        base_offset,
        last_offset,
        leader_epoch,
        producer_id,
        producer_epoch,
        bool(attributes & TRANSACTIONAL),
        _read_marker(records, where) if attributes & CONTROL else None,
        records,
    )


def _read_marker(records: list[KafkaRecord], where: str) -> int | None:
    """Return what a control batch says; None of other kinds, or where its record was cleaned up."""
    for record in records:
        if record.key is None or len(record.key) < MARKER.size:
            raise BatchError(f"{where} is damaged: it ends a transaction, and has no such key")
        _, kind = MARKER.unpack_from(record.key)
        if kind in {ABORT, COMMIT}:
            return int(kind)
    return None


def inflate(body: bytes, codec: int, where: str) -> bytes:
    """Return the records of a batch, decompressed; raises BatchError."""
    try:
        if codec == NO_COMPRESSION:
            return body
        if codec == GZIP:
            return gzip.decompress(body)
        if codec == SNAPPY:
            return b"".join(_inflate_snappy(body))
        if codec in {LZ4, ZSTD}:
            name = "lz4" if codec == LZ4 else "zstd"
            with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
                return bytes(stream.read(INFLATED_BYTES_MAX))
    except (OSError, EOFError, zlib.error, pa.ArrowException, struct.error, IndexError) as error:
        raise BatchError(f"{where} cannot be decompressed: {error}") from None
    raise BatchError(f"{where} is compressed by codec {codec}, which Muster does not know")


def _inflate_snappy(body: bytes) -> Iterator[bytes]:
    """Yield the blocks of snappy, with the frame of Java's clients or without one."""
    if not body.startswith(XERIAL):
        yield _inflate_block(body)
        return
    at = XERIAL_HEAD
    while at < len(body):
        (length,) = struct.unpack_from(">i", body, at)
        at += 4
        yield _inflate_block(body[at : at + length])
        at += length


def _inflate_block(block: bytes) -> bytes:
    """Snappy's block begins with its length when inflated, which Arrow asks for."""
    length, _ = _unsigned(block, 0)
    if length > INFLATED_BYTES_MAX:
        raise BatchError(f"a block of {length} bytes is larger than {INFLATED_BYTES_MAX}")
    return bytes(pa.decompress(block, decompressed_size=length, codec="snappy"))


def _read_records(
    body: bytes, count: int, base_offset: int, first_ms: int, stamped_ms: int | None
) -> list[KafkaRecord]:
    """Take records apart: length, attributes, deltas, key, value, and the header that is ours."""
    found: list[KafkaRecord] = []
    at, size, make = 0, len(body), tuple.__new__
    for _ in range(count):
        # Numbers of one byte, and lengths of two, are read here: a call for each costs half of all.
        byte = body[at]
        if byte < LAST_BYTE:
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif (more := body[at + 1]) < LAST_BYTE:
            byte, at = byte & 0x7F | more << 7, at + 2
            length = (byte >> 1) ^ -(byte & 1)
        else:
            length, at = read_signed(body, at)
        end = at + length
        if length < 0 or end > size:
            raise IndexError
        time_delta, offset_delta, at = body[at + 1], body[at + 2], at + 3
        if time_delta < LAST_BYTE and offset_delta < LAST_BYTE:
            time_delta = (time_delta >> 1) ^ -(time_delta & 1)
            offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
        else:
            time_delta, at = read_signed(body, at - 2)
            offset_delta, at = read_signed(body, at)
        key, at = read_field(body, at, end)
        value, at = read_field(body, at, end)
        own = _find_own(body, at, end) if at < end and body[at] else b""
        at_ms = first_ms + time_delta if stamped_ms is None else stamped_ms
        found.append(make(KafkaRecord, (base_offset + offset_delta, at_ms, key, value, own)))
        at = end
    return found


def _find_own(body: bytes, at: int, end: int) -> bytes:
    """Return the value of the last header that is ours; those of others are passed over."""
    own = b""
    count, at = read_signed(body, at)
    for _ in range(count):
        key, at = read_field(body, at, end)
        value, at = read_field(body, at, end)
        own = value or b"" if key == OWN_HEADER else own
    if at > end:
        raise IndexError
    return own


def read_field(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Read bytes after their length; raises IndexError where they pass the end of their record."""
    byte = body[at]
    if byte < LAST_BYTE:
        length, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, at = read_signed(body, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise IndexError
    return body[at : at + length], at + length


def _unsigned(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < LAST_BYTE:
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004 - of 64 bits
            raise IndexError


def read_signed(body: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length, which may be negative; raises IndexError."""
    byte = body[at]
    if byte < LAST_BYTE:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = _unsigned(body, at)
    return (value >> 1) ^ -(value & 1), at
