"""A store that has a very large group at rest, written by its log alone: columns, not joins.

Members own `ranges` pieces each, that lie apart: a line of all partitions is dealt out in rounds.
With several subscription classes each has topics of its own, and one topic is everybody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coordinator.config import Config
from coordinator.delta_log import DeltaLog
from coordinator.keeper import write_snapshot
from coordinator.records import (
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    MemberMetadata,
    Record,
    TargetMember,
    TargetMetadata,
    TopicChanged,
)
from coordinator.runtime import wall_ms
from coordinator.state import Topic
from coordinator.topics import DictCatalog, topic_id_of

GROUP = "g"
TOPICS = 100
BATCH = 50_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a group is, and how scattered."""

    members: int
    each: int
    ranges: int = 1
    classes: int = 1

    def topics(self) -> dict[str, int]:
        """Return the topics: `TOPICS` for one class, one for each of several."""
        count = TOPICS if self.classes == 1 else self.classes
        partitions = self.members * self.each // count
        return {f"t{number:04}": partitions for number in range(count)}

    def catalog(self) -> DictCatalog:
        """Return the topics as the coordinator sees them."""
        return DictCatalog(self.topics())

    def ids(self) -> list[str]:
        """Return the members."""
        return [f"m{number:07}" for number in range(self.members)]

    def names(self, member: int) -> tuple[str, ...]:
        """Return the topics that a member subscribes to."""
        names = list(self.topics())
        return (
            tuple(names) if self.classes == 1 else (names[member * self.classes // self.members],)
        )


def write(store: Path, shape: Shape) -> None:
    """Write the log of a group in which everybody is settled at epoch 2, and a snapshot."""
    topics = {
        name: Topic.of(name, topic_id_of(name), count, ()) for name, count in shape.topics().items()
    }
    total = sum(topic.hash for topic in topics.values()) % 2**64
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    log.append([TopicChanged(n, t.key.topic_id, t.partitions) for n, t in topics.items()], 1)
    settings = {"consumer.session.timeout.ms": "3600000", "consumer.assignor.engine": "spark"}
    facts = [
        GroupConfigured(GROUP, settings),
        GroupMetadata(GROUP, 2, total),
        TargetMetadata(GROUP, 2, 1, "uniform"),
    ]
    log.append(facts, 1)
    records: list[Record] = []
    for record in _members(shape, topics):
        records.append(record)
        if len(records) >= BATCH:
            log.append(records, 1)
            records = []
    log.append(records, 1)
    write_snapshot(log, wall_ms())
    log.close()


def _members(shape: Shape, topics: dict[str, Topic]) -> Iterator[Record]:
    keys = [topic.key for topic in topics.values()]
    width = next(iter(topics.values())).partitions
    piece = shape.each // shape.ranges
    in_round = piece * (width // shape.each)  # of one topic: its members' pieces side by side
    lists = {at: shape.names(at * shape.members // shape.classes) for at in range(shape.classes)}
    for number, member_id in enumerate(shape.ids()):
        line = number * shape.each
        key, place = keys[line // width], (line % width) // shape.each
        firsts = [turn * in_round + place * piece for turn in range(shape.ranges)]
        names = lists[number * shape.classes // shape.members]
        yield MemberMetadata(
            GROUP, member_id, subscribed_topic_names=names, rebalance_timeout_ms=60_000
        )
        yield TargetMember(GROUP, member_id, tuple((key, at, at + piece) for at in firsts))
        held = tuple((key, at, at + piece, 2) for at in firsts)
        yield CurrentMember(GROUP, member_id, 2, assigned=held)
