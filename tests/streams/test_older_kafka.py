"""A cluster of librdkafka's own, which speaks older versions, as brokers before Kafka 3.0 do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import spark_jobs
from coordinator import TopicPartition
from coordinator.watcher.kafka_brokers import EARLIEST, LATEST
from spark_jobs.streams.kafka_topics import (
    KafkaTopics,
    ask_patiently,
    kafka_settings,
)
from tests.clients.kafka_broker.mock import mock_kafka


@pytest.fixture(scope="module")
def address():
    with mock_kafka("clicks", {0: 10, 1: 5}) as found:
        yield found


def test_a_batch_s_end_is_committed_and_found_again(address):
    offsets = spark_jobs.GroupOffsets(address, group_id="old")
    source = SimpleNamespace(description="KafkaV2[Assign[…]]", endOffset='{"clicks":{"0":7,"1":5}}')
    progress = SimpleNamespace(runId="r", name=None, sources=[source])
    try:
        offsets.onQueryProgress(SimpleNamespace(progress=progress))
        assert offsets.flush(20), offsets.error
    finally:
        offsets.close(0.1)
    found = json.loads(spark_jobs.starting_offsets(address, "old", ["clicks"]))
    assert found == {"clicks": {"0": 7, "1": 5, "2": -2, "3": -2}}


def test_where_partitions_begin_and_end(address):
    places = [TopicPartition("clicks", number) for number in (0, 1, 3)]
    places += [TopicPartition("clicks", 99), TopicPartition("nothing", 0)]

    async def ask():
        topics = KafkaTopics(kafka_settings(address, None, None))
        try:
            ends = await topics.offsets(places, LATEST)
            return ends, await topics.offsets(places, EARLIEST)
        finally:
            await topics.close()

    ends, begins = ask_patiently(ask)
    assert ends == dict(zip(places, (10, 5, 0), strict=False))
    assert begins == dict.fromkeys(places[:3], 0)
