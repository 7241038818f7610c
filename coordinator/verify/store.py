"""store: the checks of a whole store, in order: the lease, the log, its snapshots and targets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from coordinator.columns import SCHEMA
from coordinator.config import ConfigError
from coordinator.delta_log import root_of
from coordinator.delta_table import APP, FORMAT, FORMAT_PROPERTY
from coordinator.errors import IllegalStateError
from coordinator.failures import one_line
from coordinator.log import CorruptLog, NewerLog, NoLog
from coordinator.parts import parts_of
from coordinator.records import KINDS, Record
from coordinator.repair import RESTORE
from coordinator.replay import replay
from coordinator.rows import Seen, decode
from coordinator.state import State
from coordinator.table_files import TableFiles, read_table_files
from coordinator.verify.data_files import Numbered, in_order, read_pieces
from coordinator.verify.invariants import Contradiction, Invariants
from coordinator.verify.rows import check_columns, check_epochs, check_positions

NAME_ONE = "name the folder that a coordinator was opened with"
Progress = Callable[[int, int], None]
"""Told how many rows of the log are checked, and of how many."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked, and found sound.

    Attributes
    ----------
    position, coordinator_epoch
        Of the log's last row.
    log_version
        Of the Delta table.
    """

    position: int
    coordinator_epoch: int
    log_version: int
    log_files: int
    groups: int
    members: int


def verify(store: str | os.PathLike[str], progress: Progress = lambda _done, _of: None) -> Verified:
    """Check a store, live or closed; memory is bounded by its state, however long its log is.

    Raises
    ------
    CorruptLog
        The first damage: what it is, where, and the remedy.
    ConfigError, NoLog, NewerLog
        There is no store of ours, or it is of a newer version.
    """
    root = root_of(store)
    if not os.path.isdir(root):
        raise NoLog(
            f"there is no store in {root}: name the folder that a coordinator was opened with"
        )
    log = _read_log(root)
    walk = Walk(log)
    for done in walk.steps():
        progress(done, walk.last)
    state = walk.state
    members = sum(len(group.members) for group in state.groups.values())
    return Verified(walk.last, walk.epoch, log.version, len(log.files), len(state.groups), members)


def _read_log(root: str) -> TableFiles:
    try:
        log = read_table_files(os.path.join(root, "log"))
    except NoLog:
        raise NoLog(f"there is no store of a coordinator in {root}: {NAME_ONE}") from None
    _check_format(log)
    _check_schema(log)
    _compare_with_delta(log)
    return log


def _check_format(table: TableFiles) -> None:
    found = table.properties().get(FORMAT_PROPERTY)
    if found is None or not found.isdigit():
        raise ConfigError(
            f"{table.folder} is a Delta table, but not of a coordinator: it has no property "
            f"{FORMAT_PROPERTY}; name another store"
        )
    if int(found) > FORMAT:
        raise NewerLog(
            f"{table.folder} has format {found}, this version of Muster knows formats up to "
            f"{FORMAT}: verify it with the version that wrote it, or a newer one"
        )


def _check_schema(table: TableFiles) -> None:
    try:
        fields = json.loads(table.metadata["schemaString"])["fields"]
        names = [field["name"] for field in fields]
    except (KeyError, TypeError, ValueError):
        names = []
    if unknown := sorted(set(names) - set(SCHEMA.names)):
        raise CorruptLog(f"the commits of {table.folder} name a column {unknown[0]!r}: {RESTORE}")
    if "position" not in names:
        raise CorruptLog(f"the commits of {table.folder} name no columns of a log: {RESTORE}")


def _compare_with_delta(table: TableFiles) -> None:
    """See that delta-rs, which coordinators read with, finds the same files."""
    try:
        opened = DeltaTable(table.folder, version=table.version)
        found = {(part.path, part.bytes) for part in parts_of(opened)}
        writer = opened.transaction_version(APP) or 0
    except (DeltaError, OSError) as error:
        if read_table_files(table.folder).version > table.version:
            return  # a live coordinator has cleaned up this version
        raise CorruptLog(f"{table.folder} cannot be read: {one_line(error)}: {RESTORE}") from None
    if found != {(file.name, file.bytes) for file in table.files.values()}:
        raise CorruptLog(
            f"the commits of {table.folder} and its newest checkpoint name other files: {RESTORE}"
        )
    if writer != table.writers.get(APP, 0):
        raise CorruptLog(
            f"the commits of {table.folder} and its newest checkpoint name other coordinator "
            f"epochs: {RESTORE}"
        )


class Walk:
    """Reads a log from its first row to its last, and checks every row.

    Attributes
    ----------
    last
        The position of the last row.
    epoch
        Of the last row that was read.
    state
        What the rows that were read come to.
    """

    def __init__(self, log: TableFiles) -> None:
        self._log = log
        self._files = in_order(log, list(log.files.values()))
        self.last = self._files[-1].last if self._files else 0
        self.epoch = 0
        self.state = State()
        self._invariants = Invariants()
        self._expected = 1

    def steps(self) -> Iterator[int]:
        """Check the log, and yield the position that was reached, again and again.

        Raises
        ------
        CorruptLog
            The message names the file, the position, and the remedy.
        """
        while self._expected <= self.last:
            one = self._next()
            try:
                for piece in read_pieces(one.path, one.file):
                    self._check(piece, one)
                    yield self._expected - 1
            except FileNotFoundError:
                self._look_again(one)
                continue
            if self._expected <= one.last:
                raise CorruptLog(
                    f"{one.path} is damaged: it ends with position {self._expected - 1}, its "
                    f"commit says {one.last}; {RESTORE}"
                )
        if self.epoch != self._log.writers.get(APP, 0):
            raise CorruptLog(
                f"the commits of {self._log.folder} are of coordinator epoch "
                f"{self._log.writers.get(APP, 0)}, its last row of {self.epoch}: {RESTORE}"
            )

    def _next(self) -> Numbered:
        for one in self._files:
            if one.first <= self._expected <= one.last:
                return one
        raise CorruptLog(
            f"{self._log.folder}: no data file has position {self._expected}: {RESTORE}"
        )

    def _look_again(self, gone: Numbered) -> None:
        """Go on with the files of a newer version, when it has replaced one that went away."""
        newer = read_table_files(self._log.folder)
        if gone.file.name in newer.files:
            raise CorruptLog(f"{gone.path} is missing: {RESTORE}")
        self._files = in_order(newer, list(newer.files.values()))

    def _check(self, piece: pa.Table, one: Numbered) -> None:
        check_columns(piece, one.path)
        rows = piece
        skipped = self._expected - int(piece["position"][0].as_py())
        if skipped > 0:  # a packed file, of which we had read the beginning elsewhere
            rows = piece.slice(skipped)
        left = self.last - self._expected + 1
        rows = rows.slice(0, left)  # a packed file has rows that came after we began
        if not len(rows):
            return
        check_positions(rows, self._expected, one.path)
        self.epoch = check_epochs(rows, self.epoch, one.path)
        positions = rows["position"].to_pylist()
        for position, record in zip(positions, _records(rows, one.path), strict=True):
            if record is not None:
                self._replay(record, position, one.path)
        self._expected += len(rows)

    def _replay(self, record: Record, position: int, path: str) -> None:
        try:
            self._invariants.tell(record)
            replay(self.state, record)
        except (Contradiction, IllegalStateError) as error:
            raise CorruptLog(
                f"{path}, position {position}: {error}; restore the store as it was at position "
                f"{position - 1}"
            ) from None


def _records(rows: pa.Table, path: str) -> list[Record | None]:
    """Return the record of each row; texts are shared within the piece only, memory is bounded."""
    kinds = rows["kind"].unique().to_pylist()
    try:
        return decode(rows, Seen())
    except NewerLog:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        known = ", ".join(sorted(set(kinds) & KINDS.keys()))
        raise CorruptLog(
            f"{path} is damaged: rows from position {rows['position'][0]} ({known}) are no records "
            f"({type(error).__name__}: {error}); {RESTORE}"
        ) from None
