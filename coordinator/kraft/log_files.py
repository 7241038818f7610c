"""The files of a partition's log: its batches, and its marks beside them.

Nothing is flushed to the disk before it counts: as in Kafka, what is in sync on other replicas is
durable. So after the machine has failed, the node is another one (`node_files`); after this process
has, the operating system still has all.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from coordinator.clock import wall_ms
from coordinator.kraft.partition_log import (
    Accepted,
    BatchPlace,
    PartitionLog,
)
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.watcher.record_batches import BatchError, RawBatch, split_batches

BATCHES, MARKS = "batches.log", "marks.json"
CHUNK_BYTES = 8 << 20
_FILES = Filesystem()


class Marks(msgspec.Struct, frozen=True):
    """What is not in the batches.

    Attributes
    ----------
    topic_id
        Of the topic: one that is made again under the same name is another one.
    at_ms
        When the log was known to follow its leader last.
    """

    topic_id: str
    start: int
    high_watermark: int
    at_ms: int
    cleanings: list[tuple[int, int]] = []
    """Offsets up to which it was cleaned, and when; one that is not noted here is as if it had not
    been: tombstones then stay longer."""


class LogFile:
    """The log of a partition, and its file; one process writes it.

    Parameters
    ----------
    folder
        Of the partition. It is made if need be.
    topic_id
        Of the partition's topic: a log of another one is emptied.
    keep_ms
        How long a log stays of use that follows no leader: a cleaned topic keeps for so long what
        says that something is gone.

    Attributes
    ----------
    has_lost
        Whether it may lack what it had, or is new. That is not noted until it follows its leader.
    lock
        Held while the file and what is known of it are not the same; others hold it from finding
        a place in the file until they have read it.
    changes
        How often it was cut off or started again.
    cleaned_bytes
        How long its beginning was after it was cleaned.
    """

    def __init__(self, folder: str, topic_id: UUID, keep_ms: float) -> None:
        self.folder, self.topic_id, self.keep_ms = folder, topic_id, keep_ms
        self.log = PartitionLog()
        self.lock = threading.RLock()
        self.changes = self.cleaned_bytes = 0
        self.is_closed = False
        self._cleanings: list[tuple[int, int]] = []
        _FILES.make_folder(folder)
        self._file = os.open(os.path.join(folder, BATCHES), os.O_RDWR | os.O_CREAT, 0o600)
        marks = _read_marks(folder)
        is_ours = marks is not None and marks.topic_id == str(topic_id)
        if marks is None or not is_ours or wall_ms() - marks.at_ms > keep_ms:
            self.has_lost = True
            os.ftruncate(self._file, 0)
        else:
            self._recover(marks)
            self.has_lost = self.log.end < marks.high_watermark

    def _recover(self, marks: Marks) -> None:
        """Read the batches; what is damaged was being written when the process ended."""
        for one in _sound_batches(self._file):
            if self.log.is_empty:
                self.log.restart(one.base_offset)
            self.log.recover(one)
        self._cleanings = marks.cleanings
        if self.log.is_empty or self.log.end < marks.start:
            self.log.restart(marks.start)
        os.ftruncate(self._file, self.log.size)
        self.log.start = marks.start
        self.log.high_watermark = min(max(marks.high_watermark, marks.start), self.log.end)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.log.size

    def append(self, accepted: Accepted) -> None:
        """Write batches to the end."""
        if accepted.restarts_at is not None:
            self.restart(accepted.restarts_at)
            accepted = Accepted(accepted.batches, None)
        if accepted.batches:
            with self.lock:
                write_whole(self._file, accepted.data, self.log.size)
                self.log.append(accepted)

    def truncate(self, offset: int) -> None:
        """Cut off the batches that reach an offset."""
        with self.lock:
            self.changes += 1
            os.ftruncate(self._file, 0 if offset <= self.log.start else self.log.size_below(offset))
            self.log.truncate(offset)
            self.cleaned_bytes = min(self.cleaned_bytes, self.log.size)
            self._cleanings = [(min(end, self.log.end), at) for end, at in self._cleanings]
        self.keep_marks()

    def restart(self, offset: int) -> None:
        """Start again, empty, at an offset."""
        with self.lock:
            self.changes += 1
            os.ftruncate(self._file, 0)
            self.log.restart(offset)
            self.cleaned_bytes = 0
            self._cleanings = []
        self.keep_marks()

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return whole batches from an offset on, at least one if there is any."""
        with self.lock:
            return self.read_span(*self.log.span(offset, bytes_max))

    def read_span(self, begin: int, end: int) -> bytes:
        """Return the bytes from one place of the file to another."""
        return os.pread(self._file, end - begin, begin)

    @property
    def descriptor(self) -> int:
        """Of the file of batches."""
        return self._file

    def exchange(self, descriptor: int, size: int, places: Sequence[BatchPlace]) -> None:
        """Have another file, whose beginning stands for the first bytes of this one."""
        os.close(self._file)
        self._file = descriptor
        self.log.exchange(size, places)
        self.cleaned_bytes = sum(one.size for one in places)

    def tombstones_until(self, since_ms: float) -> int:
        """Return up to where a cleaning before a time has taken away what tombstones end."""
        return max((end for end, at_ms in self._cleanings if at_ms < since_ms), default=0)

    def note_cleaning(self, end: int, at_ms: int) -> None:
        """Note up to where it was cleaned, for as long as that matters."""
        old = [one for one in self._cleanings if one[1] < at_ms - 2 * self.keep_ms]
        self._cleanings = [*old[-1:], *self._cleanings[len(old) :], (end, at_ms)]

    def keep_marks(self) -> None:
        """Write the marks, and that the log follows its leader now."""
        log = self.log
        marks = Marks(str(self.topic_id), log.start, log.high_watermark, wall_ms(), self._cleanings)
        _FILES.replace(os.path.join(self.folder, MARKS), msgspec.json.encode(marks))

    def close(self) -> None:
        """Flush everything to the disk, and close."""
        try:
            self.keep_marks()
        finally:
            with self.lock:
                self.is_closed = True
                try:
                    os.fsync(self._file)
                finally:
                    os.close(self._file)

    def delete(self) -> None:
        """Close, and remove the folder: a log that is no longer a replica is none later, either."""
        with self.lock:
            self.is_closed = True
            os.close(self._file)
        shutil.rmtree(self.folder, ignore_errors=True)


def _read_marks(folder: str) -> Marks | None:
    try:
        with open(os.path.join(folder, MARKS), "rb") as file:
            return msgspec.json.decode(file.read(), type=Marks)
    except (OSError, msgspec.MsgspecError):
        return None


def _sound_batches(file: int) -> Iterator[RawBatch]:
    """Yield the batches of a file, up to the first that is damaged or out of order."""
    rest, at, end = b"", 0, -1
    while chunk := os.pread(file, CHUNK_BYTES, at):
        at += len(chunk)
        rest += chunk
        used = 0
        try:
            for one in split_batches(rest):
                if one.base_offset < end:
                    return
                used, end = used + len(one.raw), one.last_offset + 1
                yield one
        except BatchError:
            return
        rest = rest[used:]


def write_whole(file: int, data: bytes, at: int) -> None:
    """Write bytes at a place of a file, all of them."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def sync_folder(folder: str) -> None:
    """Have the disk know which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
