"""The shape of a group that is measured: its members, its topics, who subscribes to which.

Several processes of one measurement know it, so it needs nothing of the coordinator's.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "g"
EPOCH = 2
"""Of the group and its members, once they are settled."""
TOPICS = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a group is, and how scattered.

    Members own `ranges` pieces each, that lie apart: a line of all partitions is dealt out in
    rounds. With several subscription classes each has one topic of its own; with one class
    every member subscribes to all of the `topic_count` topics.
    """

    members: int
    each: int
    ranges: int = 1
    classes: int = 1
    topic_count: int = TOPICS

    def topics(self) -> dict[str, int]:
        """Return the topics and how many partitions each has."""
        count = self.topic_count if self.classes == 1 else self.classes
        partitions, left = divmod(self.members * self.each, count)
        assert left == partitions % self.each == 0, f"{self}: members do not fit into topics"
        return {f"t{number:06}": partitions for number in range(count)}

    def ids(self) -> list[str]:
        """Return the members."""
        return [member_id(number) for number in range(self.members)]

    def names(self, member: int) -> tuple[str, ...]:
        """Return the topics that a member subscribes to."""
        names = list(self.topics())
        return (
            tuple(names) if self.classes == 1 else (names[member * self.classes // self.members],)
        )


def in_thousands(members: int, each: int) -> Shape:
    """Return a group whose topics have 1,000 partitions; more where they would be over 1,000."""
    return Shape(members, each, topic_count=min(max(members * each // 1_000, 1), 1_000))


def member_id(number: int) -> str:
    return f"m{number:07}"


def small_group_id(number: int) -> str:
    return f"s{number:06}"


def spread_group_id(number: int) -> str:
    """Return the id of a group of a store of shards.

    Kafka's hash adds up the characters at even and at odd places, modulo 64: of ids that count
    upwards, one shard of 64 would have fifty times as many as another.
    """
    return f"s{number * 2_654_435_761 % 2**32:08x}"


def small_member_id(number: int, at: int = 0) -> str:
    """Return a member of a small group, by their numbers."""
    return f"m{number}-{at}" if at else f"m{number}"
