"""Check each snapshot against the state that the log replays to at its position."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.core.state.groups import State
from coordinator.core.state.state_records import StateRecords, records_of
from coordinator.display.progress import task
from coordinator.storage.data_files import SNAPSHOT
from coordinator.storage.record_log import CorruptLog, NoLog
from coordinator.storage.snapshot_table import Snapshot
from coordinator.storage.tables.claims import Claims
from coordinator.storage.tables.commit_reader import TableFiles, read_table_files
from coordinator.verify.data_files import NumberedFile, read_pieces, sort_by_position
from coordinator.verify.decoding import decode_records
from coordinator.verify.digests import StateDigest
from coordinator.verify.row_sums import RowSums
from coordinator.verify.rows import check_columns, check_positions

REMEDY = (
    "stop all coordinators and remove the folder: the log has everything, and a coordinator writes "
    "new snapshots"
)


@dataclass(frozen=True, slots=True)
class SummedSnapshot:
    """A snapshot, the sums of its rows, and its files."""

    snapshot: Snapshot
    sums: RowSums
    parts: list[NumberedFile]

    @property
    def position(self) -> int:
        """Of the snapshot."""
        return self.snapshot.position


class SnapshotChecker:
    """The snapshots of a store: read before its log, and compared while the log is replayed.

    Attributes
    ----------
    compared
        How many snapshots equal the state of the log so far.
    passed_over
        How many are not of this log, so that no coordinator loads them.
    """

    def __init__(self, store: str) -> None:
        self.folder = os.path.join(store, "snapshots")
        self.compared = self.passed_over = 0
        try:
            self._waiting = sorted(self._read(), key=lambda one: one.position, reverse=True)
        except NoLog:
            self._waiting = []

    def bind(self, log: Claims) -> None:
        """Pass over the snapshots that are not of a log, before it is replayed."""
        ours = [one for one in self._waiting if one.snapshot.is_of(log)]
        self.passed_over = len(self._waiting) - len(ours)
        self._waiting = ours

    def due(self, position: int) -> bool:
        """Whether a snapshot must be compared before the log is replayed beyond a position."""
        return bool(self._waiting) and self._waiting[-1].position <= position

    def compare(self, state: State) -> None:
        """Compare the next snapshot with the state at its position.

        Raises
        ------
        CorruptLog
            They differ. The message names the first difference.
        """
        snapshot = self._waiting.pop()
        made = RowSums()
        made.add_records(StateRecords(state).runs())
        # Rows that an older version wrote may say the same in other columns: records do not.
        if made != snapshot.sums and (found := self._find_difference(snapshot, state)):
            raise CorruptLog(
                f"the snapshot at position {snapshot.position} in {self.folder} differs from the "
                f"log: it has {found}; {REMEDY}"
            )
        self.compared += 1

    def _find_difference(self, snapshot: SummedSnapshot, state: State) -> str | None:
        found, made = StateDigest(), StateDigest()
        try:
            for part in snapshot.parts:
                for piece in read_pieces(part.path, part.file):
                    records = decode_records(piece, part.path)
                    found.add(record for record in records if record is not None)
        except FileNotFoundError as error:
            self._refuse_missing(error)
            return None
        made.add(records_of(state))
        return found.difference(made)

    def _refuse_missing(self, error: FileNotFoundError) -> None:
        """Refuse a missing file, unless a live coordinator has dropped its snapshot."""
        if os.path.basename(error.filename) in read_table_files(self.folder).files:
            raise CorruptLog(f"{error.filename} is missing: {REMEDY}") from None

    def refuse_ahead(self, position: int) -> None:
        """Refuse snapshots beyond the last position of the log.

        Raises
        ------
        CorruptLog
            A snapshot has a higher position.
        """
        if self._waiting:
            raise CorruptLog(
                f"a snapshot in {self.folder} has position {self._waiting[-1].position}, but the "
                f"log ends at {position}: the log has lost rows, or the snapshot belongs to "
                f"another store; restore the log from a copy of the store, or {REMEDY}"
            )

    def _read(self) -> Iterator[SummedSnapshot]:
        table = read_table_files(self.folder)
        claims = Claims(table.writers.get)
        for (position, epoch), parts in sorted(_group_by_position(table).items()):
            try:
                snapshot = Snapshot(position, epoch, claims.get(epoch))
                yield SummedSnapshot(snapshot, _sum_files(parts), parts)
            except FileNotFoundError as error:
                self._refuse_missing(error)


def _group_by_position(table: TableFiles) -> dict[tuple[int, int], list[NumberedFile]]:
    """Return the files of each snapshot, by its position and the epoch of its coordinator."""
    found: dict[tuple[int, int], list[NumberedFile]] = {}
    for file in table.files.values():
        try:
            position = int(file.partition[SNAPSHOT] or "")
            epoch = int(file.statistics["maxValues"]["coordinator_epoch"])
        except (KeyError, ValueError, TypeError):
            raise CorruptLog(
                f"the commits of {table.folder} do not say which snapshot {file.name} belongs "
                f"to: {REMEDY}"
            ) from None
        found.setdefault((position, epoch), []).extend(sort_by_position(table, [file]))
    return {at: sorted(parts, key=lambda part: part.first) for at, parts in found.items()}


def _sum_files(parts: list[NumberedFile]) -> RowSums:
    """Return the sums of a snapshot's rows, which are numbered from 1."""
    sums, expected = RowSums(), 1
    with task("verify: a snapshot", parts[-1].last) as progress:
        for part in parts:
            for piece in read_pieces(part.path, part.file):
                check_columns(piece, part.path)
                check_positions(piece, expected, part.path)
                sums.add(piece)
                expected += len(piece)
                progress.advance(len(piece))
            if expected != part.last + 1:
                raise CorruptLog(
                    f"{part.path} is damaged: it ends with row {expected - 1}, its commit says "
                    f"{part.last}; {REMEDY}"
                )
    return sums
