"""The one place that decides, makes durable, and only then answers.

It knows no thread: the event loop calls it from one, a trace and the simulator by hand, on clocks
of theirs. What must hold, in this order: the records of a batch are replayed (`EventDecider`), then
durable (`LogWriter`), then its timers and tasks start and its answers leave; before any answer
leaves, with or without records, the log was seen to be ours within the last `lease.check_ms`, and
since they were asked for before committed offsets leave. In doubt, memory is dropped and replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from coordinator.clock import Clock, SteadyClock
from coordinator.config import Config
from coordinator.core.classic_events import ClassicHeartbeat, GroupsLoaded
from coordinator.core.consumer.heartbeat import ENGINE_PREFIX
from coordinator.core.events import (
    Answer,
    ComputeTarget,
    Event,
    Heartbeat,
    HeartbeatResponse,
    OffsetFetch,
    Result,
    TargetFailed,
    TargetLost,
    Task,
    TimerKey,
    TopicsReported,
)
from coordinator.core.state.groups import State, TopicView
from coordinator.core.state.records import ComputationPrepared, Record
from coordinator.errors import GroupError
from coordinator.errors.status import Status, refusal
from coordinator.errors.texts import one_line
from coordinator.runtime.event_decider import STEADY, EventDecider, Turn
from coordinator.runtime.log_writer import LogHealth, LogWriter
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.parked_requests import ParkedRequests
from coordinator.runtime.timers import Due, GroupTimers
from coordinator.runtime.topic_catalog import TopicCatalog, TopicWatch
from coordinator.storage.record_log import (
    LogError,
    RecordLog,
    Unconfirmed,
    WriterFenced,
    find_position,
)
from coordinator.storage.state_loader import load_state, read_targets

T = TypeVar("T")
HeartbeatResult: TypeAlias = Answer | HeartbeatResponse
HEARTBEATS = (Heartbeat, ClassicHeartbeat)
logger = logging.getLogger("muster.coordinator")


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer that fired, and the records of it."""

    due: Due[TimerKey]
    records: list[Record] = field(default_factory=list)


class EventProcessor:
    """One coordinator's memory, log and timers.

    No other object writes its attributes.

    Parameters
    ----------
    log
        Claimed by this coordinator.
    clock
        The wall clock, in ms since 1970: what people read as a time.
    catalog
        Where topics come from; None: there are only those of the log.
    monotonic
        What deadlines run on; without one, the clock is taken for one that is never set.
    dated
        What records are dated by, where that is not the clock.

    Attributes
    ----------
    clock
        The wall clock's ms since 1970.
    steady
        The same when the log was loaded, and elapsed since.
    state
        What the log says; only `replay` changes it.
    status
        ACTIVE: it answers. Everything else refuses (G-150).
    timers
        What is due when.
    parked
        Joins and syncs of classic groups that wait for others.
    health
        Since when the log keeps us from answering.
    loaded_from
        The position of the snapshot that the last load began with; about the log's beginning
        without one.
    topics
        Those that are durable, for readers in other threads.
    topic_watch
        What asks the catalog; None without one.
    """

    def __init__(
        self,
        log: RecordLog,
        config: Config,
        clock: Clock,
        catalog: TopicCatalog | None = None,
        metrics: Metrics | None = None,
        monotonic: Clock | None = None,
        dated: Clock | None = None,
    ) -> None:
        self.log = log
        self.config = config
        self.clock = clock
        self.steady = SteadyClock(clock, monotonic or clock)
        self.health = LogHealth(monotonic or clock)
        self.metrics = metrics or Metrics()
        failed = self.metrics.catalog_failed
        self.topic_watch = None if catalog is None else TopicWatch(catalog, clock, failed)
        self.state = State()
        self.status = Status.LOADING
        self.makes_way = False
        """Whether another is to claim the log: a node gives the shard away."""
        self.loaded_from = 0
        self.topics = TopicView()
        self.timers = GroupTimers(config, self.steady)
        self.parked = ParkedRequests(config.quotas.parked_requests_max)
        self.decider = EventDecider(
            config, clock, self.steady, self.timers, self.parked, self.metrics
        )
        self._follower = self.metrics.follow(lambda: self.state)
        self._writer = LogWriter(
            log, clock, self.steady, config.lease.check_ms, self.metrics, dated, self._follower
        )
        self._tasks: list[Task] = []
        self._topics_version = 0
        self._loading = False

    @property
    def position(self) -> int:
        """Of the last record that is durable."""
        return self._writer.position

    @property
    def is_stuck(self) -> bool:
        """Whether the log has kept us from answering for as long as a lease lives."""
        return self.health.stuck_ms >= self.config.lease.ttl_ms

    # Answering -----------------------------------------------------------------------------------

    def run(self, events: Sequence[Event], turn: Turn | None = None) -> list[Answer]:
        """Decide a batch of events, make its records durable, and return what may be answered now.

        That is one answer an event, in order: its Result, or the error that refuses it. Of the
        first events alone, one at least, where all take longer to decide than its turn; and behind
        them of those that came meanwhile and share the commit.
        """
        before = self.position
        answers = self._run(events, turn)
        if self.position == before and OffsetFetch in set(map(type, events)):
            # Where these say, a worker starts; a successor may have acknowledged later ones. An
            # append of ours would have met it.
            self._writer.forget_look()
        return self._confirm(answers)

    def run_heartbeats(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int]
    ) -> list[HeartbeatResult]:
        """Answer heartbeats in order, as `run` would one by one, but many at a time.

        Steady ones next to each other share one answer, one look at the group, and one record.
        """
        answers: list[HeartbeatResult] = []
        typed = _have_types(group_id, member_ids, member_epochs)
        while len(answers) < len(member_ids):
            at = len(answers)
            if typed:
                answers += self._run_steady(group_id, member_ids, member_epochs, at)
            if len(answers) == at:
                answers += self._run([Heartbeat(group_id, member_ids[at], member_epochs[at])])
        return self._confirm(answers)

    def answer_beside(self, events: Sequence[Event], busy: Container[str]) -> list[Answer] | None:
        """Answer heartbeats that change nothing, while another thread runs a batch.

        What they are answered by is durable: of their groups, that batch changes nothing. Their
        sessions are extended by `extend_beside`, which that thread calls after it.

        Parameters
        ----------
        busy
            The groups of that batch.

        Returns
        -------
        list or None
            None where any of them is something else, or must wait for a look at the log.
        """
        state, answers = self.state, list[Answer]()
        for event in events:
            group_id = event.group_id if isinstance(event, HEARTBEATS) else None
            if group_id is None or group_id in busy:
                return None
            answer = self.decider.decide_beside(state, event)
            if answer is None:
                return None
            answers.append(answer)
        ours = self.status is Status.ACTIVE and self.state is state and self._writer.is_seen
        return answers if ours else None

    def extend_beside(self, events: Iterable[Event]) -> None:
        """Extend the sessions of heartbeats that were answered beside a batch that is over."""
        if self.status is Status.ACTIVE:
            now = self.steady()
            for event in events:
                self.decider.extend_beside(self.state, event, now)

    def tick(self, most: int | None = None) -> list[Fired]:
        """Fire the timers whose deadline has passed, or so many of them."""
        if self.status is not Status.ACTIVE:
            return []
        if not self.decider.fold(self.state):
            self.reload()
        due = self.timers.pop_due(most)
        answers = self.run([one.event for one in due]) if due else []
        return [
            Fired(one.due, answer.records if isinstance(answer, Result) else [])
            for one, answer in zip(due, answers, strict=True)
        ]

    def wait_ms(self, most_ms: int) -> int:
        """Return how long no timer is due, at most so long."""
        return self.timers.wait_ms(most_ms) if self.status is Status.ACTIVE else most_ms

    def take_tasks(self) -> list[Task]:
        """Return the tasks that wait, each once."""
        waiting, self._tasks = list(dict.fromkeys(self._tasks)), []
        return waiting

    def confirm(self) -> bool:
        """Whether what was read from the state, or decided, may leave now: the log is ours."""
        return self.status is Status.ACTIVE and self._try(self._writer.confirm)

    def _confirm(self, answers: list[T]) -> list[T | GroupError]:
        """Return answers that may leave now.

        The process may have been stopped since they were decided: a zombie that wakes looks at the
        log before its first answer.
        """
        return [*answers] if self.confirm() else [refusal(self.status)] * len(answers)

    def _run(self, events: Sequence[Event], turn: Turn | None = None) -> list[Answer]:
        """Decide a batch and make it durable; whether it may be answered is seen after it."""
        if self.status is not Status.ACTIVE:
            return [refusal(self.status)] * len(events)
        decided = self.decider.decide(self.state, events, turn)
        answers, broken, events = decided.answers, decided.broken, [*events, *decided.boarded]
        if broken is not None:
            # Nothing of the batch is kept; the others are decided again without what broke it.
            self.reload()
            others = self._run([event for at, event in enumerate(events) if at != broken])
            return [*others[:broken], answers[broken], *others[broken:]]
        if not self._write(decided.records, decided.at_ms):
            return [refusal(self.status)] * len(events)
        for event, answer in zip(events, answers, strict=False):
            if answer is not STEADY and isinstance(answer, Result):
                self._start(event, answer, decided.records)
        return answers

    def _run_steady(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int], start: int
    ) -> list[HeartbeatResult]:
        """Answer the steady heartbeats from one on, up to the first that is not."""
        if self.status is not Status.ACTIVE:
            return []
        count, answer, records = self.decider.decide_steady(
            self.state, group_id, member_ids, member_epochs, start
        )
        if not self._write(records):
            return [refusal(self.status)] * count
        if count:
            self.timers.extend_sessions(self.state, group_id, member_ids[start : start + count])
        return [answer] * count

    def _write(self, records: Sequence[Record], at_ms: Sequence[int] = ()) -> bool:
        """Make records durable; False when they are not, and memory was dropped."""
        if records and not self._try(lambda: self._writer.append(records, at_ms)):
            return False
        changed = self.state.topics_version != self._topics_version
        if changed and not self.state.topics_awaited:
            self._show_topics()
        return True

    def _start(self, event: Event, result: Result, written: Sequence[Record]) -> None:
        """Start what a step asked for; its records are among those that were just written."""
        self.timers.apply(result.timers)
        if result.classic:
            self._follower.classic(event, result.classic, self.clock())
        if not isinstance(event, Heartbeat) or result.completed or result.superseded:
            self.parked.settle(event, result)
        for task in result.tasks:
            if isinstance(task, ComputeTarget):
                prepared = next(r for r in result.records if isinstance(r, ComputationPrepared))
                at = find_position(written, self.position, prepared)
                self._tasks.append(replace(task, position=at))
            else:
                self._tasks.append(task)

    # The log -------------------------------------------------------------------------------------

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something with the log; False when that failed, and memory was dropped."""
        self.health.ask()
        try:
            work()
        except WriterFenced as error:
            self.fence(str(error))
        except Unconfirmed as error:
            self.give_up(error)
        except (LogError, OSError) as error:
            logger.error(  # noqa: TRY400
                "commit not acknowledged, replaying the log: %s", one_line(error)
            )
            self._doubt()
        except Exception:
            logger.exception("not acknowledged, memory is dropped")
            self._doubt()
        else:
            self.health.clear()
            return True
        return False

    def _doubt(self) -> None:
        self.health.answered()
        self.metrics.commit_failed()
        self.reload()

    def reload(self) -> None:
        """Drop memory and replay; while that fails, requests are refused."""
        if self._loading:
            # The first records after a load were not written: to replay at once would go on for
            # ever.
            self.status = Status.FAILED
            self.health.load_failed()
            return
        try:
            self.load()
        except (LogError, OSError) as error:
            logger.error("the log cannot be replayed: %s", one_line(error))  # noqa: TRY400
        except Exception:
            logger.exception("the log cannot be replayed")

    def fence(self, why: str) -> None:
        """Stop answering: another coordinator has the store."""
        if self.makes_way:
            logger.info("handed over: %s", why)
        else:
            logger.warning("fenced: %s", why)
        self._end(Status.FENCED)
        self.metrics.fenced()

    def give_up(self, why: Unconfirmed) -> None:
        """Stop answering for good: what the disk has is unknown, to us and to every replay of ours.

        The next coordinator begins with what is in the store.
        """
        logger.error("this coordinator ends: %s", why)
        self.metrics.commit_failed()
        self._end(Status.BROKEN)

    def _end(self, status: Status) -> None:
        self.status = status
        self.health.clear()
        self.parked.release()
        self.state = State()
        self._follower.end()
        self.timers.clear()
        self._tasks = []

    def close(self) -> None:
        """Stop answering: no more requests come."""
        if self.status is not Status.BROKEN:
            self.status = Status.CLOSED
        self.parked.release()

    # Loading -------------------------------------------------------------------------------------

    def load(self) -> None:
        """Forget everything and replay the log; every live member gets a full session timeout.

        Raises
        ------
        OSError, LogError
            The log cannot be read; the event processor refuses requests until it can.
        """
        self._loading = True
        try:
            self._load()
        finally:
            self._loading = False

    def _load(self) -> None:
        self.status = Status.LOADING
        self.health.load()
        self.parked.release()
        self.steady.start()
        began = self.steady()
        try:
            state, self.loaded_from, position = load_state(self.log)
            lost = read_targets(state, self.log)
        except WriterFenced:
            self.fence("while it replayed the log")
            return
        except Unconfirmed as error:
            self.give_up(error)
            return
        except Exception:
            self.status = Status.FAILED
            self.health.load_failed()
            raise
        self.state = state
        self._show_topics()
        self._writer.start(position)
        if state.watched is None:  # else Kafka's coordinator has the timers
            self.timers.start(state)
        else:
            self.timers.clear()
        self._tasks = []
        self.status = Status.ACTIVE
        self._follower.begin(self.clock())
        if state.classic and state.watched is None:
            self.run([GroupsLoaded()])
        for event in lost:
            self.note_lost(event)
        if lost:
            self.run(lost)
        self._forget_own_computations()
        self.see_topics()
        if self.status is Status.ACTIVE:
            self.health.clear()
        self.metrics.loaded(self.steady() - began)

    def _forget_own_computations(self) -> None:
        """What this coordinator's predecessor computed is lost with it; heartbeats begin again."""
        lost = [
            TargetFailed(group.group_id, group.computation.record.computation_id, "taken over")
            for group in self.state.groups.values()
            if group.computation is not None
            and group.computation.record.computation_id.startswith(ENGINE_PREFIX)
        ]
        if lost:
            self.run(lost)

    def note_lost(self, event: TargetLost) -> None:
        """Say that a group's whole target is gone; any thread may."""
        logger.error("%s: its members keep what they have", event.message)
        self.metrics.target_lost(event.group_id)

    # Topics --------------------------------------------------------------------------------------

    def see_topics(self) -> None:
        """Ask the catalog; what changed is recorded."""
        event = self.look_at_topics()
        if event is not None:
            self.run([event])

    def look_at_topics(self) -> TopicsReported | None:
        """Return the catalog's topics when they are not those known; any thread may ask.

        An unreachable catalog changes nothing.
        """
        if self.topic_watch is None or self.status is not Status.ACTIVE:
            return None
        found = self.topic_watch.look(self.state.topics)
        if found is None and self.state.topics_awaited:
            return TopicsReported({}, gone=())  # the rest of a change never came
        return found

    def _show_topics(self) -> None:
        self._topics_version = self.state.topics_version
        self.topics = TopicView.now(self.state)


def _have_types(group_id: object, member_ids: Sequence[object], epochs: Sequence[object]) -> bool:
    """Whether heartbeats are made of the right types; else each of them is looked at by itself."""
    return (
        isinstance(group_id, str)
        and set(map(type, member_ids)) <= {str}
        and set(map(type, epochs)) <= {int}
    )
