"""Every kind of event and of record has its words: a failure tells the last of them."""

from __future__ import annotations

from typing import get_args

import pytest

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    GroupsLoaded,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
)
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, REBALANCE, SESSION, SYNC_PHASE, Event
from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    Record,
    Tombstone,
)
from tests.support.traces.text import EVENTS, RECORDS, event_text, record_text, timer_text


def test_every_kind_of_event_and_of_record_has_its_words():
    assert set(get_args(Event)) == set(EVENTS)
    ours = {kind for kind in Record.__subclasses__() if kind.__module__ == Record.__module__}
    assert ours == set(RECORDS), "those of other modules are only of the log"


JOIN = JoinGroup(
    "g", "", "consumer", [Protocol("range", b"\0"), Protocol("sticky", b"")], 6_000, 60_000,
    request_id=1, drawn_id="m1", drawn_consumer_id="c1", instance_id="i1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            JOIN,
            "# join g a newcomer instance=i1 consumer: range sticky session=6000ms rebalance=60000ms",
        ),
        (SyncGroup("g", "m1", 2, 1, {}), "# sync g m1 generation=2"),
        (SyncGroup("g", "m1", 2, 1, {"m1": b"", "m2": b""}),
         "# sync g m1 generation=2 assigns m1, m2"),
        (ClassicHeartbeat("g", "m1", 2, "i1"), "# heartbeat g m1 instance=i1 generation=2"),
        (LeaveGroup("g", [Leaver("m1"), Leaver("", "i2")]), "# leave g m1, nobody instance=i2"),
        (LeaveGroup("g", []), "# leave g nobody"),
        (GroupsLoaded(), "# classic groups were loaded"),
    ],
)  # fmt: skip
def test_an_event_of_the_classic_protocol(event, words):
    assert event_text(event, State()) == words


def test_a_record_of_a_classic_group():
    members = (ClassicMemberWritten("m1"), ClassicMemberWritten("m2", "i2"))
    written = ClassicGroupWritten("g", 3, "consumer", "range", "m1", 0, members)
    assert record_text(written) == (
        "classic group at generation 3, consumer range, led by m1: m1, m2 instance=i2"
    )
    empty = ClassicGroupWritten("g")
    assert record_text(empty) == "classic group at generation 0, simple: nobody"
    ended = Tombstone(ClassicGroupWritten.kind, "g")
    assert record_text(ended) == "end of classic group of g"


def test_the_timers_of_both_kinds_of_group():
    assert [
        timer_text(SESSION, "m"), timer_text(HEARTBEAT, "m"), timer_text(REBALANCE, "m"),
        timer_text(JOIN_PHASE, ""), timer_text(SYNC_PHASE, "m"),
    ] == [
        "session timeout of m", "session timeout of m", "rebalance timeout of m",
        "join timeout", "sync timeout of m",
    ]  # fmt: skip
