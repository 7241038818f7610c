"""Many steady heartbeats of one group as one batch."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.events import Answer, Heartbeat
from coordinator.runtime.event_processor import EventProcessor, Steady


def run_heartbeats(
    processor: EventProcessor,
    group_id: str,
    member_ids: Sequence[str],
    member_epochs: Sequence[int],
) -> list[Answer | Steady]:
    """Answer heartbeats in order, as `processor.run` would one by one, but many at a time.

    Steady ones next to each other share one answer, one look at the group, and one record.
    """
    answers: list[Answer | Steady] = []
    plain = _plain(group_id, member_ids, member_epochs)
    while len(answers) < len(member_ids):
        at = len(answers)
        if plain:
            answers += processor.run_steady(group_id, member_ids, member_epochs, at)
        if len(answers) == at:
            answers += processor.run([Heartbeat(group_id, member_ids[at], member_epochs[at])])
    return answers


def _plain(group_id: object, member_ids: Sequence[object], epochs: Sequence[object]) -> bool:
    """Whether a batch is made of the right types; else each of it is looked at by itself."""
    return (
        isinstance(group_id, str)
        and set(map(type, member_ids)) <= {str}
        and set(map(type, epochs)) <= {int}
    )
