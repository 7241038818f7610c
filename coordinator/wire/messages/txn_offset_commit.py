"""TxnOffsetCommit of version 6, which names topics by their ids (KIP-1319); kio has up to 5.

As Kafka 4.4.0 has it: `common/message/TxnOffsetCommit*.json` in its client jar. Types are evaluated
here, not kept as texts, since they are read from the classes.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.txn_offset_commit.v5 import request as request_5
from kio.schema.txn_offset_commit.v5 import response as response_5
from kio.static.constants import EntityType
from kio.static.primitive import i16

VERSION = i16(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTopic:
    """A topic whose offsets are committed."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = VERSION
    __flexible__: ClassVar[bool] = True
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[request_5.TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(request_5.TxnOffsetCommitRequest):
    """As version 5, but for the topics."""

    __version__: ClassVar[i16] = VERSION
    topics: tuple[RequestTopic, ...]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTopic:
    """What came of the offsets of a topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = VERSION
    __flexible__: ClassVar[bool] = True
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[response_5.TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(response_5.TxnOffsetCommitResponse):
    """As version 5, but for the topics."""

    __version__: ClassVar[i16] = VERSION
    topics: tuple[ResponseTopic, ...]  # type: ignore[assignment]


REQUEST, RESPONSE = Request, Response
