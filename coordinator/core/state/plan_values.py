"""What records of weights and plans are made of."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from coordinator.core.state.record_fields import Int, Long

UNKNOWN = -1.0
"""The weight of a partition that none is known of."""


class TopicWeights(msgspec.Struct, frozen=True, gc=False):
    """The weights of a topic's partitions, in order; −1 is unknown."""

    topic: str
    weights: tuple[float, ...]


def weights_by_topic(found: Mapping[str, Mapping[int, float]]) -> tuple[TopicWeights, ...]:
    """Return the weights of partitions that are known, in the order of their topics' names."""
    return tuple(
        TopicWeights(topic, tuple(some.get(at, UNKNOWN) for at in range(max(some) + 1)))
        for topic, some in sorted(found.items())
    )


class MemberLoad(msgspec.Struct, frozen=True, gc=False):
    """What members of a name can take: an instance id, a client id, or a member id."""

    name: str
    capacity: float = 1.0
    state: str = "active"
    rack: str | None = None


class PlannedMove(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring partitions that a plan gives to another member; None is no member."""

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
    """Partitions that had no owner."""
    moved_weight: float = 0.0
    makespan_before: float = 0.0
    makespan_after: float = 0.0
    lower_bound: float | None = None
    distant_before: float = 0.0
    distant_after: float = 0.0
    weights_known: Long = 0
