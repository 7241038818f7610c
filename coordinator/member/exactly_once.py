"""Write rows of partitions to a Delta table, each once, despite crashes, retries and zombies.

A batch of a partition carries Delta's transaction (`txnAppId`, `txnVersion`): the group and the
partition, and the offset of the batch's last row. Delta commits it only if the partition is where
the writer saw it, so rows are in the table together with how far it came.

RESTORE TABLE takes rows away and leaves transactions: after one, a partition is where the restored
version had it, and its transactions have another name. No commit comes past a RESTORE unseen, since
that rewrites the table's metadata, with which every concurrent commit conflicts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from coordinator.errors import ErrorCode, GroupError
from coordinator.member.options import Place, place_of
from coordinator.member.transport import TopicPartition
from coordinator.storage.tables.table_history import (
    RESTORE,
    UnknownRestoreError,
    read_history,
    restored_version,
)

TRIES_MAX = 100
"""How often a commit is tried again while other writers' come first."""
SEEN, RESTORED = "*seen", "*restored"
"""Transactions of a group beside its partitions': up to which version it has looked for a RESTORE,
and the newest one that it saw. No quoted name has an asterisk."""
SEEN_EVERY = 100
"""How many versions are looked through again before a commit notes that they were."""
logger = logging.getLogger("muster.member")


class Owner(Protocol):
    """What is asked of a member; `Member` is one."""

    @property
    def group_id(self) -> str:
        """The group."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it may use now."""

    def committed(self, partition: Place) -> int | None:
        """Return the offset that was committed last."""

    def commit_later(self, offsets: Mapping[Place, int | tuple[int, str]]) -> None:
        """Commit offsets soon."""


@dataclass(frozen=True, slots=True)
class _Restore:
    """A RESTORE of the table.

    Attributes
    ----------
    at
        The version that it made.
    to
        The version whose rows it brought back.
    noted
        Whether a transaction of the group says so: the log forgets.
    """

    at: int
    to: int
    noted: bool


@dataclass(slots=True)
class _Looked:
    """How far a version of the table was looked through for a RESTORE."""

    version: int = -1
    found: _Restore | None = None
    older: dict[int, DeltaTable] = field(default_factory=dict)


class ExactlyOnceTable:
    """A Delta table that the members of a group write, each row once.

    >>> table = ExactlyOnceTable(member, "output")  # doctest: +SKIP
    >>> offset = table.next_offset(partition)  # doctest: +SKIP
    >>> offset = table.write(partition, offset, rows)  # doctest: +SKIP

    Several threads may use one; each of them waits for the others' commits.

    Parameters
    ----------
    member
        The `Member` that writes: only rows of partitions that it owns are written.
    path
        The table, which must exist.
    storage_options
        As deltalake takes them, for a table on object storage.

    Raises
    ------
    deltalake.exceptions.TableNotFoundError
        The table does not exist.
    """

    def __init__(
        self, member: Owner, path: str | Path, storage_options: dict[str, str] | None = None
    ) -> None:
        self._member = member
        self._path, self._options = str(path), storage_options
        self._table = self._open_at(None)
        self._looked = _Looked()
        self._warned: set[tuple[TopicPartition, int]] = set()
        self._lock = threading.Lock()

    def next_offset(self, partition: Place) -> int:
        """Return where to continue: after the last row in the table, or the last offset committed.

        In a table that was restored, it is after the last row of the restored version, even if
        later offsets were committed: rows that RESTORE removed must be written again.

        Parameters
        ----------
        partition
            A TopicPartition, or (topic, number).

        Raises
        ------
        GroupError
            The committed offset cannot be read.
        UnknownRestoreError
            The table was restored, and its log no longer says to what.
        """
        place = place_of(partition)
        committed = self._member.committed(place) or 0
        with self._lock:
            self._table.update_incremental()
            position, restore = self._position(place), self._find_restore()
            if restore is not None:
                self._warned.add((place, restore.at))
                return position
        return max(committed, position)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each partition goes on: the offset after its last row in the table.

        Parameters
        ----------
        partitions
            Those to look for.

        Returns
        -------
        dict[TopicPartition, int]
            One offset each; 0 for a partition without rows.
        """
        with self._lock:
            self._table.update_incremental()
            return {partition: self._position(partition) for partition in partitions}

    def schema(self) -> Schema:
        """Return the table's columns, as of the last call."""
        with self._lock:
            return self._table.schema()

    def write(self, partition: Place, offset: int, rows: pa.Table) -> int:
        """Write rows of a partition, all or none; those that are in the table are left out.

        The member commits the new offset within seconds (`Member.commit_later`).

        Parameters
        ----------
        partition
            A TopicPartition, or (topic, number).
        offset
            Of the first row; the others follow, one by one.
        rows
            The rows, with the columns of the table.

        Returns
        -------
        int
            The offset to continue from. If the table was restored meanwhile, it is before `offset`,
            and nothing was written: write the lost rows first.

        Raises
        ------
        Fenced
            The member does not own the partition, and nothing was written.
        UnknownRestoreError
            As `next_offset`.
        deltalake.exceptions.DeltaError
            The rows do not fit the table, or it cannot be written.
        """
        place = place_of(partition)
        end = offset + rows.num_rows
        with self._lock:
            for _ in self._tries():
                at = self._position(place)
                if at >= end or self._is_taken_back(place, offset):
                    break
                self.refuse_foreign([place])
                try:
                    write_deltalake(
                        self._table,
                        rows.slice(max(at - offset, 0)),
                        mode="append",
                        commit_properties=self._properties({place: end}),
                    )
                except CommitFailedError as error:
                    self._check_moved(error)
                    continue
                at = end
                break
        self._member.commit_later({place: at})
        return at

    def commit_files(self, files: Sequence[AddAction], ends: Mapping[TopicPartition, int]) -> bool:
        """Add files that are written: rows of partitions up to these offsets, all or none.

        Parameters
        ----------
        files
            Files in the table's folder; their rows begin at what `positions` last returned.
        ends
            The offset after the last row, by partition.

        Returns
        -------
        bool
            Whether they are in the table; False if another process wrote some of the partitions.

        Raises
        ------
        Fenced
            The member does not own all of the partitions.
        """
        with self._lock:
            self.refuse_foreign(ends)
            try:
                self._table.create_write_transaction(
                    list[AddAction | RemoveAction](files),
                    "append",
                    self._table.schema(),
                    commit_properties=self._properties(ends),
                )
            except CommitFailedError as error:
                self._check_moved(error)
                return False
            return True

    def warn_of_lost(self, firsts: Mapping[TopicPartition, int]) -> None:
        """Log which rows before these a RESTORE took away, if they were not written again."""
        with self._lock:
            lost = [place for place, first in firsts.items() if self._is_taken_back(place, first)]
            at = {str(place): self._position(place) for place in sorted(lost)}
        if at:
            logger.warning(
                "%s was restored: rows that it lost come before those that are written now, and "
                "are missing unless they are written again from these offsets on: %s",
                self._path, at,
            )  # fmt: skip

    def refuse_foreign(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise Fenced unless the member owns all of the partitions."""
        foreign = sorted(set(partitions) - self._member.owned)
        if foreign:
            raise GroupError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"{', '.join(map(str, foreign))}: not, or no longer, owned by this member, so its "
                "rows are not written; its owner continues from the rows in the table",
            )

    def _position(self, partition: TopicPartition) -> int:
        """Return the offset after the last row of a partition in the table."""
        found = self._find_restore()
        last = self._last(self._table, partition, found)
        while found is not None and last is None:  # not written since: it is where it was then
            older = self._look_at(found.to)
            found = self._find_restore(older)
            last = self._last(older, partition, found)
        return 0 if last is None else last + 1

    def _last(
        self, table: DeltaTable, partition: TopicPartition, restore: _Restore | None
    ) -> int | None:
        """Return the last offset of the rows that were written since a RESTORE."""
        last = table.transaction_version(self._app(partition, restore))
        return None if last is None else int(last)

    def _app(self, partition: TopicPartition, restore: _Restore | None) -> str:
        app = app_id(self._member.group_id, partition)
        return app if restore is None else f"{app}@{restore.at}"

    def _is_taken_back(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a RESTORE took rows before these away, and the writer does not know it yet."""
        restore = self._find_restore()
        if restore is None or (partition, restore.at) in self._warned:
            return False
        self._warned.add((partition, restore.at))
        last = self._last(self._table, partition, restore)
        return last is None and self._position(partition) < offset

    def _find_restore(self, table: DeltaTable | None = None) -> _Restore | None:
        """Return the newest RESTORE up to a version of the table, the newest by default."""
        if table is None and self._looked.version == self._table.version():
            return self._looked.found
        here = table or self._table
        seen = here.transaction_version(self._app_of(SEEN))
        after = -1 if seen is None else int(seen)
        if table is None and self._looked.version > after:
            after, found = self._looked.version, self._looked.found
        else:
            found = self._noted_restore(here)
        for made in read_history(here, after):
            if made.operation == RESTORE:
                to = restored_version(made, self._open_at)
                found = _Restore(made.version, to, noted=False)
                logger.warning("%s was restored to version %d", self._path, to)
                break
        if table is None:
            self._looked.version, self._looked.found = here.version(), found
        return found

    def _noted_restore(self, table: DeltaTable) -> _Restore | None:
        """Return the RESTORE that a transaction of the group tells of."""
        at = table.transaction_version(self._app_of(RESTORED))
        if at is None:
            return None
        to = table.transaction_version(self._app_of(f"{RESTORED}@{at}"))
        return _Restore(int(at), int(to or 0), noted=True)

    def _app_of(self, what: str) -> str:
        return f"{quote(self._member.group_id, safe=' ')}/{what}"

    def _open_at(self, version: int | None) -> DeltaTable:
        return DeltaTable(self._path, version=version, storage_options=self._options)

    def _look_at(self, version: int) -> DeltaTable:
        """Return the table at an earlier version.

        Raises
        ------
        UnknownRestoreError
            Its log no longer has that.
        """
        if version not in self._looked.older:
            try:
                self._looked.older[version] = self._open_at(version)
            except DeltaError:
                raise UnknownRestoreError(
                    f"{self._path} was restored to version {version}, which its log no longer has: "
                    "how far each partition was then is not known; give another table"
                ) from None
        return self._looked.older[version]

    def _properties(self, ends: Mapping[TopicPartition, int]) -> CommitProperties:
        """Return what makes a commit fail when another one of these partitions came first."""
        restore, version = self._find_restore(), int(self._table.version())
        done = [Transaction(self._app(place, restore), end - 1) for place, end in ends.items()]
        seen = self._table.transaction_version(self._app_of(SEEN))
        new = restore is not None and not restore.noted
        if restore is not None and new:
            done.append(Transaction(self._app_of(RESTORED), restore.at))
            done.append(Transaction(self._app_of(f"{RESTORED}@{restore.at}"), restore.to))
        if new or version - (-1 if seen is None else int(seen)) > SEEN_EVERY:
            done.append(Transaction(self._app_of(SEEN), version))
        return CommitProperties(app_transactions=done)

    def _tries(self) -> Iterable[int]:
        """Yield numbers of tries, each with the table as it is by now."""
        for number in range(TRIES_MAX):
            self._table.update_incremental()
            yield number
        raise CommitFailedError(
            f"other writers committed first, {TRIES_MAX} times in a row: try again later"
        )

    def _check_moved(self, error: CommitFailedError) -> None:
        """Raise the error again unless another commit explains it."""
        before = self._table.version()
        self._table.update_incremental()
        if self._table.version() == before:
            raise error


def app_id(group_id: str, partition: TopicPartition) -> str:
    """Return the `txnAppId` of a partition's rows: group/topic-partition, slashes as %2F."""
    return f"{quote(group_id, safe=' ')}/{quote(partition.topic, safe=' ')}-{partition.partition}"
