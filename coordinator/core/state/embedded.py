"""Parse and write the embedded consumer protocol: what members send in JoinGroup and SyncGroup.

ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. Only for protocol type
`consumer` does the coordinator look inside; what does not parse is passed on all the same.

A version stands before each, a newer one than ours is read as far as ours goes, and what comes
after a message is left alone. A length below -1, which no client writes and Kafka takes for null,
is malformed here. kio writes them, but does not read them: it reserves memory for as many elements
as a count says before it looks whether their bytes are there, so that ten bytes end the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np

from assignors.arrays import Ints

HEAD_OF_ASSIGNMENT, SHORT, LONG = struct.Struct(">hi"), struct.Struct(">h"), struct.Struct(">i")

HIGHEST_VERSION = 3
WITH_OWNED, WITH_GENERATION, WITH_RACK = 1, 2, 3
"""The versions from which a subscription has them."""
VERSION_BYTES = 2


class MalformedError(ValueError):
    """Bytes that do not parse as a subscription or an assignment."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription that a consumer sends to the leader."""

    version: int
    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment that a leader sends to a consumer."""

    version: int
    partitions: Mapping[str, Sequence[int] | Ints]
    user_data: bytes | None = None


def read_subscription(raw: bytes, version: int | None = None) -> Subscription:
    """Parse the bytes of a subscription.

    Parameters
    ----------
    version
        Parse them as this version instead of their own, and ignore later fields.

    Raises
    ------
    MalformedError
        They are not a subscription.
    """
    given = _read_version(raw)
    version = given if version is None else min(version, given)
    message = _Message(raw)
    try:
        return Subscription(
            version=version,
            topics=[message.text() for _ in range(message.count("topics"))],
            user_data=message.data(),
            owned=message.partitions() if version >= WITH_OWNED else {},
            generation=message.number() if version >= WITH_GENERATION else -1,
            rack=message.text_or_none() if version >= WITH_RACK else None,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from None


def write_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, of its version."""
    version = subscription.version
    module, write = _find_schema(version)
    fields: dict[str, Any] = {
        "topics": tuple(subscription.topics),
        "user_data": subscription.user_data,
    }
    if version >= WITH_OWNED:
        fields["owned_partitions"] = _as_partitions(module, subscription.owned)
    if version >= WITH_GENERATION:
        fields["generation_id"] = subscription.generation
    if version >= WITH_RACK:
        fields["rack_id"] = subscription.rack
    message = module.ConsumerProtocolSubscription(**fields)
    return _write(write, version, message)


@cache
def _find_schema(version: int) -> tuple[Any, Any]:
    """Return kio's module of a version, and what writes it; a reader waits for neither."""
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    write = import_module("kio.serial").entity_writer(module.ConsumerProtocolSubscription)
    return module, write


def read_assignment(raw: bytes) -> Assignment:
    """Parse the bytes of an assignment.

    Raises
    ------
    MalformedError
        They are not an assignment.
    """
    version = _read_version(raw)
    message = _Message(raw)
    try:
        return Assignment(version, message.partitions(), message.data())
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from None


def write_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment, of its version.

    Written by hand, exactly as kio does, because a group may have very many partitions; all
    versions are the same.
    """
    out = [HEAD_OF_ASSIGNMENT.pack(assignment.version, len(assignment.partitions))]
    for name, numbers in assignment.partitions.items():
        raw = name.encode()
        listed = np.asarray(numbers, dtype=">i4")
        out += (SHORT.pack(len(raw)), raw, LONG.pack(len(listed)), listed.tobytes())
    data = assignment.user_data
    out += (LONG.pack(-1),) if data is None else (LONG.pack(len(data)), data)
    return b"".join(out)


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics that members subscribe to, or None if a subscription does not parse."""
    found: set[str] = set()
    try:
        for raw in set(metadata):
            found.update(read_subscription(raw, 0).topics)
    except MalformedError:
        return None
    return frozenset(found)


def _read_version(raw: bytes) -> int:
    """Return the version by which to read; a newer one than ours is read as far as ours goes."""
    if len(raw) < VERSION_BYTES:
        raise MalformedError(f"{len(raw)} bytes, {VERSION_BYTES} are needed")
    version = int.from_bytes(raw[:VERSION_BYTES], signed=True)
    if version < 0:
        raise MalformedError(f"version {version}")
    return min(version, HIGHEST_VERSION)


class _Message:
    """The bytes of a message behind its version, taken one field after the other."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = VERSION_BYTES

    def number(self) -> int:
        """Take a number."""
        return self._number(LONG)

    def count(self, what: str) -> int:
        """Take how many elements follow: each has a byte at least."""
        count = self._number(LONG)
        if not 0 <= count <= len(self._raw) - self._at:
            left = len(self._raw) - self._at
            raise MalformedError(f"{count} {what} are announced where {left} bytes are left")
        return count

    def text(self) -> str:
        """Take a text."""
        found = self.text_or_none()
        if found is None:
            raise MalformedError("a text is null")
        return found

    def text_or_none(self) -> str | None:
        """Take a text, or null."""
        found = self._take(self._number(SHORT))
        return None if found is None else found.decode()

    def data(self) -> bytes | None:
        """Take bytes, or null."""
        return self._take(self._number(LONG))

    def partitions(self) -> dict[str, list[int]]:
        """Take numbers of partitions by topic."""
        found: dict[str, list[int]] = {}
        for _ in range(self.count("topics")):
            topic = self.text()
            count = self.count("partitions")
            numbers = struct.unpack_from(f">{count}i", self._raw, self._at)
            self._at += count * LONG.size
            found.setdefault(topic, []).extend(numbers)
        return found

    def _number(self, form: struct.Struct) -> int:
        (found,) = form.unpack_from(self._raw, self._at)
        self._at += form.size
        return int(found)

    def _take(self, length: int) -> bytes | None:
        if length == -1:
            return None
        end = self._at + length
        if not self._at <= end <= len(self._raw):
            left = len(self._raw) - self._at
            raise MalformedError(f"{length} bytes are announced where {left} are left")
        found, self._at = self._raw[self._at : end], end
        return found


def _write(write: Any, version: int, message: Any) -> bytes:  # noqa: ANN401 - kio's
    out = BytesIO(version.to_bytes(VERSION_BYTES))
    out.seek(VERSION_BYTES)
    write(out, message)
    return out.getvalue()


def _as_partitions(module: Any, topics: Mapping[str, Sequence[int]]) -> tuple[Any, ...]:  # noqa: ANN401
    return tuple(
        module.TopicPartition(topic=name, partitions=tuple(numbers))
        for name, numbers in topics.items()
    )
