"""A digest of a state, independent of the order of its records."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from coordinator.core.records import ComputationPrepared, Record

BYTES = 8
_encoder = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(slots=True)
class StateDigest:
    """The records of a state: their number by kind and group, and the sum of their hashes.

    Of equal sums states are equal but for a chance of one in 2^64. Computations are left out: a
    snapshot does not keep one whose input has changed, even where it changes back later.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, records: Iterable[Record]) -> None:
        """Count records in."""
        for record in records:
            if isinstance(record, ComputationPrepared):
                continue
            what = (record.kind, str(getattr(record, "group_id", "")))
            content = _encoder.encode((record.kind, record))
            found = hashlib.blake2b(content, digest_size=BYTES).digest()
            self.counts[what] += 1
            self.sums[what] = (self.sums[what] + int.from_bytes(found)) % (1 << 8 * BYTES)

    def difference(self, other: StateDigest) -> str | None:
        """Return where two states differ first, in words; None when they do not."""
        for kind, group_id in sorted(self.counts.keys() | other.counts.keys()):
            what = (kind, group_id)
            of = f" of group {group_id!r}" if group_id else ""
            if self.counts[what] != other.counts[what]:
                return f"{self.counts[what]} records {kind}{of}, not {other.counts[what]}"
            if self.sums[what] != other.sums[what]:
                return f"other records {kind}{of}"
        return None
