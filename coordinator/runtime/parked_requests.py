"""Joins and syncs of classic groups that wait for others, and those that no longer have to.

The core decides who waits for what. This module only keeps who is owed an answer: each waiting
request gets one answer, even if the group is deleted, or the log or the store fails.

`ParkedRequests` belongs to the event processor, `LaterAnswers` to the loop around it, which takes
the requests: a caller of many learns at once of all that no longer wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count
from threading import Lock
from typing import TypeAlias

import msgspec

from coordinator.core.classic_events import (
    WAITING,
    JoinGroup,
    JoinGroupResponse,
    Parked,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.events import Answer, Event, Result
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import Status, refusal
from coordinator.runtime import futures
from coordinator.wire.later_answer import LaterAnswer

ParkedRequest: TypeAlias = JoinGroup | SyncGroup


class ParkedRequests:
    """Requests that wait, by the number that the runtime gave them.

    Attributes
    ----------
    waiting
        Those without an answer, each with as little as its refusal takes: the member id that a join
        has or would get, None of a sync.

    Parameters
    ----------
    most
        So many may wait before newcomers are refused; 0: any number.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self.waiting: dict[int, str | None] = {}
        self._answered: list[tuple[int, str | None, Parked | None]] = []

    def refuse_newcomer(self, event: Event) -> None:
        """Refuse a newcomer's join while too many requests wait already.

        Those of members go on: they are as many as there are members, and others wait for them.

        Raises
        ------
        GroupError
            COORDINATOR_LOAD_IN_PROGRESS: clients try again.
        """
        if not isinstance(event, JoinGroup) or event.member_id:
            return
        if 0 < self._most <= len(self.waiting):
            raise GroupError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{len(self.waiting)} joins and syncs are already waiting "
                "(quotas.parked_requests_max): try again later.",
            )

    def settle(self, event: Event, result: Result) -> None:
        """Take in what a step decided that is durable: who waits now, and who no longer does."""
        for request_id, answer in result.completed:
            self._answer(request_id, answer)
        for request_id in result.superseded:
            self._answer(request_id, None)
        if result.response is WAITING:
            assert isinstance(event, ParkedRequest)
            self.waiting[event.request_id] = (
                event.member_id or event.drawn_id if isinstance(event, JoinGroup) else None
            )

    def release(self) -> None:
        """Refuse everyone, those too whose answers have not left: their groups are gone (H-38)."""
        self._answered = [
            *((number, who, answer and _refuse(who)) for number, who, answer in self._answered),
            *((number, who, _refuse(who)) for number, who in self.waiting.items()),
        ]
        self.waiting = {}

    @property
    def has_answered(self) -> bool:
        """Whether `take_answered` has something to return."""
        return bool(self._answered)

    def take_answered(self, most: int | None = None) -> list[tuple[int, Parked | None]]:
        """Return requests that no longer wait, at most this many, each once.

        None instead of an answer: the member asked again, or is gone, and does not wait for it.
        """
        found = self._answered[:most]
        del self._answered[: len(found)]
        return [(number, answer) for number, _, answer in found]

    def _answer(self, request_id: int, answer: Parked | None) -> None:
        if request_id in self.waiting:
            self._answered.append((request_id, self.waiting.pop(request_id), answer))


def _refuse(member_id: str | None) -> Parked:
    if member_id is None:
        return SyncGroupResponse(ErrorCode.NOT_COORDINATOR)
    return JoinGroupResponse(member_id, ErrorCode.NOT_COORDINATOR)


class LaterAnswers:
    """The futures of requests that wait."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lock = Lock()
        self._futures: dict[int, Future[Answer]] = {}

    def number(self, events: Sequence[Event]) -> list[Event]:
        """Give each request that may have to wait a number of its own; any thread may ask."""
        return [
            self._number(event) if isinstance(event, (JoinGroup, SyncGroup)) else event
            for event in events
        ]

    def _number(self, event: ParkedRequest) -> ParkedRequest:
        with self._lock:
            return msgspec.structs.replace(event, request_id=next(self._numbers))

    def promise(self, event: Event, answer: Answer) -> Answer:
        """Return an answer; of one that is still to come, its future."""
        if not isinstance(answer, Result) or answer.response is not WAITING:
            return answer
        assert isinstance(event, ParkedRequest)
        number = event.request_id
        future = self._futures[number] = Future()
        # A caller that cancels is gone: what hangs on the future is large, and the wait is long.
        future.add_done_callback(
            lambda found: found.cancelled() and self._futures.pop(number, None)
        )
        return msgspec.structs.replace(answer, response=LaterAnswer(future))

    def give(self, answered: Sequence[tuple[int, Parked | None]]) -> None:
        """Answer the requests that no longer have to wait.

        A client that asked again, or is no longer a member, must rejoin: a request that waits for
        nothing would hold up everything behind it on its connection.
        """
        for number, answer in answered:
            future = self._futures.pop(number, None)
            if future is not None:
                futures.set_answer(future, _superseded() if answer is None else Result([], answer))

    def refuse(self) -> None:
        """Refuse all requests that still wait: no more are decided."""
        left, self._futures = self._futures, {}
        for future in left.values():
            futures.set_answer(future, refusal(Status.CLOSED))


def _superseded() -> GroupError:
    return GroupError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        "The member sent another request, or is no longer a member: rejoin.",
    )
