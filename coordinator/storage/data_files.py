"""Data files of a table; each holds rows of neighbouring positions, in order."""

from __future__ import annotations

import json
import os
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from coordinator.clock import wall_ms
from coordinator.display import progress
from coordinator.display.times import format_time
from coordinator.storage.record_decoder import RecordsCopy, ValueCache, decode_batches, read_copy
from coordinator.storage.record_log import Batch, CorruptLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.commit_writer import COPY, CopiedFile
from coordinator.storage.tables.files import Files, Source
from coordinator.storage.tables.recovery import find_damage
from coordinator.storage.tables.store_files import (
    explain,
    explain_unwritten,
    is_remote,
    refuse_silence,
    source_of,
)
from coordinator.storage.tables.sync_beside import sync_named

T = TypeVar("T")
AS_TEXT_ONCE = "subscribed_topic_names"
"""A long text that many rows share: kept as numbers in memory too."""


FEW = 100
"""Rows of which Python finds the least and greatest value sooner than Arrow is called, and one
thread reads all columns sooner than several."""
SMALL = 65_536
"""Bytes of a file that is read at once, which takes half as long as Arrow's reads of its parts."""
AT_ONCE = 16
"""So many small files are asked of an object store side by side: each takes a round trip."""
GATHERED = 500
"""So many small data files are decoded together."""
TEXT_MAX = 256
"""Statistics have no longer texts: each commit has them, and each reader loads them all."""

SNAPSHOT = "snapshot_position"
"""The column by which the table of snapshots is partitioned."""


@dataclass(frozen=True, slots=True)
class Part:
    """A data file that a table's newest version names."""

    path: str
    bytes: int
    rows: int
    first: int
    last: int
    epoch: int = 0
    """The newest coordinator epoch of its rows."""
    at_ms: int = 0
    """When the last of its rows was written."""
    snapshot: int = 0
    """Which snapshot it is a part of; in a snapshot, positions count its own rows."""
    copy: str = field(default="", compare=False, repr=False)
    """Of its rows, where the entry that added it was read and has one."""


def list_parts(table: DeltaTable) -> list[Part]:
    """Return the data files of a table by position."""
    found = pa.table(table.get_add_actions(flatten=True))
    if not len(found):
        return []
    snapshot = f"partition.{SNAPSHOT}"
    names = ["path", "size_bytes", "num_records", "min.position", "max.position"]
    names += ["max.coordinator_epoch", "max.at_ms"]
    columns = [found[name].to_pylist() for name in names]
    columns += [
        found[name].to_pylist() if name in found.column_names else [nothing] * len(found)
        for name, nothing in ((snapshot, 0), (COPY, ""))
    ]
    parts = list(map(Part, *columns))
    for part in parts:
        if part.last is None:
            raise CorruptLog(
                f"{table.table_uri} has no statistics of the positions in {part.path}: "
                f"rewrite the table with statistics of that column"
            )
    return sorted(parts, key=lambda part: (part.snapshot, part.first))


def write_part(
    disk: Files,
    folder: str,
    rows: pa.Table,
    *,
    sync: bool,
    data_change: bool = True,
    snapshot: int | None = None,
    copy: str = "",
) -> AddAction:
    """Write rows as a data file that no version names yet; return what a commit says of it.

    Parameters
    ----------
    copy
        The same rows as text, for the commit's entry.

    Raises
    ------
    CommitFailed
        The disk is full, read-only, or broken; nothing is left behind.
    """
    name = f"part-{uuid.uuid4().hex}.parquet"
    path = os.path.join(folder, name)
    try:
        size = disk.write_rows(path, rows)
        if sync and disk.needs_sync:
            sync_named(disk, path)
    except OSError as error:
        with suppress(OSError):  # a disk that cannot be written to
            disk.remove(path)
        raise explain_unwritten(folder, error, explain(folder, error)) from None
    values: dict[str, str | None] = {} if snapshot is None else {SNAPSHOT: str(snapshot)}
    stats = json.dumps(_collect_statistics(rows))
    return CopiedFile(name, size, values, wall_ms(), data_change, stats, copy)


def make_remove_action(part: Part) -> RemoveAction:
    """Return what a commit says of a data file that its others replace."""
    return RemoveAction(part.path, data_change=False, deletion_timestamp=wall_ms(), size=part.bytes)


def read_parts(
    folder: str,
    parts: Sequence[Part],
    after: int = 0,
    *,
    gathered: bool = False,
    coded: Collection[str] = (AS_TEXT_ONCE,),
) -> Iterator[pa.Table]:
    """Yield the rows after a position, a piece at a time, in order and none missing.

    The next large piece is read, in a thread, while the caller works on this one.

    Parameters
    ----------
    gathered
        Small pieces are put together: what a piece costs to decode is most of what its rows cost.
    coded
        Leaves of the columns whose values come once, and a number of each row's: as files have
        them, which takes half of the time.

    Raises
    ------
    CorruptLog
        A file is gone or damaged, or rows are missing before it.
    """
    pieces = _read_parts(folder, parts, after, coded)
    if gathered:
        pieces = _gather_pieces(pieces)
    wanted = [part for part in parts if part.last > after]
    rows = sum(part.last - max(part.first - 1, after) for part in wanted)
    with ExitStack() as opened:
        name = os.path.basename(folder).removesuffix("s")
        reading = opened.enter_context(progress.task(f"reading the {name}", rows))
        if not is_remote(folder) and all(part.rows <= FEW for part in wanted):
            for piece in pieces:  # two threads would wait for each other more than for the disk
                yield piece
                reading.advance(len(piece))
            return
        reader = opened.enter_context(ThreadPoolExecutor(1, thread_name_prefix="muster-read"))
        coming = _read_ahead(reader, pieces)
        while (piece := coming()) is not None:
            coming = _read_ahead(reader, pieces)
            yield piece
            reading.advance(len(piece))


def read_log_parts(
    disk: Files, folder: str, parts: Sequence[Part], after: int, *, gathered: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of a log, as `read_parts`; an error names what else is wrong with it."""
    try:
        yield from read_parts(folder, parts, after, gathered=gathered)
    except CorruptLog as error:
        reason = find_damage(disk, folder)
        raise CorruptLog(f"{error}; {reason}" if reason else str(error)) from None


def read_batches(
    disk: Files, folder: str, parts: Sequence[Part], after: int, seen: ValueCache
) -> Iterator[Batch]:
    """Yield what a log has after a position, as it was written.

    A small file is not read where the entry that added it has its rows, unless it is another one.

    Raises
    ------
    CorruptLog, NewerLog
        As for `read_parts` and `decode_batches`.
    """
    files: list[Part] = []
    read_to = after
    for part in parts:
        copy = _find_copy(folder, part, read_to + 1) if part.copy else None
        if copy is not None:
            for batch in _read_files(disk, folder, files, after, seen):
                yield batch
                after = batch.position
            files = []
            if after != read_to:
                raise CorruptLog(f"rows from {after + 1} on are missing before {part.path}")
            after = copy.last
            yield Batch(copy.last, copy.at_ms, copy.epoch, copy.records)
        elif part.last > read_to:
            files.append(part)
        read_to = max(read_to, part.last)
    yield from _read_files(disk, folder, files, after, seen)


def _find_copy(folder: str, part: Part, expected: int) -> RecordsCopy | None:
    """Return what a file has as its entry says, if it begins with a position and may be believed.

    Where the copy is wrong or missing, the file counts. An object is written whole or not at all.
    """
    if part.first != expected:
        return None
    try:
        if not is_remote(folder) and os.path.getsize(f"{folder}/{part.path}") != part.bytes:
            return None
        copy = read_copy(part.copy)
    except (OSError, ValueError):
        return None
    if copy is None or (copy.position, copy.last) != (part.first, part.last):
        return None
    return copy if (copy.epoch, len(copy.records)) == (part.epoch, part.rows) else None


def _read_files(
    disk: Files, folder: str, files: Sequence[Part], after: int, seen: ValueCache
) -> Iterator[Batch]:
    if files:
        for rows in read_log_parts(disk, folder, files, after, gathered=True):
            yield from decode_batches(rows, seen)


def _gather_pieces(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    some: list[pa.Table] = []
    for piece in pieces:
        some.append(piece)
        if len(some) == GATHERED or len(piece) > FEW:
            yield _put_together(some)
            some = []
    if some:
        yield _put_together(some)


def _put_together(pieces: list[pa.Table]) -> pa.Table:
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_tables(pieces, promote_options="default").unify_dictionaries()


def _read_ahead(reader: Executor, pieces: Iterator[pa.Table]) -> Callable[[], pa.Table | None]:
    """Return what waits for the next piece, which is being read."""
    return _begin(reader, partial(next, pieces, None))


def _begin(reader: Executor, work: Callable[[], T]) -> Callable[[], T]:
    """Begin work in another thread; return what waits for it."""
    try:
        return reader.submit(work).result
    except RuntimeError:  # the program is ending: no thread does anything new, now or later
        reader.shutdown(wait=False, cancel_futures=True)
        return work


def _fetch_ahead(folder: str, parts: Iterable[Part]) -> Iterator[tuple[Part, Callable[[], Source]]]:
    """Yield data files with what brings each one: an object store is asked for the next ones, too.

    A start that asked for one small object after the other would take a round trip for each.
    """
    found = ((part, partial(source_of, os.path.join(folder, part.path))) for part in parts)
    if not is_remote(folder):
        yield from found
        return
    reader = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="muster-fetch")
    coming: deque[tuple[Part, Callable[[], Source]]] = deque()
    try:
        for part, bring in found:
            coming.append((part, _begin(reader, bring) if part.bytes <= SMALL else bring))
            if len(coming) == AT_ONCE:
                yield coming.popleft()
        yield from coming
    finally:
        reader.shutdown(cancel_futures=True)


def _read_parts(
    folder: str, parts: Sequence[Part], after: int, coded: Collection[str]
) -> Iterator[pa.Table]:
    expected = after + 1
    for part, bring in _fetch_ahead(folder, (part for part in parts if part.last > after)):
        if part.last < expected:
            continue
        for piece in _read_pieces(os.path.join(folder, part.path), part, bring, coded):
            if _is_next(piece, expected):
                expected += len(piece)
                yield piece
                continue
            rows = piece.slice(np.searchsorted(piece["position"].to_numpy(), expected))
            positions = rows["position"].to_numpy()
            if not np.array_equal(positions, np.arange(expected, expected + len(rows))):
                raise CorruptLog(f"rows from {expected} on are missing in or before {part.path}")
            if len(rows):
                expected += len(rows)
                yield rows


def _is_next(piece: pa.Table, expected: int) -> bool:
    """Whether a small piece has what comes next, and nothing else: numpy takes longer to see it."""
    if not 0 < len(piece) <= FEW:
        return False
    return bool(piece["position"].to_pylist() == list(range(expected, expected + len(piece))))


def _read_pieces(
    path: str, part: Part, bring: Callable[[], Source], coded: Collection[str]
) -> Iterator[pa.Table]:
    rows = 0
    try:
        source = bring()
        if isinstance(source, str) and part.bytes <= SMALL:
            with open(source, "rb") as small:
                source = pa.BufferReader(small.read())
        checked = {"page_checksum_verification": True, "pre_buffer": is_remote(path)}
        with ExitStack() as opened:
            file = opened.enter_context(pq.ParquetFile(source, **checked))
            names, footer = file.schema_arrow.names, file.metadata
            # Parquet has checksums of its pages only: under another name a column would be missed.
            if unknown := set(names) - set(SCHEMA.names):
                raise CorruptLog(f"{path} has a column {min(unknown)!r} that no record has")
            leaves = (footer.schema.column(at).path for at in range(footer.num_columns))
            if some := [leaf for leaf in leaves if leaf in coded]:
                again = pq.ParquetFile(source, metadata=footer, read_dictionary=some, **checked)
                file = opened.enter_context(again)
            for group in range(file.num_row_groups):
                piece = file.read_row_group(group, use_threads=part.rows > FEW)
                rows += len(piece)
                yield piece
    except (OSError, pa.ArrowException) as error:
        refuse_silence(path, error)
        raise CorruptLog(f"{path} cannot be read: {error}") from None
    if rows != part.rows:
        raise CorruptLog(f"{path} has {rows} rows, the table says {part.rows}")


def _find_min_max(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the least and the greatest value; None without values, or for a long text."""
    if len(column) <= FEW:
        values = [value for value in column.to_pylist() if value is not None]
        found = (min(values), max(values)) if values else (None, None)
    else:
        found = tuple(pc.min_max(column).as_py().values())
    long = any(isinstance(text, str) and len(text) > TEXT_MAX for text in found)
    return None if long or found[1] is None else found


def _collect_statistics(rows: pa.Table) -> dict[str, Any]:
    """Return least and greatest values: readers skip files by them."""
    least, greatest, there = {}, {}, set(rows.column_names)
    for name in ("coordinator_epoch", "position", "at_ms", "kind", "group_id"):
        if name in there and (found := _find_min_max(rows.column(name))) is not None:
            least[name], greatest[name] = found
    for values in (least, greatest):
        values["at"] = format_time(values["at_ms"])
    return {"numRecords": len(rows), "minValues": least, "maxValues": greatest}
