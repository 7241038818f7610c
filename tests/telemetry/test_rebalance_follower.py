"""Traces of rebalances: the same rebalances and waits as the views of the log have."""

from __future__ import annotations

from itertools import groupby

import pytest

from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    TargetMetadata,
)
from coordinator.core.state.replay import replay
from coordinator.history import frame
from coordinator.telemetry.rebalance_follower import RebalanceFollower
from tests.support.stories import NOON, STORIES, Story, played, stored

WALKS = [f"walk-{number:02}" for number in range(3, 13)]


class Followed:
    """A log, and the traces of its rebalances."""

    def __init__(self, members_max=100):
        self.traces = []
        self.state = State()
        self.follower = RebalanceFollower(self.traces.append, members_max, lambda: self.state)

    def play(self, batches):
        """Follow batches of a log, those of one time as one: between them is no moment."""
        for at_ms, some in groupby(batches, lambda batch: batch.at_ms):
            records = [record for batch in some for record in batch.records]
            for record in records:
                replay(self.state, record)
            self.follower.committed(records, at_ms)
        return self


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    lives = [story().batches for story in STORIES] + [played(walk, walk) for walk in WALKS]
    return lives, stored(
        [batch for life in lives for batch in life], tmp_path_factory.mktemp("store")
    )


@pytest.fixture(scope="module")
def traces(store):
    return [trace for life in store[0] for trace in Followed().play(life).traces]


def ms(time):
    return round(time.timestamp() * 1000)


def test_rebalances_are_those_of_the_view(store, traces):
    waits = frame(store[1], "waits").to_pylist()

    def waited_for(row):  # the view also names who was waited for in no time, or before it began
        return any(
            (one["group_id"], one["member_id"]) == (row["group_id"], row["waited_for"])
            and one["seconds"] and row["recorded_at"] <= one["since"] and one["until"] <= row["settled_at"]
            for one in waits
        )  # fmt: skip

    wanted = {
        (row["group_id"], row["group_epoch"], ms(row["recorded_at"])): (
            row["last_epoch"], row["epochs"], ms(row["settled_at"]), row["moved"] or 0,
            row["waited_for"] if waited_for(row) else None, row["reason_codes"][0],
        )
        for row in frame(store[1], "rebalances").to_pylist()
        if row["seconds"] is not None
    }  # fmt: skip
    found = {}
    for trace in traces:
        of, root = trace.root.attributes, trace.root
        key = of["messaging.consumer.group.name"], of["muster.group.epoch"], root.begin_ms
        found[key] = (
            of["muster.group.last_epoch"], of["muster.epochs"], root.end_ms, of["muster.moved"],
            of.get("muster.waited_for"), of["muster.reason_codes"][0],
        )  # fmt: skip
    for key in [key for key, trace in zip(found, traces, strict=True) if is_gone(trace)]:
        # with its wait, the view counts the time before the rebalance, and not the last moment
        found[key], wanted[key] = (one[key][:4] for one in (found, wanted))
    assert found == wanted
    assert len(found) == len(traces) > 20


def is_gone(trace):
    """Whether the member that was waited for is gone in the end."""
    return any(
        span.attributes.get("muster.member.id") == trace.root.attributes.get("muster.waited_for")
        and span.moments and span.moments[-1].name == "is gone"
        for span in trace.parts
    )  # fmt: skip


def test_waits_are_those_of_the_view(store, traces):
    longest = {}
    for row in frame(store[1], "waits").to_pylist():
        if row["until"] is not None:
            key = row["group_id"], row["member_id"], ms(row["until"])
            longest[key] = round(row["seconds"] * 1000)
    found = {}
    for trace in traces:
        group_id = trace.root.attributes["messaging.consumer.group.name"]
        for span in trace.parts:
            waited_ms = span.attributes.get("muster.waited_ms")
            if waited_ms and span.moments[-1].name != "is gone":  # as above
                found[group_id, span.attributes["muster.member.id"], waited_ms] = span
    wanted = {(group_id, member_id, ms) for (group_id, member_id, _), ms in longest.items()}
    assert found.keys() <= wanted
    assert len(found) > 10


def test_a_trace_shows_who_was_waited_for_and_what_for():
    story = Story("shipping").topics(parcels=4)
    story.at(-1).join("s1", "parcels").hold_on("s1").at(0).join("s2", "parcels").at(2)
    traces = Followed().play(story.batches).traces
    trace = traces[-1]
    assert (trace.root.begin_ms, trace.root.end_ms) == (NOON, NOON + 60_000)
    assert trace.root.attributes["muster.waited_for"] == "s1"
    assert trace.root.attributes["muster.waited_ms"] == 60_000
    assert trace.root.attributes["muster.reason_codes"] == ["member_joined", "rebalance_timeout"]
    (s1,) = [one for one in trace.parts if one.attributes.get("muster.member.id") == "s1"]
    assert [(one.at_ms - NOON, one.name) for one in s1.moments] == [
        (0, "must revoke"),
        (60_000, "is gone"),
    ]
    assert s1.moments[0].attributes == {"muster.partitions": 2}
    (s2,) = [one for one in trace.parts if one.attributes.get("muster.member.id") == "s2"]
    assert [one.name for one in s2.moments] == ["waits for partitions of others", "has its target"]
    assert "muster.waited_ms" not in s2.attributes or not s2.attributes["muster.waited_ms"]
    assert [one.name for one in trace.parts].count("target") == 2


def test_of_very_many_members_few_are_shown_and_all_are_counted():
    members, shown = 3_000, 5
    story = Story("large").topics(numbers=1)
    followed = Followed(shown).play(story.batches)
    now = NOON
    records = [GroupMetadata("large", 2, 0, "member joined")]
    records += [MemberMetadata("large", f"m{at}") for at in range(members)]
    records += [CurrentMember("large", f"m{at}", 1) for at in range(members)]
    records += [TargetMetadata("large", 2, now, "uniform")]
    for at_ms, more in (
        (now, records),
        (now + 1_000, [MembersAdvanced("large", 2, tuple(f"m{at}" for at in range(members - 3)))]),
        (
            now + 9_000,
            [CurrentMember("large", f"m{at}", 2, 1) for at in range(members - 3, members)],
        ),
    ):
        for record in more:
            replay(followed.state, record)
        followed.follower.committed(more, at_ms)
    (trace,) = followed.traces
    assert trace.spans == 1 + 1 + shown  # the target is one
    assert trace.root.attributes["muster.members_shown"] == shown
    assert trace.root.attributes["muster.waited_ms"] == 9_000
    latest = [one.attributes["muster.member.id"] for one in trace.parts[1:4]]
    assert latest == [f"m{at}" for at in range(members - 3, members)]


def test_a_successor_tells_of_what_it_took_over():
    story = Story("shipping").topics(parcels=4)
    story.at(-1).join("s1", "parcels").hold_on("s1").at(0).join("s2", "parcels").at(0.5)
    before = len(story.batches)
    story.at(2)
    followed = Followed().play(story.batches[:before])
    assert len(followed.traces) == 1  # when s1 came
    followed.follower.end()
    followed.follower.begin(NOON + 40_000)
    followed.play(story.batches[before:])
    taken = followed.traces[1]
    assert taken.root.begin_ms == NOON + 40_000
    assert taken.root.attributes["muster.reason"] == "taken over, rebalance timeout"
    assert taken.root.attributes["muster.waited_for"] == "s1"
