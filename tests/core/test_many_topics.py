"""A group of very many topics: no step looks at all of them for each of them.

Counted in comparisons of names, which do not depend on the machine: of N topics a step may sort
them, so that a name is compared log N times, but not with all others. And in lines of Python run
for each topic: what the interpreter does by itself for all of them is many times as quick.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter

import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.events import (
    CatalogTopic,
    CommittedOffset,
    DescribeGroup,
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    RegexesResolved,
    ResolveRegexes,
    TopicsReported,
)
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey, do_overlap, split, subtract_spans
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import step
from coordinator.core.validate_types import check_types
from coordinator.errors import GroupError
from tests.support.coordinator_core import INTERVAL

TOPICS = 600
A_NAME = 40
"""So often a name may be compared in one step: twice as often as seen, a tenth of all others."""
JOINS = {"topic_partitions": {}, "rebalance_timeout_ms": 60_000}


class Name(str):
    """The name of a topic that counts how often names are compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other):
        Name.compared += 1
        return str.__lt__(self, other)


class Life:
    """A core that notes how often its dearest step, with the replay of its records, compares."""

    name_of = Name

    def __init__(self):
        self.config = Config(kafka=kafka_config({INTERVAL: 0}))
        self.state, self.now = State(), 1_000_000
        self.worst = (0, "")
        self.given = {}

    def run(self, event):
        Name.compared = 0
        result = step(self.state, self.config, event, self.now)
        for record in result.records:
            replay(self.state, record)
        self.worst = max(self.worst, (Name.compared, type(event).__name__))
        for task in result.tasks:
            assert isinstance(task, ResolveRegexes)
            names, version = sorted(self.state.topics), self.state.topics_version
            found = dict.fromkeys(task.regexes, names)
            self.run(RegexesResolved(task.group_id, found, version, self.now))
        return result

    def topics(self, count):
        names = [self.name_of(f"t{number:05}") for number in range(count)]
        self.run(TopicsReported({name: CatalogTopic(f"{name}-id", 1, ()) for name in names}))

    def beat(self, member, epoch=None, **fields):
        members = self.state.groups["g"].members if epoch is None else {}
        epoch = members[member].epoch if epoch is None else epoch
        response = self.run(Heartbeat("g", member, epoch, **fields)).response
        if response.assignment is not None:
            self.given[member] = {key.name: [first] for key, first, _ in response.assignment}

    def settle(self):
        for _ in range(4):
            for member in sorted(self.state.groups["g"].members):
                self.beat(member)
                self.beat(member, topic_partitions=self.given.get(member, {}))


@pytest.mark.parametrize("by", ["regex", "names"])
def test_no_step_compares_each_topic_with_all_others(by):
    life = Life()
    life.topics(TOPICS)

    def asks():
        names = [] if by == "regex" else sorted(life.state.topics)
        return {"subscribed_topic_regex": "t.*" if by == "regex" else "", **JOINS} | {
            "subscribed_topic_names": names
        }

    life.beat("m1", 0, **asks())
    life.settle()
    assert len(life.given["m1"]) == TOPICS
    life.beat("m2", 0, **asks())
    life.settle()
    assert (len(life.given["m1"]), len(life.given["m2"])) == (TOPICS / 2, TOPICS / 2)
    life.now += 700_000  # regexes are looked at again
    life.topics(TOPICS + 1)
    if by == "names":
        life.beat("m1", subscribed_topic_names=asks()["subscribed_topic_names"])
    life.settle()
    life.run(DescribeGroup("g"))
    life.beat("m1", -1)
    life.settle()
    assert len(life.given["m2"]) == TOPICS + 1 if by == "regex" else TOPICS
    compared, event = life.worst
    assert 0 < compared <= A_NAME * TOPICS, event


def test_a_change_of_topics_looks_at_no_group_that_does_not_subscribe():
    life = Life()
    life.topics(1)
    for number in range(50):
        life.run(Heartbeat(f"g{number}", "m", 0, subscribed_topic_names=["t00000"], **JOINS))

    class Watched(dict):
        def values(self):
            raise AssertionError("all groups are looked at for each topic")

    life.state.groups = Watched(life.state.groups)
    hashes = {group_id: group.topics_hash for group_id, group in life.state.groups.items()}
    life.topics(20)
    assert {g: group.topics_hash for g, group in life.state.groups.items()} == hashes
    life.run(TopicsReported({}))
    assert {group.topics_hash for _, group in life.state.groups.items()} == {0}


class Edge(int):
    """Where a span begins or ends: counts how often edges are compared."""

    compared = 0
    __hash__ = int.__hash__


def _counted(name):
    def compare(self, other):
        Edge.compared += 1
        return getattr(int, name)(self, other)

    return compare


for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    setattr(Edge, _name, _counted(_name))


@pytest.mark.parametrize("work", [split, subtract_spans, do_overlap])
def test_many_ranges_of_one_topic_are_not_each_compared_with_all(work):
    key = TopicKey("t", "1")
    mine = tuple((key, Edge(4 * n), Edge(4 * n + 1)) for n in range(TOPICS))
    others = tuple((key, Edge(4 * n + 2), Edge(4 * n + 3)) for n in range(TOPICS))
    Edge.compared = 0
    work(tuple((*span, 1) for span in mine) if work is split else mine, others)
    assert 0 < Edge.compared <= A_NAME * TOPICS


class Lines(Life):
    """A core that counts the lines of Python that its steps and replays run.

    Without those that compute a target: that of a group with so many topics is computed elsewhere.
    """

    name_of = str

    def __init__(self):
        super().__init__()
        self.lines = {}

    def run(self, event):
        count = 0

        def trace(frame, what, _argument):
            nonlocal count
            _, core, name = frame.f_code.co_filename.rpartition("/coordinator/core/")
            count += (
                what == "line" and bool(core) and not name.startswith(("targets/", "state/target_"))
            )
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            result = super().run(event)
        finally:
            sys.settrace(before)
        self.lines.setdefault(type(event), []).append(count)
        return result


def test_regexes_are_resolved_by_few_lines_of_python_for_each_topic():
    life = Lines()
    life.topics(TOPICS)
    life.beat("m1", 0, subscribed_topic_regex="t.*", **JOINS)
    life.settle()
    life.topics(2 * TOPICS)
    life.now += 700_000
    life.beat("m1")
    life.beat("m1", -1)
    found = life.lines[RegexesResolved]
    assert max(found) <= len(life.state.topics), found


def test_a_member_is_given_topics_by_few_lines_of_python_for_each():
    """Steps towards a target, by heartbeats, and what is to be resolved and computed for it."""
    life = Lines()
    life.topics(TOPICS)
    life.beat("m1", 0, subscribed_topic_regex="t.*", **JOINS)
    life.settle()
    life.beat("m2", 0, subscribed_topic_regex="t.*", **JOINS)
    life.lines.clear()
    life.settle()
    assert (len(life.given["m1"]), len(life.given["m2"])) == (TOPICS / 2, TOPICS / 2)
    life.beat("m2", -1)
    life.settle()
    found = life.lines[Heartbeat]
    assert max(found) <= 8 * TOPICS, found


def test_what_only_reads_looks_at_no_topic_of_very_many():
    """The caller looks at them, beside everything else: a description, and offsets."""
    life = Lines()
    life.topics(2 * TOPICS)
    life.beat("m1", 0, subscribed_topic_regex="t.*", **JOINS)
    life.settle()
    names = sorted(life.state.topics)
    offsets = {name: {0: CommittedOffset(1)} for name in names}
    life.run(OffsetCommit("g", "m1", life.state.groups["g"].members["m1"].epoch, offsets))
    described = life.run(DescribeGroup("g")).response
    some = life.run(OffsetFetch("g", {name: [0] for name in names[1:]})).response
    found = life.run(OffsetFetch("g")).response
    assert max(life.lines[DescribeGroup] + life.lines[OffsetFetch]) < TOPICS / 4
    life.topics(1)  # what was answered is as it was
    (member,) = described.fields()["members"]
    assert [t["topic_name"] for t in member["assignment"]["topic_partitions"]] == names
    assert {t: found[t][0].offset for t in found} == dict.fromkeys(names, 1)
    assert {t: list(some[t]) for t in some} == {name: [0] for name in names[1:]}


def test_the_garbage_collector_knows_no_object_of_each_topic():
    """Else it looks at hundreds of thousands of them, again and again, while everybody waits."""

    def live():
        life = Life()
        life.name_of = str
        life.topics(TOPICS)
        life.beat("m1", 0, subscribed_topic_regex="t.*", **JOINS)
        life.settle()
        life.given.clear()
        return life

    def count():
        gc.collect()
        return Counter(type(one).__name__ for one in gc.get_objects())

    first = live()  # what is imported on the way
    before = count()
    second = live()
    after = count()
    assert len(first.state.topics) == len(second.state.topics) == TOPICS
    assert {n: c - before[n] for n, c in after.items() if c - before[n] > TOPICS / 4} == {}


@pytest.mark.parametrize(
    "wrong",
    [{5: [0]}, {"a": 7}, {"a": "0"}, {"a": [True]}, {"a": [1.0]}, {"a": [-1]}, {"a": [2**31]},
     {"a": [[0]]}, {"a" * 40_000: [0]}, {"\ud800": [0]}],
)  # fmt: skip
def test_what_is_owned_of_very_many_topics_has_the_types_that_few_have(wrong):
    many = {f"t{number:05}": [0] if number % 2 else (0, 1) for number in range(TOPICS)}
    check_types(Heartbeat("g", "m", 1, topic_partitions=many))
    check_types(Heartbeat("g", "m", 1, topic_partitions={**many, "a": []}))
    for owned in (wrong, many | wrong):
        with pytest.raises(GroupError, match="The request is refused"):
            check_types(Heartbeat("g", "m", 1, topic_partitions=owned))
