"""The protocol inside the protocol: what consumers tell each other in JoinGroup and SyncGroup.

ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. Only for protocol type
`consumer` does the coordinator look inside; what does not parse is passed on all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

HIGHEST_VERSION = 3
WITH_OWNED, WITH_GENERATION, WITH_RACK = 1, 2, 3
"""The versions from which a subscription has them."""


class MalformedError(ValueError):
    """Bytes that are no subscription, or no assignment."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer tells its leader."""

    version: int
    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a leader gives a consumer."""

    version: int
    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None


class _Reader:
    """Reads the fields of a message one after another."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def version(self) -> int:
        """Return the version; a newer one than ours is read as far as ours goes."""
        version = self.number("h")
        if version < 0:
            raise MalformedError(f"version {version}")
        return min(version, HIGHEST_VERSION)

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        raw = self._take(size)
        return int(struct.unpack(f">{form}", raw)[0])

    def text(self) -> str | None:
        size = self.number("h")
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedError(str(error)) from None

    def name(self) -> str:
        found = self.text()
        if found is None:
            raise MalformedError("a topic without a name")
        return found

    def data(self) -> bytes | None:
        size = self.number("i")
        return None if size < 0 else self._take(size)

    def count(self, least_bytes: int) -> int:
        """Return how many elements follow: no more than there can be."""
        count = self.number("i")
        if count < 0 or count * least_bytes > len(self._raw) - self._at:
            raise MalformedError(f"{count} elements")
        return count

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count(6)):
            name = self.name()
            raw = self._take(4 * self.count(4))
            found.setdefault(name, []).extend(struct.unpack(f">{len(raw) // 4}i", raw))
        return found

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._raw):
            raise MalformedError(f"{len(self._raw)} bytes, {end} are needed")
        found = self._raw[self._at : end]
        self._at = end
        return found


def read_subscription(raw: bytes, version: int | None = None) -> Subscription:
    """Return what the bytes of a subscription say.

    Parameters
    ----------
    version
        Read them as of this one, whatever they are; later fields are left out.

    Raises
    ------
    MalformedError
        They are none.
    """
    reader = _Reader(raw)
    given = reader.version()
    version = given if version is None else min(version, given)
    topics = [reader.name() for _ in range(reader.count(2))]
    user_data = reader.data()
    return Subscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned=reader.partitions() if version >= WITH_OWNED else {},
        generation=reader.number("i") if version >= WITH_GENERATION else -1,
        rack=reader.text() if version >= WITH_RACK else None,
    )


def write_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, of its version."""
    version = subscription.version
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    parts += [_text(name) for name in subscription.topics]
    parts.append(_data(subscription.user_data))
    if version >= WITH_OWNED:
        parts.append(_partitions(subscription.owned))
    if version >= WITH_GENERATION:
        parts.append(struct.pack(">i", subscription.generation))
    if version >= WITH_RACK:
        parts.append(_text(subscription.rack))
    return b"".join(parts)


def read_assignment(raw: bytes) -> Assignment:
    """Return what the bytes of an assignment say.

    Raises
    ------
    MalformedError
        They are none.
    """
    reader = _Reader(raw)
    version = reader.version()
    partitions = reader.partitions()
    return Assignment(version, partitions, reader.data())


def write_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment, of its version."""
    return b"".join(
        [
            struct.pack(">h", assignment.version),
            _partitions(assignment.partitions),
            _data(assignment.user_data),
        ]
    )


def topics_of(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics that members subscribe to; None where one's bytes do not say."""
    found: set[str] = set()
    try:
        for raw in set(metadata):
            found.update(read_subscription(raw, 0).topics)
    except MalformedError:
        return None
    return frozenset(found)


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _data(raw: bytes | None) -> bytes:
    return struct.pack(">i", -1) if raw is None else struct.pack(">i", len(raw)) + raw


def _partitions(topics: Mapping[str, Sequence[int]]) -> bytes:
    parts = [struct.pack(">i", len(topics))]
    for name, numbers in topics.items():
        parts.append(_text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)
