"""Recorded topics of Kafka 4.4.0 (tests/golden/kafka_topic), as steps to play."""

import base64
import itertools
import json
from operator import itemgetter

from coordinator.config import Config
from coordinator.core.events import CatalogTopic, TopicsReported
from coordinator.core.state.groups import State, TopicView
from coordinator.core.state.records import KafkaWatched
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import step
from coordinator.watcher.record_batches import KafkaRecord
from coordinator.watcher.translator import Translator
from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "golden" / "kafka_topic"
FILES = sorted(file.name for file in FOLDER.glob("*.jsonl"))


class WatchedGroups:
    """What a store of a watched cluster has, without one: state, translator, and a step an event."""

    def __init__(self):
        self.state = State()
        replay(self.state, KafkaWatched("c", "topic"))
        self.view = TopicView()
        self.translator = Translator(lambda: self.view)

    @property
    def faults(self):
        return self.translator.faults

    def set_topics(self, topics):
        self._do(TopicsReported(dict(topics)))
        self.view = TopicView.now(self.state)

    def load(self, written):
        return self._do(self.translator.load(written))

    def take(self, batch):
        event = self.translator.take(batch)
        return [] if event is None else self._do(event)

    def _do(self, event):
        records = step(self.state, Config(), event, 0).records
        for record in records:
            replay(self.state, record)
        return records


def read_lines(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def batches_of(line):
    """The batches of a line of records."""
    for _, rows in itertools.groupby(line["records"], itemgetter(2)):
        yield [KafkaRecord(at, ms, decode(key), decode(value)) for at, ms, _, key, value in rows]


def decode(text):
    return None if text is None else base64.b64decode(text)


def topics_of(line):
    """The topics that a line names, and those that it says are gone."""
    there = {n: CatalogTopic(t["id"], t["partitions"]) for n, t in line["topics"].items() if t}
    return there, {name for name, topic in line["topics"].items() if topic is None}


def play(name, watched):
    """Play a file, and yield each line that says what Kafka answers then.

    Topics come and go between batches, at the times that their lines say; Kafka's own coordinator
    may know of one a moment later than the catalog.
    """
    topics, waiting = {}, []
    for line in read_lines(name):
        if "topics" in line:
            waiting.append(line)
        elif "records" in line:
            for batch in batches_of(line):
                while waiting and waiting[0]["at"] <= batch[0].timestamp_ms:
                    change(topics, waiting.pop(0))
                    watched.set_topics(topics)
                watched.take(batch)
        else:
            while waiting and waiting[0]["at"] <= line["now"]:
                change(topics, waiting.pop(0))
                watched.set_topics(topics)
            yield line


def change(topics, line):
    there, gone = topics_of(line)
    for name in gone:
        topics.pop(name, None)
    topics.update(there)
