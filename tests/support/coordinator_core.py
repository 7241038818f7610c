"""The coordinator's pure core under test: step and replay, with a clock and timers by hand.

Every event is stepped without the state changing, answered by the fast path exactly alike where it
answers at all, and replayed; then `invariants` must hold. On teardown the records, from zero and as
a snapshot, must make the same state again.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeat
from coordinator.core.events import (
    REBALANCE,
    SESSION,
    CatalogTopic,
    DescribeGroup,
    Heartbeat,
    HeartbeatResponse,
    RegexesResolved,
    ResolveRegexes,
    SetTimer,
    TimerFired,
    TopicsReported,
)
from coordinator.core.state.groups import State
from coordinator.core.state.records import MemberState
from coordinator.core.state.replay import keep_classic, note_waiting, replay
from coordinator.core.state_machine import step
from coordinator.errors import ErrorCode, GroupError
from tests.support import invariants
from tests.support.fingerprint import fingerprint
from tests.support.traces.event_history import EventHistory

INTERVAL = "group.consumer.assignment.interval.ms"
SESSION_MS = 45_000
REST_ROUNDS = 60


class Core:
    """One coordinator's core, with helpers that speak for the group "g"."""

    def __init__(self):
        self._kafka = {INTERVAL: 0}
        self.configure()
        self.state = State()
        self.now = 1_000_000
        self.history = EventHistory(self.config, self.now)
        self.records = []
        self.tasks = []
        self.timers = {}  # (kind, group, member) → (deadline, member epoch)
        self.catalog = {}
        self.given = {}  # member → {topic: partitions} as last answered
        self._ids = Counter()

    def configure(self, **kafka):
        """Change settings of Kafka's, given by name; those given before stay."""
        self._kafka |= kafka
        self.config = Config(kafka=kafka_config(self._kafka))

    # Events --------------------------------------------------------------------------------------

    def run(self, event):
        """Step and replay one event; returns its Result. A GroupError leaves everything alone."""
        before = fingerprint(self.state)
        rising = invariants.epochs(self.state)
        self.history.add(event, self.state, self.now)
        steady = (
            answer_steady_heartbeat(self.state, self.config, event)
            if isinstance(event, Heartbeat)
            else None
        )
        try:
            result = step(self.state, self.config, event, self.now)
        except GroupError:
            assert steady is None
            raise
        finally:
            assert fingerprint(self.state) == before, "a step changed the state"
        if steady is not None:
            assert (steady.records, steady.response) == (result.records, result.response)
        if not result.records and isinstance(event, Heartbeat):
            note_waiting(self.state, event.group_id, event.member_id)
        for record in result.records:
            replay(self.state, record)
        keep_classic(self.state, result.classic)
        self.records += result.records
        self.tasks += result.tasks
        for timer in result.timers:
            self._set(timer)
        with self.history.printed_on_failure():
            invariants.check(self.state)
            invariants.check_rising(rising, invariants.epochs(self.state))
        if isinstance(event, Heartbeat) and event.member_epoch >= 0:
            group = self.state.groups[event.group_id]
            assert group.noticed_hash == group.topics_hash, "the next heartbeat bumps again"
        return result

    def refused(self, event):
        """The error code with which an event is refused."""
        with pytest.raises(GroupError) as refused:
            self.run(event)
        return refused.value.code

    def beat(self, member, epoch=None, **fields):
        """Heartbeat; the epoch is the member's own unless given. Returns the response."""
        return self.beat_result(member, epoch, **fields).response

    def beat_result(self, member, epoch=None, **fields):
        """As `beat`, but returns the whole Result."""
        result = self.run(self.heartbeat(member, epoch, **fields))
        response = result.response
        assert isinstance(response, HeartbeatResponse)
        if response.assignment is not None:
            self.given[member] = lists(response.assignment)
        return result

    def heartbeat(self, member, epoch=None, *, owned=None, names=None, group="g", **fields):
        """The event of a heartbeat."""
        if epoch is None:
            epoch = self.member(member, group).epoch
        return Heartbeat(
            group, member, epoch, topic_partitions=owned, subscribed_topic_names=names, **fields
        )

    def join(self, member, *names, **fields):
        """Join with these topics."""
        return self.beat(member, 0, names=names, **JOINING | fields)

    def joining(self, member, *names, **fields):
        """The event of a join."""
        return self.heartbeat(member, 0, names=names, **JOINING | fields)

    def acknowledge(self, member, **fields):
        """Heartbeat owning exactly what was last answered."""
        return self.beat(member, owned=self.given.get(member, {}), **fields)

    def settle(self, group="g"):
        """Let all members that are there heartbeat, owning what they were given, until all rest."""
        for _ in range(REST_ROUNDS):
            present = [m for m in self.state.groups[group].members.values() if m.epoch > 0]
            written = [
                self.beat_result(
                    m.member_id, owned=self.given.get(m.member_id, {}), group=group
                ).records
                for m in present
            ]
            if not any(written):
                return
        pytest.fail(f"group {group} does not come to rest in {REST_ROUNDS} rounds of heartbeats")

    def topics(self, delete=(), racks=None, **partitions):
        """Set partition counts; a topic that was deleted comes back under another id."""
        for name in delete:
            del self.catalog[name]
            self._ids[name] += 1
        for name, count in partitions.items():
            found = racks if racks is not None else ()
            self.catalog[name] = CatalogTopic(f"{name}-{self._ids[name]}", count, found)
        return self.run(TopicsReported(dict(self.catalog)))

    def advance(self, ms):
        """Move the clock; timers fire each at its instant. Returns {(kind, member): reason}."""
        end = self.now + ms
        fired = {}
        while due := [key for key, (at, _) in self.timers.items() if at <= end]:
            key = min(due, key=lambda found: self.timers[found][0])
            at, epoch = self.timers.pop(key)
            self.now = max(self.now, at)
            kind, group, member = key
            fired[kind, member] = self.run(TimerFired(kind, group, member, epoch)).records
        self.now = end
        return fired

    def resolve(self):
        """Do the tasks of regexes that wait, by Python's own regular expressions."""
        waiting, self.tasks = self.tasks, []
        results = []
        for task in waiting:
            assert isinstance(task, ResolveRegexes)
            found = {
                regex: [name for name in self.state.topics if re.fullmatch(regex, name)]
                for regex in task.regexes
            }
            version = self.state.topics_version
            results.append(self.run(RegexesResolved(task.group_id, found, version, self.now)))
        return results

    def _set(self, timer):
        assert isinstance(timer, SetTimer)
        key = (timer.kind, timer.group_id, timer.member_id)
        if timer.unless_set and key in self.timers:
            return
        self.timers.pop(key, None)
        if timer.after_ms is not None:
            self.timers[key] = (self.now + timer.after_ms, timer.member_epoch)

    # Looking -------------------------------------------------------------------------------------

    @property
    def group(self):
        """The group "g"."""
        return self.state.groups["g"]

    def member(self, member, group="g"):
        """One member as the state has it."""
        return self.state.groups[group].members[member]

    def current(self, member):
        """(member epoch, state, what is assigned, what is pending)."""
        found = self.member(member).current
        return (found.member_epoch, found.state, lists(found.assigned), lists(found.pending))

    def target(self, member):
        """{topic: partitions} of a member's target assignment."""
        return lists(self.group.targets.get(member, ()))

    def runs(self, kind, member):
        """In how many ms a member's timer fires; None when it does not run."""
        found = self.timers.get((kind, "g", member))
        return None if found is None else found[0] - self.now

    def describe(self, group="g"):
        """ConsumerGroupDescribe."""
        return self.run(DescribeGroup(group)).response.fields()


JOINING = {"owned": {}, "rebalance_timeout_ms": 60_000}
"""What every join must give."""

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS
Code = ErrorCode
__all__ = ["REBALANCE", "SESSION", "STABLE", "UNRELEASED", "UNREVOKED", "Code", "Core"]


def kinds(result):
    """The kinds of a result's records."""
    return [type(record) for record in result.records]


def lists(spans):
    """{topic: partitions} of spans of either kind."""
    found = {}
    for key, first, end, *_ in spans:
        found.setdefault(key.name, []).extend(range(first, end))
    return found


@pytest.fixture
def group():
    """A core with the topics a (6 partitions) and b (2), for the group "g"."""
    core = Core()
    core.topics(a=6, b=2)
    yield core
    invariants.check_replays(core.state, core.records)
