"""Hand target computations to engines, and bring their results back as events.

One is in flight a group, several groups at once. What fails, hangs or is cancelled is begun again
after a while, longer from time to time; the last target stays meanwhile. After
`engine.max_failures` in a row the local engine is tried, where the group fits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TypeAlias

from coordinator.compute.cost_model import GroupSize, choose_engine, fits_memory
from coordinator.compute.engine import Engine, LocalEngine, ReportsProgress, TargetRequest
from coordinator.core.events import (
    Answer,
    ComputeTarget,
    Event,
    TargetComputed,
    TargetFailed,
    TargetLost,
)
from coordinator.errors import GroupError
from coordinator.runtime.event_processor import Runner
from coordinator.storage.record_log import LostTarget

ENTRY_POINTS = "muster.engines"
BACKOFF_S, BACKOFF_MAX_S = 0.5, 60.0
logger = logging.getLogger("muster.coordinator")
Submit: TypeAlias = Callable[[list[Event]], Future[list[Answer]]]


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A computation under way."""

    task: ComputeTarget
    engine: Engine
    began: float
    deadline: threading.Timer


class Computing:
    """The computations of one coordinator.

    Parameters
    ----------
    submit
        Tells the loop what came of them; any thread may call it.
    engine
        What computes large targets, if one was given; else engines are found by entry points.
    """

    def __init__(self, runner: Runner, submit: Submit, engine: Engine | None) -> None:
        self._runner = runner
        self._submit = submit
        self._given = engine
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()
        self._flights: dict[str, Flight] = {}
        self._timers: set[threading.Timer] = set()

    def begin(self, task: ComputeTarget) -> None:
        """Hand a computation to its engine; one that is still under way for the group is given up.

        Called in the loop's thread.
        """
        self._give_up(task.group_id)
        job = self._runner.job(task)
        if job is None:
            return
        timeout_s = self._runner.config.engine.timeout_ms / 1000
        deadline = self._later(timeout_s, lambda: self._overdue(flight, timeout_s))
        try:
            engine = self._engine(job)
            flight = Flight(task, engine, time.monotonic(), deadline)
            with self._lock:
                self._flights[task.group_id] = flight
            future = engine.submit(job)
        except Exception as error:
            self._end(deadline)
            logger.exception("the engine for %s does not start", task.group_id)
            self._failed(task, str(error))
            return
        future.add_done_callback(lambda found: self._landed(flight, found))

    def cancel(self, group_id: str) -> bool:
        """Give up what is computed for a group; it is begun again after a while."""
        flight = self._give_up(group_id)
        if flight is not None:
            self._failed(flight.task, "cancelled")
        return flight is not None

    def progress(self) -> str:
        """Return one line on what is computed now; "" when nothing is."""
        flights = list(self._flights.values())
        now = time.monotonic()
        said = {f.task.group_id: f"{f.task.group_id}: {now - f.began:.0f} s" for f in flights}
        for engine in {id(flight.engine): flight.engine for flight in flights}.values():
            if isinstance(engine, ReportsProgress):
                said |= {where.group_id: str(where) for where in engine.progress()}
        return "; ".join(said[group_id] for group_id in sorted(said))

    def supersede(self, group_id: str) -> None:
        """Give up what is computed for a group: another computation came first."""
        self._give_up(group_id)

    def give_up_all(self) -> None:
        """Give up everything, for good: another coordinator has the store."""
        for group_id in list(self._flights):
            self._give_up(group_id)

    def close(self) -> None:
        """Give up everything, and end the engines that were started here."""
        self.give_up_all()
        for timer in list(self._timers):
            timer.cancel()
        for engine in self._engines.values():
            engine.close()

    def _give_up(self, group_id: str) -> Flight | None:
        flight = self._flights.get(group_id)
        if flight is None or not self._down(flight):
            return None
        flight.engine.cancel(group_id)
        return flight

    def _down(self, flight: Flight) -> bool:
        """End a flight; False when somebody else did already."""
        with self._lock:
            if self._flights.get(flight.task.group_id) is not flight:
                return False
            del self._flights[flight.task.group_id]
        self._end(flight.deadline)
        return True

    def _overdue(self, flight: Flight, timeout_s: float) -> None:
        if self._down(flight):
            flight.engine.cancel(flight.task.group_id)
            self._failed(flight.task, f"it was not done after {timeout_s:g} s")

    def _landed(self, flight: Flight, found: Future[TargetComputed]) -> None:
        """Install what was computed; in a thread of the engine's."""
        if not self._down(flight):
            return
        task = flight.task
        self._runner.metrics.assigned(task.group_id, (time.monotonic() - flight.began) * 1000)
        error = None if found.cancelled() else found.exception()
        if isinstance(error, LostTarget):
            self._runner.note_lost(lost := TargetLost(task.group_id, str(error)))
            self._submit([lost])
        if found.cancelled() or error is not None:
            self._failed(task, str(error or "cancelled"))
            return
        self._submit([found.result()]).add_done_callback(
            lambda answers: self._installed(task, answers.result()[0])
        )

    def _installed(self, task: ComputeTarget, answer: Answer) -> None:
        if isinstance(answer, GroupError):
            self._failed(task, answer.message)
        else:
            self._runner.failures.pop(task.group_id, None)

    def _failed(self, task: ComputeTarget, message: str) -> None:
        """Let the group begin again after a while; the last target stays."""
        failures = self._runner.failures.get(task.group_id, 0) + 1
        self._runner.failures[task.group_id] = failures
        self._runner.metrics.computation_failed(task.group_id)
        after = min(BACKOFF_S * 2 ** (failures - 1), BACKOFF_MAX_S)
        logger.warning(
            "the target of %s was not computed (%d in a row), again in %.1f s: %s",
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

        timer = threading.Timer(after_s, run)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()
        return timer

    def _end(self, timer: threading.Timer) -> None:
        timer.cancel()
        self._timers.discard(timer)

    def _engine(self, job: TargetRequest) -> Engine:
        """Choose by the group's setting, else by cost; after many failures the local one."""
        config = self._runner.config
        size = GroupSize(len(job.roster.metas), job.classes, job.roster.targets.rows())
        wanted = job.settings.get("consumer.assignor.engine", config.engine.engine)
        wanted = choose_engine(config, wanted, size)
        failures = self._runner.failures.get(job.task.group_id, 0)
        if failures >= config.engine.max_failures and fits_memory(config, size):
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
