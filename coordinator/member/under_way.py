"""What a member has begun and waits for: the answer to a heartbeat, and a step of the work."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.state.partition_spans import Spans
from coordinator.member.events import (
    AssignPartitions,
    CommitOffsets,
    LosePartitions,
    RevokePartitions,
)


@dataclass(frozen=True, slots=True)
class Sent:
    """The heartbeat that is not answered yet; `owned` is what the coordinator knows by it."""

    number: int
    at_ms: int
    owned: Spans
    leaves: bool


@dataclass(frozen=True, slots=True)
class Step:
    """The action with partitions that is not done yet."""

    number: int
    kind: type[CommitOffsets | RevokePartitions | AssignPartitions | LosePartitions]
    partitions: Spans
