"""Kafka's own hash of the topics of a group (KIP-1101), by which its coordinator sees changes.

A coordinator that loads a group whose record has another hash raises the group's epoch at once.
Kafka's `Utils.computeTopicHash` feeds a stream to XXH3, as hash4j does: numbers are little-endian,
and a text is its UTF-16 units with their count after them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping

from xxhash import xxh3_64_intdigest

from coordinator.core.state.groups import State, Topic
from coordinator.core.state.partition_spans import kafka_id
from coordinator.core.state.records import GroupMetadata

_HEAD = struct.Struct("<bqq")
"""A version, 0, and the two halves of the topic's id."""
_HALVES = struct.Struct(">qq")
_INT = struct.Struct("<i")
_HASH = struct.Struct("<Q")
VERSION = 0


def hash_topic(topic: Topic) -> int:
    """Return the hash of a topic: of its id, its name, and the racks of its partitions."""
    raw = base64.urlsafe_b64decode(kafka_id(topic.key.topic_id) + "==")
    parts = [_HEAD.pack(VERSION, *_HALVES.unpack(raw)), _text(topic.key.name)]
    parts.append(_INT.pack(topic.partitions))
    for partition in range(topic.partitions):
        racks = sorted(topic.racks[partition]) if partition < len(topic.racks) else []
        parts.append(_INT.pack(partition))
        for rack in racks:
            parts += (_INT.pack(len(rack)), _text(rack))
    return _digest(parts)


def hash_topics(names: Iterable[str], topics: Mapping[str, Topic]) -> int:
    """Return the hash of those of some names that are topics; 0 if none is."""
    found = [topics[name] for name in sorted(set(names)) if name in topics]
    return _digest(_HASH.pack(hash_topic(one)) for one in found) if found else 0


def hash_of(record: GroupMetadata, state: State) -> int:
    """Return Kafka's hash for a record of a group.

    Parameters
    ----------
    state
        Of the record or later. Where the group's topics are no longer those that the record knew,
        the hash is none of Kafka's, so that its coordinator, too, sees that they have changed.
    """
    group = state.groups.get(record.group_id)
    if group is None or group.topics_hash != record.metadata_hash:
        return record.metadata_hash
    return hash_topics(group.names, state.topics)


def _digest(parts: Iterable[bytes]) -> int:
    return int(xxh3_64_intdigest(b"".join(parts)))


def _text(text: str) -> bytes:
    raw = text.encode("utf-16-le")
    return raw + _INT.pack(len(raw) // 2)
