"""Timers: when members are given up, and the array that keeps all deadlines."""

from __future__ import annotations

import threading
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config import Config
from coordinator.core.events import ConfigureGroup, ExpireOffsets, Heartbeat, SetTimer, TimerFired
from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay_all
from coordinator.core.state.row_dict import MemberIndex
from coordinator.errors.status import Status
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.timers import EXPIRE, Deadlines, GroupTimers, SessionDeadlines
from tests.support.coordinator_core import REBALANCE, SESSION, SESSION_MS, UNRELEASED, UNREVOKED
from tests.support.coordinator_shell import Shell
from tests.support.invariants import replay_as_rows


def reasons(records):
    return [record.reason for record in records if isinstance(record, GroupMetadata)]


@pytest.mark.behaviour("G-70", "S-20")
def test_a_silent_member_is_removed_and_its_partitions_go_to_who_waits(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.advance(SESSION_MS - 1)
    group.acknowledge("m2")
    assert group.current("m2")[1:3] == (UNRELEASED, {})
    fired = group.advance(1)
    assert reasons(fired[SESSION, "m1"]) == ["session timeout"]
    assert [r.member_id for r in fired[SESSION, "m1"] if isinstance(r, Tombstone)] == ["m1"] * 3
    group.settle()
    assert group.given["m2"] == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-70", "G-143")
def test_a_group_has_its_own_session_timeout(group):
    group.run(ConfigureGroup("g", {"consumer.session.timeout.ms": "50000"}))
    group.join("m1", "a")
    assert group.runs(SESSION, "m1") == 50_000


@pytest.fixture
def revoking(group):
    """m1 is to give up half of topic a, has 5 s for it, and says nothing."""
    group.join("m1", "a", rebalance_timeout_ms=5_000)
    group.join("m2", "a")
    group.beat("m1")
    assert group.current("m1")[1:] == (UNREVOKED, {"a": [0, 1, 2]}, {"a": [3, 4, 5]})
    return group


@pytest.mark.behaviour("G-71", "G-65", "S-19")
def test_a_member_that_does_not_revoke_in_time_is_removed(revoking):
    assert revoking.runs(REBALANCE, "m1") == 5_000
    assert revoking.runs(REBALANCE, "m2") is None
    revoking.advance(4_999)
    revoking.beat("m1")  # alive, but it does not acknowledge: the timer runs on
    fired = revoking.advance(1)
    assert reasons(fired[REBALANCE, "m1"]) == ["rebalance timeout"]
    revoking.settle()
    assert revoking.given["m2"] == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-71")
def test_the_rebalance_timer_ends_with_the_revocation(revoking):
    revoking.acknowledge("m1")
    assert revoking.runs(REBALANCE, "m1") is None


@pytest.mark.behaviour("G-71")
def test_the_rebalance_timer_is_bound_to_the_member_epoch(revoking):
    epoch = revoking.member("m1").epoch
    revoking.acknowledge("m1")
    late = TimerFired(REBALANCE, "g", "m1", epoch)
    assert revoking.member("m1").epoch != epoch
    assert revoking.run(late).records == []
    assert "m1" in revoking.group.members


@pytest.mark.behaviour("G-71", "G-67")
def test_a_newer_target_that_takes_more_starts_the_rebalance_timer_again(revoking):
    revoking.advance(3_000)
    revoking.join("m3", "a")
    revoking.beat("m1", owned={"a": [0, 1, 2]})  # acknowledges; m3's part is to go next
    assert revoking.member("m1").current.state is UNREVOKED
    assert revoking.runs(REBALANCE, "m1") == 5_000


@pytest.mark.behaviour("G-70")
@pytest.mark.parametrize(("group_id", "member_id"), [("none", "m1"), ("g", "m9")])
def test_a_timer_of_a_removed_member_does_nothing(group, group_id, member_id):
    group.join("m1", "a")
    assert group.run(TimerFired(SESSION, group_id, member_id)).records == []


# After a load ------------------------------------------------------------------------------------


@pytest.mark.behaviour("G-73", "K-13", "S-9")
def test_after_a_load_everybody_has_a_full_session_and_who_revokes_a_full_rebalance_timeout():
    shell = Shell(a=6)
    first = shell.join("m1", "a", rebalance_timeout_ms=100_000).member_epoch
    shell.now += 1_000
    shell.join("m2", "a")
    shell.beat("m1", first)
    assert shell.member("m1").current.state is UNREVOKED
    shell.now += 30_000
    shell.reload()
    left = {due.key: (due.at_ms - shell.now, due.epoch) for due in shell.processor.timers.all()}
    session_ms = shell.config.lease.check_ms + SESSION_MS
    assert left == {
        (SESSION, "g", "m1"): (session_ms, 0),
        (SESSION, "g", "m2"): (session_ms, 0),
        (REBALANCE, "g", "m1"): (100_000, first),
        (EXPIRE, "", ""): (600_000, 0),
    }
    assert shell.advance(session_ms) == [(SESSION, "m1"), (SESSION, "m2")]


def test_a_member_confirmed_by_the_predecessor_keeps_its_full_session():
    """A coordinator that lost the store goes on confirming until it looks."""
    shell = Shell(a=6)
    epoch = shell.join("m1", "a").member_epoch
    before = shell.processor
    shell.advance(10)
    shell.beat("m1", epoch)
    shell.reload()
    newcomer = shell.join("m2", "a").member_epoch
    shell.advance(shell.config.lease.check_ms - 10)
    (confirmed,) = before.run([Heartbeat("g", "m1", epoch)])
    assert confirmed.response.member_epoch == epoch
    for ms in (20_000, SESSION_MS - 20_001):  # and m1 is never heard of again
        shell.advance(ms)
        assert shell.beat("m2", newcomer).assignment in {None, ()}
    shell.advance(20)
    assert sum(end - first for _, first, end in shell.beat("m2", newcomer).assignment) == 6


@pytest.mark.behaviour("G-77")
def test_offsets_are_looked_at_every_ten_minutes():
    assert Shell().advance(1_200_000) == [(EXPIRE, "")] * 2


def test_timers_rest_once_another_coordinator_has_the_store():
    shell = Shell(a=1)
    shell.join("m1", "a")
    old = shell.processor
    shell.reload()
    shell.now += 1_000
    old.run([ExpireOffsets()])
    assert old.status is Status.FENCED
    shell.now += 10_000_000
    assert old.tick() == []


class Sleeper(threading.Condition):
    """What the loop sleeps on: notes for how long, and returns at once."""

    def __init__(self):
        super().__init__()
        self.slept = []

    def wait(self, timeout=None):
        self.slept.append(timeout)


def test_the_loop_sleeps_no_longer_than_until_a_timer_is_due():
    shell = Shell(a=1)
    loop = EventLoop(shell.processor)
    loop._wake = sleeper = Sleeper()
    for after_ms in (30_000, 7, 0):
        shell.processor.timers.apply([SetTimer(SESSION, "g", "m1", after_ms)])
        loop._wait()
    shell.processor.status = Status.FENCED  # its timers rest
    loop._wait()
    assert sleeper.slept == [0.05, 0.007, 0, 0.05]


# The array ---------------------------------------------------------------------------------------

operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 80), st.integers(0, 100)),
        st.tuples(st.just("cancel"), st.integers(0, 80), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 110)),
    ),
    max_size=200,
)


def sessions_of_rows():
    """Deadlines in which half of the members have slots by their rows."""
    deadlines, index = SessionDeadlines(), MemberIndex()
    index.add(pa.array([f"m{number:02}" for number in range(0, 80, 2)]))
    deadlines.set(name_session(1), 7)
    deadlines.add_block("g", index)
    deadlines.cancel(name_session(1))
    return deadlines


def name_session(number):
    return SESSION, "g", f"m{number:02}"


@pytest.mark.parametrize(
    ("make", "name"),
    [(Deadlines, lambda number: number), (sessions_of_rows, name_session)],
    ids=["of any", "of rows"],
)
@given(done=operations)
def test_deadlines_equal_a_sorted_list(make, name, done):
    """The obvious twin: a dict, sorted by deadline and then by when it was set."""
    deadlines, twin = make(), {}
    for count, (operation, number, at) in enumerate(done):
        key = name(number)
        if operation == "set":
            deadlines.set(key, at, epoch=count)
            twin[key] = (at, count)
        elif operation == "cancel":
            deadlines.cancel(key)
            twin.pop(key, None)
        else:
            due = sorted((when, key) for key, when in twin.items() if when[0] <= at)
            found = deadlines.pop_due(at)
            assert [(one.at_ms, one.epoch, one.key) for one in found] == [
                (*when, key) for when, key in due
            ]
            for _, fired in due:
                del twin[fired]
        assert len(deadlines) == len(twin)
        assert (key in deadlines) == (key in twin)
        earliest = min((when for when, _ in twin.values()), default=None)
        until = 1_000 if earliest is None else earliest
        assert deadlines.wait_ms(0, 1_000) <= until
        assert deadlines.next_at() == earliest
        assert deadlines.wait_ms(20, 1_000) == max(until - 20, 0) if twin else 1_000
    assert [one.key for one in deadlines.all()] == sorted(twin, key=twin.get)


@pytest.mark.parametrize("seed", range(10))
def test_very_many_timers_are_set_as_one_by_one(seed):
    random = Random(seed)
    asked = [
        SetTimer(
            SESSION, "g", f"m{random.randrange(300)}", random.choice((None, 10, 20)),
            random.randrange(2), unless_set=random.random() < 0.3,
        )
        for _ in range(1_000)
    ]  # fmt: skip
    asked.sort(key=lambda timer: (timer.after_ms or 0) if seed % 2 else 0)  # long runs, short ones
    together, singly = (GroupTimers(Config(), lambda: 1_000) for _ in range(2))
    together.apply(asked)
    for timer in asked:
        singly.apply([timer])
    assert together.all() == singly.all()
    assert len(together.all()) > 100


def test_sessions_of_members_in_rows_are_those_of_any_members():
    """After a load, and when many of them beat; those that came later are among them."""
    names = [f"m{number}" for number in (3, 1, 12, 0, 5, 2)]
    records = [MemberMetadata("g", name, rebalance_timeout_ms=9) for name in names]
    records += [MemberMetadata("h", name) for name in names[:3]]
    records += [CurrentMember("g", name, 4, 3, UNREVOKED) for name in names[1:4]]
    later = [
        Tombstone(MemberMetadata.kind, "g", "m5"),
        MemberMetadata("g", "m9"),
        CurrentMember("g", "m1", 5, 4),
        CurrentMember("g", "m2", 5, 4, UNREVOKED),
    ]
    again = [MemberMetadata("g", name) for name in ("m5", "m", "m10")]
    for some in ([], later, later + again):
        states = State(), State()
        replay_all(states[0], [*records, *some])
        replay_as_rows(states[1], records)
        replay_all(states[1], some)
        found = []
        for state in states:
            timers = GroupTimers(Config(), iter(range(1_000, 2_000)).__next__)
            timers.start(state)
            found.append([timers.all()])
            for beats in (["m12", "m0"], ["m3", "m9", "m3"]):
                timers.extend_sessions(state, "g", beats)
                found[-1].append(timers.all())
        assert found[0] == found[1]
        assert len(found[0][0]) > len(names)


def test_expirations_per_iteration_are_bounded():
    timers = Deadlines()
    for number in range(5):
        timers.set(number, 10 - number)
    assert [due.key for due in timers.pop_due(9, most=2)] == [4, 3]
    assert [due.key for due in timers.pop_due(9, most=2)] == [2, 1]
    assert timers.pop_due(9, most=2) == []
    assert [due.key for due in timers.pop_due(10, most=2)] == [0]
