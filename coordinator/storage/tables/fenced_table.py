"""One Delta table with one writer, fenced by an epoch that only rises.

A commit lands at exactly the version after the one we know, or not at all: never by path, never
with delta-rs's retries, which would both lay a fenced writer's rows on top of its successor's.
After every look at newer versions the writer's epoch is compared with the table's before anything
else is written, because the number alone does not keep an old writer from appending.

What follows the last entry that a writer knows is its own next one, or a successor's claim, which
is never removed (`Commit.stays`). So the next version is free only until another claims the
table, even after a clean-up (docs/design/log_format.md#what-a-writer-may-conclude).

delta-rs makes the table, reads it, and writes its checkpoints.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from coordinator.errors.texts import one_line
from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    LogError,
    NewerLog,
    NoLog,
    Unconfirmed,
    WriterFenced,
)
from coordinator.storage.tables.commit_writer import (
    APP,
    NO_MORE,
    Commit,
    TableAction,
    WriteCommit,
    write_commit,
)
from coordinator.storage.tables.entries import (
    find_digest,
    has_commit,
    is_fresh,
    names_files,
    now,
    read_digest,
)
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.floor import read_floor
from coordinator.storage.tables.newest_version import (
    PROPERTIES,
    OpenTable,
    find_new_columns,
    load_surely,
    open_surely,
    open_to_read,
    read_number,
)
from coordinator.storage.tables.protocol import find_unwritten
from coordinator.storage.tables.read_table import ReadTable, open_table
from coordinator.storage.tables.recovery import (
    RESTORE,
    commit_file,
    find_damage,
    log_folder,
    set_aside_torn,
)
from coordinator.storage.tables.store_files import explain, explain_unwritten, open_delta
from coordinator.storage.tables.sync_beside import sync_named

CLEANED_UP = "others have cleaned up since"


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
    own_from
        The version of our claim, as which we have tried last to write one: from there on all
        entries are ours until we are fenced.
    sealed
        Versions of ours that we have taken by a commit that does nothing.
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
        open_table: OpenTable = open_table,
    ) -> None:
        self.path = path
        self.version = -1
        self.epoch = 0
        self.unsure = True
        self.own_from = -1
        self.sealed: set[int] = set()
        self.lock = threading.RLock()
        self._disk = disk
        self._write_commit = write_commit
        self._open_table = open_table
        self._handle: DeltaTable | None = None
        self._sync = sync and disk.needs_sync
        self._broken = ""
        self._unwritten: str | None = None
        self._digest: str | None = None
        """Of the entry at our version; None where it was gone when it was to be read."""
        self._seen: tuple[int, int] | None = None
        """When our version was last the newest, on both clocks."""
        self._late: int | None = None
        """The version that a write of ours, which was given up, may still take."""

    def open(
        self, schema: pa.Schema, partition_by: str | None = None, remains: Sequence[str] = ()
    ) -> bool:
        """Open the table, or create it; return whether it is as it was read before.

        A torn newest commit is set aside.

        Parameters
        ----------
        remains
            Paths that existed before this call, and would not without the table's commits: it is
            not created again beside them.
        """
        with self.lock:
            before = self._handle
            if self._sync:
                set_aside_torn(self._disk, self.path)
            try:
                self._seen = None  # look at the entry itself: it was written by another
                self.look()
            except NoLog:
                if remains:
                    raise CorruptLog(
                        f"{log_folder(self.path)} is gone or empty, but {remains[0]} is there: "
                        f"{RESTORE}, or name another folder for a new one"
                    ) from None
                self._create(schema, partition_by)
                self.refresh()
                self._disk.permit(log_folder(self.path))
            # A power cut must not leave data files without it; its maker may have been killed.
            if self._sync and self.version == 0:
                self._disk.sync(self.path)
                self._disk.sync_above(self.path)
            self._refuse_unwritten()
            # delta-rs reads an empty commit as one that did nothing.
            seen = isinstance(self._handle, ReadTable)
            if not seen and (reason := find_damage(self._disk, self.path)):
                raise CorruptLog(reason)
            # Its writer may have been killed before this.
            self._disk.permit(commit_file(self.path, self.version))
            return self._handle is before

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
        and its writer may have died before, or have been us, with an unknown outcome.
        """
        with self.lock:
            if self._broken:
                raise Unconfirmed(self._broken)
            self._seal()
            known, began = -1 if self.unsure else self.version, now()
            opened = open_surely(self._disk, self.path, self.version, self._open_table)
            self._refuse_older(opened)
            self._adopt(opened)
            self._seen = began
            newest = commit_file(self.path, self.version)
            if self._sync and self.version != known and self._disk.exists(newest):
                self._persist(self.version)
            return self.load()

    def _refuse_older(self, opened: DeltaTable) -> None:
        """Refuse to go back, but to a table whose higher epoch says that we are fenced."""
        epoch = read_number(self.path, opened, APP) or 0
        if opened.version() < self.version and epoch <= self.epoch:
            raise CorruptLog(
                f"{self.path} was at version {self.version} and is at {opened.version()}: another "
                f"copy was put in its place while it was in use; stop what uses it, then open it"
            )

    def load(self) -> DeltaTable:
        """Return the table at the version that we know, to read from it.

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

        Reading it takes its time, and no writer may have to wait for it.

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
        """Refresh when there may be a newer version: the next one exists, or ours is not there."""
        with self.lock:
            began = now()
            if (
                self.unsure
                or self._disk.exists(commit_file(self.path, self.version + 1))
                or not self._is_in_place()
            ):
                self.refresh()
            else:
                self._seen = began

    def replace_handle(self, fresh: DeltaTable) -> None:
        """Read by a fresh handle from now on: one from before many commits has to read them all."""
        with self.lock:
            known = -1 if self._handle is None else self._handle.version()
            if not self.unsure and known <= fresh.version() <= self.version:
                self._handle = fresh

    def commit(
        self, actions: Sequence[TableAction], epoch: int, notes: Mapping[str, int] = NO_MORE
    ) -> int:
        """Commit at the next version and return it; it is durable then.

        Parameters
        ----------
        notes
            Numbers that the table is to keep, by name.

        Raises
        ------
        WriterFenced
            The table has a higher epoch.
        VersionConflict
            Another writer took the version; nothing was written.
        CommitFailed
            Nothing was written, or (`unsure`) it cannot be seen whether it was.
        """
        with self.lock:
            began = now()  # we may be stopped once it has landed
            try:
                commit = self._make_commit(actions, epoch, notes)
            except LogError:
                self.discard(actions)
                raise
            self._land(commit)
            if not self._persist(commit.version):
                self._resolve(commit, CLEANED_UP)
            self._digest = find_digest(self._disk, self.path, commit)
            self.version, self.epoch, self.unsure = commit.version, epoch, False
            self._seen = began
            return commit.version

    def _make_commit(
        self, actions: Sequence[TableAction], epoch: int, notes: Mapping[str, int]
    ) -> Commit:
        """Return a commit for the version after the one that we know."""
        known = self.version
        try:
            # Where requests count, seeing afterwards that it is in place is enough.
            if self.unsure or not (self._disk.trust_s or self._is_in_place()):
                self.refresh()
        except OSError as error:
            raise CommitFailed(f"nothing was written to {self.path}: {error}") from None
        self.refuse_fenced(epoch)
        if self.version != known:
            raise self._conflict(known + 1)
        self._refuse_unwritten()
        if stays := epoch > self.epoch:
            self.own_from = known + 1
        return Commit(known + 1, actions, epoch, self._digest or "", stays=stays, notes=notes)

    def _land(self, commit: Commit) -> None:
        """Get a commit into its version, even if the first answer is lost or wrong."""
        self.unsure, failure = True, None
        try:
            self._write_commit(self._disk, self.path, commit)
            if self._follows_ours(commit):
                return
            reason = CLEANED_UP
        except (DeltaError, OSError) as error:
            if self._disk.lands_late and not isinstance(error, FileExistsError):
                self._late = commit.version
            failure, reason = error, explain(self.path, error)
        self._resolve(commit, reason, failure)

    def _follows_ours(self, commit: Commit) -> bool:
        """Whether an entry that was put is the one after ours, and not where one was removed.

        A claim that was made for an old version may be where others have cleaned up.
        """
        if not self._is_in_place():
            return False
        return not commit.stays or read_floor(self._disk, self.path) <= commit.version

    def _refuse_unwritten(self) -> None:
        if self._unwritten:
            raise NewerLog(
                f"{self.path} asks its writers for {self._unwritten} of Delta, which Muster does "
                f"not know: nothing was written; drop it from the table, or {RESTORE}"
            )

    def _is_in_place(self) -> bool:
        """Whether the entry of our version is there, and the one that we know.

        It may be cleaned up by a successor, or the whole table be another one by now. Where each
        request counts, it is not looked at if it was there a moment ago (`Files.trust_s`): what
        Muster itself does is found out without this.
        """
        return (
            is_fresh(self._seen, self._disk.trust_s)
            or self._digest == self._read_digest() is not None
        )

    def _read_digest(self) -> str | None:
        return read_digest(self._disk, self.path, self.version)

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
        self.sealed.add(self._late)
        seal = Commit(self._late, [], self.epoch, self._digest or "", stays=True)
        with suppress(FileExistsError):
            self._write_commit(self._disk, self.path, seal)
        self._late = None

    def _conflict(self, version: int) -> VersionConflict:
        return VersionConflict(f"another writer committed version {version} of {self.path}")

    def add_columns(self, schema: pa.Schema, epoch: int) -> None:
        """Have the table name every column of a schema; a table that does is left as it is.

        Columns that it has besides, of a newer version, stay.

        Raises
        ------
        WriterFenced, VersionConflict, CommitFailed
            As for `commit`.
        CorruptLog
            A column of the table has values of another type.
        """
        with self.lock:
            if self.unsure:
                self.refresh()
            try:
                assert self._handle is not None, "a table is opened before it is written"
                # What came since it was read is ours, and adds no column but here.
                columns = find_new_columns(self._handle.schema(), schema)
            except pa.ArrowException as error:
                raise CorruptLog(
                    f"{self.path} has a column of another type than Muster gives it "
                    f"({one_line(error)}): {RESTORE}"
                ) from None
            if columns:
                self.commit(columns, epoch)
                self.load()

    def discard(self, actions: Sequence[TableAction]) -> None:
        """Remove data files that no version will ever name."""
        for action in actions:
            if isinstance(action, AddAction):
                with suppress(OSError):  # the disk may be what went wrong
                    self._disk.remove(os.path.join(self.path, action.path))

    def refuse_fenced(self, epoch: int) -> None:
        """Raise WriterFenced when the table has a higher epoch."""
        if self.epoch > epoch:
            raise WriterFenced(
                f"coordinator epoch {epoch} ended: another coordinator claimed {self.path} with "
                f"epoch {self.epoch}"
            )

    def _resolve(self, commit: Commit, reason: str, failure: Exception | None = None) -> None:
        """Find out what a commit came to; return when it landed after all.

        It is the next entry if it is there and not below the floor. Below it, the table decides: it
        names our data files, or the entry is where another one was removed, and is never read.
        Where a successor is, no data file is removed, for it may have packed them.
        """
        entry = commit_file(self.path, commit.version)
        try:
            if self._is_replaced(commit.version - 1) and has_commit(self._disk, self.path, commit):
                self._disk.remove(entry)  # of another table
            table = self.refresh()
            landed = names_files(table, commit.actions) or (
                has_commit(self._disk, self.path, commit)
                and read_floor(self._disk, self.path) <= commit.version
            )
        except (CorruptLog, NoLog, OSError) as error:
            self.unsure = True
            raise CommitFailed(
                f"version {commit.version} of {self.path} was not acknowledged ({reason}), and "
                f"Muster cannot check whether it landed: {one_line(error)}"
            ) from None
        self.refuse_fenced(commit.epoch)
        if landed:
            return
        self.discard(commit.actions)
        if self.version >= commit.version:
            raise self._conflict(commit.version)
        raise explain_unwritten(self.path, failure, reason)

    def _is_replaced(self, version: int) -> bool:
        """Whether the entry of a version that we knew is gone without a clean-up."""
        if self._digest is None or self._read_digest() == self._digest:
            return False
        return read_floor(self._disk, self.path) <= version

    def _persist(self, version: int) -> bool:
        """Sync a commit; False where a successor has cleaned it up.

        On one that cannot be synced nothing is ever built, and nothing answered.
        """
        if not self._sync:
            return True
        try:
            sync_named(self._disk, commit_file(self.path, version))
        except FileNotFoundError:
            self.unsure = True
            return False
        except OSError as error:
            self.unsure = True
            self._broken = (
                f"the disk did not confirm {commit_file(self.path, version)} ({error}): "
                f"nothing more is written; check the disk, then reopen the store"
            )
            raise Unconfirmed(self._broken) from None
        return True

    def _adopt(self, handle: DeltaTable) -> None:
        """Know a version, all of it or nothing: one with the digest of another breaks the chain."""
        version, epoch = handle.version(), read_number(self.path, handle, APP) or 0
        unwritten, digest = find_unwritten(handle), getattr(handle, "digest", None)  # a ReadTable's
        digest = digest or read_digest(self._disk, self.path, version)
        self._handle, self.version, self.epoch = handle, version, epoch
        self._unwritten, self._digest, self.unsure = unwritten, digest, False
