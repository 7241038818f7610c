"""What an event processor tells of: nothing, where traces are off."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.events import Event
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.records import Record


class Follower:
    """Follows nothing; `RebalanceFollower` follows rebalances."""

    def begin(self, now_ms: int) -> None:
        """A state was loaded."""

    def end(self) -> None:
        """The state is another coordinator's from now on."""

    def committed(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> None:
        """Records are durable, and in the state; each of one time, or of its own."""

    def classic(self, event: Event, groups: Sequence[ClassicGroup], now_ms: int) -> None:
        """Classic groups are as an event left them, which is durable."""
