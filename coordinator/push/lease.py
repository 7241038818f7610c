"""Until when a worker may work: counted so that it has stopped by itself when we think so. Pure.

A worker counts its session timeout from when it sent the answer before the newest request; the
request shows that this answer came in. We count from when the last answer came in, which is never
earlier. So it has stopped when we think so, though requests are lost or delayed, as long as none is
sent again, and none is sent after one that failed.
"""

from __future__ import annotations


class WorkerLease:
    """The time of one registration.

    Parameters
    ----------
    now_ms
        The time, of a clock that is never set.
    """

    def __init__(self, now_ms: int) -> None:
        self._answered_at_ms = now_ms
        self._until_ms = self._asked_until_ms = now_ms

    @property
    def stops_by_ms(self) -> int:
        """When the worker has stopped by itself, whether or not it got the newest request.

        It has nothing to stop before it was asked something else than to register.
        """
        return max(self._until_ms, self._asked_until_ms)

    def session_ms(self, longest_ms: int, end_ms: int) -> int:
        """Return the session timeout of the next request.

        Parameters
        ----------
        longest_ms
            The most that it may be.
        end_ms
            When the worker must have stopped, unless there is another request.

        Returns
        -------
        int
            Milliseconds; 0 or less if no more requests are to be made.
        """
        return min(longest_ms, end_ms - self._answered_at_ms)

    def ask(self, session_ms: int) -> int:
        """Return until when a request with this session timeout may be answered."""
        self._asked_until_ms = self._answered_at_ms + session_ms
        return self._asked_until_ms

    def answered(self, now_ms: int) -> None:
        """Take in that the request was answered."""
        self._answered_at_ms = now_ms
        self._until_ms = self._asked_until_ms
