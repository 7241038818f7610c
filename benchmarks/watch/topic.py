"""The bytes of a `__consumer_offsets`: any batch of any partition can be asked for, none is kept.

Groups commit offsets, and now and then a member joins. Every batch has as many records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from crc32c import crc32c

from benchmarks.shape import small_group_id
from coordinator.core.java_hash import place_of
from coordinator.watcher.record_batches import CHECKED_FROM, HEAD, MAGIC
from tests.watcher import written as untyped

written: Any = untyped
PARTITIONS = 50
"""Kafka's default of `offsets.topic.num.partitions`."""
MEMBERS, HELD = 10, 10
BATCH = 10
"""Records of every batch: a commit of what a member has, or a member that joins."""
OFFSETS = 9
"""Of ten batches."""
TOPIC_ID = UUID(int=1)
TOPIC = "t"
EPOCH = struct.pack(">i", 0x7A7A7A7A)
"""Stands in a batch for the group's epoch."""
CRC_AT, FIRST_MS_AT, LAST_MS_AT = 17, 27, 35


class TopicBytes:
    """Groups of ten members, each in the partition that Kafka would give it.

    Parameters
    ----------
    groups
        How many; each has a tenth of its members' offsets in a batch.
    first_ms
        When the first batch of each partition was written; the next ones follow by a millisecond.
    commits
        Batches of offsets before each join.
    """

    def __init__(
        self, groups: int, first_ms: int, partitions: int = PARTITIONS, *, commits: int = OFFSETS
    ) -> None:
        self.first_ms, self.partitions, self._before_join = first_ms, partitions, commits
        self._groups: list[list[list[bytes]]] = [[] for _ in range(partitions)]
        for number in range(groups):
            group = small_group_id(number)
            self._groups[place_of(group, partitions)].append(_templates(group))

    def batches_for_all(self, partition: int) -> int:
        """Return the number of batches by which all members of all groups have joined."""
        return len(self._groups[partition]) * MEMBERS * (self._before_join + 1)

    def batch(self, partition: int, number: int, at_ms: int | None = None) -> bytes:
        """Return a batch of a partition."""
        groups = self._groups[partition]
        turn, group = divmod(number, len(groups))
        round_, kind = divmod(turn, self._before_join + 1)
        joins = kind == self._before_join
        member = (round_ if joins else turn) % MEMBERS
        raw = groups[group][member + MEMBERS * joins]
        if joins:
            raw = raw.replace(EPOCH, struct.pack(">i", round_ + 1))
        return stamp(raw, number * BATCH, self.first_ms + number if at_ms is None else at_ms)

    def commits(self, partition: int, turn: int, at_ms: int, offset: int) -> bytes:
        """Return the next batch of offsets alone."""
        groups = self._groups[partition]
        turn, group = divmod(turn, len(groups))
        return stamp(groups[group][turn % MEMBERS], offset, at_ms)


def joining(group: str, members: list[str], epoch: int) -> bytes:
    """Return what Kafka writes when the last of some members joins, to be stamped."""
    return _encode(_joins(group, members, len(members) - 1, struct.pack(">i", epoch)))


def stamp(raw: bytes, offset: int, at_ms: int) -> bytes:
    """Return a batch as it stands at an offset."""
    out = bytearray(raw)
    struct.pack_into(">q", out, 0, offset)
    struct.pack_into(">qq", out, FIRST_MS_AT, at_ms, at_ms)
    struct.pack_into(">I", out, CRC_AT, crc32c(bytes(out[CHECKED_FROM:])))
    return bytes(out)


def _templates(group: str) -> list[bytes]:
    """Return a group's commits, one a member, then its joins."""
    members = [f"{group}-{number}-{UUID(int=number)}" for number in range(MEMBERS)]
    commits = [
        [
            written.offset_of(group, TOPIC, partition, 1_000_000 + partition)
            for partition in range(number * HELD, (number + 1) * HELD)
        ]
        for number in range(MEMBERS)
    ]
    rows = [[(one.key, one.value) for one in some] for some in commits]
    joins = [_joins(group, members, number, EPOCH) for number in range(MEMBERS)]
    return [_encode(some) for some in (*rows, *joins)]


def _joins(group: str, members: list[str], number: int, epoch: bytes) -> list[tuple[bytes, bytes]]:
    at = int.from_bytes(epoch)
    key = {"group_id": group}

    def owner(index: int) -> tuple[dict[str, str], list[dict[str, object]]]:
        index %= len(members)
        first = index * HELD
        held = {"topic_id": TOPIC_ID, "partitions": list(range(first, first + HELD))}
        return {**key, "member_id": members[index]}, [held]

    member, held = owner(number)
    current = {**written.current(at, held), "previous_member_epoch": at, "state": 0}
    rows = [
        written.record(5, member, {**written.MEMBER, "subscribed_topic_names": [TOPIC]}),
        written.record(3, key, {"epoch": at}),
        *(
            written.record(7, who, {"topic_partitions": has})
            for who, has in map(owner, range(number, number + BATCH - 4))
        ),
        written.record(6, key, {"assignment_epoch": at, "assignment_timestamp": 1}),
        written.record(8, member, current),
    ]
    return [(row.key, row.value) for row in rows]


def _encode(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    rows = list(rows)
    body = b"".join(_record(number, *row) for number, row in enumerate(rows))
    length = HEAD.size - 12 + len(body)
    last = len(rows) - 1
    return HEAD.pack(0, length, 0, MAGIC, 0, 0, last, 0, 0, -1, -1, -1, len(rows)) + body


def _record(number: int, key: bytes, value: bytes) -> bytes:
    parts = (_varint(len(key)), key, _varint(len(value)), value)
    body = b"\0\0" + _varint(number) + b"".join(parts) + b"\0"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    number, out = number << 1, b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])
