"""Choose a group's protocol: each member votes for its first protocol that all members support.

Kafka breaks ties by Java's hash order of the names, and so does this module, so that a group that
is moved between them keeps its protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coordinator.core.java_hash import hash_text
from coordinator.core.state.classic_group import ClassicGroup

FIRST_TABLE, LOAD_PERCENT = 16, 75
"""Of java.util.HashMap: its initial number of buckets, and its load factor."""


def choose_protocol(group: ClassicGroup) -> str | None:
    """Return the protocol of the next generation, or None if members have none in common."""
    members = len(group.members)
    common = {name for name, count in group.supported.items() if count == members}
    votes: Counter[str] = Counter()  # a name may be ""
    for names, count in group.preferences.items():
        for name in [name for name in names if name in common][:1]:
            votes[name] += count
    order = list_as_hash_map(sorted(votes))
    return max(order, key=votes.__getitem__, default=None)


def list_as_hash_map(names: Sequence[str]) -> list[str]:
    """Return names in the iteration order of a java.util.HashMap, given in insertion order."""
    buckets = FIRST_TABLE
    while len(names) * 100 > buckets * LOAD_PERCENT:
        buckets *= 2
    return sorted(names, key=lambda name: spread_hash(name) & (buckets - 1))


def spread_hash(name: str) -> int:
    """Return Java's String.hashCode, spread as a HashMap does."""
    code = hash_text(name)
    return code ^ (code >> 16)
