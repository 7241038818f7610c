"""A partition that this node leads, from its election on: written, fetched, and no longer led.

Coordinators write it in their threads, the server reads it in its own, and the node's loop says
what the cluster decides; a lock is between them. Once it has ended, nothing of the log is touched:
the replica follows another leader, or is removed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator.clock import monotonic_ms
from coordinator.kraft.batch_writer import BatchTooLargeError, Change, write_batches
from coordinator.kraft.leading import Fetched, IsrChange, Leadership, Standing
from coordinator.kraft.log_files import LogFile
from coordinator.kraft.metadata_image import Partition
from coordinator.kraft.partition_log import Accepted, EpochEnd
from coordinator.storage.record_log import CommitFailed, WriterFenced
from coordinator.watcher.record_batches import RecordBatch, read_batches, split_batches

READ_BYTES = 4 << 20
NOT_LEADER = 6
FOLLOWED_S = 1.5
"""How old the word of followers may be that they know no other leader: they ask twice a second."""


class FetchedData(NamedTuple):
    """What answers a fetch, and where the log is.

    Attributes
    ----------
    aborted
        Transactions that were aborted, for the one who skips them.
    """

    found: Fetched
    data: bytes = b""
    high_watermark: int = -1
    start: int = -1
    stable_end: int = -1
    aborted: list[dict[str, object]] | None = None


class LedPartition:
    """A partition in one epoch, as its leader.

    Parameters
    ----------
    commit_s
        How long an append waits until all replicas in sync have it.

    Attributes
    ----------
    changed
        Called when there is something new to fetch, in any thread.
    cannot_write
        Whether the last append failed at this node's disk.
    """

    def __init__(
        self,
        number: int,
        file: LogFile,
        leadership: Leadership,
        bytes_max: int,
        standing: Standing,
        changed: Callable[[], object],
        commit_s: float,
    ) -> None:
        self.number, self.epoch = number, leadership.epoch
        self._file, self._led, self._bytes_max = file, leadership, bytes_max
        self._standing, self.changed, self._commit_s = standing, changed, commit_s
        self._state = threading.Condition()
        self._has_ended = False
        self.cannot_write = False

    # By the coordinator --------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._led.log.end

    def append(self, changes: Sequence[Change]) -> int:
        """Write changes, and wait until they count; return the offset behind them.

        Raises
        ------
        WriterFenced
            It is no longer led. What was written may count all the same.
        CommitFailed
            Too few replicas are in sync, or one of them does not fetch: it may count later. Or the
            disk takes nothing: then the log is as it was.
        """
        with self._state:
            self._refuse_ended()
            self._refuse_unwritable()
            log = self._led.log
            raw = b"".join(_write(changes, log.end, self.epoch, self._bytes_max))
            self._write(Accepted(list(split_batches(raw)), None))
            self._led.advance()
            end = log.end
        self.changed()
        self.wait_until_counted(end)
        return end

    def _write(self, accepted: Accepted) -> None:
        try:
            self._file.append(accepted)
        except OSError as error:
            self.cannot_write = True
            raise CommitFailed(
                f"partition {self.number}: its log cannot be written: {error}"
            ) from None
        self.cannot_write = False

    def wait_until_counted(self, offset: int) -> None:
        """Wait until everything before an offset counts; raises as `append`."""
        with self._state:
            self._state.wait_for(
                lambda: self._has_ended or self._led.log.high_watermark >= offset, self._commit_s
            )
            self._refuse_ended()
            if self._led.log.high_watermark < offset:
                raise CommitFailed(
                    f"partition {self.number}: offset {offset - 1} is not on all replicas in sync "
                    f"({', '.join(map(str, self._led.isr))}) after {self._commit_s:g} s"
                )

    def look(self) -> None:
        """See that no other node leads it.

        Raises
        ------
        WriterFenced
            It is no longer led.
        CommitFailed
            That is not known: neither controllers nor followers have confirmed it lately.
        """
        with self._state:
            self._refuse_ended()
            since_s = self._led.led_since_s
        if not self._standing.is_sure and _now_s() - since_s > FOLLOWED_S:
            raise CommitFailed(
                f"partition {self.number}: it is not known whether another node leads it: neither "
                "the controllers nor the followers are heard"
            )

    def read(self) -> Iterator[list[RecordBatch]]:
        """Yield the batches of the log, up to its end.

        Raises
        ------
        WriterFenced
            It is no longer led.
        """
        offset = self._led.log.start
        while True:
            with self._state:
                self._refuse_ended()
                self._refuse_unwritable()
                data = self._file.read(offset, READ_BYTES)
            if not data:
                return
            batches = list(read_batches(data))
            yield batches
            offset = batches[-1].last_offset + 1

    def _refuse_ended(self) -> None:
        if self._has_ended:
            raise WriterFenced(
                f"partition {self.number} is no longer led here, in epoch {self.epoch}"
            )

    def _refuse_unwritable(self) -> None:
        led = self._led
        if not led.is_writable:
            raise CommitFailed(
                f"partition {self.number} has {len(led.isr)} replicas in sync, of "
                f"{led.isr_least} that it needs (min.insync.replicas)"
            )

    # By who fetches ------------------------------------------------------------------------------

    def note_fetch(
        self, node_id: int, broker_epoch: int, offset: int, current_epoch: int, last_epoch: int
    ) -> None:
        """Note what a follower has, if it asks in this epoch, and its log is as ours so far."""
        with self._state, self._file.lock:
            found = self._led.fetch(offset, current_epoch, last_epoch, 0, replica=True)
            if self._has_ended or found.error or found.diverging is not None:
                return
            moved = self._led.note_fetch(node_id, broker_epoch, offset, _now_s())
            if moved:
                self._state.notify_all()
        if moved:
            self.changed()

    def note_answer(self, node_id: int) -> None:
        """Note that a follower's fetch is answered now."""
        with self._state:
            self._led.note_answer(node_id, _now_s())

    def fetch(
        self,
        offset: int,
        current_epoch: int,
        last_epoch: int,
        bytes_max: int,
        *,
        replica: bool,
        committed: bool = False,
    ) -> FetchedData:
        """Return the answer to a fetch.

        Parameters
        ----------
        committed
            Whether the one who asks reads nothing of transactions that are open.
        """
        with self._state, self._file.lock:
            log = self._led.log
            if self._has_ended:
                return FetchedData(Fetched(NOT_LEADER))
            found = self._led.fetch(
                offset, current_epoch, last_epoch, bytes_max, replica=replica, committed=committed
            )
            data = self._file.read_span(found.begin, found.end) if found.end > found.begin else b""
            stable = log.stable_end
            return FetchedData(
                found, data, log.high_watermark, log.start, stable,
                log.transactions.aborted(offset, stable) if committed else None,
            )  # fmt: skip

    def find_end(self, current_epoch: int, epoch: int) -> tuple[int, EpochEnd]:
        """Return where an epoch ends, or an error."""
        with self._state:
            error = NOT_LEADER if self._has_ended else self._led.check_epoch(current_epoch)
            return error, self._led.log.end_of(epoch)

    def find_offset(
        self, current_epoch: int, *, last: bool, replica: bool, committed: bool = False
    ) -> tuple[int, int]:
        """Return where the log begins, or ends for the one who asks; or an error."""
        with self._state:
            log = self._led.log
            error = NOT_LEADER if self._has_ended else self._led.check_epoch(current_epoch)
            end = log.end if replica else log.stable_end if committed else log.high_watermark
            return error, end if last else log.start

    # By the node ---------------------------------------------------------------------------------

    def follow(self, partition: Partition, isr_least: int) -> None:
        """Take what the metadata say now, in the same epoch."""
        self._change(lambda: self._set(partition, isr_least))

    def _set(self, partition: Partition, isr_least: int) -> bool:
        self._led.isr_least = isr_least
        return self._led.follow(partition, _now_s())

    def ask_isr(self, alive: dict[int, int]) -> IsrChange | None:
        """Return which replicas should be in sync, where that is to be asked."""
        with self._state:
            return None if self._has_ended else self._led.ask_isr(alive, _now_s())

    def take_isr(self, found: Any) -> None:  # noqa: ANN401 - a partition of kio's answer
        """Take the controller's answer to that."""
        self._change(lambda: self._led.take_isr(found))

    def _change(self, change: Callable[[], bool]) -> None:
        with self._state:
            moved = not self._has_ended and change()
            if moved:
                self._state.notify_all()
        if moved:
            self.changed()

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync."""
        return self._led.isr

    @property
    def is_held_by_others(self) -> bool:
        """Whether a broker is in sync, and enough are: then it could do what fails here."""
        return self._led.is_writable and len(self._led.isr) > 1

    def stop(self) -> None:
        """End it: another leads by now, or the node does not know who."""
        with self._state:
            self._has_ended = True
            self._state.notify_all()
        self.changed()

    @property
    def has_ended(self) -> bool:
        """Whether it is no longer led."""
        return self._has_ended


def _write(changes: Sequence[Change], offset: int, epoch: int, bytes_max: int) -> list[bytes]:
    """Return changes as batches; what is too large for one is cut between its records.

    A reader that has the beginning alone has a state that Muster had not answered by.
    """
    try:
        return list(write_batches(changes, offset, epoch, bytes_max))
    except BatchTooLargeError:
        single = [change._replace(records=[one]) for change in changes for one in change.records]
        try:
            return list(write_batches(single, offset, epoch, bytes_max))
        except BatchTooLargeError as error:
            raise CommitFailed(str(error)) from None


def _now_s() -> float:
    return monotonic_ms() / 1000
