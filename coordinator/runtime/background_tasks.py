"""Background tasks: what is repeated beside the event loop, each task in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.errors.status import Status
from coordinator.errors.trouble import Trouble
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.inbox_reader import InboxReader
from coordinator.runtime.log_maintenance import LogMaintenance
from coordinator.runtime.plan_tasks.kafka_weights import KafkaWeights
from coordinator.runtime.plan_tasks.plan_submitter import PlanSubmitter
from coordinator.runtime.plan_tasks.weight_poller import WeightPoller
from coordinator.runtime.plan_tasks.weight_source import WeightSource
from coordinator.runtime.threads_left import leave
from coordinator.runtime.topic_catalog import slice_report
from coordinator.storage.lease import Lease
from coordinator.storage.record_log import LogError, WriterFenced
from coordinator.storage.tables.store_files import files_at

CLOSE_S = 1.0
"""How long `close` waits for tasks under way; after that they go on in their threads, unawaited."""
logger = logging.getLogger("muster.coordinator")


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that a thread repeats.

    Attributes
    ----------
    every_s
        Seconds from one run to the next.
    run
        One run; what it raises is logged, and the next run comes all the same.
    wake
        Set to have the next run at once.
    """

    name: str
    every_s: float
    run: Callable[[], None]
    wake: threading.Event = field(default_factory=threading.Event)


class BackgroundTasks:
    """The lease, topics, weights, plans, requests and log maintenance of one coordinator.

    Parameters
    ----------
    loop
        What serves the coordinator's requests; no task ever holds it up.
    lease
        The lease to renew; None for a store that needs none.
    weights
        Where weights of groups come from.
    """

    def __init__(
        self,
        loop: EventLoop,
        lease: Lease | None,
        weights: WeightSource | KafkaWeights | None = None,
    ) -> None:
        self._loop = loop
        self._lease = lease
        self._given_up = False
        self._not_renewed = False
        """Whether that was logged since a renewal went well."""
        self._stopped = False
        self.maintenance = LogMaintenance(loop.processor)
        config = loop.processor.config
        while_loading = []
        if lease is not None:
            every_s = config.lease.renew_ms / 1000
            while_loading.append(PeriodicTask("lease", every_s, self._renew, loop.lost))
        store = loop.processor.log.store
        poll_s = 0.0 if store is None else files_at(store).poll_s
        while_serving = [
            PeriodicTask(
                "maintenance",
                config.log.maintenance_ms / 1000,
                self.maintenance.run,
                loop.maintenance_due,
            ),
            PeriodicTask("topics", config.topics.poll_ms / 1000, self._poll_topics),
            PeriodicTask("plans", config.plans.poll_ms / 1000, PlanSubmitter(loop).run),
        ]
        if weights is not None:
            poller = WeightPoller(loop, weights)
            every_s = config.weights.poll_ms / 1000
            while_serving.append(PeriodicTask("weights", every_s, poller.run))
        if store is not None:
            every_s = max(config.engine.proposals_ms / 1000, poll_s)
            reader = InboxReader(loop, self.maintenance)
            while_serving.append(PeriodicTask("requests", every_s, reader.run, loop.requests_due))
        self._tasks = [*while_loading, *while_serving]
        self._while_loading = [self._thread(task) for task in while_loading]
        self._while_serving = [self._thread(task) for task in while_serving]

    def _thread(self, task: PeriodicTask) -> threading.Thread:
        name = f"muster-{task.name}"
        return threading.Thread(target=self._repeat, args=(task,), name=name, daemon=True)

    def hold(self) -> None:
        """Renew the lease from now on: a load may take longer than a lease lives."""
        for thread in self._while_loading:
            thread.start()

    def start(self) -> None:
        """Start all other tasks, once the coordinator is loaded."""
        self.maintenance.start()
        for thread in self._while_serving:
            thread.start()

    def name_late(self, addresses: tuple[str, ...]) -> None:
        """Have the lease name these nodes as late, at once."""
        if self._lease is not None and self._lease.late != addresses:
            self._lease.late = addresses
            self._loop.lost.set()

    def close(self) -> None:
        """Stop, and give the lease back so that a successor may start at once.

        A slow task, such as a request that a store does not answer, is not waited for. What it
        still does, it does as a coordinator that may have been fenced.
        """
        self._stopped = True
        self.maintenance.stop()
        for task in self._tasks:
            task.wake.set()
        if self._lease is not None and not self._while_loading[0].is_alive():
            self._lease.release()
        until = time.monotonic() + CLOSE_S
        for thread in (*self._while_loading, *self._while_serving):
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
                if thread.is_alive():
                    logger.warning("%s is still running; not waiting for it", thread.name)
                    leave(thread)

    def _repeat(self, task: PeriodicTask) -> None:
        """Run a task again and again, at once when something wakes it, until `close`."""
        trouble = Trouble(logger.error, "%s failed, retrying: %s", task.name)
        while True:
            task.wake.wait(min(task.every_s, threading.TIMEOUT_MAX))
            task.wake.clear()  # before we look: `close` says that we stop before it wakes
            if self._stopped:
                if task.run == self._renew and self._lease is not None:
                    self._lease.release()
                return
            try:
                task.run()
                trouble.end()
            except (LogError, OSError) as error:
                trouble.note(error)
            except Exception:
                logger.exception("background task failed; retrying: %s", task.name)

    def _renew(self) -> None:
        """Renew the lease while we load and serve; a fenced coordinator has none to renew.

        It is given back, so that a stand-by takes over, when we no longer answer, or when the log
        has not let us answer for as long as a lease lives; if we recover first, we take it again.
        Once it is no longer ours, the log says whether we are fenced, even without a request. A
        lease that is gone proves nothing: a successor gives it back when it closes.
        """
        assert self._lease is not None
        processor = self._loop.processor
        if self._loop.ended or processor.is_stuck:
            if not self._given_up:
                self._lease.release()
                if processor.status is not Status.CLOSED:
                    logger.error("gave up the lease: a stand-by may take over")
            self._given_up = True
            return
        was_given_up, self._given_up = self._given_up, False
        if processor.status is not Status.FENCED and not self._lease.renew(processor.clock()):
            try:
                processor.log.look()
            except WriterFenced:
                self._loop.call(processor.confirm)
            else:
                back = "taken again" if self._lease.retake() else "another's now"
                if was_given_up:
                    logger.warning("the lease is %s", back)
                elif not self._not_renewed:
                    logger.warning(
                        "the lease was not renewed, though the log is ours: it was removed or "
                        "taken, or the store refuses its own tags (ETag); it is %s",
                        back,
                    )
                self._not_renewed = True
        else:
            self._not_renewed = False

    def _poll_topics(self) -> None:
        """Ask the catalog here, where it may take its time, and tell the event loop."""
        processor = self._loop.processor
        event = processor.look_at_topics()
        if event is not None:
            for slice_ in slice_report(event, processor.state.topics):
                self._loop.submit([slice_]).result()
