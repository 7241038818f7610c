"""Whether a node still is what the controllers know it as."""

from __future__ import annotations

from coordinator.clock import monotonic_ms


class Standing:
    """How long ago it was certain that this node leads what it takes itself to lead.

    That is so if the controllers count it as alive, and it has read their metadata since.

    Parameters
    ----------
    session_ms
        Less than the time after which controllers fence a node of which they have heard nothing.
    """

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        self._sent_ms: int | None = None
        self._read_ms: int | None = None
        self._asked_ms: int | None = None

    def hear(self, sent_ms: int, *, is_fenced: bool) -> None:
        """Note the answer to a heartbeat that was sent at a time."""
        self._sent_ms = None if is_fenced else sent_ms

    def hear_metadata(self) -> None:
        """Note that the metadata was read, by a request that was sent after the one before."""
        self._read_ms, self._asked_ms = self._asked_ms, monotonic_ms()

    @property
    def is_sure(self) -> bool:
        """Whether it is certain."""
        since_ms = monotonic_ms() - self._session_ms
        return all(at is not None and at > since_ms for at in (self._sent_ms, self._read_ms))
