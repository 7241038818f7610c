"""What a computation reads of its group is what the coordinator knew at that position."""

from __future__ import annotations

import json
import random

import pytest

from coordinator.config import LogConfig
from coordinator.core.replay import replay
from coordinator.core.state import State
from coordinator.core.state_records import records_of
from coordinator.errors import GroupError
from coordinator.history.group_snapshot import GroupSnapshot
from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.log_scan import LogScan
from coordinator.trace.player import TracePlayer
from tests.conftest import GOLDEN


def play(store, name, lines=60):
    """Play a golden trace onto a store."""
    trace = TracePlayer(lambda _config, _anew: DeltaLog.open(store, LogConfig(fsync=False)))
    for line in (GOLDEN / "traces" / f"{name}.jsonl").read_text().splitlines()[:lines]:
        trace.run(json.loads(line)["op"])
    trace.close()


def states(store, positions):
    """Replay the log, and yield the state at each of the positions."""
    state, wanted = State(), sorted(positions)
    at = 0
    for batch in read_log(store):
        for record in batch.records:
            replay(state, record)
        while wanted and wanted[0] <= batch.position:
            if wanted.pop(0) == batch.position:
                yield batch.position, state
        at = batch.position
    assert at


def same(snapshot, group, state):
    """Compare what was read with the state."""
    subscribed = {
        member_id: sorted(
            {*m.meta.subscribed_topic_names}
            | {*(group.regexes[r].topics if (r := m.meta.subscribed_topic_regex) in group.regexes else ())}
        )
        for member_id, m in group.members.items()
    }  # fmt: skip
    rows = snapshot.members.to_pylist()
    assert {row["member_id"]: snapshot.lists[row["label"]] for row in rows} == subscribed
    assert {row["member_id"]: row["instance_id"] for row in rows} == {
        member_id: m.meta.instance_id for member_id, m in group.members.items()
    }
    names = {name for found in snapshot.lists.values() for name in found}
    assert snapshot.topics == [state.topics[n] for n in sorted(names) if n in state.topics]
    assert (snapshot.group_epoch, snapshot.assignor) == (group.epoch, group.assignor)
    assert snapshot.spec().member_count == len(group.members)


@pytest.mark.parametrize("name", ["walk-01", "walk-12", "timers-regex-topics", "configs-racks"])
def test_group_at_any_position_equals_its_replay(tmp_path, name):
    play(tmp_path, name)
    ends = [batch.position for batch in read_log(tmp_path) if batch.records]
    chosen = [*random.Random(name).sample(ends, min(4, len(ends))), ends[-1]]
    log = DeltaLog.open(tmp_path, LogConfig(fsync=False))
    log.claim("test", "", 0)
    for position, state in states(tmp_path, chosen):
        for group_id, group in state.groups.items():
            same(GroupSnapshot(LogScan.of(tmp_path, position), group_id), group, state)
        log.snapshot(records_of(state), position, 0)  # the next ones read from here on
        again = LogScan.of(tmp_path, position)
        assert (again.after, len(again.snapshot)) == (position, 1)
        for group_id, group in state.groups.items():
            same(GroupSnapshot(again, group_id), group, state)


def test_a_snapshot_after_the_position_is_not_read(tmp_path):
    play(tmp_path, "walk-02", 40)
    log = DeltaLog.open(tmp_path, LogConfig(fsync=False))
    log.claim("test", "", 0)
    ends = [batch.position for batch in read_log(tmp_path) if batch.records]
    ((last, state),) = states(tmp_path, [ends[-1]])
    log.snapshot(records_of(state), last, 0)
    assert LogScan.of(tmp_path, ends[2]).after == 0
    assert LogScan.of(tmp_path).after == last


def test_unknown_group_is_refused(tmp_path):
    play(tmp_path, "walk-02", 10)
    with pytest.raises(GroupError, match="nobody not found"):
        GroupSnapshot(LogScan.of(tmp_path), "nobody")
