"""The event processor, with a listener for what it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.core.events import Answer, Event
from coordinator.core.state.groups import State
from coordinator.runtime.event_processor import EventProcessor
from tests.support.traces.text import event_text


class WatchedProcessor(EventProcessor):
    """As `EventProcessor`; `coming` gets each event, with the state that it comes to."""

    coming: Callable[[Event, State], None] = staticmethod(lambda *_: None)

    def run(self, events: Sequence[Event]) -> list[Answer]:
        """As `EventProcessor.run`."""
        for event in events:
            self.coming(event, self.state)
        return super().run(events)


class OneByOne(EventProcessor):
    """As `EventProcessor`, but each event is a batch, and `watch` is called before the next is decided.

    It gets the event as a command, the event, and its answer, once its records are durable.
    """

    watch: Callable[[str, Event, Answer], None] = staticmethod(lambda *_: None)

    def run(self, events: Sequence[Event]) -> list[Answer]:
        """As `EventProcessor.run`."""
        answers: list[Answer] = []
        for event in events:
            text = event_text(event, self.state)
            (answer,) = super().run([event])
            self.watch(text, event, answer)
            answers.append(answer)
        return answers
