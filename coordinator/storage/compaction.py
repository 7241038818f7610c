"""`muster compact`: rewrite small files of a log as larger ones, and drop old targets.

No row of the log is deleted. A target is dropped from the table of targets once it has been out of
force for `log.retention_days`, or was never installed and is as old. No JVM is needed. The log has
one writer: a live coordinator is asked to compact it; without one, this process claims the log.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.state.records import GroupMetadata, TargetMetadata
from coordinator.display import progress
from coordinator.storage.data_files import list_parts
from coordinator.storage.delta_log import DeltaLog, open_log_table
from coordinator.storage.holders import FindHolder, watch_holder
from coordinator.storage.inbox import Compact, Inbox
from coordinator.storage.lease import Lease, Takeover
from coordinator.storage.log_scan import scan_all_groups
from coordinator.storage.record_log import AS_BEFORE, LogError
from coordinator.storage.state_loader import pack_log
from coordinator.storage.store_marks import refuse_copy
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.store_files import explain, is_remote, open_delta
from coordinator.storage.tables.store_root import find_root
from coordinator.storage.tables.table_io import BusyError
from coordinator.storage.target_table import list_runs, lock_targets, targets_path

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
JOB_HOURS = 24
"""For how long a job may write files before it commits them, where it cannot lock the table."""
PATIENCE_S = 60.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What was done.

    Attributes
    ----------
    by
        Who compacted the log: "coordinator" or "us".
    runs_dropped, runs_kept
        Whole targets.
    files_vacuumed
        Data files of targets that were deleted from the disk.
    """

    by: str
    log_files_before: int
    log_files_after: int
    runs_dropped: int
    runs_kept: int
    files_vacuumed: int


def compact(
    store: str | os.PathLike[str], config: Config, now_ms: int, *, patience_s: float = PATIENCE_S
) -> CompactionResult:
    """Compact the log of a store, and drop targets past the retention.

    Parameters
    ----------
    patience_s
        How long to wait for the live coordinator to compact, and for others to stop writing
        targets.

    Raises
    ------
    NoLog, LogError
        The log is missing, or cannot be read.
    BusyError
        The live coordinator does not answer, or others write targets all the time.
    """
    root = find_root(store)
    refuse_copy(root)
    before = len(list_parts(open_log_table(root)))
    by = _compact_log(root, config, now_ms, patience_s)
    after = len(list_parts(open_log_table(root)))
    return CompactionResult(by, before, after, *_drop_targets(root, config, now_ms, patience_s))


# The log -----------------------------------------------------------------------------------------


def _compact_log(store: str, config: Config, now_ms: int, patience_s: float) -> str:
    """Have the log compacted by its writer; return who that was."""
    find_holder = watch_holder(store, config.lease)
    if find_holder() is not None:
        with progress.task("the coordinator compacts the log"):
            _ask_coordinator(store, find_holder, patience_s)
        return "coordinator"
    lease = Lease(store, f"compact-{os.getpid()}-{uuid.uuid4().hex[:8]}", "", config.lease, wall_ms)
    lease.wait(Takeover.REFUSE)
    try:
        log = DeltaLog.open(store, config.log)
        lease.publish_epoch(log.claim("compact", "", AS_BEFORE))
        pack_log(log, now_ms)
        log.close()
    finally:
        lease.release()
    return "us"


def _ask_coordinator(store: str, find_holder: FindHolder, patience_s: float) -> None:
    """Wait until the live coordinator has compacted the log."""
    inbox, request_id = Inbox(store), f"compact-{uuid.uuid4().hex}"
    inbox.put(Compact(request_id))
    until = time.monotonic() + patience_s
    while request_id in inbox.waiting():
        if time.monotonic() > until:
            inbox.remove(request_id)
            raise BusyError(
                f"the coordinator of {store} ({find_holder()}) did not compact the log within "
                f"{patience_s:g} s: check it, then try again"
            )
        time.sleep(LOOK_S)


# Targets -----------------------------------------------------------------------------------------


def _drop_targets(
    store: str, config: Config, now_ms: int, patience_s: float
) -> tuple[int, int, int]:
    """Drop runs that are not needed; returns how many went and stayed, and files deleted."""
    path = targets_path(store)
    # Without locks two commits that disagree are seen as such, and data files are left to the
    # jobs that are about to commit them.
    remote = is_remote(store)
    with nullcontext() if remote else lock_targets(store, patience_s):
        try:
            targets = open_delta(path)
        except TableNotFoundError:
            return 0, 0, 0
        cutoff = now_ms - config.log.retention_days * DAY_MS
        needed = find_runs_needed(store, cutoff)
        runs: dict[str, int] = {}
        for _, run_id, written_ms in list_runs(targets):
            runs[run_id] = max(written_ms, runs.get(run_id, 0))
        gone = [run for run, at in sorted(runs.items()) if run not in needed and at < cutoff]
        try:
            if gone:
                targets.delete(f"run_id IN ({', '.join(map(_quote, gone))})")
            hours = -(-config.log.files_kept_ms // HOUR_MS)
            vacuumed = targets.vacuum(
                retention_hours=max(hours, JOB_HOURS) if remote else hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        except (DeltaError, OSError) as error:
            raise LogError(f"{path} was not compacted: {explain(path, error)}") from None
        filesystem_of(store).permit_all(path)  # delta-rs writes as the umask says
    return len(gone), len(runs) - len(gone), len(vacuumed)


def find_runs_needed(store: str, cutoff_ms: int) -> set[str]:
    """Return the runs whose targets were in force at the cutoff or have been since."""
    needed: set[str] = set()
    in_force: dict[str, str] = {}
    for group_id, at_ms, run_id in _read_installs(store):
        ended = in_force.pop(group_id, None)
        if ended is not None and at_ms >= cutoff_ms:
            needed.add(ended)
        if run_id is not None:
            in_force[group_id] = run_id
    return needed | set(in_force.values())


def _read_installs(store: str) -> Iterator[tuple[str, int, str | None]]:
    """Yield (group, when, run) as whole targets came into force; None: the last one ended."""
    names = ["position", "at_ms", "kind", "tombstone", "group_id", "computation_id"]
    for rows in scan_all_groups(store, [TargetMetadata.kind, GroupMetadata.kind], names):
        wanted = pc.or_(rows["tombstone"], pc.is_valid(rows["computation_id"]))
        for row in rows.filter(wanted).sort_by("position").to_pylist():
            yield row["group_id"], row["at_ms"], row["computation_id"]


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
