"""Make a new store from a backup or another store, as it was at a position or a time."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow.parquet as pq

from coordinator.backup.copying import StoreCopy
from coordinator.backup.destination import create_destination
from coordinator.config import ConfigError
from coordinator.display.times import format_time
from coordinator.history.log_reader import AsOf, LogReader, parse_as_of
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import AS_BEFORE, CorruptLog
from coordinator.storage.store_marks import read_backup
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.storage.tables.store_files import refuse_silence, source_of
from coordinator.verify.backup_sums import check_sums
from coordinator.verify.data_files import sort_by_position
from coordinator.verify.store import open_store, verify_tables

BATCH = ["position", "at_ms", "coordinator_epoch"]
"""Rows of one batch, which were written together, have the same time and coordinator epoch."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """A restored store.

    Attributes
    ----------
    position, at
        Of the last row copied from the source. The new store's own claim follows it.
    coordinator_epoch
        Of that claim; it is higher than any epoch in the source.
    """

    store: str
    position: int
    at: str
    coordinator_epoch: int
    files: int
    bytes: int
    verified: bool


def restore(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    to: AsOf = None,
    *,
    check: bool = True,
) -> RestoreResult:
    """Make a new store as another one, or its backup, was at a position or a time.

    The new log ends with a claim of its own, so coordinators with the old epochs are fenced there.

    Parameters
    ----------
    to
        A position or a time; None is the newest position.
    check
        Whether to verify the new store before it is marked complete.

    Raises
    ------
    ConfigError, SpecError, NoLog, NewerLog
        The store or the position is missing, or the folder cannot be used. Nothing was changed.
    CorruptLog
        The source is damaged. Nothing is left behind.
    CommitFailed
        The disk is full, read-only or broken. Nothing is left behind.
    """
    to = parse_as_of(to, "--to") if isinstance(to, str) else to
    root = open_store(source)
    backup = read_backup(root)
    check_sums(root, "/_delta_log/")  # data files are checked as they are copied
    reading = LogReader(root, to)
    if isinstance(to, int):
        _refuse_half_batch(root, reading.position)
    until = None if to is None else reading.position
    sums = None if backup is None else backup.files
    with create_destination(str(store), root, f"a store restored from {root}") as made:
        copy = StoreCopy(root, made, until, sums)
        copy.make()
        log = DeltaLog(made)
        epoch = log.claim("restore", "", AS_BEFORE)
        log.close()
        at = format_time(copy.at_ms)
        if check:
            verify_tables(made)
    return RestoreResult(made, copy.position, at, epoch, copy.files, copy.bytes, check)


def _refuse_half_batch(root: str, position: int) -> None:
    """Refuse a position inside a batch: its rows were written together, all or none.

    Raises
    ------
    ConfigError
        The message names the nearest positions that are possible.
    """
    log = read_table_files(os.path.join(root, "log"))
    for part in sort_by_position(log, list(log.files.values())):
        if not part.first <= position < part.last:
            continue
        try:
            rows = pq.read_table(source_of(part.path), columns=BATCH, partitioning=None)
        except OSError as error:
            refuse_silence(part.path, error)
            raise CorruptLog(f"{part.path} cannot be read: {error}: use another copy") from None
        keys = list(zip(*(rows[name].to_pylist() for name in BATCH[1:]), strict=True))
        at = position - part.first
        if keys[at] != keys[at + 1]:
            return
        first = at
        while first > 0 and keys[first - 1] == keys[at]:
            first -= 1
        last = at
        while last + 1 < len(keys) and keys[last + 1] == keys[at]:
            last += 1
        before = part.first + first - 1
        raise ConfigError(
            f"position {position} is inside the batch of positions {before + 1} to "
            f"{part.first + last}, which was written at once: give --to {part.first + last}"
            + (f", or {before}" if before else "")
        )
