"""The coordinator assigns for classic members: balanced, with few moves, no partition with two owners."""

from __future__ import annotations

from random import Random

import pytest

from assignors.loads.constraints import ConstraintRow
from coordinator.config import Config
from coordinator.config.kafka import CLASSIC_ASSIGNOR, kafka_config
from coordinator.core.classic_events import JoinGroup, LeaveGroup, Leaver, Protocol, SyncGroup
from coordinator.core.events import (
    JOIN_PHASE,
    CatalogTopic,
    ConfigureGroup,
    ReportLoads,
    TimerFired,
    TopicsReported,
)
from coordinator.core.state.classic_group import ClassicState
from coordinator.core.state.embedded import (
    Assignment,
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from coordinator.core.state.groups import State
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import LoadsNoted
from coordinator.core.state.replay import keep_classic, replay
from coordinator.core.state.state_records import records_of
from coordinator.core.state_machine import step
from coordinator.errors import ErrorCode, GroupError
from tests.support.fingerprint import fingerprint

COOPERATIVE = "cooperative-sticky"
LEADERS = write_assignment(Assignment(0, {"of the leader": [7]}))


class Consumers:
    """Consumers of the group "g" as clients play them, and the core that answers."""

    def __init__(self, assignor="uniform", protocol="range", seed=0, racks=None, **topics):
        kafka = {DELAY: 0, "group.consumer.assignors": ["uniform", "range", "sticky", "weighted"]}
        self.state, self.config = State(), Config(kafka=kafka_config(kafka))
        self.protocol, self.random = protocol, Random(seed)
        self.now = 1_000
        self.has = {}  # member → {topic: partitions}
        self.topics = {}  # member → what it subscribes to
        self.number = 0
        self.records = []
        self.racks = {}  # member → its rack
        there = {
            name: CatalogTopic(f"id-{name}", count, (racks or {}).get(name, ()))
            for name, count in topics.items()
        }
        self.run(TopicsReported(there))
        if assignor:
            self.run(ConfigureGroup("g", {CLASSIC_ASSIGNOR: assignor}))

    def run(self, event):
        before = fingerprint(self.state)
        result = step(self.state, self.config, event, self.now)
        assert fingerprint(self.state) == before, "a step changed the state"
        for record in result.records:
            replay(self.state, record)
        keep_classic(self.state, result.classic)
        self.records += result.records
        return result

    @property
    def group(self):
        return self.state.classic["g"]

    def metadata(self, member):
        """Return what a member tells: an eager one has given up all that it had."""
        owned = self.has[member] if COOPERATIVE in self.protocol else {}
        return write_subscription(
            Subscription(
                3, self.topics[member], None, owned, self.group_generation(),
                self.racks.get(member),
            )
        )  # fmt: skip

    def group_generation(self):
        found = self.state.classic.get("g")
        return found.generation if found else -1

    def join(self, member, *topics, metadata=None):
        """Let a member join; it is answered when all have."""
        self.topics[member] = topics or self.topics[member]
        if member not in self.has or COOPERATIVE not in self.protocol:
            self.has[member] = {}
        self.number += 1
        raw = self.metadata(member) if metadata is None else metadata
        known = "g" in self.state.classic and member in self.group.members
        self.run(
            JoinGroup(
                "g", member if known else "", "consumer", [Protocol(self.protocol, raw)],
                session_timeout_ms=10_000, rebalance_timeout_ms=60_000, request_id=self.number,
                drawn_id=member, drawn_consumer_id="", knows_member_id=False,
            )
        )  # fmt: skip

    def end_join_phase(self):
        for _ in range(2):  # a first generation waits once more when a member came
            if self.group.state is ClassicState.PREPARING:
                self.run(TimerFired(JOIN_PHASE, "g", "", self.group.generation))

    def leave(self, member):
        self.run(LeaveGroup("g", [Leaver(member)]))
        del self.has[member], self.topics[member]

    def sync(self):
        """Let all send their SyncGroup, and act on the answers, in any order; return who moved."""
        self.end_join_phase()
        generation, answers, number_of = self.group.generation, {}, {}
        members = list(self.group.members)
        self.random.shuffle(members)
        for member in members:
            self.number += 1
            number_of[self.number] = member
            given = {member: LEADERS} if member == self.group.leader else {}
            result = self.run(SyncGroup("g", member, generation, self.number, given))
            answers |= {number_of[number]: answer for number, answer in result.completed}
            if hasattr(result.response, "assignment"):
                answers[member] = result.response
        assert answers.keys() == set(members)
        self.random.shuffle(members)
        again = []
        for member in members:
            assert answers[member].error_code == 0
            given = answers[member].assignment
            new = read_assignment(given).partitions if given else {}
            new = {topic: list(partitions) for topic, partitions in new.items()}
            lost = any(p not in new.get(t, ()) for t, ps in self.has[member].items() for p in ps)
            self.has[member] = new
            self.nothing_is_in_two_hands()
            again += [member] if lost else []
        return again

    def nothing_is_in_two_hands(self):
        held = [(t, p) for has in self.has.values() for t, ps in has.items() for p in ps]
        assert len(held) == len(set(held)), self.has

    def rebalance(self, *members):
        """Let these join, then all others, and go on until no member joins again; say how often."""
        for rounds in range(1, 5):
            for member in members:
                self.join(member)
            for member in self.group.members:
                if self.group.state is ClassicState.PREPARING and member not in members:
                    self.join(member)
            members = self.sync()
            if not members:
                return rounds
        raise AssertionError("they rebalance endlessly")

    def enter(self, *members, topics=("t",)):
        for member in members:
            self.topics[member], self.has[member] = topics, {}
        return self.rebalance(*members)

    def loads(self):
        return sorted(sum(map(len, has.values())) for has in self.has.values())


DELAY = "group.initial.rebalance.delay.ms"


@pytest.mark.parametrize("assignor", ["uniform", "range", "sticky"])
@pytest.mark.parametrize("protocol", ["range", COOPERATIVE])
@pytest.mark.parametrize("seed", range(3))
def test_members_get_what_the_assignor_says(assignor, protocol, seed):
    group = Consumers(assignor, protocol, seed, t=12, u=6)
    assert group.enter("a", "b", topics=("t", "u")) == 1
    assert group.loads() == [9, 9]
    rounds = group.enter("c", topics=("t", "u"))
    assert rounds == (2 if protocol == COOPERATIVE else 1)
    assert group.loads() == [6, 6, 6]
    written = group.records[-1]
    assert (written.assignor, written.generation) == (assignor, group.group.generation)
    group.leave("b")
    group.rebalance()
    assert group.loads() == [9, 9]


@pytest.mark.parametrize("protocol", ["range", COOPERATIVE])
def test_partitions_stay_in_the_racks_that_members_name_when_they_join(protocol):
    """A rack is in the subscription of a JoinGroup, version 3; replicas are the catalog's."""
    racks = [(("r1",), ("r2",))[at % 2] for at in range(12)]
    group = Consumers("weighted", protocol, racks={"t": tuple(racks)}, t=12)
    group.racks = {"a": "r1", "b": "r2", "c": "r2"}
    group.enter("a", "b", "c")
    assert group.loads() == [4, 4, 4]
    far = sum(racks[p][0] != group.racks[m] for m, has in group.has.items() for p in has["t"])
    assert far == 2  # each is to have four, and only one of three is in the rack of six


def test_weights_and_constraints_are_heeded_until_they_end():
    group = Consumers("weighted", "range", t=6)
    weights = (TopicWeights("t", (4.0, 1.0, 1.0, 1.0, 1.0, 1.0)),)
    rules = [
        ConstraintRow("exclude", "t/0", "b", until_ms=2_000),
        ConstraintRow("exclude", "t/0", "a"),
    ]
    group.enter("a", "b")
    group.run(ReportLoads(LoadsNoted("g", weights, constraints=tuple(rules[:1])), pays=False))
    group.rebalance("a")
    assert 0 in group.has["a"]["t"]
    assert len(group.has["a"]["t"]) <= 2
    group.run(ReportLoads(LoadsNoted("g", weights, constraints=tuple(rules)), pays=False))
    group.now = 2_000
    group.rebalance("a")
    assert 0 in group.has["b"]["t"]
    assert len(group.has["b"]["t"]) <= 2


@pytest.mark.parametrize("protocol", ["range", COOPERATIVE])
def test_few_partitions_move(protocol):
    group = Consumers("uniform", protocol, t=12)
    group.enter("a", "b", "c")
    before = {member: set(has["t"]) for member, has in group.has.items()}
    group.enter("d")
    assert sum(len(had - set(group.has[m]["t"])) for m, had in before.items()) == 3
    moved = [one.moved for one in group.records if getattr(one, "moved", 0)]
    assert moved == [3]
    assert group.loads() == [3, 3, 3, 3]


def test_after_a_fail_over_members_keep_what_they_had():
    """And when a generation was given up before it was assigned."""
    group = Consumers("sticky", "range", t=10)
    group.enter("a", "b")
    before = {member: dict(has) for member, has in group.has.items()}
    records = list(records_of(group.state))
    group.state = State()
    for record in records:
        replay(group.state, record)
    group.join("a")
    group.join("b")
    assert group.group.state is ClassicState.COMPLETING
    group.join("c", "t")
    group.leave("c")
    assert not group.group.members["a"].assignment
    group.rebalance("b", "a")
    assert group.has == before


def test_without_the_setting_the_leader_assigns():
    group = Consumers(None, t=4)
    group.enter("a")
    assert group.has["a"] == {"of the leader": [7]}
    assert group.records[-1].assignor == ""
    group.run(ConfigureGroup("g", {CLASSIC_ASSIGNOR: "range"}))
    group.rebalance("a")
    assert group.has["a"] == {"t": [0, 1, 2, 3]}
    group.run(ConfigureGroup("g", {}))
    group.rebalance("a")
    assert group.has["a"] == {"of the leader": [7]}


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\1\0\0\0\1\xff\xff", b"\x7f\xff" * 40])
def test_the_leader_assigns_where_a_member_cannot_be_understood(raw):
    group = Consumers(t=4)
    group.enter("a")
    group.topics["odd"], group.has["odd"] = ("t",), {}
    group.join("odd", metadata=raw)
    group.join("a")
    group.sync()
    assert group.has == {"a": {"of the leader": [7]}, "odd": {}}
    assert group.records[-1].assignor == ""


def test_who_is_not_known_to_give_up_what_it_owns_keeps_its_leader():
    group = Consumers("uniform", "my own cooperative one", t=4)
    assert group.enter("a") == 1  # a member that owns nothing has nothing to give up
    group = Consumers("uniform", "my own", t=4)
    group.enter("a")
    owned = write_subscription(Subscription(3, ["t"], None, {"t": [0]}, 1))
    group.join("a", metadata=owned)
    group.sync()
    assert group.has["a"] == {"of the leader": [7]}


def test_of_two_that_own_a_partition_the_later_generation_is_right():
    group = Consumers("uniform", COOPERATIVE, t=2)
    group.enter("a", "b")
    (a,) = group.has["a"]["t"]
    both = {"t": [0, 1]}
    group.join("b", metadata=write_subscription(Subscription(2, ["t"], None, both, 0)))
    group.join("a", metadata=group.metadata("a"))
    group.has = {"a": {"t": [a]}, "b": {}}  # b has lost it long ago
    group.sync()
    assert group.has == {"a": {"t": [a]}, "b": {"t": [1 - a]}}


def test_what_two_own_with_equal_right_is_given_to_neither():
    group = Consumers("uniform", COOPERATIVE, t=2)
    group.enter("a", "b")
    claim = write_subscription(Subscription(2, ["t"], None, {"t": [0]}, 1))
    for member in ("b", "a"):
        group.join(member, metadata=claim)
    group.has = {"a": {}, "b": {}}
    group.sync()
    assert sorted(group.has.values(), key=str) == [{"t": [1]}, {}]


def test_topics_that_are_not_there_and_partitions_that_are_gone():
    group = Consumers("uniform", COOPERATIVE, t=4)
    group.enter("a", "b", topics=("t", "none"))
    group.has["a"]["t"].append(99)
    group.has["a"]["gone"] = [0]
    group.rebalance("a")
    assert group.loads() == [2, 2]


def test_other_types_of_groups_are_left_alone():
    group = Consumers("uniform", t=4)
    result = group.run(
        JoinGroup(
            "g", "", "connect", [Protocol("sessioned", b"\1")], 10_000, 60_000, 1, "w", "",
            knows_member_id=False,
        )
    )  # fmt: skip
    assert result.response is not None
    group.run(TimerFired(JOIN_PHASE, "g", "", 0))
    done = group.run(SyncGroup("g", "w", 1, 2, {"w": b"whatever"}))
    assert done.response.assignment == b"whatever"


@pytest.mark.parametrize("value", ["on", "", "Uniform", "uniform,range"])
def test_the_setting_names_an_assignor_that_is_configured(value):
    with pytest.raises(GroupError, match=r"consumer.assignor.classic is .* give off or") as refused:
        Consumers(value or " ", t=4)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
