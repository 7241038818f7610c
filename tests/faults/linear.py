"""Whether a history of one object is linearizable: the search of Wing and Gong, as Lowe has it.

A history is linearizable if each operation can be given one moment between its request and its
answer, so that in the order of these moments each answer is what the object's model says. The
search takes any operation that no other one must precede, and goes back where the model refuses
all of them; what it has seen (which operations are done, and the state then) it tries only once.
An operation without an answer may have happened at any time after its request, or never.

J. Wing, C. Gong: Testing and verifying concurrent objects (1993); G. Lowe: Testing for
linearizability (2017). Objects are checked one by one, which is enough (P-compositionality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """What a client asked, and was answered.

    Attributes
    ----------
    kind
        "read", "write", or "learn": the client was answered something that follows from the state.
    value
        What was written, or read.
    asked_at, answered_at
        Seconds of one clock; NEVER without an answer.
    """

    client: int
    kind: str
    value: int
    asked_at: float
    answered_at: float = NEVER


Model: TypeAlias = Callable[[int, Operation], int | None]
"""Returns the state after an operation, or None where the operation's answer is wrong."""


def register(state: int, operation: Operation) -> int | None:
    """Model a committed offset: a read returns what was written last."""
    if operation.kind == "write":
        return operation.value
    return state if operation.value == state else None


def epoch(state: int, operation: Operation) -> int | None:
    """Model an epoch, which rises by itself: a read never returns less than was known before."""
    if operation.kind == "learn":
        return max(state, operation.value)
    return operation.value if operation.value >= state else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the search found; true if the history is linearizable.

    Attributes
    ----------
    order
        The operations in an order that the model allows; if there is none, the longest one found.
    stuck
        What could not follow it; empty if the history is linearizable.
    """

    order: tuple[Operation, ...]
    stuck: tuple[Operation, ...] = ()

    def __bool__(self) -> bool:
        return not self.stuck

    def __str__(self) -> str:
        last = "".join(f"\n  {one}" for one in self.order[-5:])
        stuck = "".join(f"\n  {one}" for one in self.stuck)
        return f"{len(self.order)} operations in order, the last of them{last}\nthen none of{stuck}"


def certain(operations: Iterable[Operation]) -> list[Operation]:
    """Leave out what cannot decide: reads without an answer, and such writes that were never read.

    Values are written once each, so a write that was not read may as well not have happened.
    """
    operations = list(operations)
    read = {one.value for one in operations if one.kind == "read" and one.answered_at < NEVER}
    return [
        one
        for one in operations
        if one.answered_at < NEVER or (one.kind == "write" and one.value in read)
    ]


@dataclass(slots=True)
class _Event:
    """A request or an answer in a list of two directions."""

    number: int
    is_answer: bool
    before: _Event = field(init=False)
    after: _Event | None = field(default=None, init=False)

    def take(self) -> None:
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def put_back(self) -> None:
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def linearize(operations: Sequence[Operation], model: Model, state: int) -> Verdict:
    """Search an order of the operations that agrees with the model and with their times.

    Parameters
    ----------
    state
        Of the object before the first operation.
    """
    return _Search(operations, model, state).verdict()


class _Search:
    """What is left of a history, and what was taken from it, in which order."""

    def __init__(self, operations: Sequence[Operation], model: Model, state: int) -> None:
        self._operations, self._model, self._state = operations, model, state
        self._head, self._answers = _events(operations)
        self._left = len(self._answers)
        self._bits = 0
        self._seen: set[tuple[int, int]] = set()
        self._done: list[tuple[_Event, int]] = []
        self._longest: list[int] = []
        self._stuck: list[int] = []

    def verdict(self) -> Verdict:
        """Search."""
        event = self._head.after
        while self._left:
            assert event is not None, "an answer that is left stands in the list"
            if not event.is_answer:
                event = self._head.after if self._happens(event) else event.after
                continue
            if len(self._done) >= len(self._longest):
                self._longest = [one.number for one, _ in self._done]
                self._stuck = _until(self._head, event)
            if not self._done:
                return Verdict(self._named(self._longest), self._named(self._stuck))
            event = self._back()
        return Verdict(self._named([one.number for one, _ in self._done]))

    def _happens(self, request: _Event) -> bool:
        """Let an operation happen next; False if it cannot, or that was tried."""
        found = self._model(self._state, self._operations[request.number])
        if found is None or (bits := self._bits | 1 << request.number, found) in self._seen:
            return False
        self._seen.add((bits, found))
        self._done.append((request, self._state))
        self._bits, self._state = bits, found
        request.take()
        if request.number in self._answers:
            self._answers[request.number].take()
            self._left -= 1
        return True

    def _back(self) -> _Event | None:
        """Undo the last operation; returns what to try instead."""
        request, self._state = self._done.pop()
        self._bits &= ~(1 << request.number)
        if request.number in self._answers:
            self._answers[request.number].put_back()
            self._left += 1
        request.put_back()
        return request.after

    def _named(self, numbers: Iterable[int]) -> tuple[Operation, ...]:
        return tuple(self._operations[one] for one in numbers)


def _events(operations: Sequence[Operation]) -> tuple[_Event, dict[int, _Event]]:
    """Return the head of the list, and the answers; at one moment, requests come first."""
    moments = [(one.asked_at, False, number) for number, one in enumerate(operations)]
    moments += [
        (one.answered_at, True, number)
        for number, one in enumerate(operations)
        if one.answered_at < NEVER
    ]
    head = last = _Event(-1, False)
    answers = {}
    for _, is_answer, number in sorted(moments):
        event = _Event(number, is_answer)
        last.after, event.before = event, last
        last = event
        if is_answer:
            answers[number] = event
    return head, answers


def _until(head: _Event, end: _Event) -> list[int]:
    """Return the operations that were tried: those asked before an answer that is left."""
    found, event = [], head.after
    while event is not end and event is not None:
        found.append(event.number)
        event = event.after
    return found
