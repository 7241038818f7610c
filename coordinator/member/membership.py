"""A member's side of the consumer protocol: events in, actions out, no clock and no socket.

It sends one heartbeat at a time, and revokes before it takes. Its driver says what time it is,
performs the actions, and wakes it at `wake_at_ms`.

A member stops using its partitions before the coordinator may give them to another: it counts its
session and rebalance timeouts from when it sent what was answered, so never later than the
coordinator, which counts from when it got that. And it takes four fifths of them, so that work
has the last fifth to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.events import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from coordinator.core.state.partition_spans import Spans, subtract_spans
from coordinator.errors import GroupError, IllegalStateError
from coordinator.member.events import (
    Action,
    AssignPartitions,
    CommitOffsets,
    CoordinatorMoved,
    Event,
    Hasten,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatUnanswered,
    Leave,
    LosePartitions,
    MemberSettings,
    Resume,
    RevokePartitions,
    SendHeartbeat,
    Stall,
    StepDone,
    Subscribe,
    Wake,
)
from coordinator.member.requests import JOIN_AGAIN, LATE_MS, UNHEARD, WAIT, make_heartbeat
from coordinator.member.states import BEATING, MOVES, Cause, ClientState
from coordinator.member.under_way import Sent, Step

NEVER_MS = 2**62
GOODBYE_MS = 3_000
"""For how long a member tries to say that it leaves: otherwise its partitions wait for the end of
its session, for example where its coordinator is replaced at that moment."""


def _guarded(timeout_ms: int) -> int:
    """Return how long of a timeout we use."""
    return timeout_ms - timeout_ms // 5


class Membership:
    """One incarnation of a member.

    Parameters
    ----------
    settings
        What stays the same.

    Attributes
    ----------
    state
        What it is doing.
    epoch
        As the coordinator gave it; 0 while it joins.
    owned
        The partitions that it may use, those that it is about to revoke among them.
    target
        What it may own, by the last answer.
    fatal
        Why it was refused for good.
    lost_at_ms
        When it should have stopped using what it lost last; it may have noticed later.
    session_ms
        The group's session timeout, as far as it is known.
    wake_at_ms
        When it wants to be woken at the latest.
    """

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = ClientState.UNSUBSCRIBED
        self.epoch = JOIN
        self.owned: Spans = ()
        self.target: Spans = ()
        self.fatal: GroupError | None = None
        self.lost_at_ms = 0
        self.session_ms = settings.session_timeout_ms
        self._subscription = Subscribe()
        self._now_ms = 0
        self._actions: list[Action] = []
        self._numbers = 0
        self._in_flight: Sent | None = None
        self._step: Step | None = None
        self._revoked: Spans = ()
        """What the running callback of a cancelled reconciliation has to revoke."""
        self._reported_owned: Spans | None = None
        self._full = True
        self._late_until_ms = 0
        """Until then an earlier heartbeat may come, and be answered what only a full one hears."""
        self._failures, self._interval_ms, self._beat_at_ms = 0, NEVER_MS, 0
        self._confirmed_at_ms = 0
        self._waits_since_ms: int | None = None
        self._revoke_by_ms = NEVER_MS
        self._leave_epoch, self._goodbye_until_ms = LEAVE, 0
        self._stalled = self._resumed = self._wants_to_join = False
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Subscribe: self._subscribe,
            Leave: self._leave,
            HeartbeatAnswered: self._answered,
            HeartbeatRefused: self._refused,
            HeartbeatUnanswered: self._unanswered,
            StepDone: self._step_done,
            Stall: self._stall,
            Resume: self._resume,
            Hasten: self._hasten,
            CoordinatorMoved: self._moved,
            Wake: lambda _: None,
        }

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Take an event in.

        Parameters
        ----------
        event
            What happened.
        now_ms
            The time, of a clock that is never set.

        Returns
        -------
        list of Action
            What to do now, in order.
        """
        self._now_ms = max(now_ms, self._now_ms)
        self._actions = []
        self._lapse()  # first a look at the clock: what came in meanwhile may be too late
        self._handlers[type(event)](event)
        self._beat()
        return self._actions

    @property
    def uses_until_ms(self) -> int:
        """When it must stop using its partitions, unless an answer comes.

        An unanswered request may have started the coordinator's wait for a revocation.
        """
        since = self._waits_since_ms
        rebalance_ms = _guarded(self.settings.rebalance_timeout_ms)
        asked = NEVER_MS if since is None else since + rebalance_ms
        kept = self.settings.keeps_ms or _guarded(self.session_ms)
        return min(self._confirmed_at_ms + kept, self._revoke_by_ms, asked)

    @property
    def wake_at_ms(self) -> int:
        """When it has something to do, if nothing happens until then."""
        beat = self._beat_at_ms if self._may_beat() else NEVER_MS
        return min(beat, self.uses_until_ms) if self._has_something() else beat

    @property
    def waits_since_ms(self) -> int | None:
        """When it sent the first heartbeat that was not answered since; None: all were."""
        return self._waits_since_ms

    @property
    def awaited(self) -> int | None:
        """The number of the heartbeat whose answer counts; None: no answer does."""
        return None if self._in_flight is None else self._in_flight.number

    @property
    def has_settled(self) -> bool:
        """Whether nothing is left to be done: it owns what it may, and the coordinator knows."""
        return (
            self.state is ClientState.STABLE
            and self.owned == self.target
            and self._reported_owned == self.owned
        )

    # What happens --------------------------------------------------------------------------------

    def _subscribe(self, event: Subscribe) -> None:
        """Join; or say at once that the subscription has changed (M-29)."""
        if self.state is ClientState.FATAL:
            return  # M-30
        self._subscription = event
        self._full = True
        self._beat_at_ms = self._now_ms
        self._wants_to_join = True
        self._join()

    def _join(self) -> None:
        """Join, once the application has let go of what it had before."""
        if self.state is ClientState.UNSUBSCRIBED and self._wants_to_join and self._step is None:
            self._wants_to_join = False
            self._start_over()
            self._move(Cause.SUBSCRIBED)
            self._beat_at_ms = self._now_ms

    def _leave(self, event: Leave) -> None:
        """Cancel what is under way, revoke and commit, then leave (M-26)."""
        self._wants_to_join = False
        if self.state in {ClientState.FENCED, ClientState.STALE}:
            self._move(Cause.LEAVE)
        elif Cause.LEAVE in MOVES[self.state]:
            self._leave_epoch = LEAVE
            if event.for_a_while and self.settings.instance_id is not None:
                self._leave_epoch = LEAVE_FOR_A_WHILE
            self._move(Cause.LEAVE)
            self._cancel()
            self.target = ()
            if self.owned:
                self._revoke(self._still_held())
            else:
                self._say_goodbye()  # a heartbeat more might join it

    def _stall(self, _event: Stall) -> None:
        """Leave at once: it is unknown when the work will stop (G-172)."""
        if Cause.STALLED not in MOVES[self.state]:
            return
        self._move(Cause.STALLED)
        self._stalled, self._resumed = True, False
        self._leave_epoch = LEAVE
        self._lose()
        self._say_goodbye()

    def _resume(self, _event: Resume) -> None:
        self._resumed = True
        self._rejoin_stale()

    def _hasten(self, event: Hasten) -> None:
        self.settings = self.settings.hastened(event.interval_ms)
        soon_ms = self._now_ms + self.settings.heartbeat_interval_ms
        self._beat_at_ms = min(self._beat_at_ms, soon_ms)

    def _moved(self, _event: CoordinatorMoved) -> None:
        """Send the next heartbeat at once: no answer of the former coordinator counts."""
        if self._in_flight is not None:
            self._unanswered(HeartbeatUnanswered(self._in_flight.number))
        self._beat_at_ms = self._now_ms

    def _step_done(self, event: StepDone) -> None:
        step = self._step
        if step is None or step.number != event.number:
            return  # of a reconciliation that is cancelled (M-31)
        self._step = None
        if step.kind is CommitOffsets:
            self._begin(RevokePartitions, step.partitions)
            return
        if step.kind is LosePartitions:
            self._revoked = ()
            if self.state is ClientState.FENCED:
                self._move(Cause.RELEASED)
                self._beat_at_ms = self._now_ms
            self._rejoin_stale()
            self._join()
            return
        if step.kind is RevokePartitions:
            self._revoked = ()
            self.owned = subtract_spans(self.owned, step.partitions)
            self._beat_at_ms = self._now_ms  # others wait for these
        if self.state is ClientState.PREPARE_LEAVING:
            self.owned = ()
            self._say_goodbye()
        elif self.state is ClientState.RECONCILING:
            self._reconcile()

    # Answers -------------------------------------------------------------------------------------

    def _take_sent(self, number: int) -> Sent | None:
        """Return the heartbeat that is answered; None if it is no longer waited for."""
        sent = self._in_flight
        if sent is None or sent.number != number:
            self._full = True  # it may have made changes that no later answer repeats
            return None
        self._in_flight = None
        return sent

    def _answered(self, answer: HeartbeatAnswered) -> None:
        sent = self._take_sent(answer.number)
        if sent is None or self._is_leaving(sent, heard=True):
            return
        since = sent.at_ms if self._waits_since_ms is None else self._waits_since_ms
        self._confirmed_at_ms, self._waits_since_ms = sent.at_ms, None
        self.session_ms = answer.session_timeout_ms or self.session_ms
        self._failures = 0
        response = answer.response
        self.epoch = response.member_epoch
        self._reported_owned = sent.owned
        if not self._is_revoking() and sent.owned == self.owned:
            self._revoke_by_ms = NEVER_MS  # not before: the coordinator waits until it heard of it
        if response.assignment is not None and self.state is not ClientState.PREPARE_LEAVING:
            self.target = response.assignment
        pause_ms = self.settings.interval_ms(response.heartbeat_interval_ms, self.session_ms)
        self._beat_at_ms, self._interval_ms = sent.at_ms + pause_ms, pause_ms
        if subtract_spans(self.owned, self.target) and self._revoke_by_ms == NEVER_MS:
            self._revoke_by_ms = since + _guarded(self.settings.rebalance_timeout_ms)
        self._lapse()
        self._follow()
        waits = self._full or self.state is ClientState.ACKNOWLEDGING
        if waits or subtract_spans(sent.owned, self.owned):
            self._beat_at_ms = self._now_ms

    def _follow(self) -> None:
        """Reconcile what it owns with what it may own, unless that is under way.

        A reconciliation goes on with the newest target when its step is done.
        """
        if self.state not in {ClientState.JOINING, ClientState.STABLE, ClientState.ACKNOWLEDGING}:
            return
        if self.owned != self.target:
            self._move(Cause.ASSIGNED)
            self._reconcile()
        elif self.state is ClientState.JOINING:
            self._move(Cause.ACCEPTED)

    def _refused(self, event: HeartbeatRefused) -> None:
        sent = self._take_sent(event.number)
        code = event.error.code
        heard = event.for_good or code not in UNHEARD
        if sent is None or self._is_leaving(sent, heard=heard, jitter=event.jitter):
            return
        self._full = True
        if event.for_good or code not in WAIT | JOIN_AGAIN:
            self.fatal = event.error
            self._move(Cause.REFUSED)
            self._lose()
        elif code in JOIN_AGAIN and self.state is not ClientState.JOINING:
            self._fence()
        else:
            self._back_off(sent, event.jitter)

    def _unanswered(self, event: HeartbeatUnanswered) -> None:
        sent = self._take_sent(event.number)
        if sent is None or self._is_leaving(sent, heard=False, jitter=event.jitter):
            return
        self._full = True  # the answer that is missing may have brought an assignment
        self._late_until_ms = sent.at_ms + LATE_MS
        self._back_off(sent, event.jitter)

    def _back_off(self, sent: Sent, jitter: float) -> None:
        """Send the next heartbeat after a pause, of which waiting for an answer is part."""
        pause_ms = self.settings.pause_ms(self._failures, jitter, self._interval_ms)
        self._beat_at_ms = sent.at_ms + pause_ms
        self._failures += 1

    # Reconciliation ------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Take the next step: revoke all that must go, then take what is new, then say so."""
        revoke = subtract_spans(self.owned, self.target)
        new = subtract_spans(self.target, self.owned)
        if revoke:
            self._revoke(revoke)
        elif new:
            self.owned = self.target
            self._begin(AssignPartitions, new)
        else:
            self._move(Cause.RECONCILED)
            self._beat_at_ms = self._now_ms  # M-25

    def _revoke(self, partitions: Spans) -> None:
        """Commit, then revoke (M-24)."""
        self._begin(CommitOffsets, partitions)

    def _begin(
        self,
        kind: type[CommitOffsets | RevokePartitions | AssignPartitions | LosePartitions],
        partitions: Spans,
    ) -> None:
        assert self._step is None, f"{self._step} is under way"
        self._numbers += 1
        self._step = Step(self._numbers, kind, partitions)
        if kind is RevokePartitions:
            self._revoked = partitions
        self._actions.append(kind(self._numbers, partitions))

    def _cancel(self) -> None:
        """Forget the step that is under way: its outcome no longer changes anything (M-31)."""
        self._step = None

    def _still_held(self) -> Spans:
        """Return what is owned and not yet revoked: no partition is revoked twice."""
        return subtract_spans(self.owned, self._revoked)

    def _is_revoking(self) -> bool:
        return self._step is not None and self._step.kind in {CommitOffsets, RevokePartitions}

    # Losing and leaving --------------------------------------------------------------------------

    def _has_something(self) -> bool:
        return bool(self.owned or self.target) and self.state in BEATING

    def _lapse(self) -> None:
        """Give everything up when the coordinator may soon give it to another member."""
        if self._has_something() and self._now_ms >= self.uses_until_ms:
            self._fence()

    def _fence(self) -> None:
        """Stop at once, forget the epoch, and tell the application of all partitions (M-27)."""
        self._move(Cause.FENCED)
        self._lose()

    def _lose(self) -> None:
        """Have nothing from now on; the application hears of it."""
        self._cancel()
        held = self._still_held()
        self.lost_at_ms = min(self._now_ms, self.uses_until_ms)
        self._start_over()
        self._begin(LosePartitions, held)

    def _start_over(self) -> None:
        """Be a member that has not joined yet."""
        self.epoch = JOIN
        self.owned = self.target = ()
        self._reported_owned = None
        self._full = True
        if self._in_flight is not None:
            self._late_until_ms = self._in_flight.at_ms + LATE_MS
        self._in_flight = None
        self._waits_since_ms = None
        self._revoke_by_ms = NEVER_MS
        self._failures = 0

    def _say_goodbye(self) -> None:
        """Leave with the next heartbeat."""
        self._move(Cause.RELEASED)
        self._beat_at_ms = self._now_ms
        wait_ms = GOODBYE_MS if self.epoch > JOIN else 0  # no one waits for a stranger's end
        self._failures, self._goodbye_until_ms = 0, self._now_ms + wait_ms

    def _is_leaving(self, sent: Sent, *, heard: bool, jitter: float = 0.0) -> bool:
        """Whether this was among the last heartbeats: one that says so is repeated until heard."""
        if self.state is not ClientState.LEAVING:
            return False
        if not sent.leaves:
            self._beat_at_ms = self._now_ms
        elif heard or self._now_ms >= self._goodbye_until_ms:
            self._end_leaving()
        else:
            self._back_off(sent, jitter)
        return True

    def _end_leaving(self) -> None:
        """Have left, whether or not the coordinator has heard of it."""
        stalled, self._stalled = self._stalled, False
        self._move(Cause.EXPIRED if stalled else Cause.LEFT)
        self._rejoin_stale()
        self._join()

    def _rejoin_stale(self) -> None:
        """Join again, once there is life and the application has let go of everything."""
        if self.state is ClientState.STALE and self._resumed and self._step is None:
            self._start_over()
            self._move(Cause.RESUMED)
            self._beat_at_ms = self._now_ms

    # Heartbeats ----------------------------------------------------------------------------------

    def _may_beat(self) -> bool:
        return self._in_flight is None and self.state in BEATING

    def _beat(self) -> None:
        """Send a heartbeat if one is due."""
        if not self._may_beat() or self._now_ms < self._beat_at_ms:
            return
        self._numbers += 1
        full = self._full or self.epoch == JOIN or self._now_ms < self._late_until_ms
        self._full = False
        leaves = self.state is ClientState.LEAVING
        self._in_flight = Sent(self._numbers, self._now_ms, self.owned, leaves)
        if self._waits_since_ms is None:
            self._waits_since_ms = self._now_ms
        says = full or self._reported_owned != self.owned or self.state is ClientState.ACKNOWLEDGING
        request = make_heartbeat(
            self.settings,
            self._leave_epoch if leaves else self.epoch,
            self.owned if says and not leaves else None,
            self._subscription if full and not leaves else None,
        )
        if self.state is ClientState.ACKNOWLEDGING:
            self._move(Cause.ACKNOWLEDGED)
        self._actions.append(SendHeartbeat(self._numbers, request))

    def _move(self, cause: Cause) -> None:
        """Be in the state that the table says."""
        there = MOVES[self.state].get(cause)
        if there is None:
            raise IllegalStateError(f"no move from {self.state.name}: {cause.name}")
        self.state = there
