"""One Delta table with one writer, fenced by an epoch that only rises.

A commit lands at exactly the version after the one we know, or not at all: never by path, never
with delta-rs's retries, which would both lay a fenced writer's rows on top of its successor's.
After every look at newer versions the writer's epoch is compared with the table's before anything
else is written, because the number alone does not keep an old writer from appending.

A commit reads nothing. delta-rs makes the table, reads it, and writes its checkpoints.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from coordinator.clock import monotonic_ms, wall_ms
from coordinator.error_text import one_line
from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    Fenced,
    LogError,
    NewerLog,
    NoLog,
    Unconfirmed,
)
from coordinator.storage.tables.commit_writer import APP, TableAction, WriteCommit, write_commit
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.newest_version import (
    PROPERTIES,
    OpenTable,
    find_new_columns,
    load_surely,
    open_newest,
    open_surely,
    open_to_read,
)
from coordinator.storage.tables.protocol import find_unwritten
from coordinator.storage.tables.recovery import (
    RESTORE,
    commit_file,
    find_damage,
    log_folder,
    set_aside_torn,
)
from coordinator.storage.tables.store_files import explain, open_delta


class VersionConflict(CommitFailed):
    """Another writer, with no higher epoch, committed this version; nothing was written."""


class FencedTable:
    """A table and the version that we know it at.

    Attributes
    ----------
    version
        The newest that we know.
    epoch
        Of the writer of that version, or of one before.
    unsure
        Whether a commit of ours may have landed or not; the next use looks.
    lock
        Held around every use of the table; maintenance runs in another thread.
    """

    def __init__(
        self,
        path: str,
        disk: Files,
        *,
        sync: bool,
        write_commit: WriteCommit = write_commit,
        open_table: OpenTable = open_newest,
    ) -> None:
        self.path = path
        self.version = -1
        self.epoch = 0
        self.unsure = True
        self.lock = threading.RLock()
        self._disk = disk
        self._write_commit = write_commit
        self._open_table = open_table
        self._handle: DeltaTable | None = None
        self._sync = sync and disk.needs_sync
        self._broken = ""
        self._unwritten: str | None = None
        self._seen: tuple[int, int] | None = None
        """When our version was last the newest, on both clocks; used where commits stay a while."""
        self._late: int | None = None
        """The version that a write of ours, which was given up, may still take."""

    def open(
        self, schema: pa.Schema, partition_by: str | None = None, remains: Sequence[str] = ()
    ) -> None:
        """Open the table, or create it; a torn newest commit is set aside.

        Parameters
        ----------
        remains
            Paths that were there before this call, and are not without the table's commits: it is
            not made anew beside them.
        """
        with self.lock:
            if self._sync:
                set_aside_torn(self._disk, self.path)
            try:
                self.refresh()
            except NoLog:
                if remains:
                    raise CorruptLog(
                        f"{log_folder(self.path)} is gone or empty, but {remains[0]} is there: "
                        f"{RESTORE}, or name another folder for a new one"
                    ) from None
                self._create(schema, partition_by)
                self.refresh()
                self._disk.permit(log_folder(self.path))
                if self._sync:  # its folder too: a power cut must not leave data files without it
                    self._disk.sync(self.path)
                    self._disk.sync(os.path.dirname(self.path))
            self._refuse_unwritten()
            # delta-rs reads an empty commit as one that did nothing.
            if reason := find_damage(self._disk, self.path):
                raise CorruptLog(reason)
            # Its writer may have been killed before this.
            self._disk.permit(commit_file(self.path, self.version))

    def _create(self, schema: pa.Schema, partition_by: str | None) -> None:
        try:
            DeltaTable.create(
                self.path,
                Schema.from_arrow(schema),
                partition_by=partition_by,
                configuration=PROPERTIES,
                storage_options=self._disk.options(),
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            if not self._disk.exists(commit_file(self.path, 0)):  # else another one made it
                raise CommitFailed(
                    f"{self.path} cannot be made: {explain(self.path, error)}"
                ) from None

    def refresh(self) -> DeltaTable:
        """Look at the newest version; the caller compares epochs before it goes on.

        One that is news to us is synced: we are about to build on it, or to answer what it says,
        and whoever wrote it may have died before, or have been us, with an unknown outcome.
        """
        with self.lock:
            if self._broken:
                raise Unconfirmed(self._broken)
            self._seal()
            known, now = -1 if self.unsure else self.version, _now()
            self._adopt(open_surely(self._disk, self.path, self.version, self._open_table))
            self._seen = now
            newest = commit_file(self.path, self.version)
            if self._sync and self.version != known and self._disk.exists(newest):
                self._persist(self.version)
            return self.load()

    def load(self) -> DeltaTable:
        """Return the table at the version that we know, for what is to be read of it.

        Raises
        ------
        CommitFailed
            An object store does not list that version.
        """
        with self.lock:
            assert self._handle is not None, "a table is opened before it is read"
            if self._handle.version() != self.version:
                load_surely(self._disk, self.path, self._handle, self.version)
            return self._handle

    def read(self) -> DeltaTable:
        """Return the table at the version that we know, by a handle of its own if ours is older.

        What is read of it takes its time, and nobody who writes is to wait for it.

        Raises
        ------
        CommitFailed, NoLog, CorruptLog, NewerLog
            As for `open_newest`.
        """
        with self.lock:
            version = self.version
            if self._handle is not None and self._handle.version() == version:
                return self._handle
        try:
            return open_delta(self.path, version)
        except (DeltaError, OSError):  # a list that is late, or damage
            table = open_to_read(self._disk, self.path)
            load_surely(self._disk, self.path, table, version)
            return table

    def look(self) -> None:
        """Refresh when there may be a newer version: when the next one exists, or ours is gone.

        A successor cleans up commits that its checkpoints hold, so the next version alone says
        nothing to somebody who slept for long.
        """
        with self.lock:
            now = _now()
            if self.unsure or not (
                self._is_kept(self.version)
                and not self._disk.exists(commit_file(self.path, self.version + 1))
            ):
                self.refresh()
            else:
                self._seen = now

    def replace_handle(self, fresh: DeltaTable) -> None:
        """Read by a fresh handle from now on: one from before many commits has to read them all."""
        with self.lock:
            known = -1 if self._handle is None else self._handle.version()
            if not self.unsure and known <= fresh.version() <= self.version:
                self._handle = fresh

    def commit(self, actions: Sequence[TableAction], epoch: int) -> int:
        """Commit at the next version and return it; it is durable then.

        Raises
        ------
        Fenced
            The table has a higher epoch.
        VersionConflict
            Somebody else took the version; nothing was written.
        CommitFailed
            Nothing was written, or (`unsure`) it cannot be seen whether it was.
        """
        with self.lock:
            began = _now()  # we may be stopped once it has landed
            try:
                version = self._find_next_version(epoch)
            except LogError:
                self.discard(actions)
                raise
            self._land(actions, version, epoch)
            self._persist(version)
            self.version, self.epoch, self.unsure = version, epoch, False
            self._seen = began
            return version

    def _find_next_version(self, epoch: int) -> int:
        """Return the version that a commit is to have, which was made for the one we know."""
        known = self.version
        try:
            # Where commits stay a while, seeing it afterwards is enough.
            if self.unsure or not (self._disk.trust_s or self._is_kept(known)):
                self.refresh()
        except OSError as error:
            raise CommitFailed(f"nothing was written to {self.path}: {error}") from None
        self.refuse_fenced(epoch)
        if self.version != known:
            raise self._conflict(known + 1)
        self._refuse_unwritten()
        return known + 1

    def _land(self, actions: Sequence[TableAction], version: int, epoch: int) -> None:
        """Get the actions into a version, whatever is said of it."""
        commit_id = uuid.uuid4().hex
        self.unsure = True
        try:
            self._write_commit(self._disk, self.path, version, actions, epoch, commit_id)
            if self._is_kept(version - 1):
                return
            reason = "others have cleaned up since"
        except (DeltaError, OSError) as error:
            if self._disk.lands_late and not isinstance(error, FileExistsError):
                self._late = version
            reason = explain(self.path, error)
        self._resolve(actions, version, epoch, commit_id, reason)

    def _refuse_unwritten(self) -> None:
        if self._unwritten:
            raise NewerLog(
                f"{self.path} asks its writers for {self._unwritten} of Delta, which Muster does "
                f"not know: nothing was written; drop it from the table, or {RESTORE}"
            )

    def _is_kept(self, version: int) -> bool:
        """Whether a commit is still there.

        Commits that a checkpoint holds are removed, the oldest first. So while one is there no
        later one was removed, and where a later one is not, nobody has committed it. Where each
        request counts, ours is not looked at while it surely stays (`Files.trust_s`).
        """
        if version == self.version and self._is_fresh():
            return True
        return self._disk.exists(commit_file(self.path, version))

    def _is_fresh(self) -> bool:
        """Whether our version was the newest so shortly ago that nobody can have removed it.

        On either clock: a machine that was suspended may learn of it from the wall clock alone.
        """
        if self._seen is None or not self._disk.trust_s:
            return False
        since = [now - then for now, then in zip(_now(), self._seen, strict=True)]
        return 0 <= min(since) <= max(since) <= self._disk.trust_s * 1000

    def _seal(self) -> None:
        """See to it that a write of ours, which was given up, lands now or never.

        Its version is taken by a commit that does nothing, if by nothing else.

        Raises
        ------
        OSError
            It cannot be seen.
        """
        if self._late is None:
            return
        with suppress(FileExistsError):
            self._write_commit(
                self._disk, self.path, self._late, [], self.epoch, f"seal-{uuid.uuid4().hex}"
            )
        self._late = None

    def _conflict(self, version: int) -> VersionConflict:
        return VersionConflict(f"another writer committed version {version} of {self.path}")

    def add_columns(self, schema: pa.Schema, epoch: int) -> None:
        """Have the table name every column of a schema; a table that does is left as it is.

        Columns that it has besides, of a newer version, stay.

        Raises
        ------
        Fenced, VersionConflict, CommitFailed
            As for `commit`.
        CorruptLog
            A column of the table has values of another type.
        """
        with self.lock:
            if self.unsure:
                self.refresh()
            try:
                columns = find_new_columns(pa.schema(self.load().schema().to_arrow()), schema)
            except pa.ArrowException as error:
                raise CorruptLog(
                    f"{self.path} has a column of another type than Muster gives it "
                    f"({one_line(error)}): {RESTORE}"
                ) from None
            if columns:
                self.commit(columns, epoch)

    def discard(self, actions: Sequence[TableAction]) -> None:
        """Remove data files that no version will ever name."""
        for action in actions:
            if isinstance(action, AddAction):
                with suppress(OSError):  # the disk may be what went wrong
                    self._disk.remove(os.path.join(self.path, action.path))

    def refuse_fenced(self, epoch: int) -> None:
        """Raise Fenced when the table has a higher epoch."""
        if self.epoch > epoch:
            raise Fenced(
                f"coordinator epoch {epoch} ended: another coordinator claimed {self.path} with "
                f"epoch {self.epoch}"
            )

    def _resolve(
        self, actions: Sequence[TableAction], version: int, epoch: int, commit_id: str, reason: str
    ) -> None:
        """Find out what a commit came to; return when it landed after all.

        A successor may have cleaned it up by now, and the entry before it too, or we may have put
        it below a checkpoint, where nobody reads it and nobody ever will. The table tells: it names
        our data files, or the entry is taken back. Where a successor is, none of them is removed,
        for it may have packed them.
        """
        entry = commit_file(self.path, version)
        try:
            table = self.refresh()
            ours = self._disk.exists(entry) and commit_id.encode() in self._disk.read(entry)
            if ours and self._is_kept(version - 1):
                return
            landed = _names(table, actions)
            if ours and not landed:
                self._disk.remove(entry)
                self.refresh()
        except (CorruptLog, NoLog, OSError) as error:
            self.unsure = True
            raise CommitFailed(
                f"version {version} of {self.path} was not acknowledged ({reason}), and whether it "
                f"landed cannot be seen: {one_line(error)}"
            ) from None
        self.refuse_fenced(epoch)
        if landed:
            return
        self.discard(actions)
        if self.version >= version:
            raise self._conflict(version)
        raise CommitFailed(f"nothing was written to {self.path}: {reason}")

    def _persist(self, version: int) -> None:
        """Sync a commit. On one that cannot be nothing is ever built, and nothing answered."""
        if not self._sync:
            return
        try:
            self._disk.sync(commit_file(self.path, version))
            self._disk.sync(log_folder(self.path))
        except OSError as error:
            self.unsure = True
            self._broken = (
                f"the disk did not confirm {commit_file(self.path, version)} ({error}): "
                f"nothing more is written; see to the disk, then open the store again"
            )
            raise Unconfirmed(self._broken) from None

    def _adopt(self, handle: DeltaTable) -> None:
        self._handle = handle
        self.version = handle.version()
        self.epoch = handle.transaction_version(APP) or 0
        self._unwritten = find_unwritten(handle)
        self.unsure = False


def _names(table: DeltaTable, actions: Sequence[TableAction]) -> bool:
    """Whether a table has a data file that the actions add."""
    added = {action.path for action in actions if isinstance(action, AddAction)}
    found = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist() if added else []
    return not added.isdisjoint(found)


def _now() -> tuple[int, int]:
    return monotonic_ms(), wall_ms()
