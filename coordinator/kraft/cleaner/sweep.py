"""Which records of a log stay when it is cleaned, and the batches without the others. No I/O.

The log is read twice: `note` takes each batch first, then `clean` returns what stays of it. Batches
keep their offsets and their epoch, so that a follower reads on behind them; what is left of a batch
keeps its bytes. Batches of transactions stay whole, as they count only with their markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from coordinator.watcher.record_batches import (
    CHECKED_FROM,
    COMPRESSION,
    CONTROL,
    HEAD,
    LENGTH,
    TRANSACTIONAL,
    RecordBatch,
    inflate,
    read_field,
    read_signed,
)

NAME_BYTES = 16
ATTRIBUTES_AT, COUNT_AT = 5, 12
"""Of a batch's head: which of its fields these are."""


class RawRecord(NamedTuple):
    """A record as it stands in its batch, its length first."""

    raw: bytes
    offset: int
    key: bytes | None
    is_tombstone: bool


class Sweep:
    """One cleaning of a log's beginning.

    Parameters
    ----------
    tombstones_until
        Tombstones below this offset go. A cleaning so long ago has taken away what they end, and
        all who read the log then have read on, or began again.
    """

    def __init__(self, tombstones_until: int) -> None:
        self._until = tombstones_until
        self._last: dict[bytes, int] = {}
        self._in_transactions: dict[bytes, int] = {}
        self._ends: dict[int, int] = {}

    def note(self, batch: RecordBatch) -> None:
        """Note the last offset of each key, and of each epoch."""
        self._ends[batch.leader_epoch] = batch.base_offset
        if batch.marker is not None:
            return
        known = self._in_transactions if batch.is_transactional else self._last
        for record in batch.records:
            if record.key is None:
                continue
            name = _name(record.key)
            if batch.is_transactional:
                known.setdefault(name, record.offset)
            else:
                known[name] = record.offset

    def clean(self, raw: bytes) -> bytes:
        """Return what stays of a batch; nothing of most whose records have all gone.

        The last batch of an epoch stays, empty: it says where the epoch ended.
        """
        head = list(HEAD.unpack_from(raw))
        attributes, count = head[ATTRIBUTES_AT], head[COUNT_AT]
        if attributes & (TRANSACTIONAL | CONTROL):
            return raw
        body = inflate(raw[HEAD.size :], attributes & COMPRESSION, f"the batch at {head[0]}")
        kept = [one.raw for one in split_records(body, count, head[0]) if self._stays(one)]
        if len(kept) == count:
            return raw
        if not kept and self._ends.get(head[2]) != head[0]:
            return b""
        body = b"".join(kept)
        head[1] = HEAD.size + len(body) - LENGTH.size
        head[ATTRIBUTES_AT], head[COUNT_AT] = attributes & ~COMPRESSION, len(kept)
        out = bytearray(HEAD.pack(*head)) + body
        head[4] = crc32c(bytes(out[CHECKED_FROM:]))
        out[: HEAD.size] = HEAD.pack(*head)
        return bytes(out)

    def _stays(self, record: RawRecord) -> bool:
        if record.key is None:
            return True
        name = _name(record.key)
        if self._last.get(name, record.offset) > record.offset:
            return False
        if not record.is_tombstone or record.offset >= self._until:
            return True
        # An older offset of a transaction, which stays, would come back without it.
        return self._in_transactions.get(name, record.offset) < record.offset


def _name(key: bytes) -> bytes:
    """Return what stands for a key: keys may be long, and there are many."""
    return blake2b(key, digest_size=NAME_BYTES).digest()


def split_records(body: bytes, count: int, base_offset: int) -> Iterator[RawRecord]:
    """Yield the records of a batch as they stand in it."""
    at = 0
    for _ in range(count):
        begin = at
        length, at = read_signed(body, at)
        end = at + length
        _, at = read_signed(body, at + 1)  # behind the attributes, how late it was
        offset_delta, at = read_signed(body, at)
        key, at = read_field(body, at, end)
        value, _ = read_field(body, at, end)
        yield RawRecord(body[begin:end], base_offset + offset_delta, key, value is None)
        at = end
