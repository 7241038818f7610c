"""The log that a leading node writes, loaded by the coordinator of a real Kafka 4.4.0.

`make test-cluster-kafka` only. One record that fails in Kafka's coordinator fails its partition.
"""

import os
import time

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from coordinator.core.state.groups import State
from coordinator.core.state.records import TopicChanged
from coordinator.core.state.replay import replay_all
from coordinator.kraft.batch_writer import Change, write_batches
from coordinator.kraft.record_writer import LEFT_OUT, RecordWriter
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.world import until
from tests.kraft.test_written_state import LIMIT, WALKS, play

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
LISTED = {"consumer", None}
"""Types of classic groups that librdkafka lists."""
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


def test_kafkas_coordinator_loads_all_that_is_written(broker):
    raw, there = written_walks(int(time.time() * 1000))
    broker.stop()
    folder = broker.folder / "kafka/data" / PARTITION
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (folder / "00000000000000000000.log").write_bytes(raw)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address})
    until(lambda: _listed(admin) == there, lambda: _listed(admin) ^ there, 30)


def _listed(admin):
    """The groups that the broker has; none while it loads them."""
    found = admin.list_consumer_groups(request_timeout=20).result(30)
    return {one.group_id for one in found.valid}
