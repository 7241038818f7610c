"""Futures of answers, which callers may cancel.

What a caller does with its future never reaches the thread that answers: a cancelled call is a
call whose answer is not wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coordinator.core.events import READING, Answer, Event

T = TypeVar("T")
logger = logging.getLogger("muster.coordinator")


def begin(future: Future[Any]) -> bool:
    """Whether the answer is still wanted; if so, the call cannot be cancelled from now on."""
    if future.done() and not future.cancelled():
        return False  # it has another answer
    try:
        return future.set_running_or_notify_cancel()
    except RuntimeError:
        return False


def set_answer(future: Future[T], value: T) -> None:
    """Answer the caller."""
    _settle(lambda: future.set_result(value))


def fail(future: Future[Any], error: BaseException) -> None:
    """Raise an error for the caller; one that was already answered keeps that answer."""
    _settle(lambda: future.set_exception(error))


class _Shaped(Future[T]):
    """What comes of another future's outcome: it is cancelled with that one, or not at all.

    A call whose turn has begun can no longer be cancelled, nor can what hangs on it.
    """

    def __init__(self, call: Future[Any]) -> None:
        super().__init__()
        self._call = call

    def cancel(self) -> bool:
        """Cancel the call; False once it is decided, or its turn has begun."""
        return self._call.cancel()

    def running(self) -> bool:
        """Whether the call can no longer be cancelled, and has no outcome yet."""
        return not self.done() and self._call.running()

    def end_cancelled(self) -> None:
        """Tell those who wait that the call was cancelled."""
        super().cancel()
        begin(self)


def then(future: Future[Any], shape: Callable[[Any], T]) -> Future[T]:
    """Return a future of what `shape` makes of an outcome; cancelling it cancels both."""
    out = _Shaped[T](future)

    def done(found: Future[Any]) -> None:
        if found.cancelled():
            out.end_cancelled()
        elif begin(out):
            try:
                set_answer(out, shape(found.result()))
            except Exception as error:  # noqa: BLE001 - handed to the caller
                fail(out, error)

    future.add_done_callback(done)
    return out


def _settle(change: Callable[[], None]) -> None:
    """Change a future and run its callbacks, even if it is done already or they raise."""
    try:
        change()
    except InvalidStateError:
        pass  # cancelled, or answered already
    except BaseException:
        logger.exception("what a caller does with an answer failed")


@dataclass(slots=True, eq=False)
class Item:
    """Events that are asked together, and who waits for the answers.

    Attributes
    ----------
    piece
        The events of this round: all, or as many as others can wait for.
    answers
        Those of the rounds before.
    weights
        Of the events; none where each weighs 1.
    must_wait
        Whether it was seen that it cannot be answered beside a large request.
    """

    events: list[Event]
    future: Future[Any]
    since: float
    call: Callable[[], object] | None = None
    piece: list[Event] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    must_wait: bool = False
    begun: bool = False

    def begin(self) -> bool:
        """Whether the answer is wanted; if so, it cannot be cancelled from now on."""
        self.begun = self.begun or begin(self.future)
        return self.begun

    def take_piece(self, room: int) -> int:
        """Take the next piece, one event at least, and return how much room it leaves."""
        begin = len(self.answers)
        if not self.weights:
            self.piece = self.events[begin : begin + room]
            return room - len(self.piece)
        end = begin
        while end < len(self.events) and (end == begin or self.weights[end] <= room):
            room -= self.weights[end]
            end += 1
        self.piece = self.events[begin:end]
        return room


def reads(item: Item) -> bool:
    """Whether an item changes nothing."""
    return item.call is None and all(isinstance(event, READING) for event in item.events)


def groups_of(item: Item) -> list[object]:
    """Return the group of each event of an item, None where it names none."""
    return [getattr(event, "group_id", None) for event in item.events]
