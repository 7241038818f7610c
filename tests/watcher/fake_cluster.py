"""A Kafka cluster in memory, as one that only reads its topic of groups sees it."""

import asyncio
import struct
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from crc32c import crc32c

from coordinator.watcher.kafka_brokers import EARLIEST, ClusterMetadata
from coordinator.watcher.kafka_source import OFFSET_OUT_OF_RANGE, KafkaSource, _Following
from coordinator.watcher.record_batches import HEAD, KafkaRecord
from coordinator.watcher.watched_store import TOPIC
from coordinator.wire.codec import Api

PATIENCE_S = 20


class FakeCluster:
    """Has logs, which it cleans on request; it answers as brokers do."""

    def __init__(self, partitions=1, topics=None):
        self.logs = {number: [] for number in range(partitions)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.starts = dict.fromkeys(self.logs, 0)
        self.topics = topics or {}
        self.retention = "86400000"
        self.fetched = []
        self.damaged, self.leaderless, self.error = set(), set(), 0

    def write(self, partition, records, at_ms=None):
        """Append records as one batch."""
        at_ms = at_ms or int(time.time() * 1000)
        first = self.ends[partition]
        self.ends[partition] += len(records)
        moved = [KafkaRecord(first + n, at_ms, one.key, one.value) for n, one in enumerate(records)]
        self.logs[partition].append((first, self.ends[partition] - 1, moved))

    def clean(self, partition):
        """Keep the last record of each key, and no tombstone; the batches stay, maybe empty."""
        rows = [one for *_, records in self.logs[partition] for one in records]
        last = {one.key: one.offset for one in rows}
        self.logs[partition] = [
            (first, end, [r for r in some if last[r.key] == r.offset and r.value is not None])
            for first, end, some in self.logs[partition]
        ]

    # What brokers are asked --------------------------------------------------------------------

    node_ids = (1,)

    async def describe(self, _topic):
        leaders = {number: -1 if number in self.leaderless else 1 for number in self.logs}
        return ClusterMetadata("cluster-1", {} if self.error else leaders, self.error, self.topics)

    async def topic_setting(self, _topic, name):
        assert name == "delete.retention.ms"
        return self.retention

    async def close(self):
        pass

    async def ask(self, _node_id, api, *, topics, **_fields):
        (topic,) = topics
        if api is Api.LIST_OFFSETS:
            (asked,) = topic["partitions"]
            assert asked["timestamp"] == EARLIEST
            found = SimpleNamespace(error_code=0, offset=self.starts[asked["partition_index"]])
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[found])])
        await asyncio.sleep(0.01)
        found = [self._fetch(one["partition"], one["fetch_offset"]) for one in topic["partitions"]]
        return SimpleNamespace(responses=(SimpleNamespace(partitions=found),))

    def _fetch(self, partition, offset):
        self.fetched.append((partition, offset))
        code = 0 if self.starts[partition] <= offset <= self.ends[partition] else 1
        assert code in {0, OFFSET_OUT_OF_RANGE}
        ahead = [] if code else [one for one in self.logs[partition] if one[1] >= offset]
        return SimpleNamespace(
            partition_index=partition,
            error_code=code,
            high_watermark=self.ends[partition],
            records=b"".join(self._encode(partition, *one) for one in ahead[:3]),
        )

    def _encode(self, partition, first, last, records):
        raw = encode(first, last, records)
        return raw[:-1] + b"?" if (partition, first) in self.damaged else raw


def encode(first, last, records):
    """The bytes of a batch."""
    rows = b"".join(_row(first, one) for one in records)
    at_ms = records[0].timestamp_ms if records else 0
    checked = (
        HEAD.pack(0, 0, 0, 0, 0, 0, last - first, at_ms, at_ms, -1, -1, -1, len(records))[21:]
        + rows
    )
    head = HEAD.pack(
        first, len(checked) + 9, 0, 2, crc32c(checked), 0, last - first, at_ms, at_ms, -1, -1, -1,
        len(records),
    )  # fmt: skip
    return head[:21] + checked


def _row(first, one):
    body = b"\0" + _varint(0) + _varint(one.offset - first)
    for part in (one.key, one.value):
        body += _varint(-1) if part is None else _varint(len(part)) + part
    body += _varint(0)
    return _varint(len(body)) + body


def _varint(number):
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number > 0x7F:
        out, number = out + struct.pack("B", number & 0x7F | 0x80), number >> 7
    return out + struct.pack("B", number)


@contextmanager
def following(cluster, store, **options):
    """Follow a cluster in a thread."""
    source = KafkaSource("kafka://127.0.0.1:1", **{"offsets_ms": 50, "round_ms": 0, **options})
    stop, failed = threading.Event(), []

    def run():
        try:
            asyncio.run(_Following(source, cluster, TOPIC, store).run(stop))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()
        if failed:
            raise failed[0]


def wait_for(holds):
    """Wait until something holds."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.01)
