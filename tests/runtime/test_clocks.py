"""The wall clock jumps, here or between two machines: no deadline does."""

from __future__ import annotations

import time

import pytest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import (
    ConfigureGroup,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    PrepareAssignment,
    RegexesResolved,
    ResolveRegexes,
)
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from tests.support.members import processor_of

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
SESSION_MS = 45_000
INTERVAL_MS = 1_000
TIMEOUT_MS = 60_000
JUMPS = [HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS]


class Machine:
    """A coordinator on a machine whose wall clock is set now and then."""

    def __init__(self, storage=None, wall=1_800_000_000_000):
        self.wall, self.elapsed = wall, 0
        self.storage = storage or MemoryRecords()
        kafka = kafka_config({"group.consumer.assignment.interval.ms": INTERVAL_MS})
        log = MemoryLog(self.storage)
        log.claim("machine", "", self.wall)
        self.processor = EventProcessor(
            log,
            Config(kafka=kafka, engine=EngineConfig(timeout_ms=TIMEOUT_MS)),
            lambda: self.wall,
            DictCatalog({"a": 4, "ab": 2}),
            monotonic=lambda: self.elapsed,
        )
        self.processor.load()

    def after(self, ms):
        """Let time pass, and fire what is due."""
        self.wall += ms
        self.elapsed += ms
        self.processor.tick()

    def ask(self, event):
        (answer,) = self.processor.run([event])
        return answer.response

    def beat(self, member, epoch, **fields):
        return self.ask(Heartbeat("g", member, epoch, **fields))

    def join(self, member, **fields):
        fields = {"subscribed_topic_names": ("a",)} | fields
        return self.beat(member, 0, rebalance_timeout_ms=30_000, topic_partitions={}, **fields)

    @property
    def group(self):
        return self.processor.state.groups["g"]


@pytest.fixture
def machine():
    return Machine()


@pytest.mark.parametrize("jump", JUMPS)
def test_session_timeouts_survive_clock_changes(machine, jump):
    machine.join("m1")
    machine.after(SESSION_MS - 1)
    machine.wall += jump
    machine.after(0)
    assert set(machine.group.members) == {"m1"}
    machine.after(1)
    assert set(machine.group.members) == set()


@pytest.mark.parametrize("jump", JUMPS)
def test_rebalance_timeouts_survive_clock_changes(machine, jump):
    machine.join("m1")
    machine.after(INTERVAL_MS)
    machine.join("m2")
    machine.beat("m1", 2, topic_partitions={"a": [0, 1, 2, 3]})  # it has to revoke two
    machine.wall += jump
    machine.after(29_999)
    assert set(machine.group.members) == {"m1", "m2"}
    machine.after(1)
    assert set(machine.group.members) == {"m2"}


@pytest.mark.parametrize("jump", JUMPS)
def test_assignment_intervals_survive_clock_changes(machine, jump):
    machine.join("m1")
    machine.wall += jump
    machine.join("m2")
    assert (machine.group.epoch, machine.group.assignment_epoch) == (3, 2)
    machine.after(INTERVAL_MS - 1)
    machine.beat("m2", 2)
    assert machine.group.assignment_epoch == 2
    machine.after(1)
    machine.beat("m2", 2)
    assert machine.group.assignment_epoch == 3


@pytest.mark.parametrize("jump", JUMPS)
def test_a_fresh_offset_does_not_expire(machine, jump):
    machine.ask(OffsetCommit("simple", "", -1, {"a": {0: (7, "")}}))
    machine.wall += jump
    machine.ask(OffsetCommit("simple", "", -1, {"a": {1: (8, "")}}))
    machine.after(HOUR_MS)
    kept = machine.ask(OffsetFetch("simple"))["a"]
    assert (kept[0].offset, kept[1].offset) == (7, 8)
    assert kept[1].commit_timestamp - kept[0].commit_timestamp == jump


@pytest.mark.parametrize("jump", JUMPS)
def test_the_log_says_the_wall_clocks_time_and_never_an_earlier_one(machine, jump):
    before = machine.storage.batches[-1].at_ms
    machine.wall += jump
    machine.join("m1")
    at_ms = machine.storage.batches[-1].at_ms
    assert at_ms == machine.wall if jump >= 0 else before < at_ms < before + HOUR_MS


# On another machine ------------------------------------------------------------------------------


@pytest.fixture
def successor(machine):
    """Return what makes the coordinator on another machine, whose clock is an hour behind."""
    return lambda: Machine(machine.storage, machine.wall - HOUR_MS)


def test_a_target_from_the_future_does_not_hold_up_the_next_one(machine, successor):
    machine.join("m1")
    other = successor()
    other.join("m2")
    assert (other.group.epoch, other.group.assignment_epoch) == (3, 3)


@pytest.mark.parametrize(
    ("ahead_ms", "assignment_epoch"),
    [(0, 2), (5_000, 2), (HOUR_MS, 3)],
)
def test_a_computation_is_awaited_twice_as_long_as_it_may_take(machine, ahead_ms, assignment_epoch):
    """A clock that was ahead by more than that makes it begin again."""
    machine.join("m1")
    machine.join("m2")
    machine.ask(PrepareAssignment("g", "of an external computer"))
    machine.after(INTERVAL_MS)
    other = Machine(machine.storage, machine.wall - ahead_ms)
    other.beat("m2", 2)
    assert (other.group.epoch, other.group.assignment_epoch) == (3, assignment_epoch)


def test_regexes_resolved_in_the_future_are_resolved_again(machine, successor):
    machine.join("m1", subscribed_topic_names=None, subscribed_topic_regex="a.*")
    (task,) = machine.processor.take_tasks()
    assert isinstance(task, ResolveRegexes)
    event = prepare_resolution(machine.processor, task)()
    assert isinstance(event, RegexesResolved)
    machine.ask(event)
    other = successor()
    other.beat("m1", other.group.members["m1"].epoch)
    assert [type(task) for task in other.processor.take_tasks()] == [ResolveRegexes]


def test_settings_of_groups_know_no_time(machine, successor):
    machine.ask(ConfigureGroup("g", {"consumer.session.timeout.ms": "50000"}))
    machine.join("m1")
    other = successor()
    other.after(50_000)
    assert set(other.group.members) == {"m1"}
    other.after(500)  # check_ms: the one before may have confirmed it for so long
    assert set(other.group.members) == set()


# As it is installed ------------------------------------------------------------------------------


def test_the_machines_own_clock_may_be_set(monkeypatch):
    with Coordinator.open(None, topics={"a": 1}) as coordinator:
        joined = coordinator.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
            subscribed_topic_names=["a"], topic_partitions={},
        )  # fmt: skip
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() + HOUR_MS * 1_000_000)
        coordinator.tick()
        beat = coordinator.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=joined.member_epoch
        )
        assert beat.member_epoch == joined.member_epoch


@pytest.mark.parametrize(("clock", "most"), [({}, 3), ({"clock": lambda: 1_000_000}, 100)])
def test_an_idle_loop_wakes_rarely_unless_its_clock_may_be_set(clock, most):
    """A node has hundreds of loops: at 50 ms each, 1,000 took a core."""
    with Coordinator.open(None, topics={"t": 1}, **clock) as coordinator:
        waits, wait_ms = [], processor_of(coordinator).wait_ms
        processor_of(coordinator).wait_ms = lambda most: waits.append(most) or wait_ms(most)
        time.sleep(0.6)
        assert len(waits) <= most
        assert clock == {} or len(waits) >= 4
