"""Brings each event to the coordinator that has its group, among those of one process.

An event about a group goes to its shard; one about all groups to every shard that is here, and
their answers are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, Protocol

from coordinator.core.events import (
    Answer,
    Event,
    ListConfiguredGroups,
    ListGroupIds,
    ListGroups,
    RecordAudit,
    Result,
)
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import Status, refusal

OF_ALL = (ListGroups, ListGroupIds, ListConfiguredGroups)
"""What is asked about all groups; answers are lists in the order of the groups' ids."""


class Submitter(Protocol):
    """What a router needs of a coordinator."""

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events as one batch, without waiting."""

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""


class Router:
    """Splits batches by shard, and joins the answers.

    Parameters
    ----------
    find
        From a group's id to its coordinator here, or to the error that refuses its requests.
    every
        All coordinators here, in an order that stays.
    refuse
        The error of an event that its group's coordinator is not to see; None of any other.
    """

    def __init__(
        self,
        find: Callable[[str], Submitter | GroupError],
        every: Callable[[], Sequence[Submitter]],
        refuse: Callable[[Event], GroupError | None] = lambda _: None,
    ) -> None:
        self._find, self._every, self._refuse = find, every, refuse

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""
        place = self._find(event.group_id) if hasattr(event, "group_id") else None
        return place is not None and not isinstance(place, GroupError) and place.is_large(event)

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events, each to the coordinator of its group; one answer an event, in order."""
        answers: list[Answer] = [refusal(Status.STANDS_BY)] * len(events)
        batches: dict[int, tuple[Submitter, list[int], list[Event]]] = {}
        asked: list[tuple[Future[list[Answer]], list[int]]] = []
        whole: list[tuple[Future[list[Answer]], int]] = []
        for at, event in enumerate(events):
            if isinstance(event, OF_ALL):
                whole.append((self._ask_all(event), at))
                continue
            place = self._place_of(event)
            if isinstance(place, GroupError):
                answers[at] = place
            elif place is not None:
                _, places, batch = batches.setdefault(id(place), (place, [], []))
                places.append(at)
                batch.append(event)
        if len(batches) == 1 and not whole:
            (place, places, batch) = next(iter(batches.values()))
            if len(places) == len(events):
                return place.submit(batch)
        asked = [(place.submit(batch), places) for place, places, batch in batches.values()]
        asked += [(future, [at]) for future, at in whole]
        return _join(answers, asked)

    def _place_of(self, event: Event) -> Submitter | GroupError | None:
        """Return who decides about an event that is not about all groups."""
        if isinstance(event, RecordAudit):  # of connections, which are of no shard
            return next(iter(self._every()), None)
        return self._refuse(event) or self._find(event.group_id)  # type: ignore[union-attr] # every other one has it

    def _ask_all(self, event: Any) -> Future[list[Answer]]:  # noqa: ANN401 - one of OF_ALL
        """Ask every coordinator here; the answer is one list."""
        found: list[Answer] = []
        places = self._every()
        if isinstance(event, ListGroups) and event.group_ids is not None:
            ids: dict[int, list[str]] = {}
            known = {id(place): place for place in places}
            for group_id in event.group_ids:
                place = self._find(group_id)
                if not isinstance(place, GroupError):
                    ids.setdefault(id(place), []).append(group_id)
            parts = [
                (known[place].submit([_only(event, some)]), [at])
                for at, (place, some) in enumerate(ids.items())
                if place in known
            ]
        else:
            parts = [(place.submit([event]), [at]) for at, place in enumerate(places)]
        found = [Result(response=[])] * len(parts)
        joined = _join(found, parts)
        future: Future[list[Answer]] = Future()
        joined.add_done_callback(lambda done: future.set_result([_concatenate(done.result())]))
        return future


def _only(event: ListGroups, group_ids: Sequence[str]) -> ListGroups:
    return ListGroups(event.states, event.types, group_ids)


def _concatenate(answers: Sequence[Answer]) -> Answer:
    """Return lists of groups as one, by id; a shard that is gone again has none here."""
    rows: list[Any] = []
    for answer in answers:
        if isinstance(answer, GroupError):
            if answer.code != ErrorCode.NOT_COORDINATOR:
                return answer
            continue
        rows += answer.response  # type: ignore[arg-type] # a list, of these events
    return Result(response=sorted(rows, key=_id_of))


def _id_of(row: Any) -> str:  # noqa: ANN401 - an id, or a row of ListGroups
    return row if isinstance(row, str) else row["group_id"]


def _join(
    answers: list[Answer], asked: Sequence[tuple[Future[list[Answer]], Sequence[int]]]
) -> Future[list[Answer]]:
    """Return a future of all answers, once each batch has put its own in their places."""
    future: Future[list[Answer]] = Future()
    left, lock = [len(asked)], Lock()
    if not asked:
        future.set_result(answers)
        return future

    def put(done: Future[list[Answer]], places: Sequence[int]) -> None:
        try:
            for at, answer in zip(places, done.result(), strict=True):
                answers[at] = answer
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            with lock:
                left[0] = 0
                if not future.done():
                    future.set_exception(error)
            return
        with lock:
            left[0] -= 1
            if left[0] == 0:
                future.set_result(answers)

    for batch, places in asked:
        batch.add_done_callback(partial(put, places=places))
    return future
