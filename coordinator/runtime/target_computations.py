"""Hand target computations to engines, and bring their results back as events.

At most one runs a group, several groups at once. What fails, hangs or is cancelled is begun again
after a backoff that doubles; the last target stays meanwhile. After
`engine.max_failures` in a row the local engine is tried, where the group fits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from assignors.registry import knows_loads
from coordinator.core.events import (
    Answer,
    ComputeTarget,
    Event,
    TargetFailed,
)
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.core.targets.rebase import restore_input
from coordinator.engines.cost_model import GroupSize, choose_engine, fits_memory
from coordinator.engines.engine import (
    LOCAL,
    Engine,
    list_engines,
    open_engine,
)
from coordinator.errors import GroupError
from coordinator.extras import MissingExtraError
from coordinator.runtime.event_processor import EventProcessor

BACKOFF_MAX_S, DOUBLINGS_MAX = 60.0, 16
"""From the shortest backoff, a millisecond, so many doublings reach the longest."""
NOW_S = 0.02
"""A group whose last target took no more CPU has the next one computed in the loop's thread, where
heartbeats of others wait for it: not as long as for the commit that this saves."""
NOTED_MOST = 1_000
logger = logging.getLogger("muster.coordinator")
Submit: TypeAlias = Callable[[list[Event]], Future[list[Answer]]]


@dataclass(frozen=True, slots=True, eq=False)
class RunningComputation:
    """A computation that an engine was given, and its deadline."""

    task: ComputeTarget
    engine: Engine
    target: Future[TargetCandidate]
    began: float
    deadline: threading.Timer


class TargetComputations:
    """The computations of one coordinator.

    Parameters
    ----------
    submit
        Submits events to the event loop; any thread may call it.
    engine
        What computes large targets, if one was given; else engines are found by entry points.
    """

    def __init__(self, processor: EventProcessor, submit: Submit, engine: Engine | None) -> None:
        self._processor = processor
        self._submit = submit
        self._given = engine
        self._engines: dict[str, Engine] = {}
        self._threads: dict[int, ThreadPoolExecutor] = {}
        """Those in which an engine computes targets, by the engine's id."""
        self._opening = threading.Lock()
        self._lacking: set[str] = set()
        """Engines of which an extra is missing, as the log says once."""
        self._lock = threading.Lock()
        self._running: dict[str, RunningComputation] = {}
        self._failures: dict[str, int] = {}
        """How often in a row the computation of a group's target failed."""
        self._timers: set[threading.Timer] = set()
        self._took_s: dict[str, float] = {}
        """The CPU time of a group's last target, in the thread that computed it."""

    def begin(self, task: ComputeTarget) -> None:
        """Give a computation to its engine; cancels one that still runs for the group.

        Called in the loop's thread.
        """
        self._cancel(task.group_id)
        basis = restore_basis(self._processor, task)
        if basis is None:
            return
        try:
            engine = self._engine_for(basis)
            target = self._threads_of(engine).submit(self._compute, engine, basis)
        except Exception as error:
            logger.exception("engine failed to start for group %s", task.group_id)
            self._retry_later(task, str(error))
            return
        timeout_s = self._processor.config.engine.timeout_ms / 1000
        with self._lock:
            deadline = self._later(timeout_s, lambda: self._time_out(task, timeout_s))
            running = RunningComputation(task, engine, target, time.monotonic(), deadline)
            self._running[task.group_id] = running
        target.add_done_callback(lambda found: self._install_result(running, found))

    def compute_now(self, task: ComputeTarget) -> TargetCandidate | None:
        """Compute a target within a step of its group; None where that may take long.

        Called in the loop's thread, when the group is in memory as its log is about to have it.
        """
        took_s = self._took_s.get(task.group_id)
        local = self._engines.get(LOCAL)
        if local is None or took_s is None or took_s > NOW_S or task.group_id in self._running:
            return None
        basis = restore_basis(self._processor, task)
        if basis is None or self._engine_for(basis) is not local:
            return None
        began, begun = time.monotonic(), time.thread_time()
        try:
            target = local.compute_now(basis)
        except Exception:
            logger.exception("group %s: computing its target from nothing", task.group_id)
            return None
        if target is not None:
            self._failures.pop(task.group_id, None)
            self._note_took(task.group_id, time.thread_time() - begun)
            self._processor.metrics.assigned(task.group_id, (time.monotonic() - began) * 1000)
        return target

    def _compute(self, engine: Engine, basis: Basis) -> TargetCandidate:
        """Compute a target in a thread of the engine's."""
        begun = time.thread_time()
        target = engine.compute(basis)
        self._note_took(basis.group_id, time.thread_time() - begun)
        return target

    def _note_took(self, group_id: str, took_s: float) -> None:
        with self._lock:
            self._took_s[group_id] = took_s
            if len(self._took_s) > NOTED_MOST:
                del self._took_s[next(iter(self._took_s))]

    def _threads_of(self, engine: Engine) -> ThreadPoolExecutor:
        """Return the threads in which an engine computes targets."""
        if id(engine) not in self._threads:
            self._threads[id(engine)] = ThreadPoolExecutor(engine.at_once, "muster-engine")
        return self._threads[id(engine)]

    def cancel(self, group_id: str) -> bool:
        """Cancel a group's computation; it is retried after the backoff."""
        running = self._cancel(group_id)
        if running is not None:
            self._retry_later(running.task, "cancelled")
        return running is not None

    def progress(self) -> str:
        """Return one line on what is computed now; "" when nothing is."""
        computations = list(self._running.values())
        now = time.monotonic()
        lines = {f.task.group_id: f"{f.task.group_id}: {now - f.began:.0f} s" for f in computations}
        for engine in {id(running.engine): running.engine for running in computations}.values():
            lines |= {where.group_id: str(where) for where in engine.progress()}
        return "; ".join(lines[group_id] for group_id in sorted(lines))

    def supersede(self, group_id: str) -> None:
        """Cancel a group's computation for good: another target was installed."""
        self._cancel(group_id)

    def cancel_all(self) -> None:
        """Cancel all computations for good: another coordinator has the store."""
        for group_id in list(self._running):
            self._cancel(group_id)

    def close(self) -> None:
        """Cancel all computations, and close the engines that were started here.

        What those compute is waited for; the engine that was given is its owner's to wait for.
        """
        self.cancel_all()
        for timer in list(self._timers):
            timer.cancel()
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for engine in self._engines.values():
            if id(engine) in self._threads:
                self._threads[id(engine)].shutdown(wait=True)
            engine.close()

    def _cancel(self, group_id: str) -> RunningComputation | None:
        running = self._running.get(group_id)
        if running is None or not self._finish(running):
            return None
        running.target.cancel()
        running.engine.cancel(group_id)
        return running

    def _finish(self, running: RunningComputation) -> bool:
        """Take a computation off the running ones; False when another thread did already."""
        with self._lock:
            if self._running.get(running.task.group_id) is not running:
                return False
            del self._running[running.task.group_id]
        self._stop_timer(running.deadline)
        return True

    def _time_out(self, task: ComputeTarget, timeout_s: float) -> None:
        with self._lock:
            running = self._running.get(task.group_id)
        if running is not None and running.task is task and self._cancel(task.group_id):
            self._retry_later(task, f"timed out after {timeout_s:g} s")

    def _install_result(self, running: RunningComputation, found: Future[TargetCandidate]) -> None:
        """Install what was computed; in a thread of the engine's."""
        if not self._finish(running):
            return
        task = running.task
        self._processor.metrics.assigned(task.group_id, (time.monotonic() - running.began) * 1000)
        error = None if found.cancelled() else found.exception()
        if found.cancelled() or error is not None:
            self._retry_later(task, str(error or "cancelled"))
            return
        self._submit([found.result()]).add_done_callback(
            lambda answers: self._note_installed(task, answers.result()[0])
        )

    def _note_installed(self, task: ComputeTarget, answer: Answer) -> None:
        if isinstance(answer, GroupError):
            self._retry_later(task, answer.message)
        else:
            self._failures.pop(task.group_id, None)

    def _retry_later(self, task: ComputeTarget, message: str) -> None:
        """Report a failure after the backoff; the group begins again, its last target stays."""
        failures = self._failures.get(task.group_id, 0) + 1
        self._failures[task.group_id] = failures
        self._processor.metrics.computation_failed(task.group_id)
        backoff_s = self._processor.config.engine.backoff_ms / 1000
        doublings = min(failures - 1, DOUBLINGS_MAX)
        after = min(backoff_s * 2**doublings, BACKOFF_MAX_S)
        logger.warning(
            "target computation of group %s failed (%d in a row), retrying in %.1f s: %s",
            task.group_id,
            failures,
            after,
            message,
        )
        event = TargetFailed(task.group_id, task.computation_id, message)
        self._later(after, lambda: self._submit([event]))

    def _later(self, after_s: float, work: Callable[[], object]) -> threading.Timer:
        def run() -> None:
            self._timers.discard(timer)
            work()

        timer = threading.Timer(min(after_s, threading.TIMEOUT_MAX), run)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()
        return timer

    def _stop_timer(self, timer: threading.Timer) -> None:
        timer.cancel()
        self._timers.discard(timer)

    def _engine_for(self, basis: Basis) -> Engine:
        """Choose by the group's setting, else by cost; after many failures the local one."""
        config = self._processor.config
        size = GroupSize(len(basis.input.metas), basis.classes, basis.input.targets.rows())
        wanted = basis.settings.get("consumer.assignor.engine", config.engine.engine)
        assignor = basis.options.assignor
        name = choose_engine(config, wanted, size, whole=knows_loads(assignor))
        failures = self._failures.get(basis.group_id, 0)
        if failures >= config.engine.max_failures and fits_memory(config, size):
            name = LOCAL
        if name == LOCAL:  # it has all; to list what is installed takes milliseconds
            return self.engine(LOCAL)
        engine = self._find_engine(name)
        return engine if assignor in engine.assignors else self._find_engine(LOCAL)

    def _find_engine(self, name: str) -> Engine:
        """Return an engine by its name; the local one where it is not installed."""
        given = name == "spark" and self._given is not None
        if not given and name not in {LOCAL, *list_engines()}:
            logger.warning("engine %r is not installed: using the local one", name)
            return self.engine(LOCAL)
        if name not in self._lacking:
            try:
                return self.engine(name)
            except MissingExtraError as error:
                self._lacking.add(name)
                logger.warning("%s; using the local engine", error)
        return self.engine(LOCAL)

    def engine(self, name: str) -> Engine:
        """Return an engine by its name: the one that was given, or one that is opened once.

        Targets and plans of a coordinator share it; any thread may ask. `close` closes it.

        Raises
        ------
        SpecError
            The engine does not exist.
        MissingExtraError
            What it needs is not installed.
        """
        if name == "spark" and self._given is not None:
            return self._given
        with self._opening:
            if name not in self._engines:
                self._engines[name] = open_engine(name, self._processor.config)
            return self._engines[name]


def restore_basis(processor: EventProcessor, task: ComputeTarget) -> Basis | None:
    """Return what a computation was prepared from; None when it is outdated."""
    group = processor.state.groups.get(task.group_id)
    found = group.computation if group else None
    if group is None or found is None or found.record.computation_id != task.computation_id:
        return None
    loads = processor.state.loads.get(task.group_id)
    asked = restore_input(group, found, loads, processor.steady())
    return Basis.of(
        (task.group_id, task.group_epoch),
        task.assignor,
        processor.state.settings.get(task.group_id, {}),
        # Other topics do not wait for those that no member may have.
        asked.without(asked.find_drained_topics()),
        processor.config,
        is_target=True,
        computation_id=task.computation_id,
        position=task.position,
        store=processor.log.store,
        classes=len(group.lists),
    )
