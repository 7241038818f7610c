"""Write rows of partitions to a Delta table, each once, whoever dies, repeats itself or wakes up.

A batch of a partition carries Delta's transaction (`txnAppId`, `txnVersion`): the group and the
partition, and the offset of the batch's last row. Delta commits it only if the partition is where
the writer saw it, so rows are in the table together with how far it came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from coordinator.errors import ErrorCode, GroupError
from coordinator.member.options import Place, place_of
from coordinator.member.transport import TopicPartition

TRIES_MAX = 100
"""How often a commit is tried again while other writers' come first."""


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
        The table, which must be there.
    storage_options
        As deltalake takes them, for a table on object storage.

    Raises
    ------
    deltalake.exceptions.TableNotFoundError
        There is no such table.
    """

    def __init__(
        self, member: Owner, path: str | Path, storage_options: dict[str, str] | None = None
    ) -> None:
        self._member = member
        self._table = DeltaTable(str(path), storage_options=storage_options)
        self._lock = threading.Lock()

    def next_offset(self, partition: Place) -> int:
        """Return where to go on: after the last row in the table, or the last offset committed.

        Parameters
        ----------
        partition
            A TopicPartition, or (topic, number).

        Raises
        ------
        GroupError
            The committed offset cannot be read.
        """
        place = place_of(partition)
        committed = self._member.committed(place) or 0
        return max(committed, self.positions([place])[place])

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last row in the table, by partition; 0 without rows."""
        with self._lock:
            self._table.update_incremental()
            return {partition: self._position(partition) for partition in partitions}

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
            The offset to go on from.

        Raises
        ------
        Fenced
            The member does not own the partition, and nothing was written.
        deltalake.exceptions.DeltaError
            The rows do not fit the table, or it cannot be written.
        """
        place = place_of(partition)
        end = offset + rows.num_rows
        with self._lock:
            for _ in self._tries():
                at = self._position(place)
                if at >= end:
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
            Files in the table's folder; their rows follow those that `positions` has said last.
        ends
            The offset after the last row, by partition.

        Returns
        -------
        bool
            Whether they are in the table; False when somebody else wrote some of the partitions.

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

    def refuse_foreign(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise Fenced unless the member owns all of the partitions."""
        foreign = sorted(set(partitions) - self._member.owned)
        if foreign:
            raise GroupError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"{', '.join(map(str, foreign))}: not owned by this member (any more), so its rows "
                "are not written; whoever owns it goes on from what is in the table",
            )

    def _position(self, partition: TopicPartition) -> int:
        last = self._table.transaction_version(app_id(self._member.group_id, partition))
        return 0 if last is None else int(last) + 1

    def _properties(self, ends: Mapping[TopicPartition, int]) -> CommitProperties:
        """Return what makes a commit fail when another one of these partitions came first."""
        group_id = self._member.group_id
        done = [Transaction(app_id(group_id, place), end - 1) for place, end in ends.items()]
        return CommitProperties(app_transactions=done)

    def _tries(self) -> Iterable[int]:
        """Yield numbers of tries, each with the table as it is by now."""
        for number in range(TRIES_MAX):
            self._table.update_incremental()
            yield number
        raise CommitFailedError(f"other writers came first {TRIES_MAX} times: try again later")

    def _check_moved(self, error: CommitFailedError) -> None:
        """Raise the error again unless another commit explains it."""
        before = self._table.version()
        self._table.update_incremental()
        if self._table.version() == before:
            raise error


def app_id(group_id: str, partition: TopicPartition) -> str:
    """Return the `txnAppId` of a partition's rows: group/topic-partition, slashes as %2F."""
    return f"{quote(group_id, safe=' ')}/{quote(partition.topic, safe=' ')}-{partition.partition}"
