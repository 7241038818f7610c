"""What reached the coordinator, as operations that `muster trace` plays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from coordinator.core.events import (
    CatalogTopic,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    OffsetCommit,
    RegexesResolved,
    TopicsReported,
)

from .clock import EPOCH_MS

NAMES = {
    "instance_id": "instance_id",
    "rack_id": "rack",
    "subscribed_topic_names": "subscribed",
    "subscribed_topic_regex": "regex",
    "server_assignor": "server_assignor",
    "topic_partitions": "owned",
}
"""Fields of a heartbeat, and what a trace calls them."""


class Story:
    """Collects operations while a simulation runs."""

    def __init__(self, props: Mapping[str, object]) -> None:
        self._ops: list[dict[str, object]] = [{"op": "config", "now": EPOCH_MS, "props": props}]
        self._at = 0
        self._topics: dict[str, CatalogTopic] = {}
        self._lives = 0
        self.untold: set[str] = set()
        """What happened that no trace can tell."""

    def cannot_tell(self, what: str) -> None:
        """Note something that a trace has no operation for."""
        self.untold.add(what)

    def lines(self) -> Iterable[str]:
        """Yield the operations as JSON lines."""
        return (json.dumps(op) for op in self._ops)

    def _tell(self, now: int, op: dict[str, object]) -> None:
        if now > self._at:
            op["advance_ms"] = now - self._at
            self._at = now
        self._ops.append(op)

    def advance(self, now: int) -> None:
        """Timers fired."""
        if now > self._at:
            self._tell(now, {"op": "advance", "ms": 0})

    def reload(self, now: int) -> None:
        """A coordinator claimed the log and replayed it."""
        self._lives += 1
        if self._lives > 1:
            self._tell(now, {"op": "reload"})

    def topics(self, now: int, topics: Mapping[str, CatalogTopic]) -> None:
        """The coordinator saw these topics."""
        changed = {name: found for name, found in topics.items() if self._topics.get(name) != found}
        gone = sorted(self._topics.keys() - topics.keys())
        if not changed and not gone:
            return
        self._topics = dict(topics)
        if any(found.racks for found in changed.values()):
            self.cannot_tell("racks")
        op: dict[str, object] = {
            "op": "topics",
            "set": {name: found.partitions for name, found in changed.items()},
            "ids": {name: found.topic_id for name, found in changed.items()},
            "delete": gone,
        }
        self._tell(now, op)

    def asked(self, now: int, event: Event) -> None:
        """The coordinator decided an event."""
        if isinstance(event, TopicsReported | RegexesResolved):
            return  # `topics` sees them at once, and so are regexes resolved
        op: dict[str, object]
        if isinstance(event, Heartbeat):
            op = {"group": event.group_id, "member": event.member_id, "epoch": event.member_epoch}
            given = {name: getattr(event, field) for field, name in NAMES.items()}
            op |= {name: value for name, value in given.items() if value is not None}
            if event.rebalance_timeout_ms != -1:
                op["rebalance_timeout_ms"] = event.rebalance_timeout_ms
        elif isinstance(event, OffsetCommit):
            offsets = {
                topic: {str(partition): offset for partition, (offset, _) in found.items()}
                for topic, found in event.offsets.items()
            }
            op = {"op": "commit", "group": event.group_id, "member": event.member_id}
            op |= {"epoch": event.member_epoch, "offsets": offsets}
        elif isinstance(event, ConfigureGroup):
            op = {"op": "group_config", "group": event.group_id, "props": dict(event.settings)}
        elif isinstance(event, DeleteGroup | DescribeGroup):
            name = "describe" if isinstance(event, DescribeGroup) else "delete_group"
            op = {"op": name, "group": event.group_id}
        else:
            self.cannot_tell(type(event).__name__)
            return
        self._tell(now, op)
