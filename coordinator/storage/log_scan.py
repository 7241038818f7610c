"""Read from the log's data files what makes the state at a position, by a few columns.

They are the newest snapshot that is not after the position, and the log from there on; so reading
costs as much as there is to know, however long the log is. Without a claim and without a JVM; a
Spark job reads the same files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator.core.state.records import TopicChanged
from coordinator.storage.data_files import AS_TEXT_ONCE, Part, list_parts
from coordinator.storage.delta_log import open_log_table
from coordinator.storage.record_log import CorruptLog, LogError
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.store_files import files_at, refuse_silence, root_of, source_of

BEFORE_THE_LOG = -(1 << 62)
"""Added to the positions of a snapshot's rows, which count from 1: all are before the log's."""


@dataclass(frozen=True, slots=True)
class LogScan:
    """The data files for a position.

    Attributes
    ----------
    after
        Position of the snapshot, whose rows come first; 0 without one.
    snapshot, log
        Files, in order. Of the log's rows, those after the snapshot and up to the position count.
    """

    position: int
    after: int
    snapshot: list[str]
    log: list[str]

    @classmethod
    def of(
        cls,
        store: str | os.PathLike[str],
        position: int | None = None,
        parts: Sequence[Part] | None = None,
    ) -> LogScan:
        """Return the files for a position.

        Parameters
        ----------
        position
            None is the newest.
        parts
            The files of the log, where they were listed just now.
        """
        root = root_of(store)
        parts = list_parts(open_log_table(root)) if parts is None else parts
        position = max((p.last for p in parts), default=0) if position is None else position
        after, snapshot = _find_snapshot(os.path.join(root, "snapshots"), position)
        log = [p for p in parts if p.last > after and p.first <= position]
        return cls(position, after, snapshot, _list_paths(os.path.join(root, "log"), log))

    def rows(self, group_id: str, kinds: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows of some kinds, of one group and of topics, in order."""
        wanted = ["position", "kind", "tombstone", "group_id", *columns]
        pieces = [_empty(wanted)]
        for file in self.snapshot:
            rows = _read(file, group_id, kinds, wanted)
            moved = pc.add(rows["position"], BEFORE_THE_LOG)
            pieces.append(rows.set_column(0, "position", moved))
        for file in self.log:
            rows = _read(file, group_id, kinds, wanted)
            later = pc.greater(rows["position"], self.after)
            pieces.append(
                rows.filter(pc.and_(later, pc.less_equal(rows["position"], self.position)))
            )
        return pa.concat_tables(pieces).unify_dictionaries().combine_chunks()


def scan_all_groups(
    store: str | os.PathLike[str], kinds: Collection[str], columns: list[str]
) -> Iterator[pa.Table]:
    """Yield columns of the whole log's rows of some kinds, of every group, a file at a time."""
    for file in list_data_files(store):
        yield _read_kinds(file, kinds, columns)


def list_data_files(store: str | os.PathLike[str]) -> list[str]:
    """Return the data files of the whole log, in order."""
    root = root_of(store)
    return _list_paths(os.path.join(root, "log"), list_parts(open_log_table(root)))


def _find_snapshot(folder: str, position: int) -> tuple[int, list[str]]:
    """Return the newest snapshot that is not after the position, and whose files are there."""
    try:
        parts = list_parts(FencedTable(folder, files_at(folder), sync=False).refresh())
    except LogError:
        return 0, []
    for at in sorted({p.snapshot for p in parts if p.snapshot <= position}, reverse=True):
        files = _list_paths(folder, [p for p in parts if p.snapshot == at])
        if all(map(files_at(folder).exists, files)):
            return at, files
    return 0, []


def _list_paths(folder: str, parts: list[Part]) -> list[str]:
    return [os.path.join(folder, part.path) for part in parts]


def _read(path: str, group_id: str, kinds: Collection[str], columns: list[str]) -> pa.Table:
    """Read the rows of some kinds, of one group and of topics, that one file has."""
    rows = _read_kinds(path, kinds, columns)
    ours = pc.equal(rows["group_id"], group_id)
    return rows.filter(pc.or_kleene(ours, pc.equal(rows["kind"], TopicChanged.kind)))


def _read_kinds(path: str, kinds: Collection[str], columns: list[str]) -> pa.Table:
    """Read the rows of some kinds that one file has; columns that none of them has are null."""
    try:
        source = source_of(path)
        with pq.ParquetFile(source) as plain:
            there = [name for name in columns if name in plain.schema_arrow.names]
        with pq.ParquetFile(source, read_dictionary=_choose_dictionary(there)) as file:
            rows = file.read(columns=there)
    except (OSError, pa.ArrowException) as error:
        refuse_silence(path, error)
        raise CorruptLog(f"{path} cannot be read: {error}") from None
    rows = rows.filter(pc.is_in(rows["kind"], value_set=pa.array(list(kinds), pa.string())))
    full = {name: rows[name] if name in there else _nulls(name, len(rows)) for name in columns}
    return pa.table(full, schema=_empty(columns).schema)


def _empty(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: _nulls(name, 0) for name in columns})


def _nulls(name: str, rows: int) -> pa.Array:
    kind = SCHEMA.field(name).type
    return pa.nulls(rows, pa.dictionary(pa.int32(), kind) if name == AS_TEXT_ONCE else kind)


def _choose_dictionary(columns: Collection[str]) -> list[str] | None:
    return [AS_TEXT_ONCE] if AS_TEXT_ONCE in columns else None
