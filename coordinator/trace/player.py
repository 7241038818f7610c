"""A coordinator on a clock that is moved by hand, doing its background work when it is told to.

What plays a script uses it: operations as JSON (`player.py`), and the tests' traces and stories. It
is a thin shell over the event processor, and has no step, replay or timer code of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.config import Config
from coordinator.core.events import ResolveRegexes
from coordinator.engines.engine import compute_target
from coordinator.runtime.event_processor import EventProcessor, Fired
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.target_computations import restore_basis
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import RecordLog


class Player:
    """One store, and the coordinator that has it now.

    Attributes
    ----------
    now
        The time in ms since 1970; whoever plays moves it.
    catalog
        The topics that exist.
    processor
        The coordinator, once `take_over` has run.
    """

    processor: EventProcessor

    def __init__(self, config: Config, *, now: int, catalog: DictCatalog | None = None) -> None:
        self.config = config
        self.now = now
        self.catalog = DictCatalog() if catalog is None else catalog

    def take_over(self, log: RecordLog) -> None:
        """Claim the log as another coordinator, and replay it."""
        log.claim("trace", "", self.now)
        self.processor = self.make_processor(log)
        self.processor.load()

    def make_processor(self, log: RecordLog) -> EventProcessor:
        """Return an event processor that has not loaded the log yet."""
        return EventProcessor(log, self.config, lambda: self.now, self.catalog)

    def pass_until(self, end_ms: int) -> Iterator[list[Fired]]:
        """Let time pass, and fire each timer at its instant.

        Yields
        ------
        list
            The timers that fired at one instant, while the clock stands there.
        """
        while (at := self.processor.timers.next_at()) is not None and at <= end_ms:
            self.now = max(self.now, at)
            yield self.processor.tick()
        self.now = end_ms

    def do_tasks(self) -> bool:
        """Do the background work that waits, and tell whether there was any."""
        tasks = self.processor.take_tasks()
        for task in tasks:
            if isinstance(task, ResolveRegexes):
                self.processor.run([prepare_resolution(self.processor, task)()])
            elif (job := restore_basis(self.processor, task)) is not None:
                self.processor.run([compute_target(job)])
        return bool(tasks)
