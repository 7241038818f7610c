"""Load the state from a snapshot and the log, and write snapshots."""

from __future__ import annotations

from coordinator.core.events import TargetLost
from coordinator.core.state.groups import State
from coordinator.core.state.replay import set_whole_target
from coordinator.core.state.state_records import StateRecords
from coordinator.core.state.target_assignment import NOT_READ
from coordinator.storage.loaded_state import LoadedState
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import LostTarget, RecordLog


def load_state(log: RecordLog) -> tuple[State, int, int]:
    """Return the state that a log says, where reading began, and where it ended."""
    ahead = log.take_ahead() if isinstance(log, LogAhead) else None
    loaded, batches = ahead or (LoadedState(), log.replay())
    loaded.read(batches)
    state = loaded.state
    _recheck_topics(state)
    return state, loaded.began, loaded.position


def _recheck_topics(state: State) -> None:
    """Have groups look at all topics, as Kafka's do when their coordinator begins."""
    state.new_topics_version = state.topics_version
    for group in state.groups.values():
        group.noticed_hash = group.metadata_hash


def read_targets(state: State, log: RecordLog) -> list[TargetLost]:
    """Read the whole targets that a state names, and return the events for those that are lost.

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
    log.snapshot(StateRecords(state), position, at_ms)
    return position


def pack_log(log: RecordLog, at_ms: int) -> int:
    """Write a snapshot and compact the log, due or not; return the position."""
    position = write_snapshot(log, at_ms)
    log.maintain(pack=True)
    return position
