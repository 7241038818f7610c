"""Load the state from a snapshot and the log, and write snapshots."""

from __future__ import annotations

import gc

from coordinator.core.events import TargetLost
from coordinator.core.state.groups import State
from coordinator.core.state.replay import replay_all, set_whole_target
from coordinator.core.state.state_records import records_of
from coordinator.core.state.target_assignment import NOT_READ
from coordinator.storage.record_log import LostTarget, RecordLog

MANY_RECORDS = 100_000


def load_state(log: RecordLog) -> tuple[State, int, int]:
    """Return the state that a log says, where reading began, and where it ended.

    A million members are millions of objects without a cycle among them: the garbage collector
    would look at all of them again and again while they come, and ever after. So it rests meanwhile
    and, where there are many, never looks at them again; few are left to it, for what is frozen
    with them is never collected.
    """
    state, began, position, count = State(), 0, 0, 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        for batch in log.replay():
            replay_all(state, batch.records)
            count += len(batch.records)
            began = began or batch.position
            position = batch.position
        if count >= MANY_RECORDS:
            gc.freeze()
    finally:
        if collecting:
            gc.enable()
    _recheck_topics(state)
    return state, began, position


def _recheck_topics(state: State) -> None:
    """Have groups look at all topics, as Kafka's do when their coordinator begins."""
    state.new_topics_version = state.topics_version
    for group in state.groups.values():
        group.noticed_hash = group.metadata_hash


def read_targets(state: State, log: RecordLog) -> list[TargetLost]:
    """Read the whole targets that a state names, and return what is to be said of those lost.

    The members of such a group keep what they have, until the next target is computed.
    """
    lost = []
    for group in state.groups.values():
        if group.targets.whole is NOT_READ:
            assert group.installed is not None
            try:
                set_whole_target(group, log.target(group.installed))
            except LostTarget as error:
                lost.append(TargetLost(group.group_id, str(error)))
    return lost


def write_snapshot(log: RecordLog, at_ms: int) -> int:
    """Replay the log beside the coordinator and write its state; returns the position.

    The live state is not touched: a snapshot of a million members takes seconds.
    """
    state, _, position = load_state(log)
    log.snapshot(records_of(state), position, at_ms)
    return position


def pack_log(log: RecordLog, at_ms: int) -> int:
    """Write a snapshot and compact the log, due or not; return the position."""
    position = write_snapshot(log, at_ms)
    log.maintain(pack=True)
    return position
