"""A Kafka cluster of librdkafka's own, in this process: it keeps records, and lists no topic ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import confluent_kafka as ck

QUIET = {"log_level": 0}


@contextmanager
def mock_kafka(topic: str, records: Mapping[int, int]) -> Iterator[str]:
    """Run a cluster with so many records by partition, of 4; return its address."""
    producer = ck.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", **QUIET})
    for partition, count in records.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    (node,) = producer.list_topics(timeout=30).brokers.values()
    yield f"{node.host}:{node.port}"
    producer.flush(0)  # it lives as long as this
