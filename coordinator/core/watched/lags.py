"""How far groups of a Kafka cluster are behind: noted as the weights of their partitions are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from coordinator.core.state.groups import State
from coordinator.core.state.plan_values import UNKNOWN, TopicWeights, weights_by_topic
from coordinator.core.state.records import LoadsNoted, Record, Tombstone

Place: TypeAlias = tuple[str, int]
"""A topic's name, and a partition."""


class Behind(NamedTuple):
    """What a store has that lags follow from.

    Attributes
    ----------
    committed
        Offsets by group.
    noted
        Lags by group, as they were noted last.
    """

    committed: dict[str, dict[Place, int]]
    noted: dict[str, tuple[TopicWeights, ...]]

    def places(self) -> set[Place]:
        """Return all partitions that some group has committed an offset of."""
        return {place for offsets in self.committed.values() for place in offsets}


def find_behind(state: State) -> Behind:
    """Return a copy of what lags follow from."""
    return Behind(
        {
            group_id: {place: one.offset for place, one in offsets.items()}
            for group_id, offsets in state.offsets.items()
        },
        {group_id: loads.weights for group_id, loads in state.loads.items()},
    )


def find_lags(state: State, group_id: str) -> dict[Place, int] | None:
    """Return the lags of a group that were noted last, without those that are not known.

    None where Muster coordinates the groups: its weights may be something else.
    """
    if state.watched is None:
        return None
    loads = state.loads.get(group_id)
    return {
        (one.topic, partition): int(lag)
        for one in (loads.weights if loads else ())
        for partition, lag in enumerate(one.weights)
        if lag != UNKNOWN
    }


def note_lags(behind: Behind, ends: Mapping[Place, int], now_ms: int) -> list[Record]:
    """Return records of the lags that differ from those that are noted, by group.

    A partition without a committed offset, or without a known end, has no lag: that is unknown, and
    not 0. A group without offsets has none.
    """
    records: list[Record] = []
    for group_id in sorted(behind.committed.keys() | behind.noted.keys()):
        lags: dict[str, dict[int, float]] = {}
        for place, offset in behind.committed.get(group_id, {}).items():
            end = ends.get(place)
            if end is not None:
                lags.setdefault(place[0], {})[place[1]] = float(max(end - offset, 0))
        found = weights_by_topic(lags)
        if found == behind.noted.get(group_id, ()):
            continue
        if found:
            records.append(LoadsNoted(group_id, found, timestamp=now_ms))
        else:
            records.append(Tombstone(LoadsNoted.kind, group_id))
    return records
