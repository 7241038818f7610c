"""Heartbeats that change nothing but a session are answered without a step, as a step would."""

from __future__ import annotations

from itertools import product

import pytest

from coordinator.config import Config
from coordinator.core.classic.membership import find_steady_member
from coordinator.core.classic_events import ClassicHeartbeat, JoinGroup, Protocol, SyncGroup
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, SetTimer, TimerFired
from coordinator.core.state.groups import State
from coordinator.core.state.replay import keep_classic, replay
from coordinator.core.state_machine import step
from coordinator.errors import ErrorCode, GroupError

CONFIG = Config()
FIRES = TimerFired(JOIN_PHASE, "g", "", 0)


def join(name, instance_id=None):
    return JoinGroup(
        "g", "", "consumer", [Protocol("range", b"")], 10_000, 60_000, request_id=1,
        drawn_id=name, drawn_consumer_id="", instance_id=instance_id, knows_member_id=False,
    )  # fmt: skip


JOINS = [join("m1"), join("m2", "i2")]
SYNCS = [SyncGroup("g", "m2", 1, 2, {}), SyncGroup("g", "m1", 1, 3, {})]
STATES = {
    "PreparingRebalance": JOINS,
    "CompletingRebalance": [*JOINS, FIRES, FIRES],
    "Stable": [*JOINS, FIRES, FIRES, *SYNCS],
    "another rebalance": [*JOINS, FIRES, FIRES, *SYNCS, join("m3")],
}


@pytest.mark.parametrize("name", STATES)
def test_a_steady_heartbeat_is_what_a_step_decides(name):
    state, found = State(), 0
    for event in STATES[name]:
        result = step(state, CONFIG, event, 0)
        for record in result.records:
            replay(state, record)
        keep_classic(state, result.classic)
    for words in product(("g", "other"), ("m1", "m2", "m9", ""), (0, 1, 2), (None, "", "i2", "i9")):
        event = ClassicHeartbeat(*words)
        member = find_steady_member(state, event)
        try:
            decided = step(state, CONFIG, event, 0)
        except GroupError:
            assert member is None, event
            continue
        assert (member is not None) == (decided.response is ErrorCode.NONE), event
        if member is not None:
            found += 1
            session = SetTimer(HEARTBEAT, "g", event.member_id, member.session_timeout_ms)
            assert (decided.timers, decided.records, decided.classic) == ([session], [], ())
    assert found == (3 if name in {"CompletingRebalance", "Stable"} else 0)
