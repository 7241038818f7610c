"""Java's hash of a text, by which Kafka finds the partition of a group."""

from __future__ import annotations

from functools import lru_cache, reduce

HASHES = 2**32


def hash_text(text: str) -> int:
    """Return Java's String.hashCode, as an unsigned number of 32 bits."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return reduce(lambda known, unit: (31 * known + unit) % HASHES, units, 0)


@lru_cache(maxsize=100_000)
def place_of(group_id: str, partitions: int) -> int:
    """Return which of so many partitions has a group: Utils.abs(hashCode) % partitions.

    `Utils.abs` takes the least number, which has no opposite, to 0.
    """
    hashed = hash_text(group_id)
    signed = hashed - HASHES if hashed >= HASHES // 2 else hashed
    return (0 if signed == -HASHES // 2 else abs(signed)) % partitions
