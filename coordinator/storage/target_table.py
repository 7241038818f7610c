"""The table of targets, `<store>/targets`: Spark writes its data files, this module commits them.

A row is a range of one member in one target: that of (group, assignment epoch, run). Rows are only
ever added, each target by one commit, which has its digest; the record that installs one names the
run, a version that has it, and the digest. No JVM is needed to read a target.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from assignors.partition_ranges import find_names
from coordinator.core.state.target_assignment import StoredTarget, WholeTarget
from coordinator.errors.texts import one_line
from coordinator.storage.record_log import LogError, LostTarget
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import commit_file, log_folder
from coordinator.storage.tables.shared_table import append_files, find_data_files
from coordinator.storage.tables.store_files import (
    explain,
    files_at,
    is_remote,
    open_delta,
    root_of,
    source_of,
)
from coordinator.storage.tables.table_io import BusyError
from coordinator.storage.target_digest import digest_rows

COLUMNS = {
    "group_id": "string",
    "assignment_epoch": "int",
    "run_id": "string",
    "member_id": "string",
    "topic_id": "string",
    "topic": "string",
    "first_partition": "int",
    "partition_count": "int",
}
"""The columns of the table, with their types in SQL; it is partitioned by the first two."""
ARROW_SCHEMA = pa.schema(
    [(name, pa.int32() if kind == "int" else pa.string()) for name, kind in COLUMNS.items()]
)
PARTITION = ["group_id", "assignment_epoch"]
ROWS_A_FILE = 1_000_000
DIGEST = "muster.digest"
"""In the first line of a target's commit."""
RANGE_COLUMNS = ["member_id", "topic_id", "topic", "first_partition", "partition_count"]
RANGE_SCHEMA = pa.schema([ARROW_SCHEMA.field(name) for name in RANGE_COLUMNS])


def targets_path(store: str | os.PathLike[str]) -> str:
    """Return where a store has its table of targets."""
    return os.path.join(root_of(store), "targets")


@contextmanager
def lock_targets(
    store: str | os.PathLike[str], patience_s: float, *, shared: bool = False
) -> Iterator[None]:
    """Hold the table of targets: no process drops from it while others write it.

    Parameters
    ----------
    shared
        Whether others may write it meanwhile. A commit is a put that fails where another was
        faster; and who writes it may stand still, while another coordinator has its groups.

    Raises
    ------
    BusyError
        Others held it all the time.
    """
    path = targets_path(store)
    root, name = os.path.split(path)
    lock = os.path.join(root, "_locks", name)
    with filesystem_of(root).lock(lock, patience_s, shared=shared) as ours:
        if not ours:
            raise BusyError(f"{path} was held by others for {patience_s:.0f} s: try again")
        yield


def make_targets(store: str, retention_days: int, *, sync: bool) -> None:
    """Make the table if it is missing, with the log's retention; if asked, it is synced."""
    path, disk = targets_path(store), filesystem_of(store)
    if has_targets(store):
        return
    kept = f"interval {retention_days} days"
    disk.make_folder(path)
    try:
        DeltaTable.create(
            path,
            Schema.from_arrow(ARROW_SCHEMA),
            partition_by=PARTITION,
            configuration={
                "delta.logRetentionDuration": kept,
                "delta.deletedFileRetentionDuration": kept,
            },
            storage_options=disk.options(),
        )
    except (DeltaError, OSError):
        if not has_targets(store):  # else another job made it
            raise
    disk.permit_all(path)
    if sync and disk.needs_sync:
        for made in (commit_file(path, 0), log_folder(path), path, os.path.dirname(path)):
            disk.sync(made)


def has_targets(store: str | os.PathLike[str]) -> bool:
    """Whether a job has written a target of a store, or was about to."""
    try:
        open_delta(targets_path(store))
    except TableNotFoundError:
        return False
    return True


def add_target(
    store: str,
    target: StoredTarget,
    write: Callable[[str], object],
    patience_s: float,
    retention_days: int,
    *,
    sync: bool,
) -> int:
    """Write the rows of a target, commit their files by one put, return a version that has them.

    Spark's own writer of Delta is not safe on an object store with several drivers, and runs a
    second job.

    Parameters
    ----------
    target
        What the rows are; its version does not count.
    write
        Writes them as Parquet files below a path or URL, where nothing is.

    Raises
    ------
    BusyError
        It was compacted all the time, or others were faster at every attempt.
    LogError, SpecError
        As `commit_target`.
    """
    folder = f"run-{uuid.uuid4().hex}"
    with nullcontext() if is_remote(store) else lock_targets(store, patience_s, shared=True):
        make_targets(store, retention_days, sync=sync)
        path = f"{targets_path(store)}/{folder}"
        try:
            write(path)
        except BaseException:  # a full disk would have ever less room, attempt by attempt
            _remove_below(filesystem_of(store), path)
            raise
        return commit_target(
            store, folder, target.group_id, target.assignment_epoch, target.run_id,
            target.ranges, target.digest, sync=sync,
        )  # fmt: skip


def _remove_below(disk: Files, path: str) -> None:
    with suppress(OSError):
        disk.remove_all(f"{path}/{name}" for name in disk.names_below(path))


def write_files(store: str, rows: pa.Table, run_id: str, path: str) -> None:
    """Write rows of `RANGE_COLUMNS` as the files of a run below a path, from this process.

    Texts may be coded; those of one file at a time are not.
    """
    disk = filesystem_of(store)
    disk.make_folder(path)
    for number, at in enumerate(range(0, max(len(rows), 1), ROWS_A_FILE)):
        some = rows.slice(at, ROWS_A_FILE).cast(RANGE_SCHEMA)
        run = pa.repeat(pa.scalar(run_id, pa.string()), len(some))
        disk.write_rows(f"{path}/part-{number:05}.parquet", some.add_column(0, "run_id", run))


def commit_target(
    store: str,
    folder: str,
    group_id: str,
    assignment_epoch: int,
    run_id: str,
    rows: int,
    digest: int,
    *,
    sync: bool,
) -> int:
    """Commit the files that a job wrote below a folder of the table.

    Parameters
    ----------
    folder
        Its path in the table's folder; another job writes to another one.
    rows, digest
        How many it has written, and their digest (target_digest.py).
    sync
        Whether files and commit are to survive a power cut, on a disk.

    Returns
    -------
    int
        A version that has the target; that of an earlier run with the same id, if there was one.

    Raises
    ------
    LogError
        The files do not have these rows. CommitFailed, a subclass: as `append_files`.
    BusyError, SpecError
        As `append_files`.
    """
    path, disk = targets_path(store), filesystem_of(store)
    partition = dict(zip(PARTITION, (group_id, str(assignment_epoch)), strict=True))
    added = find_data_files(path, folder, partition)
    found = sum(json.loads(action.stats)["numRecords"] for action in added if action.stats)
    if found != rows:
        raise LogError(
            f"the job of run {run_id} wrote {rows} rows to {path}, but {found} are there"
        )
    if not is_remote(store):
        _keep(disk, path, folder, sync=sync)
    return append_files(path, added, run_id, disk, {DIGEST: str(digest)}, sync=sync)


def _keep(disk: Files, path: str, folder: str, *, sync: bool) -> None:
    """Give a run's files on a disk the store's modes, and see that they stay."""
    at = os.path.join(path, folder)
    for name in disk.names_below(at):
        if name.startswith("."):  # Hadoop's checksums; Parquet has its own
            disk.remove(os.path.join(at, name))
        elif sync:
            disk.sync(os.path.join(at, name))
    disk.permit_all(at)
    if sync:
        disk.sync(at)
        disk.sync(path)


def load_target(store: str | os.PathLike[str], stored: StoredTarget) -> WholeTarget:
    """Return a whole target; raises as `read_checked_rows` does."""
    return WholeTarget.of(read_checked_rows(store, stored))


def read_checked_rows(store: str | os.PathLike[str], stored: StoredTarget) -> pa.Table:
    """Return the rows of a whole target, coded, once they are seen to be the ones.

    Raises
    ------
    LostTarget
        The table or some rows are gone, or are others.
    OSError
        The disk cannot be read now.
    """
    path = targets_path(store)
    try:
        rows = _read_rows_of(path, stored)
    except OSError as error:
        if error.errno is None and is_remote(path):  # delta-rs's, of a store that does not answer
            raise OSError(errno.EIO, explain(path, error), path) from None
        if error.errno is not None and not isinstance(error, FileNotFoundError):
            raise
        raise _lost_target(stored, path, one_line(error)) from None
    except (DeltaError, pa.ArrowException) as error:
        raise _lost_target(stored, path, explain(path, error)) from None
    if len(rows) != stored.ranges:
        raise _lost_target(stored, path, f"it has {len(rows)} rows of {stored.ranges}")
    found = digest_rows(rows)
    if found != stored.digest:
        raise _lost_target(stored, path, f"the digest of its rows is {found}, not {stored.digest}")
    return rows


def _read_rows_of(path: str, stored: StoredTarget) -> pa.Table:
    """Return the rows of a target; of the newest version, where others rewrote and vacuumed it."""
    place = path, stored.group_id, stored.assignment_epoch
    try:
        return read_rows(list_files(*place, stored.version), stored.run_id)
    except FileNotFoundError:
        return read_rows(list_files(*place), stored.run_id)


def list_files(
    path: str, group_id: str, assignment_epoch: int, version: int | None = None
) -> list[str]:
    """Return the data files that have a group's targets of an epoch, in order.

    Rows are never taken away from a target: where the version itself is no longer known, the newest
    one has them, or they are lost.

    Parameters
    ----------
    version
        None for the newest one.
    """
    try:
        table = open_delta(path, version)
    except DeltaError:
        entry = None if version is None else commit_file(path, version)
        if entry is not None and is_remote(path) and files_at(path).exists(entry):
            raise OSError(
                errno.EAGAIN, f"the object store does not list version {version} yet", path
            ) from None
        table = open_delta(path)
    found = pa.table(table.get_add_actions(flatten=True))
    if not len(found):
        return []
    here = pc.and_(
        pc.equal(found["partition.group_id"], group_id),
        pc.equal(found["partition.assignment_epoch"], assignment_epoch),
    )
    return sorted(
        os.path.join(path, unquote(name)) for name in found["path"].filter(here).to_pylist()
    )


def list_runs(table: DeltaTable) -> Iterator[tuple[str, str, int]]:
    """Yield (file, run, when it was written in ms) for every run that a data file has rows of."""
    found = pa.table(table.get_add_actions(flatten=True))
    if not len(found):
        return
    written = found["modification_time"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    for name, at_ms in zip(found["path"].to_pylist(), written.to_pylist(), strict=True):
        file = os.path.join(table.table_uri.removeprefix("file://"), unquote(name))
        with pq.ParquetFile(source_of(file), read_dictionary=["run_id"]) as opened:
            runs = opened.read(columns=["run_id"])["run_id"]
            for run_id in pc.unique(runs.cast(pa.string())).to_pylist():
                yield file, run_id, at_ms


def read_rows(files: list[str], run_id: str) -> pa.Table:
    """Return the ranges of one run, as they lie in the files; their texts come once for each."""
    names = ["run_id", *RANGE_COLUMNS]
    schema = pa.schema([_coded(ARROW_SCHEMA.field(name)) for name in names])
    texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    pieces = [schema.empty_table()]
    for file in files:
        rows = pq.ParquetFile(source_of(file), read_dictionary=texts).read(columns=names)
        rows = rows.cast(schema)  # delta-rs writes views of strings where it drops rows from a file
        mine = find_names(rows["run_id"].combine_chunks(), pa.array([run_id], pa.string())) == 0
        pieces.append(rows if mine.all() else rows.filter(pa.array(mine)))
    return pa.concat_tables(pieces).select(RANGE_COLUMNS)


def _coded(field: pa.Field) -> pa.Field:
    """Return a field of texts as one of numbers of texts that come once."""
    text = field.type == pa.string()
    return field.with_type(pa.dictionary(pa.int32(), pa.string())) if text else field


def _lost_target(stored: StoredTarget, path: str, why: str) -> LostTarget:
    return LostTarget(
        f"the target of group {stored.group_id!r} for assignment epoch {stored.assignment_epoch} "
        f"is not in {path} at version {stored.version}: {why}"
    )
