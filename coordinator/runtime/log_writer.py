"""Makes records durable, and sees that the log is still ours.

It raises what the log raises; what that means for memory and answers, the event processor knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.clock import Clock
from coordinator.core.state.records import Record
from coordinator.runtime.metrics import Metrics
from coordinator.storage.record_log import RecordLog
from coordinator.telemetry.follower import Follower


class LogHealth:
    """Since when a log has kept its coordinator from answering; any thread may ask.

    Parameters
    ----------
    now
        What deadlines run on, in ms.
    """

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._asked: int | None = None
        self._waiting: int | None = None
        self._failing: int | None = None

    def ask(self) -> None:
        """A commit or a look at the log begins."""
        self._asked = self._now()
        if self._waiting is None:
            self._waiting = self._asked

    def answered(self) -> None:
        """It ended, well or not."""
        self._asked = None

    def load(self) -> None:
        """A replay begins."""
        if self._waiting is None:
            self._waiting = self._now()

    def load_failed(self) -> None:
        """A replay failed; it will be tried again."""
        if self._failing is None:
            self._failing = self._now()

    def clear(self) -> None:
        """The trouble is over: requests are answered or refused at once."""
        self._asked = self._waiting = self._failing = None

    @property
    def waiting_ms(self) -> int:
        """How long answers have waited for a commit, or for the replay after one."""
        return self._since(self._waiting)

    @property
    def stuck_ms(self) -> int:
        """For how long replays have failed, or one commit has not ended: others may do better.

        One replay may take as long as it takes.
        """
        return max(self._since(self._asked), self._since(self._failing))

    def _since(self, then: int | None) -> int:
        return 0 if then is None else self._now() - then


class LogWriter:
    """Writes to one log that this coordinator has claimed.

    Parameters
    ----------
    log
        Where records go.
    wall, steady
        The clocks, in ms.
    dated
        What batches carry the time of: the wall clock, but where Kafka's records are followed.
    check_ms
        For how long the log counts as ours once it was seen to be.
    metrics
        Counts the batches and how long they take.
    follower
        Follows what is durable.

    Attributes
    ----------
    position
        Of the last record that is durable.
    """

    def __init__(
        self,
        log: RecordLog,
        wall: Clock,
        steady: Clock,
        check_ms: int,
        metrics: Metrics,
        dated: Clock | None = None,
        follower: Follower | None = None,
    ) -> None:
        self._log = log
        self._follower = follower or Follower()
        self._dated = dated or wall
        self._wall = wall
        self._steady = steady
        self._check_ms = check_ms
        self._metrics = metrics
        self.position = 0
        self._seen: tuple[int, int] | None = None
        """When the log was last seen to be ours, on both clocks; None: not since the load."""

    def start(self, position: int) -> None:
        """Go on behind the record that a load ended with."""
        self.position = position
        self._seen = None

    def append(self, records: Sequence[Record], at_ms: Sequence[int] = ()) -> None:
        """Make records durable, all or none.

        Parameters
        ----------
        at_ms
            When each was written, in ms since 1970; empty: all of them now.

        Raises
        ------
        WriterFenced
            Another coordinator has the log; nothing was written.
        LogError, OSError
            Not acknowledged: only a replay shows whether they were written.
        """
        wall, now = self._wall(), self._steady()
        dated = at_ms or self._dated()
        self.position = self._log.append(records, dated)
        self._seen = (wall, now)  # when it began: we may have been stopped since it landed
        self._follower.committed(records, dated)
        self._metrics.committed(records, self._steady() - now)

    def forget_look(self) -> None:
        """Have `confirm` look, however short ago that was done: what leaves now must not be old."""
        self._seen = None

    def confirm(self) -> None:
        """See that the log is ours, if that was not seen within the last `check_ms`.

        On either clock: a machine that was suspended may learn of it from the wall clock alone.

        Raises
        ------
        WriterFenced
            Another coordinator has the log.
        LogError, OSError
            The log cannot be read.
        """
        if self.is_seen:
            return
        wall, now = self._wall(), self._steady()
        self._log.look()
        self._seen = (wall, now)

    @property
    def is_seen(self) -> bool:
        """Whether the log was seen to be ours within the last `check_ms`; any thread may ask."""
        seen = self._seen
        if seen is None:
            return False
        since = (self._wall() - seen[0], self._steady() - seen[1])
        return 0 <= min(since) <= max(since) <= self._check_ms
