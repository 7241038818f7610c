"""Traces of rebalances of classic groups: who joined late, and how long the leader took."""

from __future__ import annotations

import pytest

from coordinator.telemetry.classic_follower import OPEN_MAX, ClassicFollower
from tests.support.classic_core import ClassicCore


class Followed(ClassicCore):
    """The core with a classic group, and the traces of its rebalances."""

    def __init__(self, members_max=100, **kafka):
        self.traces = []
        self.follower = ClassicFollower(self.traces.append, members_max)
        super().__init__(**kafka)

    def run(self, event):
        """As `ClassicCore.run`, followed."""
        result = super().run(event)
        for group in result.classic:
            self.follower.follow(event, group, self.now)
        return result

    @property
    def last(self):
        """The last trace, as (name, since its begin, for how long) and who was waited for."""
        root = self.traces[-1].root
        phases = [
            (one.name, one.begin_ms - root.begin_ms, one.end_ms - one.begin_ms)
            for one in self.traces[-1].parts
            if one.name != "member"
        ]
        return phases, root.attributes.get("muster.waited_for")

    def moments(self, member):
        """What a member did in the last one, and when."""
        (span,) = [
            one for one in self.traces[-1].parts
            if one.attributes.get("muster.member.id") == member
        ]  # fmt: skip
        return [(one.at_ms - self.traces[-1].root.begin_ms, one.name) for one in span.moments]


def test_who_joins_late_was_waited_for():
    core = Followed()
    core.stable("m1", "m2")
    core.join("m3")
    core.advance(2_000)
    core.join("m1")
    core.advance(3_000)
    core.join("m2")
    core.advance(1_000)
    core.assign()
    phases, waited_for = core.last
    assert phases == [("join phase", 0, 5_000), ("sync phase", 5_000, 1_000)]
    assert waited_for == "m2"
    of = core.traces[-1].root.attributes
    assert (of["muster.waited_ms"], of["muster.generation"], of["muster.members"]) == (5_000, 2, 3)
    assert (of["muster.reason_codes"], of["muster.member.id"]) == (["member_joined"], "m3")
    assert of["muster.assignor"] == "leader"
    assert core.moments("m2") == [(5_000, "has joined"), (6_000, "has synced")]
    assert core.moments("m3") == [(0, "has joined"), (6_000, "has synced")]


def test_a_slow_leader_was_waited_for():
    core = Followed()
    core.stable("m1", "m2")
    core.join("m1")
    core.join("m2")
    core.advance(7_000)
    core.assign()
    phases, waited_for = core.last
    assert (phases, waited_for) == ([("join phase", 0, 0), ("sync phase", 0, 7_000)], core.g.leader)
    assert (7_000, "has sent the assignment") in core.moments(core.g.leader)


def test_who_never_joins_is_gone_and_was_waited_for_until_time_was_up():
    core = Followed()
    core.stable("m1", "m2", session_timeout_ms=300_000)
    core.join("m1")
    core.advance(60_000)  # the rebalance timeout
    core.assign()
    phases, waited_for = core.last
    assert phases[0] == ("join phase", 0, 60_000)
    assert waited_for == "m2"
    assert core.moments("m2") == [(60_000, "is gone")]


def test_a_generation_that_is_cancelled_joins_again_in_the_same_trace():
    core = Followed()
    core.stable("m1", "m2")
    before = len(core.traces)
    core.join("m1")
    core.join("m2")
    core.advance(1_000)
    core.join("m3")
    core.advance(1_000)
    core.join("m1")
    core.join("m2")
    core.assign()
    assert len(core.traces) == before + 1
    assert [name for name, *_ in core.last[0]] == ["join phase", "sync phase"] * 2


def test_a_group_whose_members_leave_is_over():
    core = Followed()
    core.stable("m1")
    core.join("m2")
    core.leave("m1", "m2")
    assert core.g.state.value == "Empty"
    assert core.traces[-1].root.attributes["muster.members"] == 0
    assert not core.follower._open


@pytest.mark.parametrize("shown", [1, 3])
def test_so_many_members_are_shown(shown):
    core = Followed(shown)
    names = [f"m{at}" for at in range(5)]
    core.stable(*names)
    core.join("m9")
    for name in names:
        core.advance(1_000)
        core.join(name)
    core.assign()
    of = core.traces[-1].root.attributes
    assert (of["muster.members"], of["muster.members_shown"]) == (6, shown)
    assert of["muster.waited_for"] == "m4"


def test_rebalances_that_never_end_are_forgotten():
    core = Followed()
    core.join("m1", version=4, member_id="")
    core.follower._open |= {f"other-{at}": None for at in range(OPEN_MAX)}
    core.stable("m1", "m2")
    assert len(core.follower._open) <= OPEN_MAX
    assert core.traces
