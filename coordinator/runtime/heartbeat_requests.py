"""Heartbeats as methods, for callers in this process.

A request goes to the loop as an event; its answer comes back once its records are durable. Nothing
is decided here, and types are checked where the event is (`core.validate_types`), so that a request
of wrong types is answered like any other one that is refused.
"""

from __future__ import annotations

import inspect
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from coordinator.core.events import Answer, Event, Heartbeat, needs_member_id
from coordinator.core.state.groups import State
from coordinator.errors import GroupError
from coordinator.errors.status import Status, refusal
from coordinator.runtime import futures, responses
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.event_processor import EventProcessor, HeartbeatResult
from coordinator.runtime.responses import Answers, HeartbeatAnswer

P = ParamSpec("P")
T = TypeVar("T")


def _with_parameters_of(
    method: Callable[P, object],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a method the parameters of another one, for type checkers, for `help` and for pages."""

    def give(function: Callable[..., T]) -> Callable[P, T]:
        returns = inspect.signature(function).return_annotation
        signature = inspect.signature(method).replace(return_annotation=returns)
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return give


class HeartbeatRequests(ABC):
    """The heartbeats that a `Coordinator` answers; any thread may send them."""

    _processor: EventProcessor

    @property
    @abstractmethod
    def _loop(self) -> EventLoop:
        """The loop that serves requests."""

    def consumer_group_heartbeat(
        self,
        *,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: Sequence[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: Mapping[str, Sequence[int]] | None = None,
        client_id: str = "",
        client_host: str = "",
        version: int = 1,
    ) -> HeartbeatAnswer:
        """Join a group, stay in it, or leave it (ConsumerGroupHeartbeat of KIP-848).

        A field that you leave out keeps the value that the member last gave.

        Parameters
        ----------
        group_id
            The group; the first member to join creates it.
        member_id
            One incarnation of a member; the member chooses it, for example a UUID.
        member_epoch
            0 joins; the epoch of the last answer stays; −1 leaves; −2 leaves for a while (static).
        instance_id, rack_id
            The name of a static member, which outlives restarts; where the member runs.
        rebalance_timeout_ms
            How long the member may take to give up partitions; required to join. −1: unchanged.
        subscribed_topic_names, subscribed_topic_regex
            Topics by name and, in addition, by a regular expression of RE2.
        server_assignor
            The assignor that the member wants; the group takes the one that most members want.
        topic_partitions
            The partitions that the member owns now, by topic. A member that joins must give it
            ({}), and a member that gave up partitions reports so by leaving them out.
        client_id, client_host, version
            What consumer_group_describe says of the member; and the API's version: 0 lets a member
            join without a member_id, and gives it one.

        Returns
        -------
        HeartbeatAnswer
            The member's epoch, when to beat again, and the partitions that it may use, if they
            changed.

        Raises
        ------
        GroupError
            It was refused; Fenced: the member is no longer in the group and must rejoin.
        """
        fields = dict(locals())
        del fields["self"]
        return self.submit_heartbeat(**fields).result()

    @_with_parameters_of(consumer_group_heartbeat)
    def submit_heartbeat(self, **fields: Any) -> Future[HeartbeatAnswer]:  # noqa: ANN401
        """Send a heartbeat without waiting.

        Parameters
        ----------
        group_id, member_id, member_epoch, instance_id, rack_id, rebalance_timeout_ms
            As consumer_group_heartbeat takes them.
        subscribed_topic_names, subscribed_topic_regex, server_assignor, topic_partitions
            The same.
        client_id, client_host, version
            The same.

        Returns
        -------
        Future[HeartbeatAnswer]
            If it is cancelled before its turn, the heartbeat is not processed. Its result raises
            what consumer_group_heartbeat raises.
        """
        version = fields.pop("version", 1)
        event = Heartbeat(**fields)
        if needs_member_id(version, event.member_epoch, event.member_id):
            event = replace(event, member_id=str(uuid.uuid4()))
        found = self._loop.submit([event])
        return futures.then(found, _heartbeat_answer)

    def consumer_group_heartbeats(self, requests: Sequence[Heartbeat]) -> Answers[HeartbeatAnswer]:
        """Answer many heartbeats, of any groups, as one batch with one commit.

        Parameters
        ----------
        requests
            In the order in which they are decided.

        Returns
        -------
        Answers of HeartbeatAnswer
            One per request, in order, with its error; `raise_for_error()` raises the first.
        """
        answers = self._loop.submit(list(requests)).result()
        return responses.Answers(responses.heartbeat_answer(answer) for answer in answers)

    def steady_heartbeats(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int]
    ) -> Answers[HeartbeatAnswer]:
        """Answer heartbeats of one group that change nothing, many at a time.

        Parameters
        ----------
        group_id
            The group of all members.
        member_ids, member_epochs
            One per heartbeat, in order; both of shape (heartbeats,).

        Returns
        -------
        Answers of HeartbeatAnswer
            One per heartbeat, in order, with its error; `raise_for_error()` raises the first.

        Raises
        ------
        ValueError
            There are more ids than epochs, or fewer.
        """
        if len(member_ids) != len(member_epochs):
            raise ValueError(
                f"{len(member_ids)} ids and {len(member_epochs)} epochs: give one epoch per id"
            )
        processor = self._processor

        answers: list[HeartbeatResult]
        loop = self._loop
        try:
            answers = loop.call(
                lambda: processor.run_heartbeats(group_id, member_ids, member_epochs)
            ).result()
        except GroupError as closed:
            answers = [closed] * len(member_ids)
        return responses.heartbeat_answers(member_ids, answers)

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit many requests as one batch, without waiting.

        Parameters
        ----------
        events
            In the order in which they are decided.

        Returns
        -------
        Future of list
            One answer per event, in order. If it is cancelled before its turn, the batch is not
            processed. Of a join or a sync of a classic group that has to wait for other members,
            the response is a `LaterAnswer`, whose future has the answer.
        """
        return self._loop.submit(list(events))

    def is_large(self, event: Event) -> bool:
        """Whether an event is better submitted alone: others of its batch would wait for it.

        Parameters
        ----------
        event
            The event to submit.

        Returns
        -------
        bool
            Whether it is about very many topics or offsets.
        """
        return self._loop.is_large(event)

    def _read(self, look: Callable[[State], T]) -> T:
        """Read the state in the loop's thread; it may leave only while the log is ours."""

        def read() -> T:
            if self._processor.status is not Status.ACTIVE:
                raise refusal(self._processor.status)
            found = look(self._processor.state)
            if not self._processor.confirm():
                raise refusal(self._processor.status)
            return found

        return self._loop.call(read).result()

    def _ask(self, event: Event) -> Any:  # noqa: ANN401 - each event has its own response
        """Return the response to a request, or raise its error."""
        (answer,) = self._loop.submit([event]).result()
        if isinstance(answer, GroupError):
            raise GroupError(answer.code, answer.message)  # of this caller: others may have it too
        return answer.response


def _heartbeat_answer(answers: Sequence[Answer]) -> HeartbeatAnswer:
    """Return the only answer, or raise its error."""
    (answer,) = answers
    if isinstance(answer, GroupError):
        raise GroupError(answer.code, answer.message)  # of this caller: others may have it too
    return responses.heartbeat_answer(answer)
