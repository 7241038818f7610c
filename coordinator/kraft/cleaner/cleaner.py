"""Clean the log of a replica while it is written: its beginning is written again, then exchanged.

A log is cleaned when as much was written since the last time as was left then, so all cleanings
together read and write a few times what is written in the first place.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from coordinator.clock import wall_ms
from coordinator.kraft.cleaner.sweep import Sweep
from coordinator.kraft.log_files import BATCHES, LogFile, sync_folder, write_whole
from coordinator.kraft.partition_log import BatchPlace, ReplicaLogError
from coordinator.watcher.record_batches import BatchError, read_batches, split_batches

CLEANED = "batches.cleaned"
CHUNK_BYTES = 4 << 20
LEAST_BYTES = 16 << 20
"""Less than this is not worth it."""
logger = logging.getLogger("muster.node")


class GoneError(Exception):
    """The log was cut off, started again or closed meanwhile: what was cleaned is of no use."""


def is_worth_it(file: LogFile, least_bytes: int = LEAST_BYTES) -> bool:
    """Whether so much was written since a log was cleaned that it is time."""
    written = file.log.size - file.cleaned_bytes
    return written >= max(least_bytes, file.cleaned_bytes)


def clean(file: LogFile, keep_ms: float, name: str) -> bool:
    """Clean a log up to its high watermark; return whether that was done. Any thread may.

    Parameters
    ----------
    keep_ms
        How long tombstones stay.
    name
        Of the partition, for the log.
    """
    try:
        before, after = _Cleaning(file, keep_ms).run()
    except GoneError:
        return False
    except (OSError, ReplicaLogError, BatchError) as error:
        if not file.is_closed:
            logger.warning("%s: its log cannot be cleaned, and stays as it is: %s", name, error)
        return False
    logger.info("%s: its log is cleaned: of %d bytes, %d are left", name, before, after)
    return True


class _Cleaning:
    """One cleaning."""

    def __init__(self, file: LogFile, keep_ms: float) -> None:
        self._file, self._place = file, os.path.join(file.folder, CLEANED)
        with file.lock:
            if file.is_closed:
                raise GoneError
            self._source, self._changes = os.dup(file.descriptor), file.changes
            self._end = file.log.high_watermark
            self._size = file.log.size_below(self._end)
            self._last = file.log.last_below(self._end)
            self._sweep = Sweep(file.tombstones_until(wall_ms() - keep_ms))

    def run(self) -> tuple[int, int]:
        """Clean; return the bytes that were there, and those that are left."""
        with contextlib.ExitStack() as ends:
            ends.callback(os.close, self._source)
            for data in self._pieces():
                for batch in read_batches(data):
                    self._sweep.note(batch)
            target = os.open(self._place, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            with contextlib.ExitStack() as undo:
                undo.callback(self._remove)
                undo.callback(os.close, target)
                places = self._write(target)
                os.fsync(target)
                self._exchange(target, places)
                undo.pop_all()
            sync_folder(self._file.folder)  # last: what fails from here on undoes nothing
        return self._size, sum(one.size for one in places)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._place)

    def _see(self) -> None:
        """See that the log still has what was read of it."""
        if self._file.is_closed or self._file.changes != self._changes:
            raise GoneError

    def _pieces(self) -> Iterator[bytes]:
        """Yield the beginning of the log, in pieces of whole batches."""
        at, rest = 0, b""
        while at < self._size:
            self._see()
            found = os.pread(self._source, min(CHUNK_BYTES, self._size - at), at)
            if not found:
                raise GoneError
            at += len(found)
            rest += found
            used = sum(len(one.raw) for one in split_batches(rest))
            yield rest[:used]
            rest = rest[used:]
        if rest:
            raise ReplicaLogError(f"{len(rest)} bytes before offset {self._end} are no batch")

    def _write(self, target: int) -> list[BatchPlace]:
        """Write what stays; return where each batch is."""
        places: list[BatchPlace] = []
        at = end = 0
        for data in self._pieces():
            out = bytearray()
            for one in split_batches(data):
                if not end <= one.base_offset <= one.last_offset < self._end:
                    raise ReplicaLogError(f"the batch at offset {one.base_offset} is out of order")
                end = one.last_offset + 1
                kept = self._sweep.clean(one.raw)
                if kept:
                    out += kept
                    places.append(BatchPlace(one.base_offset, one.last_offset, len(kept)))
            write_whole(target, bytes(out), at)
            at += len(out)
        if end != self._last + 1:
            raise ReplicaLogError(f"batches end at {end} where {self._last + 1} was noted")
        return places

    def _exchange(self, target: int, places: list[BatchPlace]) -> None:
        """Put the cleaned file, and what was written meanwhile, in the place of the old one."""
        file, cleaned = self._file, sum(one.size for one in places)
        with file.lock:
            self._see()
            at = self._size
            while at < file.log.size:
                data = os.pread(file.descriptor, min(CHUNK_BYTES, file.log.size - at), at)
                write_whole(target, data, cleaned + at - self._size)
                at += len(data)
            os.replace(self._place, os.path.join(file.folder, BATCHES))
            file.exchange(target, self._size, places)
            file.note_cleaning(self._last + 1, wall_ms())
