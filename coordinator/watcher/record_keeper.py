"""Keeps, in the store of a node's history, what Kafka's topic of groups has no record for.

The groups of what the node leads do not wait for it: records are queued, and are written once the
history is there. Who needs an answer to last, as of a plan, waits for `flush`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias

from coordinator.core.java_hash import place_of
from coordinator.core.state.groups import State
from coordinator.core.state.records import Record
from coordinator.core.watched.kept_records import is_of_plan, list_ended, list_kept
from coordinator.core.watched.unread_groups import group_of
from coordinator.core.watched_events import KeepRecords
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.trouble import Trouble
from coordinator.history.log_reader import LogReader
from coordinator.runtime.coordinator import Coordinator
from coordinator.storage.record_log import LogError
from coordinator.storage.store_claim import has_log

RETRY_S, COMPARE_S, PATIENCE_S = 0.25, 30.0, 10.0
"""Between two tries to write; between two comparisons of both sides; and how long `flush` waits."""
LOOK_S = 3.0
"""How long a partition that is loaded waits for what is kept."""
UNKNOWN_S = 60.0
"""How long plans wait for their group, which the history has not read yet."""
QUEUED_MAX, TOGETHER = 100_000, 1_000
Led: TypeAlias = Mapping[int, Coordinator]
"""The coordinator of each partition that is led."""
logger = logging.getLogger("muster.node")


class Queued(NamedTuple):
    """A record that is to be kept, the how-manieth it is, and since when it waits."""

    record: Record
    number: int
    since_s: float


class RecordKeeper:
    """Brings kept records to the history, in a thread of its own while there is one.

    Parameters
    ----------
    list_led
        Returns what is led now.
    count
        Returns how many partitions the topic of groups has.
    store
        Of the history: read while that is not open, as when it waits for the lease of a node that
        was killed. None: it is in memory.
    """

    def __init__(
        self, list_led: Callable[[], Led], count: Callable[[], int], store: str | None = None
    ) -> None:
        self._list_led, self._count = list_led, count
        self._store, self._reading = store, threading.Lock()
        self._stored: State | None = None
        self._changed = threading.Condition()
        self._queue: deque[Queued] = deque()
        self._late: list[Queued] = []
        """Of groups that the history has not read yet: written before what is queued."""
        self._sent = 0
        self._history: Coordinator | None = None
        self._has_all = False
        """Whether both sides were compared since the history was opened, or something was led."""
        self._has_closed = False
        self._thread: threading.Thread | None = None
        self._trouble = Trouble(logger.warning, "what Kafka has no record for waits: %s")

    def open(self, history: Coordinator | None) -> None:
        """Keep records there from now on; None: they wait until there is one."""
        with self._changed:
            self._history, self._has_all, self._stored = history, False, None
            if self._thread is None and history is not None and not self._has_closed:
                self._thread = threading.Thread(target=self._run, name="muster-keeps", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Write what waits, if the history is there, and end."""
        with self._changed:
            self._has_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def send(self, records: Sequence[Record]) -> None:
        """Have records kept; never waits."""
        with self._changed:
            for record in records:
                self._sent += 1
                self._queue.append(Queued(record, self._sent, time.monotonic()))
            while len(self._queue) > QUEUED_MAX:
                self._queue.popleft()
                self._trouble.note(f"more than {QUEUED_MAX} records: the oldest are dropped")
            self._changed.notify_all()

    def flush(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until all that was sent is kept, but for what is of groups that are not there yet.

        Raises
        ------
        GroupError
            COORDINATOR_NOT_AVAILABLE: that takes too long, as where the disk is full.
        """
        with self._changed:
            last = self._sent
            done = self._changed.wait_for(
                lambda: not self._queue or self._queue[0].number > last, patience_s
            )
        if not done:
            raise GroupError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The node's store has not kept the answer within {patience_s:g} s: see the node's "
                "log, and look whether it was done before you ask again.",
            )

    def find(self, number: int) -> list[Record]:
        """Return what is kept of the groups of a partition; nothing where that cannot be read."""
        count = self._count()
        try:
            found = self._read(number, count)
        except (GroupError, LogError, OSError) as error:
            logger.warning("partition %d is led without what is kept: %s", number, error)
            self.compare()
            found = []
        with self._changed:
            waiting = [one.record for one in (*self._late, *self._queue)]
        ours = (one for one in waiting if place_of(group_of(one), count) == number)
        return [*found, *ours]

    def _read(self, number: int, count: int) -> list[Record]:
        history = self._history
        if history is not None:
            return _look(history, lambda state: list_kept(state, number, count))
        with self._reading:
            if self._stored is None and self._store is not None and has_log(self._store):
                self._stored = LogReader(self._store).state()
            stored = self._stored
        return [] if stored is None else list_kept(stored, number, count)

    def compare(self) -> None:
        """Compare both sides soon: something else is led."""
        with self._changed:
            self._has_all = False
            self._changed.notify_all()

    # The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        compared_s, ending = 0.0, False
        while not ending:
            with self._changed:
                self._changed.wait_for(self._has_work, COMPARE_S)
                history, is_due, ending = self._history, not self._has_all, self._has_closed
                self._has_all = True
            if history is None:
                continue
            try:
                if is_due or time.monotonic() - compared_s > COMPARE_S:
                    compared_s = time.monotonic()
                    for number, coordinator in self._list_led().items():
                        self._compare(history, number, coordinator, restores=is_due)
                while self._write(history):
                    pass
            except GroupError as error:
                self._trouble.note(error.message)
                with self._changed:
                    self._has_all = self._has_all and not is_due
                time.sleep(RETRY_S)

    def _has_work(self) -> bool:
        if self._has_closed:
            return True
        has_more = bool(self._queue) or bool(self._late)
        return self._history is not None and (has_more or not self._has_all)

    def _compare(
        self, history: Coordinator, number: int, led: Coordinator, *, restores: bool
    ) -> None:
        """Restore what the coordinator lacks, and send what the history lacks."""
        count = self._count()
        kept = history.look(lambda state: list_kept(state, number, count))
        try:
            if restores and kept:
                _submit(led, kept)
            now = led.look(lambda state: list_kept(state, number, count))
        except GroupError as error:
            logger.info("partition %d is compared later: %s", number, error.message)
            return
        same = {_key(record): record for record in kept}
        new = [record for record in now if same.get(_key(record)) != record]
        self.send([*new, *list_ended(kept, now)])

    def _write(self, history: Coordinator) -> bool:
        """Write what waits; what is of a group that the history does not have yet waits on.

        Returns
        -------
        bool
            Whether more may be written at once.
        """
        with self._changed:
            queued = [self._queue[at] for at in range(min(TOGETHER, len(self._queue)))]
        some = [*self._late, *queued]
        if not some:
            return False
        unknown = _submit(history, [one.record for one in some])
        after_s = time.monotonic() - UNKNOWN_S
        late = [
            one
            for one in some
            if is_of_plan(one.record) and group_of(one.record) in unknown and one.since_s > after_s
        ]
        with self._changed:
            while self._queue and self._queue[0].number <= some[-1].number:
                self._queue.popleft()
            self._late = late
            self._changed.notify_all()
        self._trouble.end()
        if late and not self._queue:
            time.sleep(RETRY_S)
        return bool(queued)


def _look(history: Coordinator, find: Callable[[State], list[Record]]) -> list[Record]:
    """Return what is found in the history; groups do not wait for one that hangs.

    Raises
    ------
    GroupError, OSError
        It does not answer.
    """
    found: Future[list[Record]] = Future()

    def look() -> None:
        try:
            found.set_result(history.look(find))
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            found.set_exception(error)

    threading.Thread(target=look, name="muster-looks", daemon=True).start()
    return found.result(LOOK_S)


def _submit(coordinator: Coordinator, records: Sequence[Record]) -> set[str]:
    """Have a coordinator take records; return the groups that it does not know yet."""
    (answer,) = coordinator.submit([KeepRecords(tuple(records))]).result()
    if isinstance(answer, GroupError):
        raise answer
    found = answer.response
    return found if isinstance(found, set) else set()


def _key(record: Record) -> tuple[str, str, str]:
    return record.kind, group_of(record), getattr(record, "plan_id", "")
