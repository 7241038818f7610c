"""Periodic tasks beside the event loop: lease, topics, proposals, log maintenance.

They never answer a request and never change the state: they pass events to the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordinator.compute import proposal_inbox
from coordinator.core.records import ACCEPTED
from coordinator.error_text import one_line
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.event_loop import EventLoop
from coordinator.status import Status
from coordinator.storage import admin_requests
from coordinator.storage.lease import Lease
from coordinator.storage.record_log import Fenced, LogError
from coordinator.storage.state_loader import pack_log, write_snapshot

CARE_S = 0.25
PROPOSALS_S = 0.5
PROPOSAL_TRIES = 3
ROWS_A_MEMBER = 3
logger = logging.getLogger("muster.coordinator")


class BackgroundTasks:
    """Threads that never hold up an answer."""

    def __init__(self, loop: EventLoop, lease: Lease | None) -> None:
        self._loop = loop
        self._lease = lease
        self._stopped = False
        self._wakes: list[threading.Event] = []
        config = loop.processor.config
        self._holding = []
        if lease is not None:
            self._holding = [self._thread("lease", config.lease.renew_ms / 1000, self._renew)]
        self._threads = [
            self._thread("care", CARE_S, self._care, loop.maintenance_due),
            self._thread("topics", config.topics.poll_ms / 1000, self._topics),
        ]
        if loop.processor.log.store is not None:
            self._threads.append(self._thread("proposals", PROPOSALS_S, self._proposals))
        self._snapshot_at = 0
        self._failed: dict[str, int] = {}
        """How often in a row a proposal was not answered."""

    def _thread(
        self,
        name: str,
        every_s: float,
        job: Callable[[], None],
        wake: threading.Event | None = None,
    ) -> threading.Thread:
        wake = wake or threading.Event()
        self._wakes.append(wake)
        words = (every_s, job, wake)
        return threading.Thread(target=self._repeat, args=words, name=f"muster-{name}", daemon=True)

    def hold(self) -> None:
        """Renew the lease from now on: a load may take longer than one lives."""
        for thread in self._holding:
            thread.start()

    def start(self) -> None:
        """Begin with everything else, once the coordinator is loaded."""
        self._snapshot_at = self._loop.processor.loaded_from
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, and give the lease back so that a successor may start at once."""
        self._stopped = True
        for wake in self._wakes:
            wake.set()
        for thread in (*self._holding, *self._threads):
            if thread.is_alive():
                thread.join()
        if self._lease is not None:
            self._lease.release()

    def _repeat(self, every_s: float, job: Callable[[], None], wake: threading.Event) -> None:
        """Do a job again and again, at once when something wakes it, until we stop."""
        while True:
            wake.wait(every_s)
            wake.clear()  # before we look: `close` says that we stop before it wakes
            if self._stopped:
                return
            try:
                job()
            except Exception:
                logger.exception("background task failed; retrying")

    def _renew(self) -> None:
        """Renew the lease while we load and serve; a fenced coordinator has none to renew.

        Where nobody is answered any more it is given back, so that a stand-by takes over.
        When it is not ours any more the log says whether we are fenced, even if nobody asks us
        anything. A lease that is gone says nothing: a successor gives it back when it closes.
        """
        assert self._lease is not None
        processor = self._loop.processor
        if self._loop.ended:
            self._lease.release()
        elif processor.status is not Status.FENCED and not self._lease.renew(processor.clock()):
            try:
                processor.log.look()
            except Fenced:
                self._loop.call(lambda: processor.confirmed([]))
            else:
                self._lease.retake()

    def _topics(self) -> None:
        """Ask the catalog here, where it may take its time, and tell the loop."""
        event = self._loop.processor.look_at_topics()
        if event is not None:
            self._loop.submit([event]).result()

    def _proposals(self) -> None:
        """Judge what external jobs propose; a verdict that did not last is given again.

        None of them holds up those after it, whatever it is.
        """
        store = self._loop.processor.log.store
        assert store is not None
        proposal_inbox.set_unknown_aside(store)
        for run_id in proposal_inbox.list_proposals(store):
            if self._loop.processor.status is not Status.ACTIVE:
                return
            try:
                self._judge(store, run_id)
            except FileNotFoundError:
                continue  # its job does not wait any more
            except (OSError, LogError) as error:
                logger.warning("proposal %s is judged later: %s", run_id, error)
            except Exception as error:
                logger.exception("proposal %s cannot be judged", run_id)
                proposal_inbox.set_proposal_aside(store, run_id, one_line(error))

    def _judge(self, store: str, run_id: str) -> None:
        event = proposal_inbox.validate_proposal(store, run_id)
        (answer,) = self._loop.submit([event]).result()
        if isinstance(answer, GroupError):
            self._not_answered(store, run_id, answer)
            return
        self._failed.pop(run_id, None)
        logger.info("proposal %s of group %s: %s", run_id, event.group_id, answer.response)
        if answer.response == ACCEPTED:
            self._loop.target_jobs.supersede(event.group_id)
        if event.refusal is not None and event.refusal.code is ErrorCode.INVALID_REQUEST:
            proposal_inbox.set_proposal_aside(store, run_id, event.refusal.message)
        else:
            proposal_inbox.remove_proposal(store, run_id)

    def _not_answered(self, store: str, run_id: str, answer: GroupError) -> None:
        """Try again; but not for ever where the coordinator serves everybody else."""
        if self._loop.processor.status is not Status.ACTIVE:
            return
        self._failed[run_id] = self._failed.get(run_id, 0) + 1
        if self._failed[run_id] == PROPOSAL_TRIES:
            del self._failed[run_id]
            proposal_inbox.set_proposal_aside(
                store, run_id, f"{answer.code.name}: {answer.message}"
            )

    def _care(self) -> None:
        """Pack, clean up, and write a snapshot when there is enough new."""
        processor = self._loop.processor
        if processor.status is not Status.ACTIVE:
            return
        try:
            self._compact()
            if processor.log.is_maintenance_due():
                processor.log.maintain()
            if self._snapshot_due():
                self._snapshot_at = write_snapshot(processor.log, processor.clock())
        except LogError as error:
            logger.warning("log maintenance failed: %s", error)

    def _snapshot_due(self) -> bool:
        """Whether a snapshot would save as many rows as it costs."""
        processor = self._loop.processor
        rows = processor.position - self._snapshot_at
        if rows < processor.config.log.snapshot_rows:
            return False
        members = sum(len(group.members) for group in list(processor.state.groups.values()))
        return rows >= ROWS_A_MEMBER * members

    def _compact(self) -> None:
        """Do what `muster compact` asks for; whoever asked sees its request go."""
        processor = self._loop.processor
        store = processor.log.store
        if store is None:
            return
        admin_requests.set_unknown_aside(store)
        asked = admin_requests.list_requests(store, admin_requests.COMPACT)
        if asked:
            self._snapshot_at = pack_log(processor.log, processor.clock())
        for request in asked:
            admin_requests.remove_request(store, request)
