"""The log that a leading node writes, loaded by the coordinator of a real Kafka 4.4.0.

`make test-cluster-kafka` only. One record that fails in Kafka's coordinator fails its partition.
"""

import os
import random
import time

import msgspec
import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from coordinator.core.events import OffsetDelete
from coordinator.core.state.groups import State
from coordinator.core.state.records import TopicChanged
from coordinator.core.state.replay import replay_all
from coordinator.kraft.batch_writer import Change, write_batches
from coordinator.kraft.record_writer import LEFT_OUT, RecordWriter
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.world import until
from tests.kraft.recorded import split
from tests.kraft.test_transactions import Node
from tests.kraft.test_written_state import LIMIT, WALKS, play

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
LISTED = {"consumer", None}
"""Types of classic groups that librdkafka lists."""
FIRST_EPOCH = bytes(4)
"""Of the broker's leader: it is not checksummed."""
PARTITION = "__consumer_offsets-0"
SETTINGS = (
    "group.consumer.session.timeout.ms=60000",
    "group.consumer.max.session.timeout.ms=60000",
)


def written_walks(at_ms):
    """A log of every recorded walk, its groups named after it; and which are there at its end."""
    raw, end, there = b"", 0, set()
    for walk in WALKS:
        writer, state = RecordWriter(), State()
        for batch in play(walk):
            named = [_rename(record, f"{walk.parent.name}-{walk.stem}") for record in batch.records]
            replay_all(state, named)
            written = writer.write(named, lambda record: record.metadata_hash)
            writer.keep(written)
            for one in write_batches([Change(written.records, at_ms)], end, 0, LIMIT):
                raw += one
                end += len(written.records)
        there |= state.groups.keys() | (state.offsets.keys() - state.classic.keys())
        there |= {name for name, one in state.classic.items() if one.protocol_type in LISTED}
    return raw, there


def _rename(record, prefix):
    kind = getattr(record, "of", record.kind)
    if kind in LEFT_OUT or isinstance(record, TopicChanged):
        return record
    return msgspec.structs.replace(record, group_id=f"{prefix}-{record.group_id}")


@pytest.fixture
def broker(tmp_path):
    try:
        with Kafka(tmp_path, {"__consumer_offsets": 1}, SETTINGS) as kafka:
            yield kafka
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def restart_with(broker, raw):
    """Let the broker find another log of the topic when it starts."""
    broker.stop()
    folder = broker.folder / "kafka/data" / PARTITION
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (folder / "00000000000000000000.log").write_bytes(raw)
    broker.start()


def test_kafkas_coordinator_loads_transactions(broker, tmp_path):
    """Committed, aborted and open ones, overtaken and deleted offsets: it answers as Muster does."""
    node, draw = Node(tmp_path / "p"), random.Random(36)
    node.elect()
    for step in range(1, 200):
        group, place, producer = f"g{step % 5}", draw.randrange(2), (draw.randrange(4), 0)
        action = draw.choice("cccppeedr")
        if action == "c":
            node.commit(producer, {place: step}, group)
        elif action == "p":
            node.plain(place, step, group)
        elif action == "e":
            node.end(producer, committed=draw.random() < 0.7)
        elif action == "d":
            node.run(OffsetDelete(group, {"orders": [place]}))
        else:
            node.elect()
    for number in range(3):
        node.end((number, 0))  # the fourth one's stays open
    groups = [f"g{number}" for number in range(5)]
    answers = node.answers(groups)
    assert {len(set(said)) for said in answers.values()} == {1, 2}, "some are stable, some are not"
    batches = [raw for _, _, raw in split(node.pair.follower.raw)]
    node.resign()
    restart_with(broker, b"".join(raw[:12] + FIRST_EPOCH + raw[16:] for raw in batches))
    admin = AdminClient({"bootstrap.servers": broker.address})
    until(
        lambda: _offsets(admin, groups) == answers, lambda: (_offsets(admin, groups), answers), 30
    )


def _offsets(admin, groups):
    """Of each place, its offset, and what is said to who asks for stable offsets."""
    found = {}
    for group in groups:
        for stable in (False, True):
            places = [TopicPartition("orders", partition) for partition in range(2)]
            asked = [ConsumerGroupTopicPartitions(group, places)]
            (one,) = admin.list_consumer_group_offsets(asked, require_stable=stable).values()
            try:
                said = one.result(30).topic_partitions
            except KafkaException:
                return {}
            for place in said:
                offset = "UNSTABLE_OFFSET_COMMIT" if place.error else place.offset
                offset = None if offset == OFFSET_INVALID else offset
                found.setdefault((group, place.partition), []).append(offset)
    return {key: tuple(said) for key, said in found.items() if any(said)}


def test_kafkas_coordinator_loads_all_that_is_written(broker):
    raw, there = written_walks(int(time.time() * 1000))
    restart_with(broker, raw)
    admin = AdminClient({"bootstrap.servers": broker.address})
    until(lambda: _listed(admin) == there, lambda: _listed(admin) ^ there, 30)


def _listed(admin):
    """The groups that the broker has; none while it loads them."""
    found = admin.list_consumer_groups(request_timeout=20).result(30)
    return {one.group_id for one in found.valid}
