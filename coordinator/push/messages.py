"""Requests to a worker that listens, and its answers: JSON. Pure.

docs/reference/push.md describes the same for those who write workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from coordinator.core.bounded import INT32_MAX, Partition, Text
from coordinator.member.transport import TopicPartition

Kind: TypeAlias = Literal["register", "ping", "start", "stop"]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name: TypeAlias = Annotated[Text, msgspec.Meta(min_length=1)]
NAMES_MAX = 10_000
"""How many topics a worker may name."""


class LostError(Exception):
    """The connection to a worker is lost: it did not answer, refused, or answered nonsense.

    Attributes
    ----------
    reason
        "unreachable", "silent", "refused" or "wrong answer", as metrics count it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Registration(msgspec.Struct, frozen=True):
    """A worker's answer to `register`: the member that it wants to be."""

    group_id: Name
    topics: Annotated[tuple[Name, ...], msgspec.Meta(max_length=NAMES_MAX)] = ()
    pattern: Text = ""
    client_id: Text = ""
    instance_id: Name | None = None
    rack_id: Text | None = None
    server_assignor: Text | None = None
    rebalance_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] = 60_000


class Consumed(msgspec.Struct, frozen=True):
    """How far a worker came with a partition."""

    topic: Text
    partition: Partition
    offset: Offset


class Progress(msgspec.Struct, frozen=True):
    """A worker's answer to `ping`, `start` and `stop`."""

    offsets: tuple[Consumed, ...] = ()


class WorkerReport(NamedTuple):
    """What of an answer counts, and how many of its offsets do not."""

    offsets: dict[TopicPartition, int]
    refused: int


def encode_request(
    session: str, session_timeout_ms: int, partitions: Mapping[TopicPartition, int | None]
) -> bytes:
    """Return the body of a request.

    Parameters
    ----------
    session
        Which registration it belongs to.
    session_timeout_ms
        After how long without a request the worker must have stopped.
    partitions
        Which to start or stop, each with the offset to start from, where there is one.
    """
    places = [
        {"topic": place.topic, "partition": place.partition, "offset": offset}
        for place, offset in sorted(partitions.items())
    ]
    return msgspec.json.encode(
        {"session": session, "session_timeout_ms": session_timeout_ms, "partitions": places}
    )


def read_registration(body: bytes) -> Registration:
    """Return the member that a worker wants to be; LostError when it cannot be one."""
    try:
        found = msgspec.json.decode(body, type=Registration)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LostError(
            "wrong answer", f"the answer to register is not a registration: {error}"
        ) from None
    if not found.topics and not found.pattern:
        raise LostError("wrong answer", "the answer to register has neither topics nor a pattern")
    return found


def read_report(
    kind: Kind, body: bytes, known: Mapping[TopicPartition, int | None]
) -> WorkerReport:
    """Return how far a worker came.

    Parameters
    ----------
    kind
        What it answers.
    body
        Its answer.
    known
        The partitions that it was asked to start, with the last offset known of each. Others, and
        offsets before the last one, do not count: it lies, or has mixed something up.

    Raises
    ------
    LostError
        It is not JSON of this shape.
    """
    try:
        found = msgspec.json.decode(body, type=Progress)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LostError(
            "wrong answer", f"the answer to {kind} has invalid offsets: {error}"
        ) from None
    offsets: dict[TopicPartition, int] = {}
    refused = 0
    for topic, number, offset in ((one.topic, one.partition, one.offset) for one in found.offsets):
        place = TopicPartition(topic, number)
        if place not in known or offset < (known[place] or 0):
            refused += 1
        else:
            offsets[place] = offset
    return WorkerReport(offsets, refused)
