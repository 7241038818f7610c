"""The transport to a `Coordinator` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from copy import copy
from typing import TYPE_CHECKING, Any

from coordinator.config.kafka import group_value
from coordinator.core.events import (
    JOIN,
    CommittedOffset,
    Event,
    Heartbeat,
    HeartbeatResponse,
    OffsetCommit,
    OffsetFetch,
    Result,
)
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import LOST
from coordinator.member.events import MemberSettings
from coordinator.member.transport import CoordinatorGoneError, Offsets, TopicPartition

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator


class InProcess:
    """Requests of a member as events of a coordinator's loop.

    Parameters
    ----------
    coordinator
        What answers; it stays open when the transport closes.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.session_ms: int | None = None

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        """Send a heartbeat. A join also looks up the group's session timeout."""
        response = await self._ask(request)
        assert isinstance(response, HeartbeatResponse)
        if request.member_epoch == JOIN:
            self.session_ms = await asyncio.to_thread(self._session_timeout_ms, request.group_id)
        return response

    def _session_timeout_ms(self, group_id: str) -> int:
        settings = self._coordinator.describe_group_config(group_id)
        kafka = self._coordinator.config.kafka
        return group_value(kafka, settings, "consumer.session.timeout.ms")

    async def commit(self, settings: MemberSettings, epoch: int, offsets: Offsets) -> None:
        """Commit offsets; refused, none of them is."""
        topics: dict[str, dict[int, CommittedOffset]] = {}
        for partition, offset in offsets.items():
            topics.setdefault(partition.topic, {})[partition.partition] = CommittedOffset(*offset)
        outcome = await self._ask(
            OffsetCommit(settings.group_id, settings.member_id, epoch, topics)
        )
        for topic, partitions in outcome.items():
            for number, code in partitions.items():
                if code is not ErrorCode.NONE:
                    raise GroupError(code, f"{topic}-{number}: its offset is refused: {code.name}")

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return committed offsets."""
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        found = await self._ask(OffsetFetch(group_id, topics))
        return {
            place: int(record.offset)
            for place in partitions
            if (record := found[place.topic][place.partition]) is not None
        }

    async def close(self) -> None:
        """Do nothing: the coordinator is its owner's."""

    async def _ask(self, event: Event) -> Any:  # noqa: ANN401 - each event has its own response
        try:
            (answer,) = await asyncio.wrap_future(self._coordinator.submit([event]))
        except GroupError as error:  # of a fork
            raise CoordinatorGoneError(error.code, error.message) from error
        if isinstance(answer, GroupError):
            if self._coordinator.status in LOST:
                raise CoordinatorGoneError(answer.code, answer.message)
            raise copy(answer)  # others may hold it, and tracebacks would pile up on it
        assert isinstance(answer, Result)
        return answer.response
