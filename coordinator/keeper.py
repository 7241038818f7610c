"""keeper: what must be done beside the loop: lease, topics, proposals, the care of the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordinator import inbox, requests
from coordinator.errors import GroupError
from coordinator.lease import Lease
from coordinator.loading import replayed
from coordinator.log import LogError, RecordLog
from coordinator.loop import Loop
from coordinator.records import ACCEPTED
from coordinator.snapshot import records_of
from coordinator.status import Status

CARE_S = 0.25
PROPOSALS_S = 0.5
ROWS_A_MEMBER = 3
logger = logging.getLogger("muster.coordinator")


class Keeper:
    """Threads that never hold up an answer."""

    def __init__(self, loop: Loop, lease: Lease | None) -> None:
        self._loop = loop
        self._lease = lease
        self._stop = threading.Event()
        config = loop.runner.config
        self._holding = []
        if lease is not None:
            self._holding = [self._thread("lease", config.lease.renew_ms / 1000, self._renew)]
        self._threads = [
            self._thread("care", CARE_S, self._care, loop.care_due),
            self._thread("topics", config.topics.poll_ms / 1000, self._topics),
        ]
        if loop.runner.log.store is not None:
            self._threads.append(self._thread("proposals", PROPOSALS_S, self._proposals))
        self._snapshot_at = 0

    def _thread(
        self,
        name: str,
        every_s: float,
        job: Callable[[], None],
        due: threading.Event | None = None,
    ) -> threading.Thread:
        words = (every_s, job, due)
        return threading.Thread(target=self._repeat, args=words, name=f"muster-{name}", daemon=True)

    def hold(self) -> None:
        """Renew the lease from now on: a load may take longer than one lives."""
        for thread in self._holding:
            thread.start()

    def start(self) -> None:
        """Begin with everything else, once the coordinator is loaded."""
        self._snapshot_at = self._loop.runner.loaded_from
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, and give the lease back so that a successor may start at once."""
        self._stop.set()
        self._loop.care_due.set()
        for thread in (*self._holding, *self._threads):
            if thread.is_alive():
                thread.join()
        if self._lease is not None:
            self._lease.release()

    def _repeat(self, every_s: float, job: Callable[[], None], due: threading.Event | None) -> None:
        """Do a job again and again, at once when it is due, until we stop."""
        wake = due or self._stop
        while True:
            wake.wait(every_s)
            if self._stop.is_set():
                return
            if due is not None:
                due.clear()
            try:
                job()
            except Exception:
                logger.exception("the coordinator's keeper goes on")

    def _renew(self) -> None:
        """Renew the lease while we load and serve; a fenced coordinator has none to renew.

        Whoever has it now has most likely claimed the log: then we end, even if nobody asks us
        anything.
        """
        assert self._lease is not None
        runner = self._loop.runner
        if runner.status is not Status.FENCED and not self._lease.renew(runner.clock()):
            self._loop.call(lambda: runner.confirmed([]))

    def _topics(self) -> None:
        """Ask the catalog here, where it may take its time, and tell the loop."""
        event = self._loop.runner.look_at_topics()
        if event is not None:
            self._loop.submit([event]).result()

    def _proposals(self) -> None:
        """Judge what external jobs propose; a verdict that did not last is given again."""
        store = self._loop.runner.log.store
        assert store is not None
        for run_id in inbox.waiting(store):
            if self._loop.runner.status is not Status.ACTIVE:
                return
            event = inbox.judged(store, run_id)
            (answer,) = self._loop.submit([event]).result()
            if isinstance(answer, GroupError):
                return
            logger.info("proposal %s of group %s: %s", run_id, event.group_id, answer.response)
            if answer.response == ACCEPTED:
                self._loop.computing.supersede(event.group_id)
            inbox.take_away(store, run_id)

    def _care(self) -> None:
        """Pack, clean up, and write a snapshot when there is enough new."""
        runner = self._loop.runner
        if runner.status is not Status.ACTIVE:
            return
        try:
            self._compact()
            if runner.log.housekeeping_due():
                runner.log.housekeep()
            rows = runner.position - self._snapshot_at
            members = sum(len(group.members) for group in list(runner.state.groups.values()))
            # A snapshot costs as much as it has rows: a large one waits until it saves as many.
            if rows >= max(runner.config.log.snapshot_rows, ROWS_A_MEMBER * members):
                self._snapshot_at = write_snapshot(runner.log, runner.clock())
        except LogError as error:
            logger.warning("the log was not cared for: %s", error)

    def _compact(self) -> None:
        """Do what `muster compact` asks for; whoever asked sees its request go."""
        runner = self._loop.runner
        store = runner.log.store
        if store is None:
            return
        for request in requests.waiting(store, requests.COMPACT):
            self._snapshot_at = pack(runner.log, runner.clock())
            requests.take_away(store, request)


def write_snapshot(log: RecordLog, at_ms: int) -> int:
    """Replay the log beside the coordinator and write its state; returns the position.

    The live state is not touched: a snapshot of a million members takes seconds.
    """
    state, _, position = replayed(log)
    log.snapshot(records_of(state), position, at_ms)
    return position


def pack(log: RecordLog, at_ms: int) -> int:
    """Write a snapshot and pack the log, whether that is due or not; returns the position."""
    position = write_snapshot(log, at_ms)
    log.housekeep(pack=True)
    return position
