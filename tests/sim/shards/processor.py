"""The event processor of a shard, or of the root, with the checker around each batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.core.events import Answer, Event
from coordinator.runtime.event_processor import EventProcessor

from .store import NodeLog

if TYPE_CHECKING:
    from coordinator.runtime.event_decider import Turn

    from .world import ShardWorld

TICK_MS = 1_000
"""How often a loop without requests looks around: rarely, so that seeds are quick."""


class CheckedProcessor(EventProcessor):
    """As `EventProcessor`."""

    log: NodeLog

    def __init__(self, world: ShardWorld, *given: Any, **named: Any) -> None:
        self._world = world
        super().__init__(*given, **named)
        self.process = world.machine.check()
        self.checker = world.checker_of(self.log.path)

    def run(self, events: Sequence[Event], _turn: Turn | None = None) -> list[Answer]:
        """Run a batch, whole: what it takes to decide is no time of the simulation's."""
        asked = self.checker.begins_batch(self, events)
        try:
            answers = super().run(events)
        finally:
            self.checker.left(asked)
        self.checker.ends_batch(self, asked, answers)
        return answers

    def load(self) -> None:
        """Load the log."""
        super().load()
        self.checker.loaded(self)

    def wait_ms(self, most_ms: int) -> int:
        """Return how long no timer is due."""
        return super().wait_ms(max(most_ms, TICK_MS))
