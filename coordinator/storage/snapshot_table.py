"""Snapshots: the state at a position, as the records that make it.

A snapshot is one commit to a table of its own. It is a shortcut: whatever is wrong with it, the log
has everything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.core.records import Record
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
from coordinator.storage.record_log import Batch, CorruptLog, LogError, NoLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.commit_writer import TableAction
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.files import Files

SNAPSHOT_SCHEMA = SCHEMA.append(pa.field(SNAPSHOT, pa.int64()))
KEPT = 2
"""Snapshots that stay: the newest, and one in case it cannot be read."""
PART_ROWS = 250_000
logger = logging.getLogger("muster.coordinator")


def write_snapshot(
    table: FencedTable,
    disk: Files,
    records: Iterable[Record],
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
    position
        What the log's rows up to there come to.
    part_rows
        Rows of one of its files, at most.
    """
    with table.lock:
        there = _group_by_position(table.load())
    if position in there:
        return []
    actions: list[TableAction] = []
    source, row = iter(records), 1
    try:
        while some := list(islice(source, part_rows)):
            rows = encode_records(some, row, at_ms, epoch)
            row += len(some)
            actions.append(write_part(disk, table.path, rows, sync=sync, snapshot=position))
    except BaseException:
        table.discard(actions)
        raise
    if not actions:
        return []
    old = sorted(there)[: max(0, len(there) + 1 - KEPT)]
    replaced = [part for snapshot in old for part in there[snapshot]]
    table.commit([*actions, *map(make_remove_action, replaced)], epoch)
    return [part.path for part in replaced]


def read_snapshot_at(disk: Files, path: str, until: int, seen: ValueCache) -> Iterator[Batch]:
    """Open the table of snapshots and yield the newest one up to a position, if there is any.

    Whatever is wrong with the snapshots, the log has everything.
    """
    table = FencedTable(path, disk, sync=False)
    try:
        table.refresh()
    except NoLog:
        return
    except LogError as error:
        logger.warning("snapshots are passed over: %s", error)
        return
    yield from _read_snapshot(table, until, seen)


def _read_snapshot(table: FencedTable, until: int, seen: ValueCache) -> Iterator[Batch]:
    """Yield the newest snapshot that can be read; its batches bear the snapshot's position.

    It is read whole before the first batch leaves: half of one is worse than none.
    """
    with table.lock:
        there = _group_by_position(table.load())
    for position in sorted(there, reverse=True):
        if position > until:
            logger.warning("snapshot %d is ahead of the log, which ends at %d", position, until)
            continue
        found: deque[Batch] = deque()
        try:
            for rows in read_parts(table.path, there[position]):
                found += decode_batches(rows, seen)
        except CorruptLog as error:
            logger.warning("snapshot %d is passed over: %s", position, error)
            continue
        while found:
            batch = found.popleft()
            yield Batch(position, batch.at_ms, batch.epoch, batch.records)
        return


def _group_by_position(table: DeltaTable) -> dict[int, list[Part]]:
    found: dict[int, list[Part]] = {}
    for part in list_parts(table):
        found.setdefault(part.snapshot, []).append(part)
    return found
