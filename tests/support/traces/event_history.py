"""What came to a coordinator last, in the syntax of tests/traces: printed when an invariant fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.config import Config
from coordinator.config.kafka import kafka_config, kafka_settings
from coordinator.core.events import Event
from coordinator.core.state.groups import State
from tests.support.traces.text import duration, event_text

AT_ONCE = {"group.consumer.assignment.interval.ms": 0}
"""Where the settings of a trace differ from Kafka's defaults."""
CHECK, ENGINE = "lease.check_ms", "engine.timeout_ms"
EVENTS_KEPT = 200
"""As many as a person may want to read, and more than most tests send."""


class EventHistory:
    """The last events of one store.

    Parameters
    ----------
    config
        The coordinator's settings; unusual ones are printed.
    now_ms
        When it begins.
    """

    def __init__(self, config: Config, now_ms: int) -> None:
        usual = kafka_settings(kafka_config(AT_ONCE))
        found = kafka_settings(config.kafka)
        ours = {CHECK: config.lease.check_ms, ENGINE: config.engine.timeout_ms}
        self._config = [f"{n}={v}" for n, v in found.items() if v != usual[n]]
        self._config += [f"{name}={value}" for name, value in ours.items()]
        self._now = now_ms
        self._lines: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._count = 0

    def add(self, event: Event, state: State, now_ms: int) -> None:
        """Note an event before it is decided; `state` is the one that it comes to."""
        try:
            text = event_text(event, state)
        except (AttributeError, LookupError, TypeError, ValueError):
            text = f"# {event!r}"  # an event whose fields have wrong types: tests send those, too
        self.note(text, now_ms)

    def note(self, text: str, now_ms: int) -> None:
        """Note a command, and that time has passed before it."""
        if now_ms > self._now:
            self._append(f"advance {duration(now_ms - self._now)}")
            self._now = now_ms
        self._append(text)

    def text(self) -> str:
        """Return what happened, one command a line, as a file of tests/traces."""
        left_out = self._count - len(self._lines)
        begin = [f"# {left_out} events before these are left out"] if left_out else []
        config = [" ".join(["config", *self._config])]
        return "\n".join([*config, *begin, *self._lines])

    @contextmanager
    def printed_on_failure(self) -> Iterator[None]:
        """Add the last events to an AssertionError."""
        try:
            yield
        except AssertionError as error:
            error.add_note(f"the last events, as commands for tests/traces:\n\n{self.text()}\n")
            raise

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._count += 1
