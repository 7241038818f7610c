"""The event processor, with somebody who is told each event and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.core.events import Answer, Event
from coordinator.runtime.event_processor import Runner
from tests.support.trace_text import event_text

Watch = Callable[[str, Event, Answer], None]
"""Called with an event as a command, the event, and its answer."""


class WatchedRunner(Runner):
    """As `Runner`; `watch` is told what was decided, once its records are durable."""

    watch: Watch = staticmethod(lambda *_: None)

    def run(self, events: Sequence[Event]) -> list[Answer]:
        """As `Runner.run`."""
        texts = [event_text(event, self.state) for event in events]
        answers = super().run(events)
        for told in zip(texts, events, answers, strict=True):
            self.watch(*told)
        return answers


class OneByOne(WatchedRunner):
    """As `WatchedRunner`, but each event is a batch: one is told before the next is decided."""

    def run(self, events: Sequence[Event]) -> list[Answer]:
        """As `Runner.run`."""
        return [answer for event in events for answer in super(OneByOne, self).run([event])]
