"""`RecordLog`, the protocol by which records become durable; and a log in memory.

A log is a sequence of rows, numbered from 1 without a gap (positions). A writer first claims it:
the claim carries a coordinator epoch higher than all before, and fences every writer with a
lower one. `DeltaLog` (delta_log.py) keeps the same promises on a Delta table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coordinator.core.state.member_rows import RecordRows
from coordinator.core.state.records import MembersAdvanced, Record, TargetMetadata
from coordinator.core.state.target_assignment import WholeTarget

CLAIM = "claim"
"""The kind of the row by which a coordinator takes the log; it changes no state."""


class LogError(RuntimeError):
    """An operation on the log failed."""


class WriterFenced(LogError):  # noqa: N818 - the word of the protocol
    """Another coordinator has claimed the log: stop, and answer NOT_COORDINATOR."""


class CommitFailed(LogError):  # noqa: N818 - the word of the protocol
    """A commit was not acknowledged. Drop memory and replay: that shows whether it landed."""


class Unreachable(CommitFailed):
    """An object store does not answer now, or not with all that it has; later it may.

    That says nothing of what it has: nothing must be restored or removed.
    """


class Unconfirmed(CommitFailed):
    """The disk did not confirm a commit: its writer must end, another may open the store.

    What the disk has is unknown from then on, even if a second try succeeds.
    """


class MaintenanceStopped(LogError):  # noqa: N818 - as the others
    """Maintenance was stopped; what it has done is complete."""


class CorruptLog(LogError):  # noqa: N818 - the word of the protocol
    """A file of the log cannot be read, or what it says cannot be; the message names it."""


class NewerLog(LogError):  # noqa: N818 - the word of the protocol
    """A newer version of Muster wrote here something that this one does not know."""


class LostTarget(LogError):  # noqa: N818 - the word of the protocol
    """The rows of a whole target are not, or not all, in the table of targets."""


class NoLog(LogError):  # noqa: N818 - the word of the protocol
    """The store has no log here."""


AS_BEFORE = 0
"""The time of a claim that is dated as the row before it, by a process that decides nothing. Rows
never go back in time, so rows dated by Kafka, from before we watched, would be late."""
Times: TypeAlias = NDArray[np.int64]
"""When rows were written, in ms since 1970: one each, never falling."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that became durable together, or a part of a snapshot.

    Attributes
    ----------
    position
        Of the last row. In a part of a snapshot: that of the snapshot.
    at_ms
        When they were written.
    epoch
        The coordinator epoch of the writer.
    records
        Empty for a claim; very many of one kind, about members of one group, may be columns.
    """

    position: int
    at_ms: int
    epoch: int
    records: Sequence[Record]


class RecordLog(Protocol):
    """Where a coordinator keeps its records.

    One thread calls it. Maintenance runs in another: `snapshot` with its `replay`, and `maintain`;
    both threads call `is_maintenance_due`.
    """

    epoch: int
    """Our coordinator epoch, 0 before the claim."""
    position: int
    """Of the last row that we know to be durable."""

    @property
    def store(self) -> str | None:
        """Folder of the store; None for a log in memory."""

    def claim(self, owner: str, address: str, at_ms: int) -> int:
        """Take the log over with the next coordinator epoch, and return it.

        Parameters
        ----------
        at_ms
            When, in ms since 1970; 0 dates the claim like the row before it.

        Raises
        ------
        WriterFenced
            Another coordinator claimed at the same time, and won.
        """

    def replay(self) -> Iterator[Batch]:
        """Yield the newest snapshot that can be read, then what the log has after it."""

    def append(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> int:
        """Make records durable, all or none, and return the position of the last one.

        Parameters
        ----------
        at_ms
            When they were written, in ms since 1970: all at once, or each. Times never fall in a
            log: an earlier one is written as that of the row before.

        Raises
        ------
        WriterFenced
            A newer claim exists; nothing was written.
        CommitFailed
            Not acknowledged: replay before going on.
        """

    def look(self) -> None:
        """Raise WriterFenced when another coordinator has claimed the log since our last commit."""

    def target(self, record: TargetMetadata) -> WholeTarget:
        """Return the whole target that a record of the log names.

        Raises
        ------
        LostTarget
            It is no longer there, or not all of it.
        """

    def snapshot(self, records: Iterable[Record], position: int, at_ms: int) -> None:
        """Write the records that make the state at this position."""

    def is_maintenance_due(self) -> bool:
        """Whether `maintain` would have something to do."""

    def maintain(self, *, pack: bool = False) -> None:
        """Keep the log fast to write and to read; no row is ever deleted.

        Parameters
        ----------
        pack
            Pack small files now, whether that is due or not.

        Raises
        ------
        MaintenanceStopped
            It was stopped.
        """

    def lag(self) -> float:
        """Return how far maintenance is behind: 1 where it is due now, more where it is late."""

    def stop_maintenance(self) -> None:
        """Have `maintain`, and `snapshot` and the `replay` for it, end early, in their thread."""

    def close(self) -> None:
        """Close the handle; does not release the claim."""


def rise(last_ms: int, now_ms: int) -> int:
    """Return when rows are written: a clock that was set back does not set the log back.

    Rows of one commit have one time; so that of the next is another one then.
    """
    return now_ms if now_ms >= last_ms else last_ms + 1


def rise_each(last_ms: int, at_ms: int | Sequence[int]) -> tuple[int | Times, int]:
    """Return when rows are written that have one time, or one each, and when the last of them is.

    Times never fall; those of another process's clock may stand still.
    """
    if isinstance(at_ms, int):
        risen = rise(last_ms, at_ms)
        return risen, risen
    first = max(last_ms, at_ms[0])
    times = np.maximum.accumulate(np.maximum(np.array(at_ms, np.int64), first))
    last = int(times[-1])
    return (first if last == first else times), last


def merge_advances(records: Iterable[Record]) -> Sequence[Record]:
    """Return records as they are written: advances to the same epoch side by side become one."""
    if isinstance(records, RecordRows):
        return records
    out: list[Record] = []
    for advance, run in groupby(records, _find_advance):
        if advance is None:
            out += run
        else:
            group_id, member_epoch = advance
            ids = (member_id for record in run for member_id in record.member_ids)  # type: ignore[attr-defined]
            out.append(MembersAdvanced(group_id, member_epoch, tuple(ids)))
    return out


def find_position(records: Sequence[Record], last: int, record: Record) -> int:
    """Return where a record is in the log, of records that one append wrote up to a position."""
    behind = records[next(at for at, one in enumerate(records) if one is record) + 1 :]
    return last - len(merge_advances(behind))


def _find_advance(record: Record) -> tuple[str, int] | None:
    if isinstance(record, MembersAdvanced):
        return record.group_id, record.member_epoch
    return None


@dataclass
class MemoryRecords:
    """What several MemoryLogs share, as several DeltaLogs share a store.

    Attributes
    ----------
    batches
        Everything that was committed.
    epoch
        Of the newest claim.
    position
        Of the last row.
    snapshot
        The newest one: its batch, or None.
    """

    batches: list[Batch] = field(default_factory=list)
    epoch: int = 0
    position: int = 0
    snapshot: Batch | None = None


class Unmaintained:
    """What a log answers about maintenance that needs none."""

    def is_maintenance_due(self) -> bool:
        """Nothing ever is."""
        return False

    def maintain(self, *, pack: bool = False) -> None:
        """Do nothing."""

    def lag(self) -> float:
        """Nothing ever is late."""
        return 0.0

    def stop_maintenance(self) -> None:
        """Do nothing."""


class MemoryLog(Unmaintained):
    """A log in memory: for tests, for `muster trace`, and for a simulator that breaks commits.

    Parameters
    ----------
    storage
        Shared with the other coordinators of the same store; of its own when left out.
    fault
        Called with "before" and "after" around every commit: what it raises is the fault.
    """

    def __init__(
        self, storage: MemoryRecords | None = None, fault: Callable[[str], None] | None = None
    ) -> None:
        self.store = None
        self.storage = storage or MemoryRecords()
        self.epoch = 0
        self.position = 0
        self._fault = fault or (lambda _: None)

    def claim(self, owner: str, address: str, at_ms: int) -> int:  # noqa: ARG002 - the protocol
        """Take the log over with the next coordinator epoch, and return it."""
        epoch = self.storage.epoch + 1
        self._commit([], 1, at_ms, epoch)
        self.epoch = epoch
        return epoch

    def replay(self) -> Iterator[Batch]:
        """Yield the newest snapshot, then what the log has after it."""
        self.look()
        self.position = self.storage.position
        snapshot = self.storage.snapshot
        if snapshot is not None:
            yield snapshot
        after = snapshot.position if snapshot else 0
        for batch in list(self.storage.batches):
            if batch.position > after:
                yield batch

    def append(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> int:
        """Make records durable, all or none, and return the position of the last one."""
        self.look()
        rows = merge_advances(records)
        if rows:
            newest = at_ms if isinstance(at_ms, int) else max(at_ms)
            self._commit(rows, len(rows), newest, self.epoch)
        return self.position

    def target(self, record: TargetMetadata) -> WholeTarget:
        """Return the whole target that a record names: the record has it, or nothing does."""
        if record.whole is None:
            raise LostTarget(f"a log in memory has no table of targets: {record}")
        return record.whole

    def look(self) -> None:
        """Raise WriterFenced when another coordinator has claimed the log."""
        if self.storage.epoch > self.epoch:
            raise WriterFenced(
                f"coordinator epoch {self.epoch} ended: "
                f"another coordinator claimed the log with epoch {self.storage.epoch}"
            )

    def snapshot(self, records: Iterable[Record], position: int, at_ms: int) -> None:
        """Keep the records that make the state at this position."""
        self.storage.snapshot = Batch(position, at_ms, self.epoch, list(records))

    def close(self) -> None:
        """Let go; others may hold the storage."""

    def _commit(self, records: Sequence[Record], rows: int, at_ms: int, epoch: int) -> None:
        known = self.storage.epoch
        self._fault("before")
        at_ms = rise(self.storage.batches[-1].at_ms if self.storage.batches else 0, at_ms)
        if self.storage.epoch != known:
            raise WriterFenced(
                f"another coordinator claimed at the same time, with epoch {known + 1}"
            )
        self.storage.epoch = epoch
        self.storage.position += rows
        self.storage.batches.append(Batch(self.storage.position, at_ms, epoch, records))
        self._fault("after")
        self.position = self.storage.position
