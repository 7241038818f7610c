"""Check a whole store in order: lease, log, snapshots, targets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError

from coordinator.clock import wall_ms
from coordinator.config import ConfigError
from coordinator.core.state.groups import State
from coordinator.core.state.member_rows import RecordRows
from coordinator.core.state.records import Record, TargetMetadata
from coordinator.core.state.replay import replay, replay_all
from coordinator.display.progress import task
from coordinator.errors import IllegalStateError
from coordinator.storage.data_files import list_parts
from coordinator.storage.record_log import CorruptLog, NewerLog, NoLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.store_marks import refuse_incomplete
from coordinator.storage.tables.claims import Claims
from coordinator.storage.tables.commit_reader import TableFiles, read_table_files
from coordinator.storage.tables.commit_writer import APP
from coordinator.storage.tables.newest_version import (
    FORMAT,
    FORMAT_PROPERTY,
    find_silence,
    find_unsupported,
)
from coordinator.storage.tables.protocol import find_unread, find_unwritten
from coordinator.storage.tables.recovery import RESTORE
from coordinator.storage.tables.store_files import explain, files_at, open_delta
from coordinator.storage.tables.store_root import find_root
from coordinator.verify.backup_sums import check_sums
from coordinator.verify.commit_files import check_commit_files
from coordinator.verify.data_files import NumberedFile, read_pieces, sort_by_position
from coordinator.verify.decoding import check_copy, decode_runs
from coordinator.verify.invariants import Contradiction, InvariantChecker
from coordinator.verify.lease import check_lease, read_lease
from coordinator.verify.rows import check_columns, check_epochs, check_positions
from coordinator.verify.snapshots import SnapshotChecker
from coordinator.verify.targets import check_targets

NAME_ONE = "name the folder that a coordinator uses"


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What was checked and found sound.

    Attributes
    ----------
    position, coordinator_epoch
        Of the log's last row.
    log_version
        The log's version as a Delta table.
    snapshots
        How many snapshots equal the replayed log.
    snapshots_passed_over
        How many are not of this log: of another copy of it, or of an older version of Muster.
        Coordinators do not load them, and remove them when they write one.
    targets
        How many targets match their digest in the log. Targets past their retention are removed,
        and not counted.
    """

    position: int
    coordinator_epoch: int
    log_version: int
    log_files: int
    snapshots: int
    snapshots_passed_over: int
    targets: int
    groups: int
    members: int


def verify(store: str | os.PathLike[str]) -> VerifyResult:
    """Check a store, live or closed. Memory depends on its state, not on the length of its log.

    Raises
    ------
    CorruptLog
        The store is damaged. The message says what is wrong, where, and the remedy.
    ConfigError, NoLog, NewerLog
        The store is missing, or a newer version of Muster wrote it.
    """
    root = open_store(store)
    check_sums(root)
    return verify_tables(root)


def open_store(store: str | os.PathLike[str]) -> str:
    """Return the root of a store to read.

    Raises
    ------
    ConfigError, NoLog
        The store is missing, or is an incomplete copy.
    """
    root = find_root(store)
    if not files_at(root).is_folder(root):
        raise NoLog(f"no store found in {root}: name the folder that a coordinator uses")
    refuse_incomplete(root)
    return root


def verify_tables(root: str) -> VerifyResult:
    """Check the tables and the lease of a store, or of a copy that is still marked incomplete.

    Raises
    ------
    CorruptLog, ConfigError, NoLog, NewerLog
        As for `verify`.
    """
    # The log only grows, so what it must agree with is read first.
    lease = read_lease(root)
    snapshots = SnapshotChecker(root)
    log = _read_log(root)
    snapshots.bind(Claims(log.writers.get))
    walk = LogWalk(log, snapshots)
    walk.run()
    check_lease(lease, walk.epoch, wall_ms())
    targets = check_targets(root, walk.installed, walk.state)
    for name in ("snapshots", "targets"):
        check_commit_files(os.path.join(root, name))
    groups, classic = walk.state.groups.values(), walk.state.classic.values()
    return VerifyResult(
        position=walk.last,
        coordinator_epoch=walk.epoch,
        log_version=log.version,
        log_files=len(log.files),
        snapshots=snapshots.compared,
        snapshots_passed_over=snapshots.passed_over,
        targets=targets,
        groups=len(groups) + len(classic),
        members=sum(len(group.members) for group in groups)
        + sum(len(group.members) for group in classic),
    )


def _read_log(root: str) -> TableFiles:
    try:
        log = read_table_files(os.path.join(root, "log"))
    except NoLog:
        raise NoLog(f"no coordinator's store found in {root}: {NAME_ONE}") from None
    _check_format(log)
    _check_schema(log)
    check_commit_files(log.folder)
    _compare_with_delta(log)
    return log


def _check_format(table: TableFiles) -> None:
    found = table.properties().get(FORMAT_PROPERTY)
    if found is None or not found.isdigit():
        raise ConfigError(
            f"{table.folder} is a Delta table, but not the log of a coordinator: it has no "
            f"property {FORMAT_PROPERTY}; {NAME_ONE}"
        )
    if int(found) > FORMAT:
        raise NewerLog(
            f"{table.folder} has format {found}, but this version of Muster reads formats up to "
            f"{FORMAT}: use the version that wrote it, or a newer one"
        )


def _check_schema(table: TableFiles) -> None:
    try:
        fields = json.loads(table.metadata["schemaString"])["fields"]
        names = [field["name"] for field in fields]
    except (KeyError, TypeError, ValueError):
        names = []
    if unknown := sorted(set(names) - set(SCHEMA.names)):
        raise CorruptLog(
            f"the schema of {table.folder} has an unknown column {unknown[0]!r}: {RESTORE}"
        )
    if "position" not in names:
        raise CorruptLog(f"the schema of {table.folder} has no column 'position': {RESTORE}")


def _compare_with_delta(table: TableFiles) -> None:
    """Check that delta-rs, which coordinators use, finds the same files and writer."""
    try:
        opened = open_delta(table.folder, table.version)
        found = {(part.path, part.bytes) for part in list_parts(opened)}
        writer = opened.transaction_version(APP) or 0
    except (DeltaError, OSError) as error:
        if read_table_files(table.folder).version > table.version:
            return  # a live coordinator has cleaned up this version
        if other := find_unsupported(table.folder, error) or find_silence(table.folder, error):
            raise other from None
        reason = explain(table.folder, error)
        raise CorruptLog(f"{table.folder} cannot be read: {reason}: {RESTORE}") from None
    if unknown := find_unread(opened) or find_unwritten(opened):
        raise NewerLog(
            f"{table.folder} asks for {unknown} of Delta, which Muster does not know, so no "
            f"coordinator opens it: drop it from the table, or {RESTORE}"
        )
    if found != {(file.name, file.bytes) for file in table.files.values()}:
        raise CorruptLog(
            f"the commits of {table.folder} and its newest checkpoint name different files: "
            f"{RESTORE}"
        )
    if writer != table.writers.get(APP, 0):
        raise CorruptLog(
            f"the commits of {table.folder} and its newest checkpoint name different coordinator "
            f"epochs: {RESTORE}"
        )


class LogWalk:
    """Reads a log from its first row to its last, and checks every row.

    Attributes
    ----------
    last
        The position of the last row.
    epoch
        The coordinator epoch of the last row read so far.
    state
        The state that the rows read so far replay to.
    installed
        The records that name targets in the table `targets`.
    """

    def __init__(self, log: TableFiles, snapshots: SnapshotChecker) -> None:
        self._log = log
        self._snapshots = snapshots
        self._files = sort_by_position(log, list(log.files.values()))
        self.last = self._files[-1].last if self._files else 0
        self.epoch = 0
        self.state = State()
        self.installed: list[TargetMetadata] = []
        self._invariants = InvariantChecker()
        self._expected = 1

    def run(self) -> None:
        """Check the log.

        Raises
        ------
        CorruptLog
            The message names the file, the position, and the remedy.
        """
        with task("verify: rows of the log", self.last) as progress:
            while self._expected <= self.last:
                one = self._next()
                try:
                    for piece in read_pieces(one.path, one.file):
                        progress.advance(self._check(piece, one))
                except FileNotFoundError:
                    self._look_again(one)
                    continue
                if self._expected <= min(one.last, self.last):
                    raise CorruptLog(
                        f"{one.path} is damaged: it ends with position {self._expected - 1}, but "
                        f"its commit says {one.last}; {RESTORE}"
                    )
        self._compare_snapshots(self.last)
        self._snapshots.refuse_ahead(self.last)
        if self.epoch != self._log.writers.get(APP, 0):
            raise CorruptLog(
                f"the commits of {self._log.folder} have coordinator epoch "
                f"{self._log.writers.get(APP, 0)}, but its last row has {self.epoch}: {RESTORE}"
            )

    def _next(self) -> NumberedFile:
        for one in self._files:
            if one.first <= self._expected <= one.last:
                return one
        raise CorruptLog(
            f"{self._log.folder}: no data file has position {self._expected}: {RESTORE}"
        )

    def _look_again(self, gone: NumberedFile) -> None:
        """Continue with the files of a newer version that replaced a missing file."""
        newer = read_table_files(self._log.folder)
        if gone.file.name in newer.files:
            raise CorruptLog(f"{gone.path} is missing: {RESTORE}")
        self._files = sort_by_position(newer, list(newer.files.values()))

    def _check(self, piece: pa.Table, one: NumberedFile) -> int:
        """Check the rows of a piece that are new and in the log's range; return how many."""
        check_columns(piece, one.path)
        if one.file.copy:  # a small file: it is one piece
            check_copy(one.file.copy, piece, one.path)
        # A file compacted meanwhile also has rows that were read before, and rows that came later.
        known = max(0, self._expected - int(piece["position"][0].as_py()))
        rows = piece.slice(known, self.last - self._expected + 1)
        if not len(rows):
            return 0
        check_positions(rows, self._expected, one.path)
        self.epoch = check_epochs(rows, self.epoch, one.path)
        position = self._expected
        for records in decode_runs(rows, one.path):
            self._replay_run(records, position, one.path)
            position += len(records)
        self._expected = position
        return len(rows)

    def _replay_run(self, records: RecordRows | list[Record | None], first: int, path: str) -> None:
        """Replay records as columns, or, where a snapshot is among them, one by one."""
        self._compare_snapshots(first - 1)
        due = self._snapshots.due(first + len(records) - 2)
        if not due and not isinstance(records, list) and self._invariants.check_rows(records):
            self._change(partial(replay_all, self.state, records), first, path)
            return
        for position, record in enumerate(records, first):
            self._compare_snapshots(position - 1)
            if record is not None:
                self._replay(record, position, path)

    def _compare_snapshots(self, position: int) -> None:
        while self._snapshots.due(position):
            self._snapshots.compare(self.state)

    def _replay(self, record: Record, position: int, path: str) -> None:
        if isinstance(record, TargetMetadata) and record.targets_version is not None:
            self.installed.append(record)

        def check_and_replay() -> None:
            self._invariants.check(record)
            replay(self.state, record)

        self._change(check_and_replay, position, path)

    def _change(self, change: Callable[[], None], position: int, path: str) -> None:
        try:
            change()
        except (Contradiction, IllegalStateError) as error:
            raise CorruptLog(
                f"{path}, position {position}: {error}; restore the store as of the position "
                f"before: muster restore --to {position - 1}"
            ) from None
