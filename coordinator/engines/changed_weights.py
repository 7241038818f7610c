"""Weights of partitions that are other ones since a plan."""

from __future__ import annotations

from itertools import compress
from operator import ne

from coordinator.core.state.groups import TopicList
from coordinator.core.state.plan_values import UNKNOWN
from coordinator.core.state.records import LoadsNoted

ChangedWeights = dict[str, dict[int, float | None]]


def find_changed_weights(
    before: LoadsNoted | None, after: LoadsNoted | None, topics: TopicList
) -> ChangedWeights | None:
    """Return weights that changed, by topic and partition; None where more than weights did.

    That is if capacities changed, a rule is or was in force, or weights are noted for the first
    time.
    """
    if before is after:
        return {}
    if before is None or after is None or not before.weights or not after.weights:
        return None
    if before.capacities != after.capacities:
        return None
    if any(loads.constraints or loads.drained for loads in (before, after)):
        return None
    had, has = ({one.topic: one.weights for one in loads.weights} for loads in (before, after))
    found: ChangedWeights = {}
    for topic in topics:
        name, size = topic.key.name, topic.partitions
        then, now = had.get(name, ()), has.get(name, ())
        if then is now:
            continue
        old, new = _fill(then, size), _fill(now, size)
        changed = compress(range(size), map(ne, old, new))
        weights = {at: new[at] if new[at] >= 0 else None for at in changed}
        if weights:
            found[name] = weights
    return found


def _fill(weights: tuple[float, ...], size: int) -> tuple[float, ...]:
    """Return the weights of so many partitions."""
    return weights[:size] + (UNKNOWN,) * (size - len(weights))
