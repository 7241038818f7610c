"""Count what each target of a watched group moves: Kafka's records do not say."""

from __future__ import annotations

import msgspec

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import (
    Spans,
    count_partitions,
    subtract_spans,
)
from coordinator.core.state.records import Record, TargetMember, TargetMetadata


class TargetMoves:
    """The moves of one batch of Kafka's.

    Parameters
    ----------
    state
        As it is before the batch.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._now: dict[str, dict[str, Spans]] = {}
        self._lost: dict[str, int] = {}

    def see(self, record: Record) -> Record:
        """Take the records in order; return that of a target with the number of its moves.

        A target that stands alone, as where a dump does not show batches, says nothing of them.
        """
        if isinstance(record, TargetMember):
            lost = self._count_lost(record)
            self._lost[record.group_id] = self._lost.get(record.group_id, 0) + lost
        elif isinstance(record, TargetMetadata) and record.group_id in self._lost:
            lost = self._lost.pop(record.group_id)
            if record.moved is None:
                return msgspec.structs.replace(record, moved=lost)
        return record

    def _count_lost(self, record: TargetMember) -> int:
        """Return how many partitions a member no longer has, not counting topics that are gone."""
        state, now = self._state, self._now.setdefault(record.group_id, {})
        before = now.get(record.member_id)
        if before is None:
            group = state.groups.get(record.group_id)
            before = () if group is None else group.targets.get(record.member_id) or ()
        now[record.member_id] = record.spans
        alive = (one for one in before if state.has_topic(one[0]) or not state.topics)
        return count_partitions(subtract_spans(alive, record.spans))
