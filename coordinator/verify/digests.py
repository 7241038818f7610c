"""A digest of a state, independent of the order of its records."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from coordinator.core.state.records import ComputationPrepared, Record

BYTES = 8
_encoder = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(slots=True)
class StateDigest:
    """The number of records of a state by kind and group, and the sum of their hashes.

    Different states have equal sums with a probability of 2^-64. Computations are not counted: a
    snapshot drops one whose input has changed, even if the input changes back later.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, records: Iterable[Record]) -> None:
        """Add records to the counts and sums."""
        for record in records:
            if isinstance(record, ComputationPrepared):
                continue
            what = (record.kind, str(getattr(record, "group_id", "")))
            content = _encoder.encode((record.kind, record))
            found = hashlib.blake2b(content, digest_size=BYTES).digest()
            self.counts[what] += 1
            self.sums[what] = (self.sums[what] + int.from_bytes(found)) % (1 << 8 * BYTES)

    def difference(self, other: StateDigest) -> str | None:
        """Describe the first difference between two states, or return None if they are equal."""
        for kind, group_id in sorted(self.counts.keys() | other.counts.keys()):
            what = (kind, group_id)
            of = f" of group {group_id!r}" if group_id else ""
            if self.counts[what] != other.counts[what]:
                return f"{self.counts[what]} records {kind}{of}, not {other.counts[what]}"
            if self.sums[what] != other.sums[what]:
                return f"different records {kind}{of}"
        return None
