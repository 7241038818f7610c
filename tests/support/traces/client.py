"""A member of a trace, as the process behind it sees itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.events import HeartbeatResponse
from coordinator.core.state.partition_spans import TopicKey, kafka_id


@dataclass
class Client:
    """What the process behind a member remembers."""

    epoch: int = 0
    instance: str | None = None
    uses: set[tuple[TopicKey, int]] = field(default_factory=set)
    holds: bool = False
    interval_ms: int = 0

    def hear(self, response: HeartbeatResponse) -> None:
        """Take an answer in: what is not in it is given up with the next report."""
        self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
        if response.assignment is not None:
            given = {(key, p) for key, first, end in response.assignment for p in range(first, end)}
            self.uses = self.uses | given if self.holds else given

    def report(self) -> dict[str, list[int]]:
        """Return what it owns, by topic id."""
        found: dict[str, list[int]] = {}
        for key, partition in sorted(self.uses):
            found.setdefault(kafka_id(key.topic_id), []).append(partition)
        return found
