"""What the log of a partition holds: its batches, the epochs of its leaders, its marks. No I/O.

The bytes are in one file, in order. `check` says which bytes of a leader belong at its end,
`append` notes that they are there now. What is cut off was cut off the file before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from coordinator.kraft.transactions.spans import TransactionSpans
from coordinator.watcher.record_batches import RawBatch, split_batches

NO_EPOCH = NO_OFFSET = -1


class ReplicaLogError(Exception):
    """What a leader sent does not belong at the end of the log."""


class EpochStart(NamedTuple):
    """An epoch of leaders, and the first offset that was written in it."""

    epoch: int
    start: int


class EpochEnd(NamedTuple):
    """An epoch of leaders, and the offset that follows it; -1 and -1 for one that is unknown."""

    epoch: int
    end_offset: int


class BatchPlace(NamedTuple):
    """A batch without its bytes; `size` is how many there are."""

    base_offset: int
    last_offset: int
    size: int


class Accepted(NamedTuple):
    """What belongs at the end of a log.

    Attributes
    ----------
    restarts_at
        The offset at which the log must start again first: of an empty log whose first batch begins
        earlier, as the cleaner leaves them. None otherwise.
    """

    batches: list[RawBatch]
    restarts_at: int | None

    @property
    def data(self) -> bytes:
        """The bytes to write."""
        return b"".join(one.raw for one in self.batches)


class PartitionLog:
    """The log of a partition.

    Attributes
    ----------
    start
        The first offset that it may have.
    end
        The offset that the next record gets.
    high_watermark
        What all replicas in sync have is below it.
    epochs
        Of the leaders that wrote it, from the first on.
    size
        Of its file, in bytes.
    transactions
        Where they are.
    """

    def __init__(self, start: int = 0) -> None:
        self.restart(start)

    def restart(self, start: int) -> None:
        """Start again, empty, at an offset."""
        self.start = self.end = self.high_watermark = start
        self.epochs: list[EpochStart] = []
        self.size = 0
        self._first, self._last, self._ends = array("q"), array("q"), array("q")
        self.transactions = TransactionSpans()

    @property
    def last_epoch(self) -> int:
        """The newest epoch of the leaders; -1 of an empty log."""
        return self.epochs[-1].epoch if self.epochs else NO_EPOCH

    @property
    def is_empty(self) -> bool:
        """Whether it has no batch."""
        return not self._first

    # Appending -----------------------------------------------------------------------------------

    def check(self, data: bytes, leader_epoch: int) -> Accepted:
        """Return what of a leader's bytes belongs at the end, in the epoch that it was asked in.

        Batches of a later epoch are left out: another leader has written them since, and its
        epochs must be compared first (KAFKA-18723).

        Raises
        ------
        ReplicaLogError
            They do not follow the end.
        BatchError
            They are damaged.
        """
        accepted: list[RawBatch] = []
        restarts_at, end = None, self.end
        for one in split_batches(data):
            if one.leader_epoch > leader_epoch:
                break
            if one.base_offset < end:
                if accepted or not self.is_empty or one.last_offset < end:
                    raise ReplicaLogError(
                        f"a leader sent offsets {one.base_offset} to {one.last_offset}, but "
                        f"the log ends at {end}"
                    )
                restarts_at = one.base_offset
            accepted.append(one)
            end = one.last_offset + 1
        return Accepted(accepted, restarts_at)

    def append(self, accepted: Accepted) -> None:
        """Note that these batches are at the end of the file."""
        if accepted.restarts_at is not None:
            self.restart(accepted.restarts_at)
        for one in accepted.batches:
            self.size += len(one.raw)
            self._first.append(one.base_offset)
            self._last.append(one.last_offset)
            self._ends.append(self.size)
            self.begin_epoch(one.leader_epoch, one.base_offset)
            self.transactions.note(one.raw)
            self.end = one.last_offset + 1

    def recover(self, one: RawBatch) -> None:
        """Note that this batch is next in the file.

        An epoch begins where the one before it ended, of which the last batch is always there: the
        cleaner may have taken its own first ones.
        """
        begin = one.base_offset if self.is_empty else self.end
        self.begin_epoch(one.leader_epoch, begin)
        self.append(Accepted([one], None))

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Note where an epoch begins; a leader does so when it is elected, too."""
        if epoch == self.last_epoch or epoch < 0:
            return
        while self.epochs and (self.epochs[-1].epoch >= epoch or self.epochs[-1].start >= start):
            self.epochs.pop()
        self.epochs.append(EpochStart(epoch, start))

    # Cleaning ------------------------------------------------------------------------------------

    def exchange(self, size: int, places: Sequence[BatchPlace]) -> None:
        """Note that the file begins with other batches in place of its first bytes.

        The marks and the epochs stay: the cleaner takes records away, not offsets.
        """
        gone = bisect_right(self._ends, size)
        tail = [self._first[gone:], self._last[gone:], self._ends[gone:]]
        self._first = array("q", [one.base_offset for one in places]) + tail[0]
        self._last = array("q", [one.last_offset for one in places]) + tail[1]
        ends = array("q", accumulate(one.size for one in places))
        cleaned = ends[-1] if ends else 0
        self._ends = ends + array("q", [end - size + cleaned for end in tail[2]])
        self.size += cleaned - size

    # Cutting -------------------------------------------------------------------------------------

    def size_below(self, offset: int) -> int:
        """Return the size of the file without the batches that reach an offset."""
        kept = bisect_right(self._last, offset - 1)
        return self._ends[kept - 1] if kept else 0

    def last_below(self, offset: int) -> int:
        """Return the last offset of the batches that end below an offset; -1 of none."""
        kept = bisect_right(self._last, offset - 1)
        return self._last[kept - 1] if kept else NO_OFFSET

    def truncate(self, offset: int) -> None:
        """Note that the file no longer has a batch that reaches an offset."""
        if offset <= self.start:
            self.restart(offset)
            return
        kept = bisect_right(self._last, offset - 1)
        cut = self._first[kept] if kept < len(self._first) else offset
        del self._first[kept:], self._last[kept:], self._ends[kept:]
        self.size = self._ends[-1] if kept else 0
        self.end = min(offset, cut, self.end)
        self.epochs = [one for one in self.epochs if one.start < self.end]
        self.transactions.cut(self.end)
        self.high_watermark = min(self.high_watermark, self.end)

    # Marks ---------------------------------------------------------------------------------------

    def follow_marks(self, high_watermark: int, start: int) -> None:
        """Take over the marks of a leader, as far as the log reaches."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end))
        self.start = max(self.start, min(start, self.high_watermark))

    @property
    def stable_end(self) -> int:
        """The offset before which no transaction is open."""
        return self.transactions.stable_end(self.high_watermark)

    def end_of(self, epoch: int) -> EpochEnd:
        """Return where an epoch ends here; of one without records, the one before it.

        As `LeaderEpochFileCache.endOffsetFor`: an epoch above all known ones is unknown, and one
        below all of them ends where the first begins.
        """
        if epoch == NO_EPOCH:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.last_epoch:
            return EpochEnd(epoch, self.end)
        after = bisect_right(self.epochs, epoch, key=lambda one: one.epoch)
        if after == len(self.epochs):
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        known = self.epochs[after - 1].epoch if after else epoch
        return EpochEnd(known, self.epochs[after].start)

    # Reading -------------------------------------------------------------------------------------

    def span(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Return where in the file the batches from an offset on are: (first byte, end).

        Whole batches, at least one if there is any.
        """
        first = bisect_right(self._last, offset - 1)
        if first == len(self._last):
            return self.size, self.size
        begin = self._ends[first - 1] if first else 0
        last = max(bisect_right(self._ends, begin + bytes_max), first + 1)
        return begin, self._ends[last - 1]
