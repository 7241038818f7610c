"""Random walks of groups whose state has every span in columns: each step decides as with tuples."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.events import (
    CatalogTopic,
    DescribeGroup,
    Heartbeat,
    RegexesResolved,
    ResolveRegexes,
    TopicsReported,
)
from coordinator.core.state.groups import State
from coordinator.core.state.records import CurrentMember, TargetMember
from coordinator.core.state.replay import replay
from coordinator.core.state.span_columns import SpanColumns
from coordinator.core.state_machine import step
from coordinator.errors import GroupError
from tests.support.coordinator_core import INTERVAL
from tests.support.fingerprint import fingerprint

SPANS = {CurrentMember: ("assigned", "pending"), TargetMember: ("spans",)}
NAMES = ["a1", "a2", "a3", "b1", "b2"]
REGEXES = ["a.*", "b.*", ".*[12]"]


def in_columns(record):
    """The same record, with all its spans in columns."""
    found = {name: getattr(record, name) for name in SPANS.get(type(record), ())}
    return msgspec.structs.replace(
        record, **{name: SpanColumns.of(spans) if spans else () for name, spans in found.items()}
    )


class Walk:
    """Coordinators that get the same events, the first one plainly."""

    def __init__(self, seed):
        self.choice = random.Random(seed)
        self.config = Config(kafka=kafka_config({INTERVAL: 0}))
        self.states = [State(), State()]
        self.now, self.given, self.catalog, self.most = 1_000_000, {}, {}, 0

    @property
    def plain(self):
        return self.states[0]

    @property
    def columns(self):
        return self.states[1]

    def keep(self, record):
        replay(self.plain, record)
        replay(self.columns, in_columns(record))

    def run(self, event):
        found = []
        for state in self.states:
            try:
                result = step(state, self.config, event, self.now)
            except GroupError as error:
                found.append((str(error), ()))
                continue
            found.append((result, result.records))
        if isinstance(event, DescribeGroup):
            said = [result.response.fields() for result, _ in found]
            assert all(one == said[0] for one in said)
        else:
            assert all(one == found[0] for one in found)
        for record in found[0][1]:
            self.keep(record)
        for task in getattr(found[0][0], "tasks", ()):
            assert isinstance(task, ResolveRegexes)
            names = sorted(self.plain.topics)
            matched = {r: [n for n in names if re.fullmatch(r, n)] for r in task.regexes}
            version = self.plain.topics_version
            self.run(RegexesResolved(task.group_id, matched, version, self.now))
        return found[0][0]

    def beat(self, member, **fields):
        known = self.plain.groups["g"].members.get(member) if "g" in self.plain.groups else None
        epoch = 0 if known is None else known.epoch
        if known is None:
            fields = self.subscription() | {"topic_partitions": {}, "rebalance_timeout_ms": 9}
        result = self.run(Heartbeat("g", member, epoch, **fields))
        response = getattr(result, "response", None)
        if response is not None and response.assignment is not None:
            self.given[member] = given = {}
            for key, first, end in response.assignment:
                given.setdefault(key.name, []).extend(range(first, end))

    def subscription(self):
        names = self.choice.sample(NAMES, self.choice.randint(0, 3))
        regex = self.choice.choice(["", *REGEXES]) if names else self.choice.choice(REGEXES)
        return {"subscribed_topic_names": names, "subscribed_topic_regex": regex}

    def turn(self):
        member, what = f"m{self.choice.randint(1, 4)}", self.choice.random()
        self.now += self.choice.choice([1, 20_000])
        if what < 0.12:
            name = self.choice.choice(NAMES)
            count = self.catalog.get(name, ("", 0))[1] + self.choice.randint(0, 4)
            self.catalog[name] = (f"{name}-{self.choice.randint(0, 1)}", count)
            topics = {n: CatalogTopic(i, c, ()) for n, (i, c) in self.catalog.items() if c}
            self.run(TopicsReported(topics))
        elif what < 0.2 and member in self.given:
            self.run(Heartbeat("g", member, -1))
            del self.given[member]
        elif what < 0.28 and member in self.given:
            self.beat(member, **self.subscription())
        elif what < 0.65 and member in self.given:
            self.beat(member, topic_partitions=self.given[member])
        elif what < 0.7 and "g" in self.plain.groups:
            self.run(DescribeGroup("g"))
        else:
            self.beat(member)
        members = self.columns.groups["g"].members.values() if "g" in self.columns.groups else ()
        self.most = max([self.most, *(len(one.current.assigned) for one in members)])


@pytest.mark.parametrize("seed", range(5))
def test_a_walk_in_columns_is_the_walk_in_tuples(seed):
    walk = Walk(seed)
    for _ in range(100):
        walk.turn()
    assert fingerprint(walk.plain) == fingerprint(walk.columns)
    assert walk.most > 1, "members had several spans, in columns"
