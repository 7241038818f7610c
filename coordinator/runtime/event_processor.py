"""The one place that steps, replays, commits, and only then answers.

It knows no thread: the runtime calls it from one, a trace and the simulator by hand, on a clock of
theirs. Deadlines and intervals run on its steady clock, what people read as a time is the wall
clock's. What must hold, in this order: the records of a batch are replayed, then durable, then the
responses leave; before any response leaves, with or without records, the log was seen to be ours
within the last `lease.check_ms`. On any doubt memory is dropped and the log replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import re2

from coordinator.clock import Clock, SteadyClock
from coordinator.compute.engine import TargetRequest
from coordinator.config import Config
from coordinator.core.events import (
    REBALANCE,
    SESSION,
    Answer,
    ComputeTarget,
    Event,
    ExpireOffsets,
    Heartbeat,
    OffsetCommit,
    RegexesResolved,
    ResolveRegexes,
    Result,
    SetTimer,
    TargetFailed,
    TargetLost,
    Task,
    TimerFired,
    TopicsReported,
)
from coordinator.core.heartbeat import ENGINE_PREFIX
from coordinator.core.records import MembersAdvanced, MemberState, Record, TargetMetadata
from coordinator.core.replay import replay
from coordinator.core.state import State, TopicView
from coordinator.core.state_machine import answer_steady_heartbeat, answer_steady_heartbeats, step
from coordinator.core.target_builder import restore_input
from coordinator.core.validate_types import check_types
from coordinator.errors import GroupError
from coordinator.kafka_config import group_value
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.timers import Deadlines, Due
from coordinator.runtime.topic_catalog import TopicCatalog, are_known
from coordinator.status import Status, our_fault, refusal
from coordinator.storage.record_log import Fenced, LogError, RecordLog
from coordinator.storage.state_loader import load_state, read_targets

TimerKey: TypeAlias = tuple[str, str, str]

EXPIRE = "expire-group-metadata"
logger = logging.getLogger("muster.coordinator")


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer that fired, and the records of it."""

    due: Due[TimerKey]
    records: list[Record] = field(default_factory=list)


class Steady(NamedTuple):
    """The answer to a steady heartbeat, whosever it is."""

    member_epoch: int
    heartbeat_interval_ms: int


class EventProcessor:
    """One coordinator's memory, log and timers.

    Parameters
    ----------
    monotonic
        What deadlines run on; without one the clock is taken for one that nobody sets.

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
    position
        Of the last record that is durable.
    loaded_from
        Of the snapshot that the last load began with; about the log's beginning without one.
    topics
        Those that are durable, for readers in other threads.
    """

    def __init__(
        self,
        log: RecordLog,
        config: Config,
        clock: Clock,
        catalog: TopicCatalog | None = None,
        metrics: Metrics | None = None,
        monotonic: Clock | None = None,
    ) -> None:
        self.log = log
        self.config = config
        self.clock = clock
        self.steady = SteadyClock(clock, monotonic or clock)
        self.catalog = catalog
        self.metrics = metrics or Metrics()
        self.state = State()
        self.status = Status.LOADING
        self.position = 0
        self.loaded_from = 0
        self.timers: Deadlines[TimerKey] = Deadlines()
        self.tasks: list[Task] = []
        self.topics = TopicView()
        self._topics_version = 0
        self._seen = (0, 0)
        """When the log was last seen to be ours, on both clocks."""
        self._loading = False

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
        self.steady.start()
        began = self.steady()
        try:
            state, self.loaded_from, position = load_state(self.log)
            lost = read_targets(state, self.log)
        except Fenced:
            self.fence("while it replayed the log")
            return
        except Exception:
            self.status = Status.FAILED
            raise
        self.state, self.position = state, position
        self._show_topics()
        self.timers = Deadlines()
        self.tasks = []
        self._seen = (0, 0)
        self._start_timers()
        self.status = Status.ACTIVE
        for event in lost:
            self.note_lost(event)
        if lost:
            self.run(lost)
        self._forget_own_computations()
        self.see_topics()
        self.metrics.loaded(self.steady() - began)

    def _start_timers(self) -> None:
        """Start the timers that follow from the state (K-13, G-73).

        The coordinator before us may confirm heartbeats for check_ms after our claim: by so much
        longer members may count on what they have.
        """
        now = self.steady()
        check_ms = self.config.lease.check_ms
        every = self.config.kafka.offsets_retention_check_interval_ms
        self.timers.set((EXPIRE, "", ""), now + every)
        for group_id, group in sorted(self.state.groups.items()):
            members = sorted(group.members)
            sessions = [(SESSION, group_id, member_id) for member_id in members]
            self.timers.set_many(sessions, now + check_ms + self._session_ms(group_id))
            for member in map(group.members.__getitem__, members):
                if member.current.state is MemberState.UNREVOKED_PARTITIONS:
                    after = now + member.meta.rebalance_timeout_ms
                    self.timers.set((REBALANCE, group_id, member.member_id), after, member.epoch)

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

    def see_topics(self) -> None:
        """Ask the catalog; what changed is recorded."""
        event = self.look_at_topics()
        if event is not None:
            self.run([event])

    def look_at_topics(self) -> TopicsReported | None:
        """Return the catalog's topics when they are not those known; any thread may ask.

        An unreachable catalog changes nothing.
        """
        if self.catalog is None or self.status is not Status.ACTIVE:
            return None
        try:
            topics = self.catalog.topics()
        except (OSError, ValueError) as error:
            logger.warning("topics are as before: %s", error)
            self.metrics.catalog_failed()
            return None
        return None if are_known(self.state.topics, topics) else TopicsReported(topics)

    # Running -------------------------------------------------------------------------------------

    def run(self, events: Sequence[Event]) -> list[Answer]:
        """Decide a batch of events, make its records durable, and return what may be answered.

        Returns
        -------
        list
            One answer an event, in order: its Result, or the error that refuses it.
        """
        if self.status is not Status.ACTIVE:
            return [refusal(self.status)] * len(events)
        answers, records, broken = self._decide(events)
        if broken is not None:
            # The state contradicts a record: our bug. Nothing of the batch is kept; the others of
            # the batch are decided again without the event that did it.
            self.reload()
            others = self.run([event for at, event in enumerate(events) if at != broken])
            return [*others[:broken], answers[broken], *others[broken:]]
        if not self._commit(records):
            return [refusal(self.status)] * len(events)
        if self.state.topics_version != self._topics_version:
            self._show_topics()
        for answer in answers:
            if isinstance(answer, Result):
                self._after(answer)
        return answers

    def _show_topics(self) -> None:
        self._topics_version = self.state.topics_version
        self.topics = TopicView.of(self.state.topics)

    def _decide(self, events: Sequence[Event]) -> tuple[list[Answer], list[Record], int | None]:
        """Step and replay each event; the third is the event that broke the state, if one did."""
        answers: list[Answer] = []
        records: list[Record] = []
        now = self.steady()
        for at, event in enumerate(events):
            began = perf_counter()
            try:
                result = self._steady(event, now)
                if result is None:
                    check_types(event)
                    result = step(self.state, self.config, event, self._time_of(event, now))
                elif not result.records:
                    answers.append(result)
                    continue
            except GroupError as error:
                answers.append(error)
                self.metrics.refused(event, error)
                continue
            except Exception:
                logger.exception("no answer to %r", event)
                answers.append(our_fault())
                continue
            try:
                for record in result.records:
                    replay(self.state, record)
            except Exception:
                logger.exception("the records of %r contradict the state", event)
                answers.append(our_fault())
                return answers, [], at
            records += result.records
            answers.append(result)
            self._computed(result, began)
        return answers, records, None

    def _time_of(self, event: Event, now: int) -> int:
        """Return the time that an event is decided at.

        A commit's is read by people, and compared when the offset's retention ends, days later:
        that takes both clocks, so that no jump of the wall clock ends what was just committed.
        """
        if isinstance(event, OffsetCommit):
            return self.clock()
        return min(now, self.clock()) if isinstance(event, ExpireOffsets) else now

    def _computed(self, result: Result, began: float) -> None:
        """Count the time of a step that computed a target."""
        if len(result.records) < 2:  # noqa: PLR2004 - a target comes with its group or members
            return
        for record in result.records:
            if isinstance(record, TargetMetadata) and record.assignor:
                self.metrics.assigned(record.group_id, (perf_counter() - began) * 1000)

    def _steady(self, event: Event, now: int) -> Result | None:
        """Answer the heartbeat of a group at rest without a step."""
        if not isinstance(event, Heartbeat) or not (
            isinstance(event.group_id, str)
            and isinstance(event.member_id, str)
            and isinstance(event.member_epoch, int)
        ):
            return None
        if event.topic_partitions is not None:
            check_types(event)  # the fast path does not look at them
        result = answer_steady_heartbeat(self.state, self.config, event)
        if result is not None:
            after = self._session_ms(event.group_id)
            self.timers.set((SESSION, event.group_id, event.member_id), now + after)
        return result

    def run_steady(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int], start: int
    ) -> list[Answer | Steady]:
        """Answer the steady heartbeats from one on, up to the first that is not."""
        if self.status is not Status.ACTIVE:
            return []
        end, epoch, interval_ms, advanced = answer_steady_heartbeats(
            self.state, self.config, group_id, member_ids, member_epochs, start
        )
        if end == start:
            return []
        records: list[Record] = []
        if advanced:
            records = [MembersAdvanced(group_id, epoch, advanced)]
            replay(self.state, records[0])
        if not self._commit(records):
            return [refusal(self.status)] * (end - start)
        keys = [(SESSION, group_id, member_id) for member_id in member_ids[start:end]]
        self.timers.set_many(keys, self.steady() + self._session_ms(group_id))
        return [Steady(epoch, interval_ms)] * (end - start)

    def _session_ms(self, group_id: str) -> int:
        settings = self.state.settings.get(group_id, {})
        return group_value(self.config.kafka, settings, "consumer.session.timeout.ms")

    def _commit(self, records: list[Record]) -> bool:
        """Make records durable, or at least see that the log is still ours."""
        wall, now = self.clock(), self.steady()
        try:
            if records:
                self.position = self.log.append(records, wall)
                self._seen = (wall, now)  # as in `_look`: we may have been stopped since it landed
                self.metrics.committed(records, self.steady() - now)
            else:
                self._look(wall, now)
        except Fenced as error:
            self.fence(str(error))
            return False
        except (LogError, OSError) as error:
            logger.error("not acknowledged, memory is dropped: %s", error)  # noqa: TRY400
            return self._doubt()
        except Exception:
            logger.exception("not acknowledged, memory is dropped")
            return self._doubt()
        return True

    def _look(self, wall: int, now: int) -> None:
        """See that the log is ours, if that was not seen within the last check_ms.

        On either clock: a machine that was suspended may learn of it from the wall clock alone.
        """
        since = (wall - self._seen[0], now - self._seen[1])
        if not 0 <= min(since) <= max(since) <= self.config.lease.check_ms:
            self.log.look()
            self._seen = (wall, now)

    def confirmed(self, answers: list[Any]) -> list[Any]:
        """Return answers that may leave now.

        The process may have been stopped since they were decided: whoever hands them out asks this
        last, so that a woken zombie looks before its first answer.
        """
        if self.status is Status.ACTIVE and not self._commit([]):
            return [refusal(self.status)] * len(answers)
        return answers

    def _doubt(self) -> bool:
        self.metrics.commit_failed()
        self.reload()
        return False

    def reload(self) -> None:
        """Drop memory and replay; while that fails, requests are refused."""
        if self._loading:
            # The first records after a load were not written: to replay at once would go on for
            # ever.
            self.status = Status.FAILED
            return
        try:
            self.load()
        except Exception:
            logger.exception("the log cannot be replayed")

    def fence(self, why: str) -> None:
        """Stop answering: another coordinator has the store."""
        logger.warning("fenced: %s", why)
        self.status = Status.FENCED
        self.state = State()
        self.timers = Deadlines()
        self.metrics.fenced()

    def _after(self, result: Result) -> None:
        """Start the timers and keep the tasks of a step that is durable."""
        now = self.steady()
        for timer in result.timers:
            self._set(timer, now)
        self.tasks += result.tasks

    def _set(self, timer: SetTimer, now: int) -> None:
        key = (timer.kind, timer.group_id, timer.member_id)
        if timer.after_ms is None:
            self.timers.cancel(key)
        else:
            self.timers.set(key, now + timer.after_ms, timer.member_epoch)

    # Timers and tasks ----------------------------------------------------------------------------

    def tick(self, most: int | None = None) -> list[Fired]:
        """Fire the timers whose deadline has passed, or so many of them."""
        if self.status is not Status.ACTIVE:
            return []
        due = self.timers.pop_due(self.steady(), most)
        events: list[Event] = []
        for timer in due:
            kind, group_id, member_id = timer.key
            if kind == EXPIRE:
                every = self.config.kafka.offsets_retention_check_interval_ms
                self.timers.set(timer.key, timer.at_ms + every)
                events.append(ExpireOffsets())
            else:
                events.append(TimerFired(kind, group_id, member_id, timer.epoch))
        if not events:
            return []
        answers = self.run(events)
        return [
            Fired(timer, answer.records if isinstance(answer, Result) else [])
            for timer, answer in zip(due, answers, strict=True)
        ]

    def take_tasks(self) -> list[Task]:
        """Return the tasks that wait, each once."""
        waiting, self.tasks = list(dict.fromkeys(self.tasks)), []
        return waiting

    def resolve(self, task: ResolveRegexes) -> Callable[[], Event]:
        """Return the work of a regex resolution, on the topics of this instant; any thread may."""
        names = sorted(self.state.topics)
        version, now = self.state.topics_version, self.steady()

        def work() -> Event:
            found = {}
            for regex in task.regexes:
                pattern = re2.compile(regex)
                found[regex] = [name for name in names if pattern.fullmatch(name)]
            return RegexesResolved(task.group_id, found, version, now)

        return work

    def job(self, task: ComputeTarget) -> TargetRequest | None:
        """Return a computation with the input it was prepared for; None when it is outdated."""
        group = self.state.groups.get(task.group_id)
        found = group.computation if group else None
        if group is None or found is None or found.record.computation_id != task.computation_id:
            return None
        settings = dict(self.state.settings.get(task.group_id, {}))
        input_ = restore_input(group, found)
        return TargetRequest(
            task, input_, task.assignor, settings, len(group.lists), self.log.store
        )
