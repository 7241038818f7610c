"""Copy the tables of a store up to a position, even while a coordinator writes them.

The tables are listed in the order snapshots, log, targets: each one listed later has everything
that the earlier ones refer to. If compaction replaces files while they are copied, the newer
version is copied instead. It has the same rows, because rows are never deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from coordinator.backup.destination import copy_file
from coordinator.core.state.records import TargetMetadata
from coordinator.display.progress import task
from coordinator.storage.data_files import SNAPSHOT, write_part
from coordinator.storage.record_log import CommitFailed, CorruptLog, NoLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.snapshot_table import SNAPSHOT_SCHEMA
from coordinator.storage.store_marks import FileSum
from coordinator.storage.tables.claims import Claims, note_claim
from coordinator.storage.tables.commit_reader import DataFile, TableFiles, read_table_files
from coordinator.storage.tables.commit_writer import APP
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.newest_version import find_silence
from coordinator.storage.tables.recovery import RESTORE
from coordinator.storage.tables.store_files import explain, files_at, refuse_silence, source_of
from coordinator.verify.data_files import NumberedFile, sort_by_position

TRIES = 10
"""How many times to copy a table if its files are replaced meanwhile."""
NOTED_COLUMNS = (
    "position",
    "at_ms",
    "kind",
    "tombstone",
    "group_id",
    "assignment_epoch",
    "targets_version",
)


@dataclass(slots=True)
class StoreCopy:
    """One copy of a store.

    Parameters
    ----------
    source, to
        The root folders of the two stores.
    until
        The last position to copy; None is the newest.
    sums
        The checksums that a backup lists; None if the source is not a backup.

    Attributes
    ----------
    position, at_ms
        Of the last row that was copied.
    coordinator_epoch
        Of the source's last claim.
    files, bytes
        The number of data files copied, and their size.
    """

    source: str
    to: str
    until: int | None = None
    sums: dict[str, FileSum] | None = None
    position: int = 0
    at_ms: int = 0
    coordinator_epoch: int = 0
    files: int = 0
    bytes: int = 0
    _named: set[tuple[str, str]] = field(default_factory=set)
    """The targets that records of the copy name, as (group id, assignment epoch)."""

    def make(self) -> None:
        """Copy everything.

        Raises
        ------
        CorruptLog
            A file is missing or damaged.
        CommitFailed
            Files were replaced faster than they could be copied.
        OSError
            The disk is full, or cannot be read or written.
        """
        snapshots = self._open_table("snapshots")
        self._copy_log()
        if snapshots is not None:
            self._copy_snapshots(snapshots)
        if self._named:
            self._copy_targets()

    def _copy_log(self) -> None:
        disk = files_at(self.to)
        disk.make_folder(os.path.join(self.to, "log"))
        for _ in range(TRIES):
            log = read_table_files(os.path.join(self.source, "log"))
            parts = sort_by_position(log, list(log.files.values()))
            position = parts[-1].last if parts else 0
            position = position if self.until is None else min(position, self.until)
            wanted = [part for part in parts if part.first <= position]
            whole = [part.file for part in wanted if part.last <= position]
            try:
                cut = [self._cut(part, position) for part in wanted if part.last > position]
            except FileNotFoundError:
                continue  # compaction replaced it meanwhile
            if self._copy_files(log, "log", whole):
                break
            for action in cut:
                disk.remove(os.path.join(self.to, "log", action.path))
        else:
            raise self._explain_race("log")
        self.position, self.coordinator_epoch = position, log.writers.get(APP, 0)
        actions = [*map(_to_add_action, whole), *cut]
        table = FencedTable(os.path.join(self.to, "log"), disk, sync=True)
        table.open(SCHEMA)
        table.commit(actions, self.coordinator_epoch, _note_claims(log, position))
        self._read_last(table.path, actions)

    def _cut(self, part: NumberedFile, position: int) -> AddAction:
        """Copy only the rows of a file up to a position."""
        try:
            rows = pq.ParquetFile(source_of(part.path), page_checksum_verification=True).read()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            refuse_silence(part.path, error)
            raise CorruptLog(f"{part.path} cannot be read: {error}: {RESTORE}") from None
        kept = rows.filter(pc.less_equal(rows["position"], position))
        self.files += 1
        return write_part(files_at(self.to), os.path.join(self.to, "log"), kept, sync=True)

    def _read_last(self, folder: str, actions: Iterable[AddAction]) -> None:
        """Read when the last row was written, and which targets the rows name."""
        for action in actions:
            path = os.path.join(folder, action.path)
            try:
                with pq.ParquetFile(source_of(path)) as file:
                    names = [name for name in NOTED_COLUMNS if name in file.schema_arrow.names]
                    rows = file.read(columns=names)
            except (OSError, pa.ArrowException) as error:
                refuse_silence(path, error)
                raise CorruptLog(f"{path} cannot be read: {error}: {RESTORE}") from None
            if rows["position"][-1].as_py() == self.position:
                self.at_ms = rows["at_ms"][-1].as_py()
            if "targets_version" not in names:
                continue
            whole = pc.and_(
                pc.equal(rows["kind"], TargetMetadata.kind), pc.is_valid(rows["targets_version"])
            )
            for row in rows.filter(whole).select(["group_id", "assignment_epoch"]).to_pylist():
                self._named.add((row["group_id"], str(row["assignment_epoch"])))

    def _copy_snapshots(self, table: TableFiles) -> None:
        """Copy snapshots up to the position. A snapshot dropped meanwhile is not needed."""
        actions = []
        files: dict[str, list[DataFile]] = {}
        for file in table.files.values():
            files.setdefault(str(file.partition.get(SNAPSHOT)), []).append(file)
        for position, parts in sorted(files.items()):
            ours = position.isdigit() and int(position) <= self.position
            if ours and self._copy_files(table, "snapshots", parts):
                actions += [_to_add_action(part) for part in parts]
        if actions:
            disk = files_at(self.to)
            copy = FencedTable(os.path.join(self.to, "snapshots"), disk, sync=True)
            disk.make_folder(copy.path)
            copy.open(SNAPSHOT_SCHEMA, partition_by=SNAPSHOT)
            copy.commit(actions, self.coordinator_epoch, _note_claims(table, self.position))

    def _copy_targets(self) -> None:
        for _ in range(TRIES):
            table = self._open_table("targets")
            if table is None:
                return  # all are past their retention, or lost; the log has the assignments
            files = [file for file in table.files.values() if _target_key(file) in self._named]
            if self._copy_files(table, "targets", files):
                break
        else:
            raise self._explain_race("targets")
        folder = os.path.join(self.to, "targets")
        files_at(folder).make_folder(folder)
        # Records name versions of this table. One commit has all rows, so every version that a
        # reader can find has them.
        writers = [Transaction(app, n) for app, n in sorted(table.writers.items())]
        try:
            create_table_with_add_actions(
                folder,
                Schema.from_json(str(table.metadata["schemaString"])),
                [_to_add_action(file) for file in files],
                mode="error",
                partition_by=list(table.metadata.get("partitionColumns") or []),
                commit_properties=CommitProperties(app_transactions=writers),
                storage_options=files_at(folder).options(),
            )
        except (DeltaError, OSError) as error:
            raise find_silence(folder, error) or CommitFailed(
                f"{folder} could not be written: {explain(folder, error)}; check that the disk has "
                f"room and is writable"
            ) from None

    def _open_table(self, name: str) -> TableFiles | None:
        try:
            return read_table_files(os.path.join(self.source, name))
        except NoLog:
            return None

    def _copy_files(self, table: TableFiles, name: str, files: list[DataFile]) -> bool:
        """Copy data files, and return False if one of them was replaced meanwhile."""
        copied: list[tuple[str, int]] = []
        with task(f"copying {name}", sum(file.bytes for file in files)) as progress:
            for file in files:
                path = os.path.join(self.to, name, file.name)
                wanted = None
                if self.sums is not None:
                    wanted = self.sums.get(f"{name}/{file.name}")
                    if wanted is None:
                        raise CorruptLog(
                            f"the backup {self.source} does not list {table.path(file)}: "
                            f"use another backup"
                        )
                try:
                    copy_file(table.path(file), path, file.bytes, wanted)
                except FileNotFoundError:
                    if file.name in read_table_files(table.folder).files:
                        raise CorruptLog(f"{table.path(file)} is missing: {RESTORE}") from None
                    for done, _ in copied:
                        files_at(done).remove(done)
                    return False
                copied.append((path, file.bytes))
                progress.advance(file.bytes)
        self.files += len(copied)
        self.bytes += sum(size for _, size in copied)
        return True

    def _explain_race(self, name: str) -> CommitFailed:
        return CommitFailed(
            f"the files of {self.source}/{name} were replaced {TRIES} times while they were "
            f"copied: raise log.files_kept_ms, the time for which replaced files are kept"
        )


def _note_claims(table: TableFiles, until: int) -> dict[str, int]:
    """Return the numbers by which a copy keeps the claims up to a position."""
    found = Claims(table.writers.get).all().items()
    notes = [note_claim(epoch, claim) for epoch, claim in found if claim.position <= until]
    return {name: number for some in notes for name, number in some.items()}


def _to_add_action(file: DataFile) -> AddAction:
    """Return the action that adds a data file to the copy's commit."""
    action = file.add
    written_ms = int(action.get("modificationTime") or 0)
    stats = str(action.get("stats") or "{}")
    # delta-rs encodes the path for the commit, so it gets the plain path.
    return AddAction(
        file.name, file.bytes, file.partition, written_ms, data_change=True, stats=stats
    )


def _target_key(file: DataFile) -> tuple[str, str]:
    found = file.partition
    return str(found.get("group_id")), str(found.get("assignment_epoch"))
