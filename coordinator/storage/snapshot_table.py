"""Snapshots: the state at a position, as the records that make it.

A snapshot is one commit to a table of its own. It is a shortcut: if it is damaged or missing,
the log has everything. It is bound to its log by the claim under which it was made (claims.py):
one of another copy of the log is passed over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.core.state.member_rows import RecordRows
from coordinator.core.state.records import Record
from coordinator.core.state.state_records import StateRecords
from coordinator.storage.data_files import (
    SNAPSHOT,
    Part,
    list_parts,
    make_remove_action,
    read_parts,
    write_part,
)
from coordinator.storage.record_decoder import ValueCache, decode_batches
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_log import Batch, CorruptLog, LogError, NoLog, Unreachable
from coordinator.storage.record_schema import CODED, SCHEMA
from coordinator.storage.tables.claims import Claim, Claims, has_history, note_claim, numbers_of
from coordinator.storage.tables.commit_writer import TableAction
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.files import Files

SNAPSHOT_SCHEMA = SCHEMA.append(pa.field(SNAPSHOT, pa.int64()))
KEPT = 2
"""Snapshots that stay: the newest, and one in case it cannot be read."""
PART_ROWS = 250_000
FEW_FILES = 4
"""Rows of one kind have files of their own where they fill this part of one."""
logger = logging.getLogger("muster.coordinator")


class Snapshot(NamedTuple):
    """Which state a snapshot has.

    Attributes
    ----------
    position
        Of the log.
    epoch
        Of the coordinator that made it.
    claim
        Of that coordinator; None for one that an older version of Muster made.
    """

    position: int
    epoch: int
    claim: Claim | None

    def is_of(self, log: Claims) -> bool:
        """Whether it was made of the log that has these claims."""
        return has_history(log, self.epoch, self.claim, self.position)


Snapshots: TypeAlias = dict[Snapshot, list[Part]]
"""Each with its files."""


def write_snapshot(
    table: FencedTable,
    disk: Files,
    claims: Claims,
    runs: Iterable[Iterable[Record]],
    position: int,
    at_ms: int,
    epoch: int,
    *,
    sync: bool,
    part_rows: int = PART_ROWS,
) -> list[str]:
    """Write a snapshot and drop the oldest, in one commit; return the files that it replaced.

    Parameters
    ----------
    claims
        Of the log, ours among them.
    runs
        The records; long runs of rows are encoded as they are.
    position
        What the log's rows up to there come to.
    part_rows
        Rows of one of its files, at most.
    """
    with table.lock:
        handle = table.load()
        there = _list_snapshots(table.path, handle)
    ours = sorted(one for one in there if one.is_of(claims))
    if any(one.position == position for one in ours):
        return []
    actions: list[TableAction] = []
    row = 1
    try:
        for some in _cut(runs, part_rows):
            rows = encode_records(some, row, at_ms, epoch)
            row += len(some)
            actions.append(write_part(disk, table.path, rows, sync=sync, snapshot=position))
    except BaseException:
        table.discard(actions)
        raise
    if not actions:
        return []
    kept = ours[max(0, len(ours) + 1 - KEPT) :]
    replaced = [part for one, parts in there.items() if one not in kept for part in parts]
    claim = None if epoch in {one.epoch for one in ours} else claims.get(epoch)
    notes = {} if claim is None else note_claim(epoch, claim)
    table.commit([*actions, *map(make_remove_action, replaced)], epoch, notes)
    return [part.path for part in replaced]


def list_runs(
    records: Iterable[Record], until_stopped: Callable[[Iterable[Any]], Iterator[Any]]
) -> Iterator[Iterable[Record]]:
    """Yield records in runs, of which rows stay as they are; end where maintenance is stopped."""
    runs = records.runs() if isinstance(records, StateRecords) else [records]
    for run in until_stopped(runs):
        yield run if isinstance(run, RecordRows) else until_stopped(run)


def _cut(runs: Iterable[Iterable[Record]], most: int) -> Iterator[Sequence[Record]]:
    """Yield the records for one file each, in order; rows that are few are gathered with others."""
    some: list[Record] = []
    for run in runs:
        if isinstance(run, RecordRows) and len(run) * FEW_FILES >= most:
            if some:
                yield some
            some = []
            for at in range(0, len(run), most):
                yield run.part(slice(at, at + most))
            continue
        for record in run:
            some.append(record)
            if len(some) == most:
                yield some
                some = []
    if some:
        yield some


def read_snapshot_at(
    path: str, there: Snapshots, claims: Claims, until: int, seen: ValueCache
) -> Iterator[Batch]:
    """Yield the newest snapshot up to a position, if there is any.

    If snapshots are damaged or missing, the log has everything.

    Parameters
    ----------
    there
        The snapshots of the table at the path.
    claims
        Of the log.
    """
    for snapshot in sorted(there, reverse=True):
        if not snapshot.is_of(claims):
            logger.warning("skipping snapshot %d: it belongs to another log", snapshot.position)
        elif snapshot.position <= until:
            batches = _read_snapshot(path, snapshot.position, there[snapshot], seen)
            if batches is not None:
                yield from batches
                return


def find_lost_rows(snapshots: Collection[Snapshot], log: DeltaTable, path: str) -> str | None:
    """Explain that a log ends before a snapshot of it; None if it does not."""
    if not snapshots:
        return None
    last = max((part.last for part in list_parts(log)), default=0)
    claims = Claims(numbers_of(path, lambda: log))
    ahead = [one.position for one in snapshots if one.position > last and one.is_of(claims)]
    if not ahead:
        return None
    return (
        f"{path} has lost rows: it ends at position {last}, and its snapshot at position "
        f"{max(ahead)} was made after them"
    )


def list_snapshots(disk: Files, path: str) -> Snapshots:
    """Return the snapshots that a table has, if it can be read."""
    try:
        return _list_snapshots(path, FencedTable(path, disk, sync=False).refresh())
    except NoLog:
        return {}
    except Unreachable:  # else a log that has lost rows would be opened, or read from its beginning
        raise
    except LogError as error:
        logger.warning("snapshots are passed over: %s", error)
        return {}


def _read_snapshot(
    path: str, position: int, parts: list[Part], seen: ValueCache
) -> deque[Batch] | None:
    """Return a snapshot's batches, which bear its position; None where it cannot be read.

    It is read whole before the first batch leaves: half of one is worse than none.
    """
    found: deque[Batch] = deque()
    try:
        for rows in read_parts(path, parts, coded=CODED):
            for batch in decode_batches(rows, seen):
                found.append(Batch(position, batch.at_ms, batch.epoch, batch.records))
    except CorruptLog as error:
        logger.warning("skipping snapshot %d: %s", position, error)
        return None
    return found


def _list_snapshots(path: str, table: DeltaTable) -> Snapshots:
    found: Snapshots = {}
    claims = Claims(numbers_of(path, lambda: table))
    for part in list_parts(table):
        one = Snapshot(part.snapshot, part.epoch, claims.get(part.epoch))
        found.setdefault(one, []).append(part)
    return found
