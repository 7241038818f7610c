"""Members at work, for tests: short intervals, a diary of callbacks, a run in a thread."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from coordinator.config import Config
from coordinator.config.kafka import kafka_config

PATIENCE_S = 120
SESSION_MS = 2_000


def with_sessions_of(ms, **sections):
    """Settings of a coordinator whose members beat often."""
    names = {
        "min.session.timeout.ms": ms,
        "session.timeout.ms": ms,
        "max.session.timeout.ms": max(ms, 60_000),
        "min.heartbeat.interval.ms": 50,
        "heartbeat.interval.ms": 50,
        "assignment.interval.ms": 0,
    }
    found = kafka_config({f"group.consumer.{name}": value for name, value in names.items()})
    return Config(kafka=found, **sections)


QUICK = with_sessions_of(SESSION_MS)
"""A member is lost soon: for tests that want that. A busy machine may lose one unasked."""
STEADY = with_sessions_of(120_000)
"""No member is lost, however seldom its thread has its turn."""


def until(condition, patience_s=PATIENCE_S):
    """Wait for something; what it was when the patience was over."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


class Cut:
    """A coordinator that can be cut off: what is asked then is not answered, and fails later.

    It counts what it is asked.
    """

    def __init__(self, coordinator):
        self._inner, self._unanswered, self._cut, self.asked = coordinator, [], False, 0

    @property
    def cut(self):
        return self._cut

    @cut.setter
    def cut(self, cut):
        self._cut = cut
        while self._unanswered and not cut:
            if (future := self._unanswered.pop()).set_running_or_notify_cancel():
                future.set_exception(ConnectionResetError("cut"))

    def submit(self, events):
        self.asked += 1
        if not self._cut:
            return self._inner.submit(events)
        self._unanswered.append(Future())
        return self._unanswered[-1]

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Diary:
    """What happens to members' partitions, in order, with the time."""

    def __init__(self):
        self.lines = []

    def note(self, *words):
        self.lines.append((time.monotonic(), *words))

    def callbacks(self, name):
        return {
            f"on_{what}": lambda found, what=what: self.note(name, what, *map(str, found))
            for what in ("assigned", "revoked", "lost")
        }

    def work(self, name):
        def work(partition, stop):
            self.note(name, "begins", str(partition))
            stop.wait()
            self.note(name, "ends", str(partition))

        return work

    def of(self, name):
        return [line[2:] for line in self.lines if line[1] == name]

    def when(self, *words):
        return next((line[0] for line in self.lines if line[1:] == words), None)


class Running:
    """A member whose work runs in a thread."""

    def __init__(self, member, work):
        self.member = member
        self.outcome = Future()
        self.thread = threading.Thread(target=self._run, args=(work,))

    def _run(self, work):
        try:
            self.outcome.set_result(self.member.run(work))
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self.outcome.set_exception(error)

    def __enter__(self):
        self.member.open()
        self.thread.start()
        return self

    def __exit__(self, *_error):
        self.member.leave()
        self.thread.join()
