"""Log maintenance in the background: checkpoints, clean-up, snapshots, requested compactions."""

from __future__ import annotations

import logging
import time

from coordinator.errors.status import Status
from coordinator.runtime.event_processor import EventProcessor
from coordinator.storage.inbox import Inbox
from coordinator.storage.record_log import LogError, MaintenanceStopped
from coordinator.storage.state_loader import pack_log, write_snapshot

PAUSE_S = 10.0
"""How long a run that failed is not repeated: each of them reads the log."""
ROWS_A_MEMBER = 3
"""About how many rows of a snapshot a member takes."""
logger = logging.getLogger("muster.coordinator")


class LogMaintenance:
    """The maintenance of one coordinator's log; one thread runs it.

    Parameters
    ----------
    processor
        The event processor that writes the log; the log's position and state are read from it.
    """

    def __init__(self, processor: EventProcessor) -> None:
        self._processor = processor
        self._snapshot_at = 0
        """The position of the last snapshot."""
        self._requests: dict[str, Inbox] = {}
        """Requests to compact that wait, and where they are."""
        self._next_run = 0.0

    def start(self) -> None:
        """Take the snapshot that the load began with for the last one."""
        self._snapshot_at = self._processor.loaded_from

    def stop(self) -> None:
        """Have a run that is under way end early, and no other begin; any thread may ask."""
        self._processor.log.stop_maintenance()

    def run(self) -> None:
        """Do what is due now; only a coordinator that has the log does any of it."""
        processor = self._processor
        if processor.status is not Status.ACTIVE or time.monotonic() < self._next_run:
            return
        try:
            self._compact()
            if processor.log.is_maintenance_due():
                processor.log.maintain()
            if self._snapshot_due():
                self._snapshot_at = write_snapshot(processor.log, processor.clock())
        except MaintenanceStopped:
            return
        except LogError as error:
            logger.warning("log maintenance failed, retrying: %s", error)
            processor.metrics.maintenance_failed()
            self._next_run = time.monotonic() + PAUSE_S

    def _snapshot_due(self) -> bool:
        """Whether a snapshot would save as many rows as it costs."""
        processor = self._processor
        rows = processor.position - self._snapshot_at
        if rows < processor.config.log.snapshot_rows:
            return False
        members = sum(len(group.members) for group in list(processor.state.groups.values()))
        return rows >= ROWS_A_MEMBER * members

    def ask_to_compact(self, inbox: Inbox, request_id: str) -> None:
        """Have the log packed soon; the request goes once it is. Any thread may ask."""
        self._requests[request_id] = inbox

    def _compact(self) -> None:
        """Do what `muster compact` asked for."""
        if not self._requests:
            return
        requests = dict(self._requests)
        self._snapshot_at = pack_log(self._processor.log, self._processor.clock())
        for request_id, inbox in requests.items():
            inbox.remove(request_id)
            self._requests.pop(request_id, None)
