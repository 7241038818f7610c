"""How a member reaches its coordinator: what each transport does, and what it answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.core.events import Heartbeat, HeartbeatResponse
from coordinator.errors import GroupError
from coordinator.member.events import MemberSettings


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets: TypeAlias = Mapping[TopicPartition, tuple[int, str]]
"""Offsets to commit, each with its metadata."""


class CoordinatorGoneError(GroupError):
    """The coordinator of this process was closed or fenced: it no longer answers."""

    @property
    def retriable(self) -> bool:
        """No: a request may be answered by another coordinator only."""
        return False


class Transport(Protocol):
    """A way to one coordinator, for one member.

    Its methods raise GroupError for what the coordinator refuses, and OSError (TimeoutError is one)
    without an answer.

    Attributes
    ----------
    session_ms
        The group's session timeout, where it is known.
    """

    session_ms: int | None

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        """Send a heartbeat; one at a time. Cancelled, it does not reach the coordinator later."""

    async def commit(self, settings: MemberSettings, epoch: int, offsets: Offsets) -> None:
        """Commit offsets as a member at an epoch; what is refused of them is raised."""

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return committed offsets, of those partitions that have one."""

    async def close(self) -> None:
        """End what was opened."""
