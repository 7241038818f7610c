"""Futures of answers, which callers may cancel.

What a caller does with its future never reaches the thread that answers: a cancelled call is a
call whose answer is not wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

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


def then(future: Future[Any], shape: Callable[[Any], T]) -> Future[T]:
    """Return a future of what `shape` makes of an outcome; cancelling it cancels both."""
    out: Future[T] = Future()

    def done(found: Future[Any]) -> None:
        if not begin(out):
            return
        try:
            set_answer(out, shape(found.result()))
        except Exception as error:  # noqa: BLE001 - handed to the caller
            fail(out, error)

    future.add_done_callback(done)
    out.add_done_callback(lambda found: found.cancelled() and future.cancel())
    return out


def _settle(change: Callable[[], None]) -> None:
    """Change a future and run its callbacks, even if it is done already or they raise."""
    try:
        change()
    except InvalidStateError:
        pass  # cancelled, or answered already
    except BaseException:
        logger.exception("what a caller does with an answer failed")
