"""A client that speaks with a coordinator in memory, for tests: the server without its sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.topic_catalog import DictCatalog, topic_id_of
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from coordinator.wire.apis.group_apis import encode_noted, note_answers
from coordinator.wire.authorization import authorize_request
from coordinator.wire.call import Cluster, to_uuid
from coordinator.wire.codec import Api, decode_body
from coordinator.wire.connection import Connection
from tests.support.wire_client import read_response, request_frame

HEARTBEAT = Api.CONSUMER_GROUP_HEARTBEAT
NONE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, UNKNOWN_TOPIC_ID = 0, 3, 35, 100
CLICKS = to_uuid(topic_id_of("clicks"))
NO_INTERVAL = {"group.consumer.assignment.interval.ms": 0}


def encode_response(request, call, answers):
    """Return the frame of a response, once the coordinator has answered: as the server does."""
    note_answers(request, answers)
    return encode_noted(request, call, answers)


class Side:
    """A client that speaks with a coordinator in memory: the server without its sockets."""

    settings: ClassVar = NO_INTERVAL

    def __init__(self, **topics):
        self.now_ms = 1_000_000
        self.acls = None
        self.catalog = DictCatalog(topics)
        self.storage = MemoryRecords()
        log = MemoryLog(self.storage)
        log.claim("test", "", self.now_ms)
        config = Config(kafka=kafka_config(self.settings))
        self.processor = EventProcessor(log, config, lambda: self.now_ms, self.catalog)
        self.processor.load()
        self.cluster = Cluster(
            7, "here", 9092, "muster", lambda: self.processor.topics,
            lambda: self.processor.status == "active", acls=lambda: self.acls,
        )  # fmt: skip
        self.connection = Connection("/10.0.0.1", 1 << 20, 10)

    def cluster_with(self, **changes):
        return replace(self.cluster, **changes)

    def ask(self, api, version, **fields):
        self.connection.receive(request_frame(api, version, 1, **fields))
        asked = self.connection.next_request()
        if asked.request.unread:
            decode_body(asked.request)
        call = authorize_request(asked.request, self.cluster)
        later = call.later and [call.later().result()]
        answers = later or self.processor.run(call.events)
        asked.frame = encode_response(asked.request, call, answers)
        self.waited_ms = call.wait_ms
        return read_response(self.connection.take_answers(), api, version)[1]

    def beat(self, member_id, epoch, owned=None, version=1, **fields):
        if owned is not None:
            owned = [{"topic_id": t, "partitions": p} for t, p in owned.items()]
        return self.ask(
            HEARTBEAT, version, group_id="g", member_id=member_id, member_epoch=epoch,
            topic_partitions=owned, **fields,
        )  # fmt: skip

    def join(self, member_id, *topics, version=1, **fields):
        return self.beat(
            member_id, 0, {}, version, rebalance_timeout=60_000, subscribed_topic_names=topics,
            **fields,
        )  # fmt: skip

    def commit(self, version, offsets, member_id="", epoch=-1):
        partitions = [
            {"partition_index": p, "committed_offset": o, "committed_metadata": "why"}
            for p, o in offsets.items()
        ]
        topic = {"name": "clicks", "topic_id": CLICKS, "partitions": partitions}
        answer = self.ask(
            Api.OFFSET_COMMIT, version, group_id="g", generation_id_or_member_epoch=epoch,
            member_id=member_id, topics=[topic], retention_time=-1,
        )  # fmt: skip
        return {p.partition_index: int(p.error_code) for p in answer.topics[0].partitions}

    def fetch(self, version, partitions, member_id=None, epoch=-1):
        topics = None
        if partitions is not None:
            topics = [{"name": "clicks", "topic_id": CLICKS, "partition_indexes": partitions}]
        group = {"group_id": "g", "topics": topics, "member_id": member_id, "member_epoch": epoch}
        answer = self.ask(Api.OFFSET_FETCH, version, **group, groups=[group])
        return answer.groups[0] if version >= 8 else answer


@pytest.fixture
def side():
    return Side(clicks=4, orders=2)
