"""Until when a worker may work: counted so that it has stopped by itself when we think so. Pure.

A worker counts its session timeout from when it sent the answer before the newest request; the
request shows that this answer came in. We count from when the last answer came in, which is never
earlier. So it has stopped when we think so, though requests are lost or delayed, as long as none is
sent again, and none is sent after one that failed.
"""

from __future__ import annotations


class Lease:
    """The time of one registration.

    Parameters
    ----------
    now_ms
        The time, of a clock that nobody sets.
    """

    def __init__(self, now_ms: int) -> None:
        self._answered_at_ms = now_ms
        self._longest_ms = 0

    @property
    def stops_by_ms(self) -> int:
        """When the worker has stopped by itself, unless it is asked again.

        It has nothing to stop before it was asked something else than to register.
        """
        return self._answered_at_ms + self._longest_ms

    def ask(self, session_ms: int) -> int:
        """Return until when a request with this session timeout may be answered."""
        self._longest_ms = max(self._longest_ms, session_ms)
        return self._answered_at_ms + session_ms

    def answered(self, now_ms: int) -> None:
        """Take in that the request was answered."""
        self._answered_at_ms = now_ms
