"""What records of weights and plans are made of."""

from __future__ import annotations

import msgspec

from coordinator.core.state.record_fields import Int, Long


class TopicWeights(msgspec.Struct, frozen=True, gc=False):
    """The weights of a topic's partitions, in order; −1 is unknown."""

    topic: str
    weights: tuple[float, ...]


class MemberLoad(msgspec.Struct, frozen=True, gc=False):
    """What members of a name can take: an instance id, a client id, or a member id."""

    name: str
    capacity: float = 1.0
    state: str = "active"
    rack: str | None = None


class PlannedMove(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring partitions that a plan gives to another member; None is nobody."""

    topic: str
    topic_id: str
    first_partition: Int
    partition_count: Int
    from_member_id: str | None = None
    to_member_id: str | None = None


class PlanSummary(msgspec.Struct, frozen=True, gc=False):
    """What a plan does; weights and makespans in the unit of the weights."""

    members: Long = 0
    partitions: Long = 0
    moved: Long = 0
    """Partitions that are taken from a member."""
    placed: Long = 0
    """Partitions that nobody owned."""
    moved_weight: float = 0.0
    makespan_before: float = 0.0
    makespan_after: float = 0.0
    lower_bound: float | None = None
    distant_before: float = 0.0
    distant_after: float = 0.0
    weights_known: Long = 0
