"""Batches of records as a leader of some epoch writes them."""

from __future__ import annotations

from crc32c import crc32c

from coordinator.watcher.record_batches import CHECKED_FROM, HEAD


def batch(base, epoch, count=1, body=b"x"):
    """The bytes of a batch: `count` offsets from `base` on; its records are any bytes."""
    deltas = (count - 1, 0, 0, -1, -1, -1, count)
    checked = HEAD.pack(0, 0, 0, 0, 0, 0, *deltas)[CHECKED_FROM:] + body
    head = HEAD.pack(base, len(checked) + 9, epoch, 2, crc32c(checked), 0, *deltas)
    return head[:CHECKED_FROM] + checked
