"""parts: the data files of a table; each holds rows of neighbouring positions, in order."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from coordinator.disk import Disk
from coordinator.log import CorruptLog

AS_TEXT_ONCE = "subscribed_topic_names"
"""A long text that many rows share: kept as numbers in memory too."""


@dataclass(frozen=True, slots=True)
class Part:
    """A data file that a table's newest version names."""

    path: str
    bytes: int
    rows: int
    first: int
    last: int


def parts_of(table: DeltaTable) -> list[Part]:
    """Return the data files of a table by position."""
    found = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "num_records", "min.position", "max.position")
    if not len(found):
        return []
    columns = [found.column(name).to_pylist() for name in names]
    for path, *_, last in zip(*columns, strict=True):
        if last is None:
            raise CorruptLog(
                f"{table.table_uri} has no statistics of the positions in {path}: "
                f"rewrite the table with them"
            )
    return sorted((Part(*row) for row in zip(*columns, strict=True)), key=lambda p: p.first)


def write_part(disk: Disk, folder: str, rows: pa.Table, *, sync: bool) -> AddAction:
    """Write rows as a data file that no version names yet; return what a commit says of it."""
    name = f"part-{uuid.uuid4().hex}.parquet"
    path = os.path.join(folder, name)
    disk.write_rows(path, rows)
    if sync:
        disk.sync(path)
        disk.sync(folder)
    stats = json.dumps(_statistics(rows))
    return AddAction(name, os.path.getsize(path), {}, _now_ms(), data_change=True, stats=stats)


def removed(part: Part) -> RemoveAction:
    """Return what a commit says of a data file that its others replace."""
    return RemoveAction(part.path, data_change=False, deletion_timestamp=_now_ms(), size=part.bytes)


def read_part(folder: str, part: Part, after: int = 0) -> Iterator[pa.Table]:
    """Yield the rows after a position, a piece at a time.

    Raises
    ------
    CorruptLog
        The file is gone or damaged, or holds other rows than the table says.
    """
    path = os.path.join(folder, part.path)
    rows = 0
    try:
        with pq.ParquetFile(path) as plain:
            names = plain.schema_arrow.names
        coded = [AS_TEXT_ONCE] if AS_TEXT_ONCE in names else None
        with pq.ParquetFile(path, read_dictionary=coded, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                piece = file.read_row_group(group)
                rows += len(piece)
                yield piece if part.first > after else _after(piece, after)
    except (OSError, pa.ArrowException) as error:
        raise CorruptLog(f"{path} cannot be read: {error}") from None
    if rows != part.rows:
        raise CorruptLog(f"{path} has {rows} rows, the table says {part.rows}")


def _after(rows: pa.Table, after: int) -> pa.Table:
    return rows.filter(pc.greater(rows.column("position"), after))


def _statistics(rows: pa.Table) -> dict[str, Any]:
    """Return least and greatest values: readers skip files by them."""
    least, greatest = {}, {}
    for name in ("coordinator_epoch", "position", "at_ms"):
        found = pc.min_max(rows.column(name)).as_py()
        least[name], greatest[name] = found["min"], found["max"]
    for values in (least, greatest):
        at = datetime.fromtimestamp(values["at_ms"] / 1000, UTC)
        values["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"numRecords": len(rows), "minValues": least, "maxValues": greatest}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
