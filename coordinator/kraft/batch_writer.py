"""Write batches of records as a leader does: magic 2, plain. No I/O, no clock.

What one change of the state writes is in one batch, so that a reader has all of it or nothing.
Several changes may share a batch, as Kafka's coordinator lets them; those of a transaction only
with others of its producer, and what ends one with none. The reader of the same bytes is
`watcher/record_batches.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from coordinator.watcher.record_batches import (
    CHECKED_FROM,
    CONTROL,
    HEAD,
    LAST_BYTE,
    LENGTH,
    MAGIC,
    OWN_HEADER,
    TRANSACTIONAL,
)

SEQUENCE, NO_SEQUENCE = 0, -1
"""Base sequences, as Kafka's coordinator writes them: of records, and of a transaction's end."""


class BatchTooLargeError(Exception):
    """A change that must be whole is larger than a batch of the topic may be."""


class KeyValue(NamedTuple):
    """A record.

    Attributes
    ----------
    value
        None: the end of its key.
    own
        What Kafka has no field for, in a header (`watcher/own_fields.py`); empty: without one.
    """

    key: bytes
    value: bytes | None
    own: bytes = b""


class BatchKind(NamedTuple):
    """Whose records a batch has: plain ones have no producer.

    Attributes
    ----------
    is_marker
        Whether it ends a transaction.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    is_marker: bool = False

    @property
    def attributes(self) -> int:
        """What its head says."""
        return TRANSACTIONAL * (self.producer_id >= 0) | CONTROL * self.is_marker


PLAIN = BatchKind()


class Change(NamedTuple):
    """Records that become visible together.

    Attributes
    ----------
    at_ms
        When they were written.
    kind
        Of the batch that they are in.
    """

    records: Sequence[KeyValue]
    at_ms: int
    kind: BatchKind = PLAIN

    def may_follow(self, together: Sequence[Change]) -> bool:
        """Whether it may be in a batch with others."""
        return self.kind == together[0].kind and not self.kind.is_marker


def write_batch(changes: Sequence[Change], base_offset: int, leader_epoch: int) -> bytes:
    """Return one batch of some changes; they have at least one record in all."""
    body, count = bytearray(), 0
    for place, change in enumerate(changes):
        body += _body(change, changes[:place], count)
        count += len(change.records)
    return _frame(body, count, changes, base_offset, leader_epoch)


def write_batches(
    changes: Iterable[Change], base_offset: int, leader_epoch: int, bytes_max: int
) -> Iterator[bytes]:
    """Yield as few batches as hold some changes in their order, each change whole.

    Parameters
    ----------
    bytes_max
        Of one batch: the topic's `max.message.bytes`.

    Raises
    ------
    BatchTooLargeError
        A change does not fit; no batch has a part of it.
    """
    together: list[Change] = []
    body, count = bytearray(), 0
    for change in changes:
        if not change.records:
            continue
        more = _body(change, together, count)
        fits = HEAD.size + len(body) + len(more) <= bytes_max
        if together and not (fits and change.may_follow(together)):
            yield _frame(body, count, together, base_offset, leader_epoch)
            base_offset += count
            together, body, count = [], bytearray(), 0
            more = _body(change, together, count)
        if HEAD.size + len(more) > bytes_max:
            raise BatchTooLargeError(_explain(change, HEAD.size + len(more), bytes_max))
        together.append(change)
        body += more
        count += len(change.records)
    if together:
        yield _frame(body, count, together, base_offset, leader_epoch)


def _body(change: Change, before: Sequence[Change], count: int) -> bytearray:
    """Return a change's records as they stand in a batch that has others before it."""
    late_ms = change.at_ms - before[0].at_ms if before else 0
    body = bytearray()
    for number, record in enumerate(change.records, count):
        body += _record(number, late_ms, record)
    return body


def _explain(change: Change, size: int, bytes_max: int) -> str:
    widest = max(change.records, key=_size)
    return (
        f"a change of {len(change.records)} records needs a batch of {size:,} bytes, and the topic "
        f"takes {bytes_max:,}: its largest record, with the key {widest.key[:60]!r}, has "
        f"{_size(widest):,}. Raise the topic's max.message.bytes, or give the group fewer members "
        "or partitions"
    )


def _size(record: KeyValue) -> int:
    return len(record.key) + len(record.value or b"") + len(record.own)


def _frame(
    body: bytearray, count: int, changes: Sequence[Change], base_offset: int, leader_epoch: int
) -> bytes:
    times = changes[0].at_ms, max(one.at_ms for one in changes)
    size = HEAD.size - LENGTH.size + len(body)
    kind = changes[0].kind
    sequence = NO_SEQUENCE if kind.is_marker else SEQUENCE
    producer = kind.producer_id, kind.producer_epoch, sequence
    rest = (kind.attributes, count - 1, *times, *producer, count)
    unsigned = HEAD.pack(base_offset, size, leader_epoch, MAGIC, 0, *rest)
    checksum = crc32c(body, crc32c(unsigned[CHECKED_FROM:]))
    head = HEAD.pack(base_offset, size, leader_epoch, MAGIC, checksum, *rest)
    return head + bytes(body)


def _record(offset_delta: int, time_delta: int, record: KeyValue) -> bytes:
    """Return a record: attributes, deltas, key, value, headers, with the length before it."""
    key, value, own = record
    middle = _signed(-1) if value is None else _signed(len(value)) + value
    headers = _ONE_HEADER + _signed(len(own)) + own if own else b"\0"
    body = b"".join(
        (b"\0", _signed(time_delta), _signed(offset_delta), _signed(len(key)), key, middle, headers)
    )
    return _signed(len(body)) + body


def _signed(number: int) -> bytes:
    """Return a number as a zigzag varint."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    if rest < LAST_BYTE:
        return bytes((rest,))
    out = bytearray()
    while rest >= LAST_BYTE:
        out.append(rest & 0x7F | LAST_BYTE)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE_HEADER = _signed(1) + _signed(len(OWN_HEADER)) + OWN_HEADER
