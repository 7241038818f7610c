"""Heartbeats that change nothing are answered while a large request is under way.

A step about 100,000 topics takes tens of milliseconds, however it is written, and so do the steps
of thousands of members with their commit; all that changes a state has one order, and waits for
them. A heartbeat of another group at rest changes nothing: its member would be fenced if many such
batches came one after the other. So a thread answers these, and only these, while the loop is in
such a batch: what it reads, the batch does not change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from coordinator.core.events import Event, TopicsReported
from coordinator.runtime.event_processor import EventProcessor

LOOK_S = 0.001
"""How long a heartbeat waits until it is seen."""


class BesideAnswers:
    """Answers steady heartbeats beside large requests, in a thread of its own.

    Parameters
    ----------
    answer
        Answers what waits and may be answered beside these groups, and returns its events; called
        in this thread, never while the loop is elsewhere than in a large request.
    """

    def __init__(
        self, processor: EventProcessor, answer: Callable[[frozenset[str]], list[Event]]
    ) -> None:
        self._processor = processor
        self._answer = answer
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._busy: frozenset[str] | None = None
        self._answered: list[Event] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muster-beside", daemon=True)

    def start(self) -> None:
        """Begin; nothing is answered outside of `during`."""
        self._thread.start()

    def close(self) -> None:
        """End, without waiting."""
        self._over.set()
        self._begun.set()

    @property
    def is_on(self) -> bool:
        """Whether heartbeats are answered beside a request now."""
        return self._busy is not None

    @contextmanager
    def during(self, events: Sequence[Event]) -> Iterator[None]:
        """Have heartbeats of other groups answered while a large request is decided."""
        groups = _list_groups(events)
        if len(groups) < len(events) or TopicsReported in set(map(type, events)):
            groups = []
        if not groups:
            yield
            return
        self._processor.confirm()  # no answer leaves before the log was seen to be ours
        with self._lock:
            self._busy = frozenset(groups)
        self._begun.set()
        try:
            yield
        finally:
            self._begun.clear()
            with self._lock:  # no answer is under way from here on
                self._busy = None
                answered, self._answered = self._answered, []
            self._processor.extend_beside(answered)

    def keep_off(self, events: Sequence[Event]) -> None:
        """Have these decided with the large request: nothing of their groups is answered beside."""
        with self._lock:  # no answer is under way from here on
            if self._busy is not None:
                self._busy |= frozenset(_list_groups(events))

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._begun.wait()
            with self._lock:
                if self._busy is not None and not self._over.is_set():
                    self._answered += self._answer(self._busy)


def _list_groups(events: Sequence[Event]) -> list[str]:
    """Return the group of each event; not of those of wrong types, or of no group or several."""
    named = (getattr(event, "group_id", None) for event in events)
    return [group for group in named if isinstance(group, str)]
