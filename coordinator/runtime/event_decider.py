"""Decides events in memory: each is stepped, and its records are replayed.

Nothing here writes the log or sends an answer: an answer may leave only once the records of its
batch are durable, which the event processor ensures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from time import perf_counter
from typing import NamedTuple

import msgspec

from coordinator.clock import Clock
from coordinator.config import Config
from coordinator.core.classic.membership import find_steady_member
from coordinator.core.classic_events import ClassicHeartbeat
from coordinator.core.consumer.steady_heartbeat import (
    answer_steady_heartbeat,
    answer_steady_heartbeats,
)
from coordinator.core.events import (
    Answer,
    ComputeTarget,
    Event,
    ExpireOffsets,
    Heartbeat,
    HeartbeatResponse,
    OffsetCommit,
    Result,
    TimerFired,
    TimerKey,
    TopicsReported,
    TxnOffsetCommit,
)
from coordinator.core.state.groups import State
from coordinator.core.state.records import MembersAdvanced, Record, TargetMetadata
from coordinator.core.state.replay import keep_classic, note_topics, note_waiting, replay
from coordinator.core.state.rows.fold_rows import RowFolder
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.state_machine import step
from coordinator.core.validate_types import check_types
from coordinator.core.watched.unread_groups import replay_written
from coordinator.core.watched_events import KafkaWrote
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import our_fault
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.parked_requests import ParkedRequests
from coordinator.runtime.timers import GroupTimers

STEADY = Result(response=ErrorCode.NONE)
"""Of a heartbeat to a classic group that changes nothing."""
logger = logging.getLogger("muster.coordinator")


@dataclass(frozen=True, slots=True)
class Turn:
    """How long a batch may be decided, before others have theirs.

    Attributes
    ----------
    least_s, most_s
        So long in any case; and at most, where no one waits.
    others_wait
        Whether others wait for its end.
    board
        Takes a few who came meanwhile into the batch, where all of it was decided, and it has a
        commit to share.
    """

    least_s: float
    most_s: float
    others_wait: Callable[[], bool]
    board: Callable[[], Sequence[Event]] = tuple

    def lengthened(self, least_s: float) -> Turn:
        """Return one that takes so long in any case."""
        return replace(self, least_s=max(self.least_s, least_s), most_s=max(self.most_s, least_s))

    def is_over(self, took_s: float) -> bool:
        """Whether a batch that was decided for so long is to be written now."""
        return took_s > self.most_s or (took_s > self.least_s and self.others_wait())


class DecidedBatch(NamedTuple):
    """What a batch of events came to.

    Attributes
    ----------
    answers
        One an event, in order; where one is broken, up to that one; else of as many as there was
        time for.
    records
        Of all events, in order; they are in the state already.
    at_ms
        When each record was written, where Kafka wrote them; else empty: now.
    broken
        The index of an event whose records contradict the state: a bug in Muster. Discard
        the state.
    boarded
        The events that came to those of the batch, behind them.
    """

    answers: list[Answer]
    records: list[Record]
    broken: int | None = None
    at_ms: Sequence[int] = ()
    boarded: Sequence[Event] = ()


class KafkaDates:
    """Dates the records of a batch by when Kafka wrote them.

    Attributes
    ----------
    dates
        One a record, in ms since 1970; empty where Kafka wrote nothing.
    """

    def __init__(self) -> None:
        self.dates: list[int] = []

    def note(self, event: Event, records: int) -> None:
        """Date the records up to so many, which an event has; what is not Kafka's, as before it."""
        if isinstance(event, KafkaWrote):
            at_ms = event.at_ms
        elif self.dates:
            at_ms = self.dates[-1]
        else:
            return
        self.dates += [at_ms] * (records - len(self.dates))


class SteadyRun(NamedTuple):
    """Steady heartbeats next to each other: how many, the answer they share, and their records."""

    answered: int
    answer: HeartbeatResponse
    records: list[Record]


class EventDecider:
    """Decides the events of one coordinator.

    Parameters
    ----------
    config
        The settings.
    wall, steady
        The clocks, in ms since 1970.
    timers
        Where a steady heartbeat extends its session.
    parked
        How many requests wait: newcomers are refused while these are too many.
    metrics
        Counts what is refused, and the time of targets.
    """

    def __init__(
        self,
        config: Config,
        wall: Clock,
        steady: Clock,
        timers: GroupTimers,
        parked: ParkedRequests,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._wall = wall
        self._steady = steady
        self._timers = timers
        self._parked = parked
        self._metrics = metrics
        self.folder = RowFolder()
        """Lets members at rest be rows again, a piece at a time, between batches."""
        self.took_s = 0.0
        """How long the last batch took to decide."""
        self.compute_now: Callable[[ComputeTarget], TargetCandidate | None] = lambda _: None
        """Returns a target that takes a few ms, of a group as it is in memory; None: begin it."""

    def decide(
        self, state: State, events: Sequence[Event], turn: Turn | None = None
    ) -> DecidedBatch:
        """Step and replay each event, or the first ones, one at least, until their turn is over."""
        began = perf_counter()
        decided = self._decide(state, events, turn, began)
        self.took_s = perf_counter() - began
        return decided

    def _decide(
        self, state: State, events: Sequence[Event], turn: Turn | None, first: float
    ) -> DecidedBatch:
        least = inf if turn is None else first + turn.least_s
        answers: list[Answer] = []
        records: list[Record] = []
        dates = KafkaDates()
        now = self._steady()
        touched: set[TimerKey] = set()
        computed = False  # one a batch: others wait for it
        boarded: list[Event] = []
        for at, event in enumerate(chain.from_iterable(_board(events, turn, records, boarded))):
            if type(event) is ClassicHeartbeat and self._is_steady(state, event, now):
                answers.append(STEADY)
                continue
            began = perf_counter()
            if began > least and answers and not boarded and turn and turn.is_over(began - first):
                break
            if isinstance(event, TimerFired) and event.key in touched:
                answers.append(Result())  # another that fired with it has restarted it, or ended it
                continue
            try:
                result = self._decide_one(state, event, now)
            except GroupError as error:
                answers.append(error)
                self._metrics.refused(event, error)
                continue
            except Exception:
                logger.exception("no answer to %r", event)
                answers.append(our_fault())
                continue
            if type(event) is TopicsReported:
                note_topics(state, more=event.more)
            if not (result.records or result.timers or result.classic):
                answers.append(result)  # as most heartbeats, which a batch has very many of
                continue
            touched.update(timer.key for timer in result.timers)
            if not result.records and isinstance(event, Heartbeat):
                note_waiting(state, event.group_id, event.member_id)
            try:
                kept = self._replay(state, event, result)
                if result.tasks and not computed:
                    result, installed = self._install_now(state, result, now)
                    kept, computed = [*kept, *installed], bool(installed)
            except Exception:
                logger.exception("the records of %r contradict the state", event)
                answers.append(our_fault())
                return DecidedBatch(answers, [], at, boarded=boarded)
            records += kept
            dates.note(event, len(records))
            answers.append(result)
            self._count_target(result, began)
        return DecidedBatch(answers, records, at_ms=dates.dates, boarded=boarded)

    def fold(self, state: State) -> bool:
        """Let some members at rest be rows again; False if that failed: the state is in doubt."""
        try:
            self.folder.fold(state)
        except Exception:
            logger.exception("members at rest stay objects from here on: they take more memory")
            self.folder = RowFolder(lambda *_: False)
            return False
        return True

    def _replay(self, state: State, event: Event, result: Result) -> Sequence[Record]:
        """Change the state by what was decided, and return the records to keep."""
        if isinstance(event, KafkaWrote):
            return replay_written(state, event, result.records)
        for record in result.records:
            replay(state, record)
        keep_classic(state, result.classic)
        self.folder.note(getattr(event, "group_id", None))
        return result.records

    def _install_now(
        self, state: State, result: Result, now: int
    ) -> tuple[Result, Sequence[Record]]:
        """Install the target that a step asks for, where it takes a few ms: it shares the commit.

        Returns
        -------
        tuple
            The result without what is done, and the records of that, which are replayed.
        """
        for task in result.tasks:
            target = self.compute_now(task) if isinstance(task, ComputeTarget) else None
            if target is None:
                continue
            try:
                records = step(state, self._config, target, now).records
            except GroupError as error:
                logger.warning("a target of group %s: %s", target.group_id, error.message)
                continue
            for record in records:
                replay(state, record)
            left = [one for one in result.tasks if one is not task]
            return msgspec.structs.replace(result, tasks=left), records
        return result, ()

    def decide_steady(
        self,
        state: State,
        group_id: str,
        member_ids: Sequence[str],
        member_epochs: Sequence[int],
        start: int,
    ) -> SteadyRun:
        """Decide the steady heartbeats of a group from one on, up to the first that is not.

        Their sessions are extended when the records are made durable.
        """
        end, epoch, interval_ms, advanced = answer_steady_heartbeats(
            state, self._config, group_id, member_ids, member_epochs, start
        )
        records: list[Record] = []
        if advanced:
            records = [MembersAdvanced(group_id, epoch, advanced)]
            replay(state, records[0])
            self.folder.note(group_id)
        return SteadyRun(end - start, HeartbeatResponse(None, epoch, interval_ms), records)

    def decide_beside(self, state: State, event: Event) -> Result | None:
        """Decide a heartbeat that changes nothing but its session, which is not extended yet.

        Of a group that no other thread changes meanwhile. None for everything else.
        """
        if type(event) is ClassicHeartbeat:
            known = _has_classic_ids(event) and find_steady_member(state, event) is not None
            return STEADY if known else None
        if type(event) is not Heartbeat or not _has_ids(event):
            return None
        if event.topic_partitions is not None:
            return None
        result = answer_steady_heartbeat(state, self._config, event)
        return None if result is None or result.records else result

    def extend_beside(self, state: State, event: Event, now: int) -> None:
        """Extend the session of a heartbeat that was decided beside a batch, if it is steady."""
        if isinstance(event, ClassicHeartbeat):
            self._is_steady(state, event, now)
        elif isinstance(event, Heartbeat) and self.decide_beside(state, event) is not None:
            self._timers.extend_session(state, event.group_id, event.member_id, now)

    def _is_steady(self, state: State, event: ClassicHeartbeat, now: int) -> bool:
        """Whether a classic heartbeat changes nothing but its session, which is extended then."""
        member = find_steady_member(state, event) if _has_classic_ids(event) else None
        if member is None:
            return False
        self._timers.extend_classic_session(event.group_id, member, now)
        return True

    def _decide_one(self, state: State, event: Event, now: int) -> Result:
        """Decide an event: a steady heartbeat without a step; the types of others come first."""
        typed = False
        if isinstance(event, Heartbeat) and _has_ids(event):
            if event.topic_partitions is not None:
                check_types(event)  # the fast path does not look at them
                typed = True
            result = answer_steady_heartbeat(state, self._config, event)
            if result is not None:
                self._timers.extend_session(state, event.group_id, event.member_id, now)
                return result
        if not typed:
            check_types(event)
        self._parked.refuse_newcomer(event)
        return step(state, self._config, event, self._time_of(event, now))

    def _time_of(self, event: Event, now: int) -> int:
        """Return the time that an event is decided at.

        A commit's is read by people, and compared when the offset's retention ends, days later:
        that takes both clocks, so that no jump of the wall clock ends what was just committed.
        """
        if isinstance(event, OffsetCommit | TxnOffsetCommit):
            return self._wall()
        return min(now, self._wall()) if isinstance(event, ExpireOffsets) else now

    def _count_target(self, result: Result, began: float) -> None:
        """Count the time of a step that computed a target."""
        if len(result.records) < 2:  # noqa: PLR2004 - a target comes with its group or members
            return
        for record in result.records:
            if isinstance(record, TargetMetadata) and record.assignor:
                self._metrics.assigned(record.group_id, (perf_counter() - began) * 1000)


def _board(
    events: Sequence[Event], turn: Turn | None, records: list[Record], boarded: list[Event]
) -> Iterator[Sequence[Event]]:
    """Yield the events of a batch; then, where they have records, those that share the commit."""
    yield events
    if records and turn is not None:
        boarded += turn.board()
        yield boarded


def _has_ids(event: Heartbeat) -> bool:
    """Whether what the fast path looks up has the right types."""
    return (
        isinstance(event.group_id, str)
        and isinstance(event.member_id, str)
        and isinstance(event.member_epoch, int)
    )


def _has_classic_ids(event: ClassicHeartbeat) -> bool:
    """Whether what the fast path looks up has the right types."""
    return (
        isinstance(event.group_id, str)
        and isinstance(event.member_id, str)
        and type(event.generation) is int
        and (event.instance_id is None or isinstance(event.instance_id, str))
    )
