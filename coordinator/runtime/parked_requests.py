"""Joins and syncs of classic groups that wait for others, and those that need not any more.

The core decides who waits for what. Here is only who is owed an answer: whatever becomes of the
group, the log or the store, everyone who waits gets one, once.
"""

from __future__ import annotations

from typing import TypeAlias

from coordinator.core.classic.events import (
    WAITING,
    JoinGroup,
    JoinGroupResponse,
    Parked,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.events import Event, Result
from coordinator.errors import ErrorCode

ParkedRequest: TypeAlias = JoinGroup | SyncGroup


class ParkedRequests:
    """Requests that wait, by the number that the runtime gave them.

    Attributes
    ----------
    waiting
        Those without an answer.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, ParkedRequest] = {}
        self._answered: list[tuple[ParkedRequest, Parked | None]] = []

    def settle(self, event: Event, result: Result) -> None:
        """Take in what a step decided that is durable: who waits now, and who no more."""
        for request_id, answer in result.completed:
            self._answer(request_id, answer)
        for request_id in result.superseded:
            self._answer(request_id, None)
        if result.response is WAITING:
            assert isinstance(event, ParkedRequest)
            self.waiting[event.request_id] = event

    def release(self) -> None:
        """Refuse everyone, those too whose answers have not left: their groups are gone (H-38)."""
        self._answered = [
            *((request, answer and _refuse(request)) for request, answer in self._answered),
            *((request, _refuse(request)) for request in self.waiting.values()),
        ]
        self.waiting = {}

    def take_answered(self) -> list[tuple[int, Parked | None]]:
        """Return those that need not wait any more, each once.

        None instead of an answer: the member asked again, or is gone, and nobody waits for it.
        """
        found, self._answered = self._answered, []
        return [(request.request_id, answer) for request, answer in found]

    def _answer(self, request_id: int, answer: Parked | None) -> None:
        request = self.waiting.pop(request_id, None)
        if request is not None:
            self._answered.append((request, answer))


def _refuse(request: ParkedRequest) -> Parked:
    if isinstance(request, SyncGroup):
        return SyncGroupResponse(ErrorCode.NOT_COORDINATOR)
    member_id = request.member_id or request.drawn_id
    return JoinGroupResponse(member_id, ErrorCode.NOT_COORDINATOR)
