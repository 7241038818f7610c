"""A change of very many topics comes in slices: others are answered between, the epoch moves once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.events import CatalogTopic, Heartbeat, ResolveRegexes, TopicsReported
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.topic_catalog import DictCatalog, slice_report
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from tests.support.fingerprint import fingerprint

BEFORE = {f"t{n}": 1 for n in range(20)}
AFTER = {f"t{n}": 2 for n in range(5, 35)}
CONFIG = replace(Config(), kafka=kafka_config({"group.consumer.assignment.interval.ms": 0}))


class Side:
    """An event processor in memory, whose catalog reports another set of topics."""

    def __init__(self, topics=BEFORE):
        self.now = 1_000_000
        self.catalog = DictCatalog(topics)
        log = MemoryLog(MemoryRecords())
        log.claim("test", "", self.now)
        self.processor = EventProcessor(log, CONFIG, lambda: self.now, self.catalog)
        self.processor.load()

    def change(self, topics=AFTER):
        for name in BEFORE:
            self.catalog.delete(name)
        for name, partitions in topics.items():
            self.catalog.set(name, partitions)
        return self.processor.look_at_topics()

    def slices(self, event, most):
        return list(slice_report(event, self.processor.state.topics, most))

    def beat(self, epoch, **fields):
        (answer,) = self.processor.run([Heartbeat("g", "m", epoch, **fields)])
        for task in self.processor.take_tasks():
            if isinstance(task, ResolveRegexes):
                self.processor.run([prepare_resolution(self.processor, task)()])
        return answer.response.member_epoch

    @property
    def epoch(self):
        return self.processor.state.groups["g"].epoch


@pytest.mark.parametrize("most", [1, 7, 15, 45, 100])
def test_slices_make_what_the_whole_does(most):
    one, other = Side(), Side()
    one.processor.run([one.change()])
    slices = other.slices(other.change(), most)
    assert all(len(s.topics) + len(s.gone or ()) <= most for s in slices) or len(slices) == 1
    assert [s.more for s in slices] == [True] * (len(slices) - 1) + [False]
    for each in slices:
        other.processor.run([each])
    assert fingerprint(other.processor.state) == fingerprint(one.processor.state)
    assert set(other.processor.topics.by_name) == set(AFTER)
    assert other.processor.look_at_topics() is None


def settled(by):
    """Return a side with a member that has its partitions, and the epoch of its last answer."""
    side = Side()
    asks = {"subscribed_topic_names": sorted(BEFORE | AFTER)}
    if by == "regex":
        asks = {"subscribed_topic_regex": "t.*"}
    heard_epoch = side.beat(0, topic_partitions={}, rebalance_timeout_ms=60_000, **asks)
    for _ in range(3):
        heard_epoch = side.beat(heard_epoch)
    side.now += 700_000
    return side, side.beat(heard_epoch)  # regexes are resolved again, which is due by time


def end(side, heard_epoch, last):
    """Let the last of a change come, and return by how much the group's epoch rises for it."""
    before = side.epoch
    side.processor.run([last])
    for _ in range(4):
        side.now += 20_000
        heard_epoch = side.beat(heard_epoch)
    owned = side.processor.state.groups["g"].targets["m"]
    assert {key.name for key, _, _ in owned} == set(AFTER)
    return side.epoch - before


@pytest.mark.parametrize("by", ["names", "regex"])
def test_a_group_notices_a_change_in_slices_as_one(by):
    side, heard_epoch = settled(by)
    before, shown = side.epoch, side.processor.topics
    slices = side.slices(side.change(), 7)
    assert len(slices) > 3
    for each in slices[:-1]:
        side.now += 20_000
        side.processor.run([each])
        heard_epoch = side.beat(heard_epoch)
        assert side.epoch == before
        assert side.processor.topics is shown, "clients are not shown half of a change"
    whole, heard = settled(by)
    assert end(side, heard_epoch, slices[-1]) == end(whole, heard, whole.change())


def test_groups_notice_though_the_rest_of_a_change_never_comes():
    side = Side()
    first, *_ = side.slices(side.change(), 7)
    side.processor.run([first])
    for name in BEFORE | AFTER:
        side.catalog.delete(name)
    for topic in side.processor.state.topics.values():  # the source is again as was seen
        side.catalog.set(topic.key.name, CatalogTopic(topic.key.topic_id, topic.partitions))
    end = side.processor.look_at_topics()
    assert end == TopicsReported({}, gone=())
    side.processor.run([end])
    assert side.processor.look_at_topics() is None
    assert side.processor.topics.by_name == side.processor.state.topics
