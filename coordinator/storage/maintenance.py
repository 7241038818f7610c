"""Background maintenance of a table: checkpoints, compaction, removal of old files.

A handle slows down with every commit since the last checkpoint; a folder of commits with every
file in it; a reader with every small data file. No row is ever deleted: packing writes the same
rows in the same order into fewer files.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from coordinator.config import LogConfig
from coordinator.storage.data_files import (
    Part,
    list_parts,
    make_remove_action,
    read_parts,
    write_part,
)
from coordinator.storage.record_log import CommitFailed, LogError, MaintenanceStopped
from coordinator.storage.tables.commit_writer import TableAction
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.floor import raise_floor
from coordinator.storage.tables.newest_version import explain_unreadable
from coordinator.storage.tables.old_commits import OldCommits
from coordinator.storage.tables.recovery import (
    CHECKPOINT_FILE,
    LAST_CHECKPOINT,
    find_damage,
    log_folder,
)
from coordinator.storage.tables.store_files import explain, is_remote, open_delta

PACKED_BYTES_MAX = 32 << 20
"""A file this large is not compacted again; in memory it is some ten times that."""
PACKED_FILES_MAX = 2_000
"""So many files are compacted at once: a run that is late ends soon all the same."""

T = TypeVar("T")


class Maintenance:
    """Maintenance of one table. One thread calls it.

    It reads the table by handles of its own: a writer waits for one commit of it at most.

    Parameters
    ----------
    commit
        Commits a packing, in place of the table's own way: it changes no row.
    stopping
        Set when it must end early.
    """

    def __init__(
        self,
        table: FencedTable,
        config: LogConfig,
        disk: Files,
        commit: Callable[[Sequence[TableAction], int], object] | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._table = table
        self._config = config
        self._disk = disk
        self._commit = commit or table.commit
        self._stopping = stopping or threading.Event()
        self._covered = -1
        """The version of our last checkpoint that is whole, or that we began with."""
        self._old_commits = OldCommits(table, disk)
        self._checkpointed = 0
        self._packed = 0
        self._checkpoints: deque[tuple[float, int]] = deque()
        """Our checkpoints that are younger than `log.commits_kept_ms`, and the last older one."""
        self._replaced: deque[tuple[float, list[str]]] = deque()
        """Data files that no version names any longer, and since when."""
        self._unnamed: list[str] | None = None
        """Those that none named when we looked first, until we look again."""
        self._looked = -1
        """The version that we saw then."""

    def due(self) -> bool:
        """Whether there are enough new commits to do something."""
        return (
            self._have_passed(self._checkpointed, self._config.reopen_commits) or self._pack_due()
        )

    def lag(self) -> float:
        """Return how many times over a checkpoint is due."""
        if self._covered < 0:
            self._covered = self._table.version
        late = self._table.version - self._covered
        return late / self._config.reopen_commits if self._config.reopen_commits else 0.0

    def refuse_stopped(self) -> None:
        """End here if maintenance was stopped."""
        if self._stopping.is_set():
            raise MaintenanceStopped(f"maintenance of {self._table.path} was stopped")

    def until_stopped(self, these: Iterable[T]) -> Iterator[T]:
        """Yield things, but end before the next one if maintenance was stopped."""
        for one in these:
            self.refuse_stopped()
            yield one

    def _pack_due(self) -> bool:
        return self._have_passed(self._packed, self._config.pack_commits)

    def _have_passed(self, version: int, commits: int) -> bool:
        """Whether there were so many commits since a version; 0 is never."""
        return 0 < commits <= self._table.version - version

    def run(self, epoch: int, *, pack: bool = False) -> None:
        """Checkpoint, remove old commits, and compact if due or asked for.

        Raises
        ------
        LogError
            Something could not be done; what was done is whole, and the next run tries again.
        """
        pack = pack or self._pack_due()
        # What fails is tried again when it is due again, not over and over.
        self._checkpointed = self._table.version
        self._packed = self._table.version if pack else self._packed
        try:
            table = self._checkpoint()
            small = select_small_files(list_parts(table)) if pack else []
            self._table.replace_handle(table)
            self.refuse_stopped()
            self._clean_commits(epoch)
            self.refuse_stopped()
            self.sweep(self._pack(small, epoch), epoch)
        except (DeltaError, OSError) as error:
            reason = explain_unreadable(self._disk, self._table.path, error)
            raise LogError(f"maintenance of {self._table.path} failed: {reason}") from None

    def _checkpoint(self) -> DeltaTable:
        """Write a checkpoint of the version that we know, and return the table at it.

        It has our last packing: a list that lacks it would have rows packed twice.
        """
        # A newer version may not be synced yet: a checkpoint of what a power cut undoes, without
        # its commit file, would keep all from writing.
        table = open_delta(self._table.path, self._table.version)
        self.refuse_stopped()
        try:
            table.create_checkpoint()
        except (DeltaError, OSError) as error:
            if is_remote(self._table.path) or find_damage(self._disk, self._table.path):
                raise
            reason = explain(self._table.path, error)
            raise CommitFailed(
                f"no checkpoint was written to {self._table.path}: {reason}"
            ) from None
        folder = log_folder(self._table.path)
        names = [name for name in self._disk.names(folder) if _is_checkpoint(name, table.version())]
        for name in [*names, LAST_CHECKPOINT]:
            self._disk.permit(os.path.join(folder, name))
            self._disk.sync(os.path.join(folder, name))
        self._disk.sync(folder)
        self._checkpoints.append((time.monotonic(), table.version()))
        self._covered = table.version()
        return table

    def _clean_commits(self, epoch: int) -> None:
        """Remove commits and checkpoints that an older checkpoint of ours holds.

        What is not removed now, since a store removes some of many, or is gone for a while, is
        found again by the next run.

        Raises
        ------
        WriterFenced
            Another coordinator has the table: entries since our claim are no longer all ours,
            and its claim among them tells coordinators that slept.
        """
        self._table.refuse_fenced(epoch)
        old = time.monotonic() - self._config.commits_kept_ms / 1000
        while len(self._checkpoints) > 1 and self._checkpoints[1][0] <= old:
            self._checkpoints.popleft()
        made, version = self._checkpoints[0]
        if made > old:
            return
        gone = self._old_commits.find_removable(version)
        if gone:
            raise_floor(self._disk, self._table.path, version)
            self._disk.remove_all(gone)

    def _pack(self, small: list[Part], epoch: int) -> list[str]:
        """Rewrite small files as one, commit it in their place, and return their paths."""
        table, sync = self._table, self._config.fsync
        if not small:
            return []
        pieces = []
        for piece in read_parts(table.path, small, small[0].first - 1):
            self.refuse_stopped()
            pieces.append(piece)
        rows = pa.concat_tables(pieces, promote_options="default").unify_dictionaries()
        added = write_part(self._disk, table.path, rows, sync=sync, data_change=False)
        self._commit([added, *map(make_remove_action, small)], epoch)
        return [part.path for part in small]

    def sweep(self, replaced_now: list[str], epoch: int) -> None:
        """Remove data files that were replaced long ago, these were just now, or never named.

        Raises
        ------
        WriterFenced
            Another coordinator may be about to name them.
        """
        names = [*replaced_now, *self._find_abandoned(epoch)]
        self._replaced.append((time.monotonic(), names))
        old = time.monotonic() - self._config.files_kept_ms / 1000
        while self._replaced and self._replaced[0][0] <= old:
            gone = self._replaced.popleft()[1]
            self._disk.remove_all(os.path.join(self._table.path, name) for name in gone)

    def _find_abandoned(self, epoch: int) -> list[str]:
        """Return what writers left that were killed before they committed it; once.

        A file that no version names may be of a claim that is under way. It is of the version after
        those that its writer saw, or of none: so it is looked for again once there is one after
        those that we saw. That holds for our own, too: the lock, and so who writes, is not held up.
        """
        table = self._table
        if self._unnamed == []:
            return []
        table.look()
        if self._unnamed is None:
            there = self._disk.names(table.path)
            self._looked = table.version
            self._unnamed = self._without_named(there)
        if table.version <= self._looked:
            return []
        abandoned = self._without_named(self._unnamed)
        table.refuse_fenced(epoch)
        self._unnamed = []
        return abandoned

    def _without_named(self, names: list[str]) -> list[str]:
        """Return the data files among names that the version we know does not name."""
        named = {part.path for part in list_parts(self._table.read())}
        return [name for name in names if name.endswith(".parquet") and name not in named]


def select_small_files(parts: Sequence[Part]) -> list[Part]:
    """Return the newest files, from one on that has no more rows than all after it together.

    So a row is rewritten only about as often as the log can be halved, and about as many files
    are left. A small file has some hundred times as many bytes a row as one of many rows.
    """
    start, rest, rows = len(parts), 0, 0
    for at in reversed(range(len(parts))):
        if rest + parts[at].bytes > PACKED_BYTES_MAX:
            break
        if parts[at].rows <= rows:
            start = at
        rest += parts[at].bytes
        rows += parts[at].rows
    return list(parts[start : start + PACKED_FILES_MAX])


def _is_checkpoint(name: str, version: int) -> bool:
    found = CHECKPOINT_FILE.match(name)
    return found is not None and int(found[1]) == version
