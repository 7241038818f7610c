"""The time of a store that shows what Kafka did: Kafka's, until the present is reached."""

from __future__ import annotations

from coordinator.clock import wall_ms


class KafkaClock:
    """Ms since 1970: of what was read last, and once all was read, of the wall clock.

    Rows of a log never go back in time. So what happened while no watcher ran is dated rightly only
    if nothing before it is dated by the wall clock.

    Attributes
    ----------
    is_live
        Whether all was read that Kafka wrote before now.
    """

    def __init__(self) -> None:
        self.is_live = False
        self._ms = 0

    def __call__(self) -> int:
        """Return the time."""
        return wall_ms() if self.is_live else self._ms

    def note(self, at_ms: int) -> int:
        """Note when something that was read was written, and return that time.

        Nothing is of the future: rows never go back in time, so all later ones would be, too.
        """
        at_ms = min(max(at_ms, 0), wall_ms())
        self._ms = max(self._ms, at_ms)
        return at_ms
