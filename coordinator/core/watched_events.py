"""What the coordinator of a Kafka cluster wrote, and what it has no record for, as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.state.records import Record


class Unreadable(NamedTuple):
    """A record of Kafka's that cannot be decoded: of which group, at which offset, and why not."""

    group_id: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class KafkaWrote:
    """What the coordinator of a Kafka cluster wrote: Muster follows it, and decides nothing.

    Attributes
    ----------
    records
        Of one batch of Kafka's, which is one change of one group, in Kafka's order; or of several
        groups where no reason is looked for. They have no reasons.
    at_ms
        When Kafka wrote it, in ms since 1970.
    explains
        Whether reasons are inferred: not where the records are all that a compacted topic keeps.
    replaces
        Whether the records are all that the groups have, in place of what the store has of them.
    partitions
        How many Kafka's topic has, where the records are all of one of them: a group of that one
        which they do not name is gone. 0: it may be anywhere.
    session_ms
        Kafka's least session timeout of members of the consumer protocol.
    seen_ms
        When members of these groups were last seen to write something, by group and member.
    partition, offsets
        Of Kafka's topic, where the records are: one offset per record, or none if unknown.
    unreadable
        What was written with them and cannot be read: its group is left out.
    follows
        What must have been read of the partition before; None if all of it is read again.
    """

    records: tuple[Record, ...]
    at_ms: int
    explains: bool = True
    replaces: bool = False
    partitions: int = 0
    session_ms: int = 0
    seen_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    partition: int = -1
    offsets: tuple[int, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    follows: int | None = None


@dataclass(frozen=True, slots=True)
class KeepRecords:
    """Records of groups that Kafka's topic has none for, of a node that leads their partitions.

    The store of the node's history keeps them, and gives them back to the node's next coordinator
    of the groups.
    """

    records: Sequence[Record]
