"""A coordinator process around the real `EventProcessor`: it starts, serves, stalls, dies, wakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.core.events import (
    Answer,
    CatalogTopic,
    ComputeTarget,
    Event,
    ResolveRegexes,
    TargetFailed,
)
from coordinator.core.state.groups import State
from coordinator.core.state.rows.fold_rows import RowFolder
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.target_computations import restore_basis
from coordinator.storage.record_log import LogError
from tests.engines.twin_engine import TwinEngine
from tests.support.watched_processor import WatchedProcessor

from .clock import WallClock
from .logs import Crash, LogFaults
from .network import Request

if TYPE_CHECKING:
    from .world import World

TOPICS_POLL_MS = 2_000
RETRY_MS = 1_000
BACKOFF_MS = 500
AT_ONCE_EVERY = 2
"""One seed of so many computes no target at once: there all are late, lost or installed twice."""
NEVER = 2**62
METRICS = Metrics()
"""Of all event processors of all simulations: they are not read, and making one takes time."""


class Catalog:
    """The topics as one coordinator sees them: as they are, or not at all."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._asked = 0

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Return all topics."""
        world, name = self._node.world, self._node.name
        self._asked += 1
        if world.chance.happens("topics cannot be read", name, self._node.life, self._asked):
            raise OSError("the catalog does not answer (simulated)")
        world.story.topics(world.schedule.now, world.topics.topics())
        return world.topics.topics()


class Node:
    """A coordinator process, in each of its lives."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = WallClock(world.schedule)
        self.faults = LogFaults(self)
        self.processor: EventProcessor | None = None
        self.paused = False
        self.life = 0
        """A request sent to an earlier one is lost with it."""
        self._inbox: list[Request] = []
        self._tick_at = NEVER
        self._late_until = 0
        self._resolving: set[str] = set()
        self._engine = TwinEngine()
        self._depth = 0
        self._count = 0

    @property
    def serves(self) -> bool:
        """Whether it is up, at work, and for all it knows the coordinator."""
        processor = self.processor
        return processor is not None and not self.paused and processor.status is not Status.FENCED

    @property
    def starting(self) -> bool:
        """Whether it is about to claim the log."""
        return self.processor is None and self.busy

    @property
    def busy(self) -> bool:
        """Whether it is in the middle of something."""
        return self._depth > 0

    # Lives ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a new life: claim the log, and replay it."""
        self.life += 1
        self.paused = False
        self.processor = None
        self._inbox, self._resolving = [], set()
        self._tick_at, self._late_until = NEVER, 0
        self.world.tell(f"{self.name}: starts")
        self.world.checker.starts(self)
        self._depth += 1
        try:
            log = self.world.store.open(self)
            log.claim(self.name, "", self.clock())
            self.processor = WatchedProcessor(
                log, self.world.config, self.clock, Catalog(self), METRICS, self.clock.monotonic
            )
            self.processor.coming = self._note
            self.processor.decider.compute_now = self._compute_now
            self.processor.decider.folder = RowFolder(lambda *_: True, at_once=2)
            self.world.history.note("load", self.world.schedule.now)
            self.world.story.reload(self.world.schedule.now)
            self.processor.load()
        except (Crash, LogError, OSError) as why:
            self.die(f"cannot start: {why}")
            return
        finally:
            self._depth -= 1
        self._done()
        self._look_at_topics(self.life)

    def _note(self, event: Event, state: State) -> None:
        self.world.history.add(event, state, self.world.schedule.now)

    def die(self, why: str) -> None:
        """End this life; what it had in memory is gone."""
        self.world.tell(f"{self.name}: dies, {why}")
        self.life += 1
        self.processor = None
        self._inbox = []
        self.world.died(self)

    def restart(self, life: int) -> None:
        """End this life if it still is the one, so that another one begins."""
        if life == self.life and not self.busy:
            self.die("its operator starts it again")

    def pause(self) -> None:
        """Stop as by a signal: the clock goes on, requests wait."""
        self.paused = True
        self.world.tell(f"{self.name}: stops")

    def resume(self) -> None:
        """Go on where it was stopped."""
        if self.paused:
            self.paused = False
            self.world.tell(f"{self.name}: goes on")
            self._round(self.life)

    # Requests ------------------------------------------------------------------------------------

    def receive(self, request: Request, life: int) -> None:
        """Take a request in; it is decided in the next round."""
        if life != self.life or self.processor is None:
            return
        self._inbox.append(request)
        wait = 0
        if self.world.chance.happens("asked together", *request.name):
            wait = self.world.chance.between(1, 200, "together", *request.name)
        self.world.schedule.after(wait, self._round, life)

    def _round(self, life: int) -> None:
        """Do what the loop does: answer what was asked, fire timers, start tasks."""
        if life != self.life or self.processor is None or self.paused or self.busy:
            return
        requests, self._inbox = self._inbox, []
        with self._at_work():
            if requests:
                self._ask(requests)
            self._tick()
            self._start_tasks(together=len(requests) > 1)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Be busy; a crash meanwhile ends this life, otherwise look after what was done."""
        self._depth += 1
        try:
            yield
        except Crash as crash:
            self.die(str(crash))
            return
        finally:
            self._depth -= 1
        self._done()

    def _tick(self) -> None:
        assert self.processor is not None
        at, now = self.processor.timers.next_at(), self.world.schedule.now
        if at is None or at > self.processor.steady() or now < self._late_until:
            return
        self._count += 1
        if self.world.chance.happens("timer late", self.name, self._count):
            self.world.story.cannot_tell("timer late")
            late = self.world.chance.between(50, 3_000, "how late", self.name, self._count)
            self._late_until = now + late
            return
        self.world.checker.asked([])
        self.world.story.advance(now)
        fired = self.processor.tick()
        self.world.checker.settled()
        for one in fired:
            self.world.tell(f"{self.name}: timer {one.due.key} wrote {len(one.records)}")

    def _ask(self, requests: list[Request]) -> None:
        assert self.processor is not None
        self.world.checker.asked(requests)
        for request in requests:
            self.world.story.asked(self.world.schedule.now, request.event)
        try:
            answers = self.processor.run([request.event for request in requests])
            self.processor.decider.folder.fold(self.processor.state)
        finally:
            self.world.checker.settled()
        self.world.checker.answered(self, requests, answers)
        for request, answer in zip(requests, answers, strict=True):
            self._reply(request, answer)

    def _reply(self, request: Request, answer: Answer) -> None:
        if request.decided or request.reply is None:
            return
        request.decided = True
        if request.local:
            request.reply(answer, self)
        else:
            self.world.network.answer(request, answer, self)

    def decide(self, event: Event, *name: object) -> None:
        """Decide an event at this very moment, in the middle of what others do."""
        with self.world.checker.within(), self._at_work():
            self.run(event, self.name, *name)

    def run(self, event: Event, *name: object) -> Answer:
        """Run an event of the coordinator's own, or one that needs no network."""
        assert self.processor is not None
        request = Request(name, event, None)
        self.world.checker.asked([request])
        try:
            (answer,) = self.processor.run([event])
        finally:
            self.world.checker.settled()
        self.world.checker.answered(self, [request], [answer])
        return answer

    def _done(self) -> None:
        """Check the state after an action, and find when the next timer is due."""
        processor = self.processor
        assert processor is not None
        self.world.checker.rests(self)
        if processor.status is Status.BROKEN:
            self.die("its disk did not confirm a commit")
            return
        if processor.status is Status.FAILED:
            self.world.schedule.after(RETRY_MS, self._retry, self.life)
        at = processor.timers.next_at() if processor.status is Status.ACTIVE else None
        if at is None:
            return
        now = self.world.schedule.now
        when = max(now + at - processor.steady(), self._late_until)
        if now < self._tick_at <= when:
            return
        self._tick_at = max(when, now)
        self.world.schedule.at(self._tick_at, self._round, self.life)

    def _retry(self, life: int) -> None:
        if life != self.life or self.processor is None or self.paused or self.busy:
            return
        with self._at_work():
            self.processor.reload()

    def jump(self, ms: int) -> None:
        """Let the wall clock jump: nothing that the coordinator does may change by it."""
        self.clock.offset += ms
        self._tick_at = NEVER
        self.world.story.cannot_tell("clock jumps")
        self.world.tell(f"{self.name}: clock jumps by {ms} ms")
        if self.processor is not None and not self.paused:
            self._round(self.life)

    # Beside the loop -----------------------------------------------------------------------------

    def _look_at_topics(self, life: int) -> None:
        if life != self.life or self.processor is None:
            return
        self.world.schedule.after(TOPICS_POLL_MS, self._look_at_topics, life)
        event = None if self.paused else self.processor.look_at_topics()
        if event is not None:
            self._later(event, "topics")

    def _later(
        self, event: Event, *name: object, reply: Callable[[Answer, Node], None] | None = None
    ) -> None:
        """Put an event of ours into the queue, as the threads beside the loop do."""
        self._count += 1
        request = Request((self.name, self._count, *name), event, reply, local=True)
        self.receive(request, self.life)

    def _start_tasks(self, *, together: bool) -> None:
        assert self.processor is not None
        for task in self.processor.take_tasks():
            self._count += 1
            if together:
                self.world.story.cannot_tell("a task after several requests")
            if isinstance(task, ResolveRegexes):
                self._resolve(task, self._count)
            else:
                self._compute(task, self._count)

    def _resolve(self, task: ResolveRegexes, number: int) -> None:
        """Resolve regexes at once, late, or never; one run a group at a time."""
        assert self.processor is not None
        if task.group_id in self._resolving:
            return
        chance = self.world.chance
        if chance.happens("regexes fail", self.name, number):
            self.world.story.cannot_tell("regexes fail")
            return
        event = prepare_resolution(self.processor, task)()
        if not chance.happens("regexes late", self.name, number):
            self.run(event, self.name, number)
            return
        self.world.story.cannot_tell("regexes late")
        self._resolving.add(task.group_id)
        wait = chance.between(10, 4_000, "how late", self.name, number)
        self.world.schedule.after(wait, self._resolved, task.group_id, event, self.life)

    def _resolved(self, group_id: str, event: Event, life: int) -> None:
        if life == self.life:
            self._resolving.discard(group_id)
            self._later(event, "regexes")

    def _compute(self, task: ComputeTarget, number: int) -> None:
        """Compute a target off the heartbeat path, as the loop does with an engine."""
        assert self.processor is not None
        job = restore_basis(self.processor, task)
        if job is None:
            return
        chance, name = self.world.chance, (self.name, number)
        self.world.story.cannot_tell("computed beside")
        if chance.happens("computation lost", *name):
            return
        if chance.happens("computation fails", *name):
            self._failed(task, self.life)
            return
        outcome = self._engine.compute(job)
        wait = chance.between(1, 50, "computes", *name)
        if chance.happens("computation late", *name):
            wait = chance.between(50, 8_000, "how late", *name)
        self.world.schedule.after(wait, self._computed, task, outcome, self.life)
        if chance.happens("installed twice", *name):
            again = wait + chance.between(1, 3_000, "again", *name)
            self.world.schedule.after(again, self._computed, task, outcome, self.life)

    def _compute_now(self, task: ComputeTarget) -> TargetCandidate | None:
        """Compute a target within the batch that asks for it, as the loop does where that is brief."""
        assert self.processor is not None
        chance = self.world.chance
        if chance.seed % AT_ONCE_EVERY == 0:
            return None
        job = restore_basis(self.processor, task)
        if job is None or not chance.happens("computed at once", task.computation_id):
            return None
        self.world.story.cannot_tell("computed at once")
        return self._engine.compute_now(job) or self._engine.compute(job)

    def _computed(self, task: ComputeTarget, outcome: TargetCandidate, life: int) -> None:
        if life != self.life:
            return

        def installed(answer: Answer, _node: Node) -> None:
            if isinstance(answer, GroupError):
                self._failed(task, life)

        self._later(outcome, task.computation_id, reply=installed)

    def _failed(self, task: ComputeTarget, life: int) -> None:
        event = TargetFailed(task.group_id, task.computation_id, "simulated")
        self.world.schedule.after(BACKOFF_MS, self._tell_failed, event, life)

    def _tell_failed(self, event: TargetFailed, life: int) -> None:
        if life == self.life:
            self._later(event, "failed")
