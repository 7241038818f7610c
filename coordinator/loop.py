"""loop: the one thread that runs the runner, and the pools for what is slow.

Requests wait in one queue. The loop takes all that wait as one batch: an idle coordinator answers
at once, a busy one batches by itself while a commit is under way; `log.linger_ms` makes it wait
longer for company.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TypeVar

from coordinator.engine import Engine, LocalEngine
from coordinator.errors import ErrorCode, GroupError
from coordinator.events import ComputeTarget, Event, ResolveRegexes, TargetComputed, TargetFailed
from coordinator.runner import Answer, Runner
from coordinator.status import Status

ENTRY_POINTS = "muster.engines"
TICK_S = 0.05
RETRY_S = 1.0
BACKOFF_S, BACKOFF_MAX_S = 0.5, 60.0
T = TypeVar("T")
logger = logging.getLogger("muster.coordinator")


@dataclass(slots=True)
class Item:
    """Events that are asked together, and who waits for the answers."""

    events: list[Event]
    future: Future[list[Answer]]
    since: float
    call: Callable[[], object] | None = None


class Loop:
    """Runs a runner in a thread of its own."""

    def __init__(self, runner: Runner, engine: Engine | None = None) -> None:
        self.runner = runner
        self._given = engine
        self._engines: dict[str, Engine] = {}
        self._queue: deque[Item] = deque()
        self._wake = threading.Condition()
        self._open = True
        self._idle_s = 0.0
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="muster-task")
        self._resolving: set[str] = set()
        self._timers: set[threading.Timer] = set()
        self._thread = threading.Thread(target=self._run, name="muster-loop", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Answer what waits, then stop."""
        with self._wake:
            self._open = False
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        for timer in list(self._timers):
            timer.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for engine in self._engines.values():
            engine.close()

    def submit(self, events: list[Event]) -> Future[list[Answer]]:
        """Ask; the future has one answer an event once all may be answered."""
        return self._put(Item(events, Future(), time.monotonic()))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the loop's thread, where it may read the state."""
        future: Future[T] = Future()
        self._put(Item([], future, time.monotonic(), function))  # type: ignore[arg-type]
        return future

    def _put(self, item: Item) -> Future[list[Answer]]:
        with self._wake:
            if self._open:
                self._queue.append(item)
                self._wake.notify()
                return item.future
        closed = GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is shut down.")
        item.future.set_result([closed] * len(item.events))
        return item.future

    # In the loop's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._round()
            self._round()
        except BaseException:
            logger.exception("the coordinator's loop ends")
            raise
        finally:
            self.runner.status = Status.CLOSED
            with self._wake:
                self._open = False
            self._round()

    def _wait(self) -> bool:
        """Wait for something to do; False when it is time to stop."""
        began = time.monotonic()
        with self._wake:
            if not self._queue and self._open:
                self._wake.wait(TICK_S)
            going = self._open
        self._idle_s += time.monotonic() - began
        linger = self.runner.config.log.linger_ms
        if linger > 0 and self._queue:
            time.sleep(linger / 1000)
        return going

    def _round(self) -> None:
        """Fire timers, answer a batch, hand out its tasks."""
        began = time.monotonic()
        if self.runner.status is Status.FAILED:
            self._retry_load()
        self.runner.tick()
        items = self._take()
        events = [event for item in items for event in item.events]
        if events:
            self._answer(items, self.runner.confirmed(self.runner.run(events)))
            ended = time.monotonic()
            total = self._idle_s + ended - began
            waited = (began - items[0].since) * 1000
            idle = self._idle_s / total if total else 0.0
            self.runner.metrics.processed(
                max(waited, 0.0), (ended - began) * 1000, len(self._queue), idle
            )
            self._idle_s = 0.0
        for item in items:
            if item.call is not None:
                self._do_call(item)
        for task in self.runner.take_tasks():
            self._start(task)

    def _take(self) -> list[Item]:
        """Take what waits, up to the size of a batch."""
        most = self.runner.config.log.batch_records_max
        items: list[Item] = []
        taken = 0
        with self._wake:
            while self._queue and taken < most:
                items.append(self._queue.popleft())
                taken += len(items[-1].events)
        return items

    @staticmethod
    def _answer(items: list[Item], answers: list[Answer]) -> None:
        at = 0
        for item in items:
            if item.call is None:
                item.future.set_result(answers[at : at + len(item.events)])
                at += len(item.events)

    @staticmethod
    def _do_call(item: Item) -> None:
        assert item.call is not None
        try:
            item.future.set_result(item.call())  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            item.future.set_exception(error)

    def _retry_load(self) -> None:
        time.sleep(RETRY_S)
        self.runner.reload()

    # Tasks ---------------------------------------------------------------------------------------

    def _start(self, task: ResolveRegexes | ComputeTarget) -> None:
        if isinstance(task, ResolveRegexes):
            self._resolve(task)
        else:
            self._compute(task)

    def _resolve(self, task: ResolveRegexes) -> None:
        """Resolve regexes in a pool, one run a group at a time (G-82)."""
        if task.group_id in self._resolving:
            return
        self._resolving.add(task.group_id)
        future = self._pool.submit(self.runner.resolve(task))

        def done(found: Future[Event]) -> None:
            self._resolving.discard(task.group_id)
            if found.cancelled() or found.exception() is not None:
                logger.warning("regexes of %s are as before: %s", task.group_id, found)
                return
            self.submit([found.result()])

        future.add_done_callback(done)

    def _compute(self, task: ComputeTarget) -> None:
        """Hand a computation to its engine; one in flight a group, which the log knows."""
        job = self.runner.job(task)
        if job is None:
            return
        rows = len(job.roster.metas) + job.roster.targets.rows()
        engine = self._engine(task.group_id, job.settings, rows)
        began = time.monotonic()
        future = engine.submit(job)

        def done(found: Future[TargetComputed]) -> None:
            self.runner.metrics.assigned(task.group_id, (time.monotonic() - began) * 1000)
            error = None if found.cancelled() else found.exception()
            if found.cancelled() or error is not None:
                self._failed(task, str(error or "cancelled"))
                return
            self._installed(task, self.submit([found.result()]))

        future.add_done_callback(done)

    def _installed(self, task: ComputeTarget, future: Future[list[Answer]]) -> None:
        def done(found: Future[list[Answer]]) -> None:
            answer = found.result()[0]
            if isinstance(answer, GroupError):
                self._failed(task, answer.message)
            else:
                self.runner.failures.pop(task.group_id, None)

        future.add_done_callback(done)

    def _failed(self, task: ComputeTarget, message: str) -> None:
        """Let the group begin again after a while; the last target stays."""
        failures = self.runner.failures.get(task.group_id, 0) + 1
        self.runner.failures[task.group_id] = failures
        self.runner.metrics.computation_failed(task.group_id)
        after = min(BACKOFF_S * 2 ** (failures - 1), BACKOFF_MAX_S)
        logger.warning(
            "the target of %s was not computed (%d in a row), again in %.1f s: %s",
            task.group_id,
            failures,
            after,
            message,
        )
        event = TargetFailed(task.group_id, task.computation_id, message)

        def again() -> None:
            self._timers.discard(timer)
            self.submit([event])

        timer = threading.Timer(after, again)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def _engine(self, group_id: str, settings: dict[str, str], rows: int) -> Engine:
        """Choose by the group's setting, else by size; after many failures the local one."""
        wanted = settings.get("consumer.assignor.engine", "auto")
        config = self.runner.config.engine
        fits = rows <= config.local_rows_max
        if wanted == "auto":
            wanted = "local" if fits else "spark"
        if self.runner.failures.get(group_id, 0) >= config.max_failures and fits:
            wanted = "local"
        if wanted == "spark" and self._given is not None:
            return self._given
        if wanted not in self._engines:
            self._engines[wanted] = _make(wanted)
        return self._engines[wanted]


def _make(name: str) -> Engine:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            engine: Engine = point.load()()
            return engine
    if name != "local":
        logger.warning("no engine %r is installed: the local one computes", name)
    return LocalEngine()
