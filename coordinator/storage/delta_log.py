"""The log as a Delta table, `<store>/log`, with `<store>/snapshots` beside it.

Commits go through fenced_table.py, data files are ours (data_files.py), rows are
record_encoder.py's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.config import LogConfig, folder_mode
from coordinator.core.state.records import Record, TargetMetadata
from coordinator.core.state.target_assignment import WholeTarget
from coordinator.storage import target_table
from coordinator.storage.data_files import (
    SNAPSHOT,
    Part,
    list_parts,
    read_batches,
    read_log_parts,
    write_part,
)
from coordinator.storage.maintenance import Maintenance
from coordinator.storage.record_decoder import ValueCache, decode_batches
from coordinator.storage.record_encoder import copy_records, encode_claim, encode_records
from coordinator.storage.record_log import (
    Batch,
    CommitFailed,
    CorruptLog,
    Unconfirmed,
    WriterFenced,
    merge_advances,
    rise,
    rise_each,
)
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.snapshot_table import (
    PART_ROWS,
    SNAPSHOT_SCHEMA,
    Snapshots,
    find_lost_rows,
    list_runs,
    list_snapshots,
    read_snapshot_at,
    write_snapshot,
)
from coordinator.storage.store_marks import refuse_copy, refuse_incomplete
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.claims import (
    Claim,
    Claims,
    draw_claim_id,
    note_claim,
    numbers_of,
)
from coordinator.storage.tables.commit_writer import (
    NO_MORE,
    TableAction,
    WriteCommit,
    write_commit,
)
from coordinator.storage.tables.fenced_table import FencedTable, VersionConflict
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.newest_version import OpenTable, follow_table, open_to_read
from coordinator.storage.tables.read_table import open_table
from coordinator.storage.tables.recovery import (
    RESTORE,
    list_remains,
    set_aside_torn,
)
from coordinator.storage.tables.store_files import files_at, is_remote, root_of
from coordinator.storage.tables.store_root import find_root, refuse_inside

TRIES = 20
"""How often a version that another writer took is tried for again."""
CLAIM_TRIES = 200
"""The same for a claim, which races with every commit of a coordinator that is alive."""
SNAPSHOT_FILES_KEPT_MS = 300_000
"""Only a load reads them, and it is through with them by then."""

logger = logging.getLogger("muster.coordinator")


class DeltaLog:
    """A RecordLog in a folder. Nothing is read or written before the claim.

    Parameters
    ----------
    store
        Folder of the store.
    disk, write_commit, open_table
        What a simulator breaks: the file system, the writing of a commit, the look at the newest.
    snapshot_files_kept_ms
        How long the files of a snapshot stay that a newer one replaced.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        config: LogConfig | None = None,
        disk: Files | None = None,
        write_commit: WriteCommit = write_commit,
        snapshot_files_kept_ms: int = SNAPSHOT_FILES_KEPT_MS,
        open_table: OpenTable = open_table,
    ) -> None:
        self.store = root_of(store)
        self.config = config or LogConfig()
        self.epoch = 0
        self.position = 0
        self._disk = disk or filesystem_of(self.store, folder_mode(self.config))
        self._table = self._table_of("log", write_commit, open_table)
        self._snapshots = self._table_of("snapshots", write_commit, open_table)
        self._stopping = threading.Event()
        self._care = Maintenance(
            self._table, self.config, self._disk, self._commit_same_rows, self._stopping
        )
        self._snapshot_files_kept_ms = snapshot_files_kept_ms
        self._write_commit, self._open_table = write_commit, open_table
        self._care_of_snapshots = self._take_care_of_snapshots()
        self._known = -1
        """The version that `position` is of."""
        self._at_ms = 0
        """When the last row was written, as it says."""
        self._claims = Claims(numbers_of(self._table.path, self._table.load))

    def _take_care_of_snapshots(self) -> Maintenance:
        kept_ms = self._snapshot_files_kept_ms
        config = replace(self.config, pack_commits=0, files_kept_ms=kept_ms)
        return Maintenance(self._snapshots, config, self._disk, stopping=self._stopping)

    @classmethod
    def open(cls, store: str | os.PathLike[str], config: LogConfig | None = None) -> Self:
        """Return the log of a store; the claim creates what does not exist."""
        return cls(store, config)

    def _table_of(self, name: str, write_commit: WriteCommit, open_table: OpenTable) -> FencedTable:
        return FencedTable(
            os.path.join(self.store, name),
            self._disk,
            sync=self.config.fsync,
            write_commit=write_commit,
            open_table=open_table,
        )

    # Writing -------------------------------------------------------------------------------------

    def claim(self, owner: str, address: str, at_ms: int) -> int:
        """Take the log over with the next coordinator epoch, and return it."""
        table, claim_id = self._table, draw_claim_id()
        with table.lock:
            try:
                self._disk.make_folder(self.store)
                self._disk.make_folder(table.path)
                if self.config.fsync and self._disk.needs_sync:
                    set_aside_torn(self._disk, self._snapshots.path)
                snapshots = self._list_snapshots()
                # What was read before is there: nothing need be asked but of a new one.
                remains = self._remains() if table.version < 0 else ()
                if not table.open(SCHEMA, remains=remains):
                    self._known, self._claims = -1, Claims(numbers_of(table.path, table.load))
                self._refuse_lost_rows(snapshots)
            except OSError as error:
                if is_remote(self.store):
                    raise
                raise CommitFailed(f"the store {self.store} cannot be opened: {error}") from None
            epoch = table.epoch + 1
            for _ in range(CLAIM_TRIES):
                if self._known != table.version:
                    self._find_end()
                claim = Claim(self.position + 1, claim_id)
                self._at_ms = rise(self._at_ms, at_ms or self._at_ms)
                try:
                    self._write(
                        encode_claim(owner, address, claim.position, self._at_ms, epoch),
                        epoch,
                        note_claim(epoch, claim),
                    )
                except VersionConflict:
                    if table.epoch >= epoch:
                        raise WriterFenced(
                            f"another coordinator claimed {table.path} at the same time, with "
                            f"epoch {table.epoch}"
                        ) from None
                else:
                    self.epoch = epoch
                    self._claims.add(epoch, claim)
                    for one in snapshots:  # looked up before any clean-up can have run
                        one.is_of(self._claims)
                    self._add_columns()
                    return epoch
        raise CommitFailed(
            f"coordinator epoch {epoch - 1} commits to {table.path} faster than this one can claim "
            f"it: try again, or stop that coordinator"
        )

    def _refuse_lost_rows(self, snapshots: Snapshots) -> None:
        """Refuse a log that ends before its snapshot, unless rows may be lost: without syncs."""
        loss = find_lost_rows(snapshots, self._table.load(), self._table.path)
        if loss is None:
            return
        if self._disk.needs_sync and not self.config.fsync:
            logger.error("%s", loss)
            return
        raise CorruptLog(
            f"{loss}: {RESTORE}; or go on without them once {self._snapshots.path} is removed"
        )

    def _list_snapshots(self) -> Snapshots:
        return list_snapshots(self._disk, self._snapshots.path)

    def _remains(self) -> list[str]:
        """Return what nothing but a log leaves behind; to be asked before another can make one."""
        tables = (self._table, self._snapshots)
        return [path for table in tables for path in list_remains(self._disk, table.path)]

    def _add_columns(self) -> None:
        """Have the table of an older version name today's columns, before a row has them.

        Our own reader knows them without that; others, as Delta asks, read what the table names.
        """
        for _ in range(TRIES):
            try:
                self._table.add_columns(SCHEMA, self.epoch)
            except VersionConflict:
                continue
            return
        raise self._explain_conflicts()

    def _explain_conflicts(self) -> CommitFailed:
        return CommitFailed(
            f"nothing was written: other writers took {TRIES} versions of {self._table.path} in a "
            f"row; let only the coordinator write there"
        )

    def append(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> int:
        """Make records durable, all or none, and return the position of the last one."""
        rows = merge_advances(records)
        with self._table.lock:
            for _ in range(TRIES):
                self._settle()
                if not rows:
                    return self.position
                try:
                    times, self._at_ms = rise_each(self._at_ms, at_ms)
                    place = self.position + 1, times, self.epoch
                    copy = copy_records(rows, *place)
                    self._write(encode_records(rows, *place), self.epoch, copy=copy)
                except VersionConflict:
                    continue
                return self.position
        raise self._explain_conflicts()

    def look(self) -> None:
        """Raise WriterFenced when another coordinator has claimed the log since our last commit."""
        try:
            self._table.look()
        except OSError as error:
            raise CommitFailed(
                f"cannot check whether {self._table.path} is still ours: {error}"
            ) from None
        self._table.refuse_fenced(self.epoch)

    def _settle(self) -> None:
        """Make sure of the newest version, that we are not fenced, and of the last position."""
        table = self._table
        if table.unsure:
            table.refresh()
        table.refuse_fenced(self.epoch)
        if self._known != table.version:
            self._find_end()

    def _find_end(self, parts: list[Part] | None = None) -> None:
        """Find the position and the time of the last row of the version that we know."""
        parts = list_parts(self._table.load()) if parts is None else parts
        self.position = max((part.last for part in parts), default=0)
        self._at_ms = max((part.at_ms for part in parts), default=0)
        self._known = self._table.version

    def _write(
        self, rows: pa.Table, epoch: int, notes: Mapping[str, int] = NO_MORE, copy: str = ""
    ) -> None:
        part = write_part(self._disk, self._table.path, rows, sync=self.config.fsync, copy=copy)
        self._known = self._table.commit([part], epoch, notes)
        self.position += len(rows)

    def _commit_same_rows(self, actions: Sequence[TableAction], epoch: int) -> None:
        """Commit what changes no row: the last position is the same, and is not read again."""
        with self._table.lock:
            was_known = self._known == self._table.version and not self._table.unsure
            version = self._table.commit(actions, epoch)
            if was_known:
                self._known = version

    # Reading -------------------------------------------------------------------------------------

    def replay(self) -> Iterator[Batch]:
        """Yield the newest snapshot that can be read, then what the log has after it.

        Raises
        ------
        WriterFenced
            Another coordinator has claimed the log.
        CorruptLog, NewerLog
            It cannot be read.
        """
        with self._table.lock:
            self._settle()
            until = self.position
            self._table.load()  # a claim does not: it reads only the commits since, not all
        parts = list_parts(self._table.read())
        seen, after = ValueCache(), 0
        path = self._snapshots.path
        there = list_snapshots(self._disk, path)
        for batch in read_snapshot_at(path, there, self._claims, until, seen):
            yield batch
            after = batch.position
        batches = read_batches(self._disk, self._table.path, parts, after, seen)
        yield from self._care.until_stopped(batches)

    def target(self, record: TargetMetadata) -> WholeTarget:
        """Return the whole target that a record of the log names."""
        assert record.stored is not None, "only a whole target is in the table"
        return target_table.load_target(self.store, record.stored)

    def snapshot(
        self, records: Iterable[Record], position: int, at_ms: int, *, part_rows: int = PART_ROWS
    ) -> None:
        """Write the records that make the state at this position."""
        try:
            replaced = write_snapshot(
                self._open_snapshots(),
                self._disk,
                self._claims,
                list_runs(records, self._care.until_stopped),
                position,
                at_ms,
                self.epoch,
                sync=self.config.fsync,
                part_rows=part_rows,
            )
        except Unconfirmed:
            self._forget_snapshots()
            raise
        self._care_of_snapshots.sweep(replaced, self.epoch)

    def _open_snapshots(self) -> FencedTable:
        with self._snapshots.lock:
            if self._snapshots.version < 0:
                self._disk.make_folder(self._snapshots.path)
                self._snapshots.open(SNAPSHOT_SCHEMA, partition_by=SNAPSHOT)
            elif self._snapshots.unsure:
                self._snapshots.refresh()
            self._snapshots.add_columns(SNAPSHOT_SCHEMA, self.epoch)
        return self._snapshots

    def _forget_snapshots(self) -> None:
        """Reopen the table of snapshots next time: the log has all that they have."""
        self._snapshots = self._table_of("snapshots", self._write_commit, self._open_table)
        self._care_of_snapshots = self._take_care_of_snapshots()

    # Care ----------------------------------------------------------------------------------------

    def is_maintenance_due(self) -> bool:
        """Whether `maintain` would have something to do."""
        return self._care.due() or self._care_of_snapshots.due()

    def lag(self) -> float:
        """Return how many times over a checkpoint of the log is due."""
        return self._care.lag()

    def stop_maintenance(self) -> None:
        """Have maintenance end early, in its thread."""
        self._stopping.set()

    def maintain(self, *, pack: bool = False) -> None:
        """Checkpoint, remove old commits and compact; no row is ever deleted."""
        if pack or self._care.due():
            self._care.run(self.epoch, pack=pack)
        if self._care_of_snapshots.due():
            self._care_of_snapshots.run(self.epoch)

    def close(self) -> None:
        """Close the handle; does not release the claim."""


def make_root(store: str | os.PathLike[str]) -> str:
    """Return the root path of a store to write.

    Raises
    ------
    ConfigError
        It can be no folder of ours, or it is a backup, or a copy that is not whole, or it is a
        folder of another store.
    """
    root = find_root(store)
    refuse_copy(root)
    refuse_inside(root, "the store")
    return root


def open_log_table(store: str | os.PathLike[str]) -> DeltaTable:
    """Open the log of a store to read it.

    Raises
    ------
    NoLog, CorruptLog, NewerLog
        The log is missing, cannot be read, or is of a newer version.
    ConfigError
        It is a copy that is not whole.
    """
    root = find_root(store)
    refuse_incomplete(root)
    return open_to_read(files_at(root), os.path.join(root, "log"))


def follow_log_table(store: str, table: DeltaTable, newest: str) -> DeltaTable:
    """Bring the open log of a store up to now; raises as `open_log_table`.

    Parameters
    ----------
    newest
        The data file that was its last one. If that is gone, the table is reopened: it may be
        another one that was made in the same place.
    """
    folder = os.path.join(store, "log")
    disk = files_at(store)
    followed = follow_table(disk, table, folder)
    return followed if disk.exists(os.path.join(folder, newest)) else open_log_table(store)


def read_log(
    store: str | os.PathLike[str], after: int = 0, until: int | None = None
) -> Iterator[Batch]:
    """Yield what a store's log has after a position, and up to another one, without a claim."""
    opened = open_log_table(store)
    folder = os.path.join(root_of(store), "log")
    seen = ValueCache()
    for rows in read_log_parts(files_at(folder), folder, list_parts(opened), after):
        wanted = len(rows) if until is None else until + 1 - rows["position"][0].as_py()
        yield from decode_batches(rows.slice(0, max(0, wanted)), seen)
        if wanted < len(rows):
            return
