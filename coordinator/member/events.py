"""What happens to a member, and what it asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from coordinator.core.events import Heartbeat, HeartbeatResponse
from coordinator.core.state.partition_spans import Spans
from coordinator.errors import GroupError

INTERVAL_MIN_MS = 10
"""No coordinator makes us send heartbeats without a pause."""
UNSAID_MS = 2**31 - 1
"""The interval of heartbeats of a member that leaves it to others to say one."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What stays the same for the life of a member.

    Attributes
    ----------
    instance_id
        The name of a static member; None for a dynamic one.
    rebalance_timeout_ms
        How long it may take to give up partitions.
    session_timeout_ms
        After how long without a heartbeat the coordinator removes it: the group's
        `consumer.session.timeout.ms`.
    heartbeat_interval_ms
        After how long it sends a heartbeat, where the coordinator would have it wait longer.
    keeps_ms
        For how long it keeps its partitions while its coordinator is silent, where what it does
        with them is fenced in another way than by the end of its session.
    backoff_ms, backoff_max_ms
        What it waits after a first failed heartbeat, and at most after many: as Kafka's clients do
        by default.
    """

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    rebalance_timeout_ms: int = 60_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = UNSAID_MS
    keeps_ms: int | None = None
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000

    def interval_ms(self, given_ms: int, session_ms: int) -> int:
        """Return how far apart heartbeats are.

        Parameters
        ----------
        given_ms
            What the coordinator says.
        session_ms
            The group's session timeout: two heartbeats may fail before it is over.
        """
        return max(INTERVAL_MIN_MS, min(given_ms, self.heartbeat_interval_ms, session_ms // 3))

    def hastened(self, interval_ms: int) -> MemberSettings:
        """Return these with heartbeats this often, unless they say how often."""
        is_given = self.heartbeat_interval_ms != UNSAID_MS
        return self if is_given else replace(self, heartbeat_interval_ms=interval_ms)

    def pause_ms(self, failures: int, jitter: float, interval_ms: int = UNSAID_MS) -> int:
        """Return how long to wait after a failure: longer each time, and not as long as others do.

        It is at most a quarter of the time between heartbeats: who must be heard of more often
        looks for its coordinator more often.

        Parameters
        ----------
        failures
            How many there were before it.
        jitter
            A random number from 0 to 1.
        interval_ms
            The time between heartbeats.
        """
        most_ms = min(self.backoff_max_ms, max(self.backoff_ms, interval_ms // 4))
        wait_ms = min(most_ms, self.backoff_ms * 2 ** min(failures, 30))
        return int(wait_ms * (0.8 + 0.4 * jitter))


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Join, or subscribe to something else.

    Attributes
    ----------
    names
        Topics by name.
    pattern
        Topics by a regular expression of RE2, beside those by name; "" for none.
    server_assignor
        The assignor that the member wishes.
    """

    names: tuple[str, ...] = ()
    pattern: str = ""
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up everything and leave; `for_a_while` keeps a static member's partitions for it."""

    for_a_while: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A heartbeat was served.

    Attributes
    ----------
    response
        Its assignment is what the member may own now; None: as before.
    session_timeout_ms
        The group's session timeout, where the transport knows it.
    """

    number: int
    response: HeartbeatResponse
    session_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatRefused:
    """A heartbeat was refused.

    Attributes
    ----------
    jitter
        A random number from 0 to 1.
    for_good
        Whether asking again is useless, even if the code is retriable.
    """

    number: int
    error: GroupError
    jitter: float = 0.5
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatUnanswered:
    """No answer came in time, or the connection broke. `jitter` is a random number from 0 to 1."""

    number: int
    jitter: float = 0.5


@dataclass(frozen=True, slots=True)
class StepDone:
    """What an action with this number asked for is done."""

    number: int


@dataclass(frozen=True, slots=True)
class Stall:
    """The work has shown no sign of life for too long."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The work shows signs of life again."""


@dataclass(frozen=True, slots=True)
class Hasten:
    """Send heartbeats this often from now on, unless the member's settings say how often."""

    interval_ms: int


@dataclass(frozen=True, slots=True)
class CoordinatorMoved:
    """Another says that the group has another coordinator now."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Nothing happened, but time has passed."""


Event: TypeAlias = (
    Subscribe
    | Leave
    | HeartbeatAnswered
    | HeartbeatRefused
    | HeartbeatUnanswered
    | StepDone
    | Stall
    | Resume
    | Hasten
    | CoordinatorMoved
    | Wake
)


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send this, and report what came of it under the number; no other is under way."""

    number: int
    request: Heartbeat


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Stop the work on these partitions, wait until it has stopped, and commit how far it came."""

    number: int
    partitions: Spans


@dataclass(frozen=True, slots=True)
class RevokePartitions:
    """Tell the application that these partitions, still its own, go to another member."""

    number: int
    partitions: Spans


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Tell the application that these partitions are its own, then begin to work on them."""

    number: int
    partitions: Spans


@dataclass(frozen=True, slots=True)
class LosePartitions:
    """Stop the work on all partitions, and tell the application that these are not its own.

    Another member may have them already, so nothing is committed.
    """

    number: int
    partitions: Spans


Action: TypeAlias = (
    SendHeartbeat | CommitOffsets | RevokePartitions | AssignPartitions | LosePartitions
)
"""Those with partitions are steps: one at a time, in order, and each is reported by `StepDone`."""
