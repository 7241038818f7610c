"""Check each snapshot against the state that the log makes up to its position."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.core.state import State
from coordinator.core.state_records import records_of
from coordinator.progress import task
from coordinator.storage.data_files import SNAPSHOT
from coordinator.storage.record_log import CorruptLog, NoLog
from coordinator.storage.tables.commit_reader import TableFiles, read_table_files
from coordinator.verify.data_files import NumberedFile, read_pieces, sort_by_position
from coordinator.verify.decoding import decode_records
from coordinator.verify.digests import StateDigest
from coordinator.verify.rows import check_columns, check_positions

REMEDY = (
    "remove the folder while no coordinator runs: the log has everything, and one makes it anew"
)


@dataclass(frozen=True, slots=True)
class SnapshotDigest:
    """What a snapshot says."""

    position: int
    digest: StateDigest


class SnapshotChecker:
    """The snapshots of a store, read before its log, and compared along the way.

    Attributes
    ----------
    compared
        How many were found to say what the log makes.
    """

    def __init__(self, store: str) -> None:
        self.folder = os.path.join(store, "snapshots")
        self.compared = 0
        try:
            self._waiting = sorted(self._read(), key=lambda one: one.position, reverse=True)
        except NoLog:
            self._waiting = []

    def due(self, position: int) -> bool:
        """Whether a snapshot is to be compared before what comes after a position is replayed."""
        return bool(self._waiting) and self._waiting[-1].position <= position

    def compare(self, state: State) -> None:
        """Compare the next snapshot with the state at its position.

        Raises
        ------
        CorruptLog
            They differ; the message says where.
        """
        snapshot = self._waiting.pop()
        made = StateDigest()
        made.add(records_of(state))
        if found := snapshot.digest.difference(made):
            raise CorruptLog(
                f"the snapshot at position {snapshot.position} in {self.folder} is not what the "
                f"log makes: it has {found}; {REMEDY}"
            )
        self.compared += 1

    def refuse_ahead(self, position: int) -> None:
        """Refuse a snapshot that is ahead of the log, which ends at a position.

        Raises
        ------
        CorruptLog
            There is one.
        """
        if self._waiting:
            raise CorruptLog(
                f"a snapshot in {self.folder} is of position {self._waiting[-1].position}, the log "
                f"ends at {position}: the log has lost rows, or the snapshot is of another store; "
                f"restore the log from a copy of the store, else {REMEDY}"
            )

    def _read(self) -> Iterator[SnapshotDigest]:
        table = read_table_files(self.folder)
        for position, parts in sorted(_group_by_position(table).items()):
            try:
                yield SnapshotDigest(position, _digest_files(parts))
            except FileNotFoundError as error:
                if os.path.basename(error.filename) in read_table_files(self.folder).files:
                    raise CorruptLog(f"{error.filename} is missing: {REMEDY}") from None
                # else a live coordinator has made a newer one meanwhile, and dropped this one


def _group_by_position(table: TableFiles) -> dict[int, list[NumberedFile]]:
    found: dict[int, list[NumberedFile]] = {}
    for file in table.files.values():
        try:
            position = int(file.partition[SNAPSHOT] or "")
        except (KeyError, ValueError):
            raise CorruptLog(
                f"the commits of {table.folder} do not say of which snapshot {file.name} is: "
                f"{REMEDY}"
            ) from None
        found.setdefault(position, []).extend(sort_by_position(table, [file]))
    return {at: sorted(parts, key=lambda part: part.first) for at, parts in found.items()}


def _digest_files(parts: list[NumberedFile]) -> StateDigest:
    """Return the digest of a snapshot's records; its rows count from 1."""
    digest, expected = StateDigest(), 1
    with task("verify: a snapshot", parts[-1].last) as progress:
        for part in parts:
            for piece in read_pieces(part.path, part.file):
                check_columns(piece, part.path)
                check_positions(piece, expected, part.path)
                digest.add(
                    record for record in decode_records(piece, part.path) if record is not None
                )
                expected += len(piece)
                progress.advance(len(piece))
            if expected != part.last + 1:
                raise CorruptLog(
                    f"{part.path} is damaged: it ends with row {expected - 1}, its commit says "
                    f"{part.last}; {REMEDY}"
                )
    return digest
